// Each allocation of opening an artifact, making a trainer and loading fails once: the
// call says TRAINC_OUT_OF_MEMORY and works when it is called again; without memory for
// a small table the process may end, and says so. Nothing else happens.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cc -std=c11 -w -O1 -fno-math-errno -shared -nostdlib -fPIC -DLIBRARY -I%runtime_include -I%S/Inputs %s -o step.so
// RUN: %cc -std=gnu11 -Wall -Wextra -Werror -g -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc -Wl,--wrap=strdup -Wl,--wrap=mmap -o test
// RUN: ./test 2>/dev/null | FileCheck %s
// CHECK: open: {{[1-9][0-9]*}} allocations, {{[0-9]+}} reported, {{[0-9]+}} ended
// CHECK: create: {{[1-9][0-9]*}} allocations, {{[1-9][0-9]*}} reported, {{[0-9]+}} ended
// CHECK: load: {{[1-9][0-9]*}} allocations, {{[0-9]+}} reported, {{[0-9]+}} ended
// CHECK: load of a large header: {{[1-9][0-9]*}} allocations, {{[1-9][0-9]*}} reported, {{[0-9]+}} ended

#include "handmade.h"

#ifdef LIBRARY
extern const trainc_descriptor exported __asm__("trainc_descriptor")
    __attribute__((alias("trainc_descriptor_handmade"), visibility("default")));
#else

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/// What has less is a table, without which the process may end.
enum { SMALL = 64 << 10 };

static long countdown = -1; // of allocations until one fails; negative: none
static long count;          // since the countdown was set
static size_t *failed;      // bytes of the one that did, seen by the parent

static int fails(size_t bytes) {
  ++count;
  if (countdown < 0 || countdown-- != 0)
    return 0;
  *failed = bytes ? bytes : 1;
  errno = ENOMEM;
  return 1;
}

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
char *__real_strdup(const char *);
void *__real_mmap(void *, size_t, int, int, int, off_t);

void *__wrap_malloc(size_t bytes) {
  return fails(bytes) ? NULL : __real_malloc(bytes);
}
void *__wrap_calloc(size_t n, size_t bytes) {
  return fails(n * bytes) ? NULL : __real_calloc(n, bytes);
}
void *__wrap_realloc(void *memory, size_t bytes) {
  return fails(bytes) ? NULL : __real_realloc(memory, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return fails(bytes) ? NULL : __real_aligned_alloc(alignment, bytes);
}
char *__wrap_strdup(const char *text) {
  return fails(strlen(text) + 1) ? NULL : __real_strdup(text);
}
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags,
                  int file, off_t offset) {
  return fails(bytes)
             ? MAP_FAILED
             : __real_mmap(address, bytes, protection, flags, file, offset);
}

static trainc_artifact *artifact;
static trainc_trainer *trainer, *source;

static trainc_status open_library(void) {
  trainc_artifact *opened;
  trainc_status status = trainc_artifact_open("step.so", &opened);
  if (status == TRAINC_OK)
    trainc_artifact_close(opened);
  return status;
}

static trainc_status create_trainer(void) {
  trainc_trainer_options options = {.size = sizeof options, .threads = 2};
  trainc_trainer *made;
  trainc_status status = trainc_trainer_create(artifact, &options, &made);
  if (status == TRAINC_OK) {
    run_steps(made, 0, 3);
    trainc_trainer_destroy(made);
  }
  return status;
}

static trainc_status load_state(void) {
  trainc_status status = trainc_load(trainer, "state.safetensors");
  CHECK(status != TRAINC_OK || same_state(trainer, source));
  return status;
}

static trainc_status load_padded(void) {
  trainc_status status = trainc_load(trainer, "padded.safetensors");
  CHECK(status != TRAINC_OK || same_state(trainer, source));
  return status;
}

/// The checkpoint with 8 MB of blanks at the end of its header.
static void pad(void) {
  enum { BLANKS = 8 << 20 };
  char *data;
  long size;
  uint64_t header;
  file_bytes("state.safetensors", &data, &size);
  memcpy(&header, data, 8);
  char *more = __real_malloc((size_t)size + BLANKS);
  uint64_t longer = header + BLANKS;
  memcpy(more, &longer, 8);
  memcpy(more + 8, data + 8, header);
  memset(more + 8 + header, ' ', BLANKS);
  memcpy(more + 8 + longer, data + 8 + header, (size_t)size - 8 - header);
  write_bytes("padded.safetensors", more, size + BLANKS);
  free(more);
  free(data);
}

static void fail_each(const char *name, trainc_status (*operation)(void)) {
  long reported = 0, ended = 0, n = 0;
  OK(operation()); // what is made once for all
  for (;; ++n) {
    fflush(stdout);
    *failed = 0;
    pid_t child = fork();
    if (child == 0) {
      countdown = n;
      trainc_status status = operation();
      countdown = -1;
      if (!*failed)
        _exit(1); // there are no more
      if (status != TRAINC_OK && status != TRAINC_OUT_OF_MEMORY) {
        printf("%s, allocation %ld of %zu bytes: %s: %s\n", name, n, *failed,
               trainc_status_name(status), trainc_last_error());
        fflush(stdout);
        _exit(2);
      }
      CHECK(status == TRAINC_OK || trainc_last_error()[0]);
      OK(operation());
      _exit(status == TRAINC_OK ? 0 : 3);
    }
    int result;
    CHECK(waitpid(child, &result, 0) == child);
    if (WIFEXITED(result) && WEXITSTATUS(result) == 1)
      break;
    if (WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT && *failed < SMALL) {
      ++ended;
      continue;
    }
    if (!WIFEXITED(result) || WEXITSTATUS(result) == 2) {
      printf("%s, allocation %ld of %zu bytes: status %x\n", name, n, *failed,
             (unsigned)result);
      exit(1);
    }
    reported += WEXITSTATUS(result) == 3;
  }
  printf("%s: %ld allocations, %ld reported, %ld ended\n", name, n, reported,
         ended);
}

int main(void) {
  failed = __real_mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(failed != MAP_FAILED);
  artifact = open_handmade();
  source = make_trainer(artifact, 1, 1);
  trainer = make_trainer(artifact, 1, 2);
  run_steps(source, 0, 4);
  OK(trainc_save(source, "state.safetensors"));
  pad();
  fail_each("open", open_library);
  fail_each("create", create_trainer);
  fail_each("load", load_state);
  fail_each("load of a large header", load_padded);
  trainc_trainer_destroy(source);
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
  return 0;
}
#endif
