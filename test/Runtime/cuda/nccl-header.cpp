// The runtime's own prototypes of NCCL are those of nccl.h, and what it knows of
// ncclConfig_t is the beginning of what is there.
//
// REQUIRES: nccl-header, cuda-header
// RUN: %cxx -std=c++20 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -isystem %nccl_include -isystem %cuda_include -c %s -o %t.o
// RUN: sed -e 's/ncclBfloat16, 9/ncclBfloat16, 8/' %runtime_src/cuda/nccl.def > %t.value.def
// RUN: sed -e 's/type, int root/type, long root/' %runtime_src/cuda/nccl.def > %t.type.def
// RUN: sed -e 's/FIELD(int, minCTAs)/FIELD(size_t, minCTAs)/' %runtime_src/cuda/nccl.def > %t.field.def
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -isystem %nccl_include -isystem %cuda_include -DDEF='"%t.value.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=VALUE %s
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -isystem %nccl_include -isystem %cuda_include -DDEF='"%t.type.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=TYPE %s
// RUN: not %cxx -std=c++20 -I%runtime_src -I%runtime_include -isystem %nccl_include -isystem %cuda_include -DDEF='"%t.field.def"' -c %s -o %t.o 2>&1 | FileCheck --check-prefix=FIELD %s

#include "cuda/nccl_library.h"
#include <nccl.h>

#ifndef DEF
#define DEF "cuda/nccl.def"
#endif

typedef cudaStream_t CUstream;
template <typename T, typename U> constexpr bool same = std::is_same_v<T, U>;

struct Config {
#define TRAINC_NCCL_FIELD(type, name) type name;
#include DEF
};
constexpr ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
static_assert(initial.magic == trainc::cuda::ncclConfigMagic);
static_assert(sizeof(ncclUniqueId) == sizeof(trainc::cuda::ncclUniqueId));
static_assert(NCCL_VERSION(2, 19, 0) == trainc::cuda::ncclOldest);
static_assert(NCCL_VERSION_CODE >= trainc::cuda::ncclOldest);

#define TRAINC_NCCL_ENUM(name)                                                 \
  static_assert(same<std::underlying_type_t<name>,                             \
                     std::underlying_type_t<trainc::cuda::name>>);
// VALUE: the value of ncclBfloat16
#define TRAINC_NCCL_VALUE(type, name, number)                                  \
  static_assert(name == static_cast<type>(number), "the value of " #name);
// TYPE: the type of ncclBroadcast
#define TRAINC_NCCL_FUNCTION(result, name, parameters)                         \
  static_assert(same<decltype(&name), result(*) parameters>,                   \
                "the type of " #name);
// FIELD: the field minCTAs
#define TRAINC_NCCL_FIELD(type, name)                                          \
  static_assert(same<decltype(ncclConfig_t::name), type> &&                    \
                    offsetof(ncclConfig_t, name) == offsetof(Config, name),    \
                "the field " #name);
#include DEF
