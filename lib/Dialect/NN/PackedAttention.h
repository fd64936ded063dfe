//===- PackedAttention.h - The sizes of packed attention --------*- C++ -*-===//
#ifndef TRAINC_LIB_DIALECT_NN_PACKEDATTENTION_H
#define TRAINC_LIB_DIALECT_NN_PACKEDATTENTION_H

#include "trainc/Dialect/NN/NNOps.h"

namespace trainc::nn {

/// The sizes that the attributes of a packed attention give.
struct PackedSizes {
  int64_t batch, length, heads, kvHeads, headSize;
};

template <typename OpOrAdaptor> PackedSizes getPackedSizes(OpOrAdaptor op) {
  mlir::RankedTensorType qkv = getTensorType(op.getQkv());
  int64_t heads = op.getHeads();
  int64_t kvHeads = op.getKvHeads().value_or(heads);
  return {qkv.getDimSize(0), qkv.getDimSize(1), heads, kvHeads,
          qkv.getDimSize(2) / (heads + 2 * kvHeads)};
}

} // namespace trainc::nn

#endif // TRAINC_LIB_DIALECT_NN_PACKEDATTENTION_H
