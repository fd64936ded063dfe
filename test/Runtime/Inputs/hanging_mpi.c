// The plug-in of MPI, but its test does not return once HANG is in the environment.

#include "comm/mpi_plugin.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static const trainc_mpi *real;
static trainc_mpi table;

static int test(trainc_mpi_request *request, int *out_done) {
  while (getenv("HANG"))
    usleep(10000);
  return real->test(request, out_done);
}

__attribute__((visibility("default"))) const trainc_mpi *
trainc_mpi_plugin(void);

const trainc_mpi *trainc_mpi_plugin(void) {
  void *library = dlopen(getenv("REAL_MPI_PLUGIN"), RTLD_NOW | RTLD_GLOBAL);
  trainc_mpi_plugin_fn get =
      library ? (trainc_mpi_plugin_fn)dlsym(library, TRAINC_MPI_PLUGIN_SYMBOL)
              : NULL;
  if (!get)
    return NULL;
  real = get();
  table = *real;
  table.test = test;
  return &table;
}
