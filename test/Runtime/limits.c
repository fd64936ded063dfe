// Little address space, and no anonymous files: an error or none, but no endless loop.
//
// RUN: %cc -std=gnu11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_runtime -lm -o %t
// RUN: timeout 60 %t | FileCheck %s

#include "handmade.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/// Lets the process have some more address space.
static void limit_to(unsigned long long more) {
  unsigned long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%llu", &pages) == 1 && fclose(file) == 0);
  struct rlimit limit = {pages * 4096 + more, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void forbid_memfd(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {4, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(void) {
  trainc_comm *comm;
  trainc_trainer *t;
  trainc_artifact *a = open_handmade();
  trainc_trainer_options options = {.size = sizeof options, .threads = 2};

  // One rank shares no memory.
  limit_to(30 << 20);
  OK(trainc_comm_create(NULL, &comm));
  OK(trainc_comm_barrier(comm));
  double seconds, one = 1, all = 0;
  OK(trainc_comm_measure(comm, TRAINC_ALL_REDUCE, 1 << 20, &seconds));
  OK(trainc_comm_all_gather(comm, &one, sizeof one, &all));
  CHECK(all == 1);
  trainc_comm_destroy(comm);

  // Room to load OpenBLAS, none for what it maps for 2 threads that multiply.
  limit_to(200 << 20);
  CHECK(trainc_trainer_create(a, &options, &t) == TRAINC_OUT_OF_MEMORY);
  puts(trainc_last_error());
  // CHECK: OpenBLAS needs 134217728 bytes of address space for each of 2 threads: Cannot allocate memory
  limit_to(600 << 20);
  OK(trainc_trainer_create(a, &options, &t));
  const char *report;
  OK(trainc_memory_report(t, &report));
  puts(report);
  // CHECK: 268435456 address space of OpenBLAS, beside that
  limit_to(1 << 20);
  run_steps(t, 0, 9);
  trainc_trainer_destroy(t);

  struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_AS, &none) == 0);
  forbid_memfd();
  OK(trainc_comm_create(NULL, &comm));
  OK(trainc_comm_barrier(comm));
  trainc_comm_destroy(comm);
  trainc_artifact_close(a);
  return 0;
}
