//===- driver.cpp - The CUDA driver, opened at run time -------------------===//

#include "cuda/driver.h"
#include "cuda/library.h"
#include <dlfcn.h>
#include <pthread.h>

using namespace trainc;
using namespace trainc::cuda;

static pthread_once_t openOnce = PTHREAD_ONCE_INIT;
static Driver driver;
/// Why there is no driver; empty if there is one.
static char missing[512];

/// Says "out of memory (CUDA_ERROR_OUT_OF_MEMORY)", as far as the driver knows.
static void describe(CUresult result, char *to, size_t bytes) {
  const char *name = nullptr, *text = nullptr;
  if (driver.cuGetErrorName(result, &name) == CUDA_SUCCESS && name &&
      driver.cuGetErrorString(result, &text) == CUDA_SUCCESS && text)
    snprintf(to, bytes, "%s (%s)", text, name);
  else
    snprintf(to, bytes, "error %u", static_cast<unsigned>(result));
}

static void open() {
  static const char *const paths[] = {"libcuda.so.1", nullptr};
  static const Library library = {"CUDA driver", "TRAINC_LIBCUDA", paths,
                                  "CUDA 11.4"};
  static const Symbol symbols[] = {
#define TRAINC_CU_FUNCTION(name, symbol, parameters) {#symbol, &driver.name},
#include "cuda/driver.def"
  };
  OpenLibrary opened = openLibrary(library, symbols,
                                   sizeof(symbols) / sizeof(*symbols), missing);
  if (!opened.handle)
    return;
  driver.emulated = dlsym(opened.handle, "trainc_fake_cuda_report") != nullptr;
  const char *call = "cuInit";
  CUresult result = driver.cuInit(0);
  if (result == CUDA_SUCCESS) {
    call = "cuDriverGetVersion";
    result = driver.cuDriverGetVersion(&driver.version);
  }
  if (result == CUDA_SUCCESS) {
    call = "cuDeviceGetCount";
    result = driver.cuDeviceGetCount(&driver.devices);
  }
  if (result == CUDA_ERROR_STUB_LIBRARY) {
    snprintf(missing, sizeof(missing),
             "no CUDA driver: '%s' is the toolkit's stand-in for linking",
             opened.path);
  } else if (result != CUDA_SUCCESS) {
    char text[256];
    describe(result, text, sizeof(text));
    snprintf(missing, sizeof(missing), "no CUDA device: %s: %s", call, text);
  } else if (driver.devices == 0) {
    snprintf(missing, sizeof(missing), "no CUDA device: the driver has none");
  }
}

trainc_status trainc::cuda::openDriver(const Driver **out_driver) {
  pthread_once(&openOnce, open);
  *out_driver = nullptr;
  if (*missing)
    return fail(TRAINC_UNSUPPORTED, "%s", missing);
  *out_driver = &driver;
  return TRAINC_OK;
}

/// Whether every later call in the process will fail, too: a fault of a kernel or of
/// the device.
static bool isSticky(CUresult result) {
  unsigned code = result;
  return code == 214 || code == 220 || code == 700 || code == 702 ||
         code == 710 || (code >= 714 && code <= 719);
}

trainc_status trainc::cuda::failCall(const char *call, CUresult result) {
  // As long as the longest report of the driver of tests.
  char text[8192];
  describe(result, text, sizeof(text));
  return fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TRAINC_OUT_OF_MEMORY
                                                 : TRAINC_DEVICE_FAILED,
              "%s: %s%s", call, text,
              isSticky(result) ? "; the process cannot use this device any "
                                 "more: restart the process"
                               : "");
}
