// The runtime's own prototypes of cuBLASLt are those of the toolkit's cublasLt.h.
//
// REQUIRES: cublaslt-header
// RUN: %cxx -std=c++20 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -isystem %cuda_include -c %s -o %t.o
// RUN: sed -e 's/EPILOGUE_DGELU_BGRAD, 208/EPILOGUE_DGELU_BGRAD, 209/' %runtime_src/cuda/cublaslt.def > %t.value.def
// RUN: sed -e 's/size_t workspaceSize; cublasStatus_t state;/cublasStatus_t state; size_t workspaceSize;/' %runtime_src/cuda/cublaslt.def > %t.struct.def
// RUN: sed -e 's/cublasLtDestroy, cublasStatus_t, (cublasLtHandle_t/cublasLtDestroy, cublasStatus_t, (cublasLtMatmulDesc_t/' %runtime_src/cuda/cublaslt.def > %t.type.def
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -isystem %cuda_include -DDEF='"%t.value.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=VALUE %s
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -isystem %cuda_include -DDEF='"%t.struct.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=STRUCT %s
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -isystem %cuda_include -DDEF='"%t.type.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=TYPE %s

#include "cuda/cublaslt.h"
#include <cublasLt.h>
#include <cuda.h>
#include <stddef.h>

#ifndef DEF
#define DEF "cuda/cublaslt.def"
#endif

template <typename T, typename U> constexpr bool same = std::is_same_v<T, U>;

// Our structs once more, with the members of DEF.
namespace ours {
#define TRAINC_LT_STRUCT(name, members)                                        \
  struct name {                                                                \
    members                                                                    \
  };
#include DEF
} // namespace ours

#define TRAINC_LT_HANDLE(name, pointee) static_assert(same<name, pointee *>);
#define TRAINC_LT_ENUM(name)                                                   \
  static_assert(same<std::underlying_type_t<name>,                             \
                     std::underlying_type_t<trainc::cuda::name>>);
// VALUE: the value of CUBLASLT_EPILOGUE_DGELU_BGRAD
#define TRAINC_LT_VALUE(type, name, number)                                    \
  static_assert(name == static_cast<type>(number), "the value of " #name);
#define TRAINC_LT_STRUCT(name, members)                                        \
  static_assert(sizeof(ours::name) == sizeof(::name));
// TYPE: the type of cublasLtDestroy
#define TRAINC_LT_FUNCTION(name, result, parameters)                           \
  static_assert(same<decltype(&name), result(*) parameters>,                   \
                "the type of " #name);
#include DEF

// STRUCT: the place of workspaceSize
#define MEMBER(name)                                                           \
  static_assert(offsetof(ours::cublasLtMatmulHeuristicResult_t, name) ==       \
                    offsetof(::cublasLtMatmulHeuristicResult_t, name),         \
                "the place of " #name);
MEMBER(algo)
MEMBER(workspaceSize)
MEMBER(state)
MEMBER(wavesCount)
MEMBER(reserved)
