// One collective between GPUs, and what it must give.
#ifndef TRAINC_TEST_CUDA_COLLECTIVES_H
#define TRAINC_TEST_CUDA_COLLECTIVES_H

#include "gpus.h"

constexpr uint32_t types[] = {TRAINC_F32, TRAINC_F64, TRAINC_BF16, TRAINC_F16,
                              TRAINC_I8,  TRAINC_U8,  TRAINC_I32,  TRAINC_I64};

/// What a rank has at first: sums of these depend on their order.
inline double valueOf(uint32_t dtype, uint32_t rank, uint64_t i) {
  double mixed = static_cast<double>((i + 1) * 2654435761u * (rank + 3) % 1009);
  return isFloat(dtype)
             ? mixed / 7 - 70
             : static_cast<double>(static_cast<uint64_t>(mixed) % 40);
}

/// ((x0 + x1) + x2) + ... of the members, rounded once.
inline void storeSum(uint32_t dtype, void *to, uint64_t at,
                     const std::vector<uint32_t> &members, uint64_t i) {
  std::vector<char> one(8);
  double sum = 0;
  for (size_t m = 0; m < members.size(); ++m) {
    storeElement(dtype, one.data(), 0, valueOf(dtype, members[m], i));
    double x = loadElement(dtype, one.data(), 0);
    sum = m == 0                ? x
          : dtype == TRAINC_F64 ? sum + x
          : isFloat(dtype)      ? static_cast<double>(static_cast<float>(sum) +
                                                      static_cast<float>(x))
                                : sum + x;
    // Rounded after each addition.
    storeElement(dtype, one.data(), 0, sum);
    sum = loadElement(dtype, one.data(), 0);
  }
  storeElement(dtype, to, at, sum);
}

inline void fill(uint32_t dtype, Buffer &buffer, uint32_t rank,
                 uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    storeElement(dtype, buffer.bytes.data(), i, valueOf(dtype, rank, i));
  buffer.upload();
}

/// One collective of the group, whose members are `members`; `rank` is this one.
inline void testOne(Gpu &gpu, trainc_collective_kind kind, uint32_t dtype,
                    const Group *group, const std::vector<uint32_t> &members,
                    uint32_t rank, uint64_t piece, bool apart) {
  uint64_t n = members.size(), size = trainc_dtype_size(dtype), index = 0;
  while (members[index] != rank)
    ++index;
  uint64_t count = piece * n;
  Buffer data(gpu, count * size + 8), target(gpu, count * size + 8);
  fill(dtype, data, rank, count);
  fill(dtype, target, 77, count);
  DeviceCollective c;
  c.kind = kind;
  c.group = group;
  c.dtype = dtype;
  c.count = kind == TRAINC_ALL_GATHER && apart ? piece : count;
  c.root = static_cast<uint32_t>(n - 1);
  c.data = data.address;
  c.target = apart ? target.address : 0;
  c.label = "one";
  OK(runCollectives(gpu.streams, *gpu.communicator, &c, 1));
  OK(gpu.wait());
  Buffer &out = apart ? target : data;
  char *bytes = out.bytes.data();
  switch (kind) {
  case TRAINC_ALL_REDUCE:
    for (uint64_t i = 0; i < count; ++i)
      storeSum(dtype, bytes, i, members, i);
    break;
  case TRAINC_REDUCE_SCATTER:
    for (uint64_t i = 0; i < piece; ++i)
      storeSum(dtype, bytes, apart ? i : index * piece + i, members,
               index * piece + i);
    break;
  case TRAINC_ALL_GATHER:
    for (uint64_t i = 0; i < count; ++i)
      storeElement(dtype, bytes, i,
                   valueOf(dtype, members[i / piece], apart ? i % piece : i));
    break;
  default:
    for (uint64_t i = 0; i < count; ++i)
      storeElement(dtype, bytes, i, valueOf(dtype, members[n - 1], i));
  }
  CHECK(data.isSame());
  CHECK(target.isSame());
}

#endif
