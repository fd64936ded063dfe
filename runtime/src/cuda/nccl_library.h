//===- nccl_library.h - NCCL, opened at run time ----------------*- C++ -*-===//
#ifndef TRAINC_CUDA_NCCL_LIBRARY_H
#define TRAINC_CUDA_NCCL_LIBRARY_H

#include "cuda/driver.h"

namespace trainc::cuda {

typedef struct ncclComm *ncclComm_t;
#define TRAINC_NCCL_ENUM(name) enum name : unsigned {};
#include "cuda/nccl.def"
#define TRAINC_NCCL_VALUE(type, name, value)                                   \
  constexpr type name = static_cast<type>(value);
#include "cuda/nccl.def"

struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

/// As that of the oldest version that will do; newer ones take it as such.
struct ncclConfig_t {
#define TRAINC_NCCL_FIELD(type, name) type name;
#include "cuda/nccl.def"
};
constexpr unsigned ncclConfigMagic = 0xcafebeef;
/// 2.19.0, the first with ncclCommRegister.
constexpr int ncclOldest = 21900;

/// The functions of NCCL.
struct Nccl {
#define TRAINC_NCCL_FUNCTION(result, name, parameters) result(*name) parameters;
#include "cuda/nccl.def"
  int version; // 22809 is 2.28.9
};

/// Opens libnccl.so.2, or what TRAINC_LIBNCCL names, on the first call. What that
/// found stays: TRAINC_UNSUPPORTED says what is missing. May be called by several
/// threads.
trainc_status openNccl(const Nccl **out_nccl);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_NCCL_LIBRARY_H
