//===- cublaslt.h - cuBLASLt, opened at run time ----------------*- C++ -*-===//
#ifndef TRAINC_CUDA_CUBLASLT_H
#define TRAINC_CUDA_CUBLASLT_H

#include "cuda/driver.h"

namespace trainc::cuda {

#define TRAINC_LT_HANDLE(name, pointee) typedef struct pointee *name;
#define TRAINC_LT_ENUM(name) enum name : unsigned {};
#include "cuda/cublaslt.def"
#define TRAINC_LT_VALUE(type, name, value)                                     \
  constexpr type name = static_cast<type>(value);
#include "cuda/cublaslt.def"
#define TRAINC_LT_STRUCT(name, members)                                        \
  struct name {                                                                \
    members                                                                    \
  };
#include "cuda/cublaslt.def"

/// The functions of the library, by their names in cublasLt.h.
struct CublasLt {
#define TRAINC_LT_FUNCTION(name, result, parameters) result(*name) parameters;
#include "cuda/cublaslt.def"
};

/// Opens libcublasLt.so.13 or .12, or what TRAINC_LIBCUBLASLT names, on the first
/// call. What that found stays: TRAINC_UNSUPPORTED says what is missing. May be called
/// by several threads.
trainc_status openCublasLt(const CublasLt **out_library);

/// Reports a call that the library refused: "cublasLtMatmul: the requested functionality
/// is not supported (CUBLAS_STATUS_NOT_SUPPORTED)".
trainc_status failCall(const CublasLt &library, const char *call,
                       cublasStatus_t status);

} // namespace trainc::cuda

/// Calls a function of the library; returns from the function around if that fails.
#define TRAINC_LT(library, name, ...)                                          \
  do {                                                                         \
    if (auto ltStatus = (library).name(__VA_ARGS__);                           \
        ltStatus != ::trainc::cuda::CUBLAS_STATUS_SUCCESS)                     \
      return ::trainc::cuda::failCall(library, #name, ltStatus);               \
  } while (false)

#endif // TRAINC_CUDA_CUBLASLT_H
