//===- nccl_library.cpp - NCCL, opened at run time ------------------------===//

#include "cuda/nccl_library.h"
#include "cuda/library.h"
#include <pthread.h>

using namespace trainc;
using namespace trainc::cuda;

static pthread_once_t openOnce = PTHREAD_ONCE_INIT;
static Nccl nccl;
/// Why there is no NCCL; empty if there is one.
static char missing[512];

static void open() {
  static const char *const paths[] = {"libnccl.so.2", nullptr};
  static const Library library = {"NCCL", "TRAINC_LIBNCCL", paths, "NCCL 2.19"};
  static const Symbol symbols[] = {
#define TRAINC_NCCL_FUNCTION(result, name, parameters) {#name, &nccl.name},
#include "cuda/nccl.def"
  };
  OpenLibrary opened = openLibrary(library, symbols,
                                   sizeof(symbols) / sizeof(*symbols), missing);
  if (!opened.handle)
    return;
  ncclResult_t result = nccl.ncclGetVersion(&nccl.version);
  if (result != ncclSuccess)
    snprintf(missing, sizeof(missing), "no NCCL: '%s': ncclGetVersion: %s",
             opened.path, nccl.ncclGetErrorString(result));
  else if (nccl.version < ncclOldest)
    snprintf(missing, sizeof(missing),
             "the NCCL '%s' is of version %d: it is older than NCCL 2.19",
             opened.path, nccl.version);
}

trainc_status trainc::cuda::openNccl(const Nccl **out_nccl) {
  pthread_once(&openOnce, open);
  *out_nccl = nullptr;
  if (*missing)
    return fail(TRAINC_UNSUPPORTED, "%s", missing);
  *out_nccl = &nccl;
  return TRAINC_OK;
}
