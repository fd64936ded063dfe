// A save is killed, and fails as on a full disk, at each of its operations: the
// checkpoint before it always loads, and the next save works. Two saves to one path do
// not mix.
//
// RUN: %cc -std=gnu11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && %t | FileCheck %s

#include "handmade.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/// Saves in a child under `fault`; returns how it ended: 0 saved, 1 failed, 2
/// killed.
static int save_in_child(trainc_artifact *a, const char *fault) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    trainc_trainer *t = make_trainer(a, 1, 1);
    OK(trainc_load(t, "run"));
    run_steps(t, 6, 7); // inside a window: gradients are written too
    setenv("TRAINC_FAULT", fault, 1);
    trainc_status status = trainc_save_checkpoint(t, "run", 1, NULL);
    if (status == TRAINC_IO_ERROR &&
        !strstr(trainc_last_error(), "No space left"))
      _exit(3);
    _exit(status == TRAINC_OK ? 0 : status == TRAINC_IO_ERROR ? 1 : 3);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGKILL ? 2 : -1;
  return WEXITSTATUS(status);
}

static int is_file(const char *path, const char *other) {
  char *one, *two;
  long sizes[2];
  file_bytes(path, &one, &sizes[0]);
  file_bytes(other, &two, &sizes[1]);
  int same = sizes[0] == sizes[1] && !memcmp(one, two, (size_t)sizes[0]);
  free(one), free(two);
  return same;
}

static void rest(long ms) {
  nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/// One process saves to a path, from its N-th write on slowly, while another one does.
static void test_two_writers(trainc_trainer *slow, trainc_trainer *fast) {
  OK(trainc_save(slow, "slow"));
  OK(trainc_save(fast, "fast"));
  for (int write = 1; write <= 3; ++write) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      char fault[64];
      snprintf(fault, sizeof fault, "write:%d:delay=600", write);
      setenv("TRAINC_FAULT", fault, 1);
      _exit(trainc_save(slow, "shared") != TRAINC_OK);
    }
    rest(200);
    OK(trainc_save(fast, "shared"));
    CHECK(is_file("shared", "fast")); // what was reported is there
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(is_file("shared", "slow")); // and so is what was reported later
  }
  CHECK(system("test -z \"$(ls -A | grep tmp)\"") == 0);

  // What a killed save has left is there until the next one to the path.
  pid_t child = fork();
  if (child == 0) {
    setenv("TRAINC_FAULT", "write:2:kill", 1);
    _exit(trainc_save(slow, "shared") != TRAINC_OK);
  }
  CHECK(waitpid(child, NULL, 0) == child);
  CHECK(system("ls -A | grep -c '^.shared.[0-9a-f]*.tmp$'") == 0);
  // CHECK: {{^1$}}
  OK(trainc_save(fast, "shared"));
  CHECK(system("test -z \"$(ls -A | grep tmp)\"") == 0);
  puts("two writers");
  // CHECK: two writers
}

int main(void) {
  trainc_artifact *artifact = open_handmade();
  trainc_trainer *before = make_trainer(artifact, 1, 1);
  trainc_trainer *after = make_trainer(artifact, 1, 1);
  trainc_trainer *t = make_trainer(artifact, 1, 2);
  run_steps(before, 0, 6);
  run_steps(after, 0, 7);

  test_two_writers(before, after);

  static const char *const operations[] = {"open", "write", "fsync", "rename",
                                           "remove"};
  static const char *const actions[] = {"kill", "fail"};
  for (int action = 0; action < 2; ++action)
    for (int i = 0; i < 5; ++i) {
      int hits = 0, ending;
      do {
        char fault[64];
        CHECK(system("rm -rf run") == 0);
        OK(trainc_save_checkpoint(before, "run", 1, NULL));
        snprintf(fault, sizeof fault, "%s:%d:%s", operations[i], hits + 1,
                 actions[action]);
        ending = save_in_child(artifact, fault);
        CHECK(ending == 0 || ending == (action == 0 ? 2 : 1));
        hits += ending != 0;
        // What is there now is whole: the old or the new.
        OK(trainc_load(t, "run"));
        CHECK(same_state(t, before) || same_state(t, after));
        CHECK(ending != 0 || same_state(t, after));
        // And the run goes on, its next save leaving no trace of the broken one.
        if (same_state(t, before))
          run_steps(t, 6, 7);
        OK(trainc_save_checkpoint(t, "run", 1, NULL));
        OK(trainc_load(t, "run"));
        CHECK(same_state(t, after));
        CHECK(system("test \"$(echo $(ls -A run))\" = "
                     "'.lock latest step-000002-1.safetensors'") == 0);
      } while (ending != 0);
      printf("%s %s: %d\n", actions[action], operations[i], hits);
    }
  // CHECK: kill open: 2
  // CHECK: kill write: 4
  // CHECK: kill fsync: 4
  // CHECK: kill rename: 2
  // CHECK: kill remove: 1
  // CHECK: fail open: 2
  // CHECK: fail write: 4
  // CHECK: fail fsync: 4
  // CHECK: fail rename: 2
  // CHECK: fail remove: 1

  struct timespec start, end;
  setenv("TRAINC_FAULT", "*:*:delay=5", 1);
  clock_gettime(CLOCK_MONOTONIC, &start);
  OK(trainc_save(after, "slow.safetensors"));
  clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK((end.tv_sec - start.tv_sec) * 1000 +
            (end.tv_nsec - start.tv_nsec) / 1000000 >=
        30);
  // A plan that cannot be read is not passed over.
  setenv("TRAINC_FAULT", "write:one:kill", 1);
  CHECK(trainc_save(after, "slow.safetensors") == TRAINC_IO_ERROR);
  unsetenv("TRAINC_FAULT");

  // A real full disk.
  CHECK(trainc_save(after, "/dev/full/x") == TRAINC_IO_ERROR);
  trainc_trainer_destroy(before);
  trainc_trainer_destroy(after);
  trainc_trainer_destroy(t);
  trainc_artifact_close(artifact);
  puts("done");
  // CHECK: done
  return 0;
}
