//===- driver.h - The CUDA driver, opened at run time -----------*- C++ -*-===//
#ifndef TRAINC_CUDA_DRIVER_H
#define TRAINC_CUDA_DRIVER_H

#include "core/status.h"

namespace trainc::cuda {

#define TRAINC_CU_HANDLE(name, pointee) typedef struct pointee *name;
#define TRAINC_CU_SCALAR(name, type) typedef type name;
#define TRAINC_CU_ENUM(name) enum name : unsigned {};
#include "cuda/driver.def"
#define TRAINC_CU_VALUE(type, name, value)                                     \
  constexpr type name = static_cast<type>(value);
#include "cuda/driver.def"

/// The functions of the driver, by their names in cuda.h.
struct Driver {
#define TRAINC_CU_FUNCTION(name, symbol, parameters) CUresult(*name) parameters;
#include "cuda/driver.def"
  /// The newest CUDA that it knows, as 1000 * major + 10 * minor.
  int version;
  int devices;
  /// Its devices run images of the kind HOST: the driver of the tests.
  bool emulated;
};

/// Opens libcuda.so.1, or what TRAINC_LIBCUDA names, on the first call. What that
/// found stays: TRAINC_UNSUPPORTED says what is missing for the use of a GPU. May be
/// called by several threads.
trainc_status openDriver(const Driver **out_driver);

/// Reports a call that the driver refused: "cuMemAlloc: out of memory
/// (CUDA_ERROR_OUT_OF_MEMORY)". TRAINC_OUT_OF_MEMORY or TRAINC_DEVICE_FAILED.
trainc_status failCall(const char *call, CUresult result);

} // namespace trainc::cuda

/// Calls a function of the driver; returns from the function around if that fails.
#define TRAINC_CU(driver, name, ...)                                           \
  do {                                                                         \
    if (auto cuResult = (driver).name(__VA_ARGS__);                            \
        cuResult != ::trainc::cuda::CUDA_SUCCESS)                              \
      return ::trainc::cuda::failCall(#name, cuResult);                        \
  } while (false)

#endif // TRAINC_CUDA_DRIVER_H
