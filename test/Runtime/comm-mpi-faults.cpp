// Ranks on several hosts (so it seems to them): one is late, aborts, is killed; a call
// of MPI hangs.
//
// REQUIRES: mpi
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o test
// RUN: %cc -std=gnu11 -shared -fPIC -Wall -Wextra -Werror -I%runtime_src %S/Inputs/hanging_mpi.c -ldl -o hanging.so
//
// RUN: not %mpirun -np 3 ./test mismatch
// RUN: cat report.0 report.1 report.2 | FileCheck %s --check-prefix=MISMATCH
// MISMATCH: rank {{[012]}} of 3: rank {{[012]}} does all_gather 'y' of 3 F32 where rank {{[012]}} does all_reduce 'x' of 3 F32
//
// RUN: not %mpirun -np 3 ./test late
// RUN: FileCheck %s --check-prefix=LATE --input-file=report.0
// RUN: FileCheck %s --check-prefix=TOLD --input-file=report.1
// LATE: rank 0 of 3: {{(rank 2 gave up \()?}}nothing within 2 s: all_reduce 'x', collective 1 of ranks 0 1 2, 12 bytes, has waited {{.*}}; arrived: 0 2; missing: 1 (host b, pid {{[0-9]+}})
// TOLD: rank 1 of 3: rank {{[02]}} gave up (nothing within 2 s: all_reduce 'x', collective 1
//
// RUN: not %mpirun -np 2 ./test abort
// RUN: FileCheck %s --check-prefix=ABORT --input-file=report.1
// ABORT: rank 1 of 2: aborted with status 9
//
// The launcher tells the others by a signal when a rank has died.
// RUN: not %mpirun -np 2 ./test killed
// RUN: FileCheck %s --check-prefix=KILLED --input-file=report.0
// KILLED: rank 0 of 2: interrupted: all_reduce 'x', collective 1 of ranks 0 1, 12 bytes, has waited {{[0-9.]+}} s; arrived: 0; missing: 1 (host b,
//
// RUN: env REAL_MPI_PLUGIN=%runtime_lib/libtrainc_mpi.so TRAINC_MPI_PLUGIN=%t.dir/hanging.so not %mpirun -np 2 ./test hang
// RUN: FileCheck %s --check-prefix=HANG --input-file=report.0
// HANG: rank 0 of 2: nothing within 2 s, and the wait does not return: all_reduce 'x', collective 1 of ranks 0 1, 12 bytes, has waited {{4.[0-9]}} s; arrived: 0; missing: 1 (host b,

#include "ranks.h"

static trainc_comm *theComm;

static void report(void *rank, const char *text) {
  std::string name = "report." + std::to_string(*static_cast<uint32_t *>(rank));
  FILE *file = fopen(name.c_str(), "a");
  fprintf(file, "%s\n", text);
  fclose(file);
}

int main(int, char **argv) {
  std::string what = argv[1];
  auto rank = static_cast<uint32_t>(atoi(getenv("OMPI_COMM_WORLD_RANK")));
  const char *hosts[] = {"a", "b", "a"};
  setenv("TRAINC_HOST", hosts[rank], 1);
  remove(("report." + std::to_string(rank)).c_str());
  trainc_comm_options options = {};
  options.size = sizeof(options);
  options.deadline = what == "killed" ? 20 : 2;
  options.flags = what == "hang" ? TRAINC_COMM_EXIT : 0;
  options.report = report;
  options.report_context = &rank;
  trainc_comm *comm;
  OK(trainc_comm_create(&options, &comm));
  theComm = comm;
  signal(SIGTERM, [](int) { trainc_comm_interrupt(theComm); });

  float data[9] = {};
  Collective call;
  call.kind = TRAINC_ALL_REDUCE;
  call.group = worldGroup(*comm);
  call.count = 3;
  call.data = data;
  call.label = "x";
  OK(run(*comm, call, nullptr));
  double begin = seconds();
  if (rank == 1) {
    if (what == "late")
      rest(2.8);
    if (what == "abort")
      trainc_comm_abort(comm, 9);
    if (what == "killed")
      raise(SIGKILL);
    if (what == "hang")
      rest(60);
    if (what == "mismatch") {
      call.kind = TRAINC_ALL_GATHER;
      call.label = "y";
    }
  } else if (what == "hang") {
    setenv("HANG", "1", 1);
  }
  CHECK(run(*comm, call, nullptr) == TRAINC_COMM_FAILED);
  CHECK(seconds() - begin < (rank == 1 ? 4 : 3));
  if (what == "late")
    rest(rank == 1 ? 0 : 1.8); // or the launcher ends those that remain
  if (what == "mismatch")
    rest(0.3);
  return 0;
}
