//===- cublaslt.cpp - cuBLASLt, opened at run time ------------------------===//

#include "cuda/cublaslt.h"
#include "cuda/library.h"
#include <pthread.h>

using namespace trainc;
using namespace trainc::cuda;

static pthread_once_t openOnce = PTHREAD_ONCE_INIT;
static CublasLt functions;
/// Why there is no library; empty if there is one.
static char missing[512];

static void open() {
  static const char *const paths[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                      nullptr};
  // That of CUDA 13 needs a driver of CUDA 13.
  const Driver *driver;
  bool older = openDriver(&driver) == TRAINC_OK && driver->version < 13000;
  const Library library = {"cuBLASLt", "TRAINC_LIBCUBLASLT",
                           paths + (older ? 1 : 0), "CUDA 12"};
  static const Symbol symbols[] = {
#define TRAINC_LT_FUNCTION(name, result, parameters) {#name, &functions.name},
#include "cuda/cublaslt.def"
  };
  openLibrary(library, symbols, sizeof(symbols) / sizeof(*symbols), missing);
}

trainc_status trainc::cuda::openCublasLt(const CublasLt **out_library) {
  pthread_once(&openOnce, open);
  *out_library = nullptr;
  if (*missing)
    return fail(TRAINC_UNSUPPORTED, "%s", missing);
  *out_library = &functions;
  return TRAINC_OK;
}

trainc_status trainc::cuda::failCall(const CublasLt &library, const char *call,
                                     cublasStatus_t status) {
  trainc_status kind =
      status == CUBLAS_STATUS_ALLOC_FAILED    ? TRAINC_OUT_OF_MEMORY
      : status == CUBLAS_STATUS_NOT_SUPPORTED ? TRAINC_UNSUPPORTED
                                              : TRAINC_DEVICE_FAILED;
  return fail(kind, "%s: %s (%s)", call,
              library.cublasLtGetStatusString(status),
              library.cublasLtGetStatusName(status));
}
