// The runtime's own prototypes of the CUDA driver are those of the toolkit's cuda.h,
// and its symbols are those that cuda.h picks, but for one that older drivers lack.
//
// REQUIRES: cuda-header
// RUN: %cxx -std=c++20 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%cuda_include -c %s -o %t.o
// RUN: sed -e 's/CU_EVENT_DISABLE_TIMING, 2/CU_EVENT_DISABLE_TIMING, 3/' %runtime_src/cuda/driver.def > %t.value.def
// RUN: sed -e 's/cuMemFree_v2, (CUdeviceptr/cuMemFree_v2, (CUmodule/' %runtime_src/cuda/driver.def > %t.type.def
// RUN: sed -e 's/cuMemAlloc_v2/cuMemAlloc/' %runtime_src/cuda/driver.def > %t.symbol.def
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -I%cuda_include -DDEF='"%t.value.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=VALUE %s
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -I%cuda_include -DDEF='"%t.type.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=TYPE %s
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -I%cuda_include -DDEF='"%t.symbol.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=SYMBOL %s

#include "cuda/driver.h"
#include <cuda.h>

#ifndef DEF
#define DEF "cuda/driver.def"
#endif

template <typename T, typename U> constexpr bool same = std::is_same_v<T, U>;

constexpr bool equal(const char *a, const char *b) {
  while (*a && *a == *b)
    ++a, ++b;
  return *a == *b;
}
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)

#define TRAINC_CU_HANDLE(name, pointee) static_assert(same<name, pointee *>);
#define TRAINC_CU_SCALAR(name, type) static_assert(same<name, type>);
#define TRAINC_CU_ENUM(name)                                                   \
  static_assert(same<std::underlying_type_t<name>,                             \
                     std::underlying_type_t<trainc::cuda::name>>);
// VALUE: the value of CU_EVENT_DISABLE_TIMING
#define TRAINC_CU_VALUE(type, name, number)                                    \
  static_assert(name == static_cast<type>(number), "the value of " #name);
// The macro's own name is not expanded where it is an operand of #.
// TYPE: the type of cuMemFree_v2
// SYMBOL: the symbol of cuMemAlloc
#define TRAINC_CU_FUNCTION(name, symbol, parameters)                           \
  static_assert(same<decltype(&symbol), CUresult(*) parameters>,               \
                "the type of " #symbol);                                       \
  static_assert(equal(EXPANDED(name), #symbol) ||                              \
                    equal(#symbol, "cuEventElapsedTime"),                      \
                "the symbol of " #name);
#include DEF
