// The C API alone: one rank without a launcher; under MPI, with the plug-in found beside
// the runtime; several communicators after each other, and in a program that uses MPI
// itself. The launcher has nothing to complain about.
//
// REQUIRES: mpi
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include %s -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_runtime -o test
// RUN: env OMPI_CC=%cc mpicc -std=c11 -Wall -Wextra -Werror -DOWN_MPI -I%runtime_include %s -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_runtime -o own
// RUN: ./test | FileCheck %s --check-prefix=ALONE
// ALONE: rank 0 of 1 by self
// RUN: env -u TRAINC_MPI_PLUGIN %mpirun -np 2 ./test 2>&1 | FileCheck %s --check-prefix=TWO --implicit-check-not=mpirun
// RUN: env -u TRAINC_MPI_PLUGIN %mpirun -np 2 ./own 2>&1 | FileCheck %s --check-prefix=TWO --implicit-check-not=mpirun
// TWO-COUNT-6: rank {{[01]}} of 2 by mpi (Open MPI v
//
// RUN: ldd %runtime_lib/libtrainc_runtime.so ./test | FileCheck %s --check-prefix=LINKED --implicit-check-not=libmpi
// LINKED: libc.so

#include "trainc/runtime.h"
#include <stdio.h>
#ifdef OWN_MPI
#include <mpi.h>
#endif

#define OK(call)                                                               \
  do {                                                                         \
    if (call)                                                                  \
      return printf("%s\n", trainc_last_error()), 1;                           \
  } while (0)

int main(void) {
#ifdef OWN_MPI
  MPI_Init(NULL, NULL);
#endif
  for (int i = 0; i < 3; ++i) {
    trainc_comm_options options = {.size = sizeof options, .deadline = 10};
    trainc_comm *comm;
    trainc_comm_info info;
    OK(trainc_comm_create(i ? &options : NULL, &comm));
    OK(trainc_comm_barrier(comm));
    OK(trainc_comm_get_info(comm, &info));
    if (info.collectives[TRAINC_BARRIER] != 1 ||
        info.deadline != (i ? 10 : 60) || info.host_ranks != info.ranks)
      return 1;
    printf("rank %u of %u by %s\n", info.rank, info.ranks, info.bootstrap);
    trainc_comm_destroy(comm);
  }
#ifdef OWN_MPI
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Finalize();
  return size != 2;
#endif
  return 0;
}
