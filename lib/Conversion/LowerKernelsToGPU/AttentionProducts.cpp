//===- AttentionProducts.cpp - Products of tiles in shared memory ---------===//
#include "AttentionProducts.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// What every GPU gives a block that does not ask for more.
static constexpr int64_t kSharedBytes = 48 << 10;
/// Most bytes of a row that a warp sums at once: its registers.
static constexpr int64_t kSumBytes = 512;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

int64_t AttentionSizes::bytes(int64_t owned) const {
  constexpr int64_t tiles = 2, statistics = 2;
  int64_t result = (owned * rows + tiles * tile) * stride() * storedBytes +
                   statistics * tile * computeBytes;
  if (!tensor)
    result += rows * weightStride() * computeBytes;
  return result;
}

AttentionSizes trainc::chooseAttentionSizes(Type element, int64_t headSize,
                                            int64_t owned) {
  AttentionSizes sizes;
  sizes.computeBytes = nn::getElementBytes(nn::getComputeType(element));
  sizes.tensor = false;
  sizes.storedBytes = sizes.computeBytes;
  for (sizes.parts = 1;; ++sizes.parts) {
    sizes.width =
        llvm::alignTo(llvm::divideCeil(headSize, sizes.parts), kWarpRows);
    if (sizes.width * sizes.computeBytes > kSumBytes)
      continue;
    for (int64_t warps : {4, 2, 1})
      for (int64_t tile : {64, 32, 16}) {
        // Registers for two products and two sums of the gradient.
        if (owned > 1 && (tile + sizes.width) * sizes.computeBytes > kSumBytes)
          continue;
        sizes.rows = warps * kWarpRows;
        sizes.tile = tile;
        if (sizes.bytes(owned) <= kSharedBytes)
          return sizes;
      }
  }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

AttentionProducts::AttentionProducts(ThreadBuilder &t, AttentionSizes sizes,
                                     Type element, Type compute)
    : sizes(sizes), stored(sizes.tensor ? element : compute), compute(compute) {
  lane = t.mod(t.thread(), kWarp);
  warp = t.div(t.thread(), kWarp);
  row = t.add(t.mul(warp, kWarpRows), t.div(lane, 4));
  column = t.mul(t.mod(lane, 4), 2);
  if (!sizes.tensor)
    weightMemory = t.shared(compute, sizes.rows * sizes.weightStride());
}

Fragment AttentionProducts::zeros(ThreadBuilder &t, int64_t columns) {
  return Fragment(columns / 2, nn::splatConstant(t.b, t.loc, compute, 0.0));
}

static Value loadLanes(LoopBuilder &l, Value memref, Value at, int64_t lanes) {
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  return l.loadVector(memref, at, type, Value(), lanes, /*aligned=*/true);
}

static Value extract(LoopBuilder &l, Value vector, int64_t i) {
  return vector::ExtractOp::create(l.b, l.loc, vector, ArrayRef<int64_t>{i});
}

static Value fma(LoopBuilder &l, Value x, Value y, Value sum) {
  return math::FmaOp::create(l.b, l.loc, x, y, sum);
}

/// The lanes of the warp see what the others have stored.
static void syncWarp(LoopBuilder &l) {
  Value all = arith::ConstantIntOp::create(l.b, l.loc, -1, 32);
  NVVM::SyncWarpOp::create(l.b, l.loc, all);
}

Fragment AttentionProducts::multiplyAdds(ThreadBuilder &t, Value own,
                                         Value tile, ValueRange sums) {
  int64_t lanes = 16 / sizes.computeBytes, stride = sizes.stride();
  Value left = t.mul(row, stride), right = t.mul(column, stride);
  return t.loop(
      t.index(0), t.index(sizes.width), lanes, sums,
      [&](LoopBuilder &l, Value d, ValueRange carried) {
        Fragment next(carried);
        Value x[2];
        for (int64_t half : {0, 1})
          x[half] =
              loadLanes(l, own,
                        l.add(l.add(left, l.index(half * 8 * stride)), d),
                        lanes);
        for (int64_t j = 0; j < sizes.tile / 8; ++j)
          for (int64_t c : {0, 1}) {
            Value at = l.add(right, l.index((j * 8 + c) * stride));
            Value y = loadLanes(l, tile, l.add(at, d), lanes);
            for (int64_t i = 0; i < lanes; ++i)
              for (int64_t half : {0, 1}) {
                Value &sum = next[j * 4 + half * 2 + c];
                sum = fma(l, extract(l, x[half], i), extract(l, y, i), sum);
              }
          }
        return next;
      });
}

Fragment AttentionProducts::accumulateAdds(ThreadBuilder &t, ValueRange weights,
                                           Value tile, ValueRange sums) {
  int64_t lanes = 16 / sizes.computeBytes, stride = sizes.stride();
  Value left = t.mul(row, sizes.weightStride());
  auto leftOf = [&](LoopBuilder &l, int64_t half) {
    return l.add(left, l.index(half * 8 * sizes.weightStride()));
  };
  syncWarp(t); // all lanes have read what stands there
  for (int64_t j = 0; j < sizes.tile / 8; ++j)
    for (int64_t half : {0, 1}) {
      Value pair = vector::FromElementsOp::create(
          t.b, t.loc, VectorType::get({2}, compute),
          ValueRange{weights[j * 4 + half * 2], weights[j * 4 + half * 2 + 1]});
      Value at = t.add(t.add(leftOf(t, half), column), t.index(j * 8));
      t.storeVector(pair, weightMemory, at, compute, Value(), 2,
                    /*aligned=*/true);
    }
  syncWarp(t);
  return t.loop(t.index(0), t.index(sizes.tile), lanes, sums,
                [&](LoopBuilder &l, Value i, ValueRange carried) {
                  Fragment next(carried);
                  Value x[2];
                  for (int64_t half : {0, 1})
                    x[half] = loadLanes(l, weightMemory,
                                        l.add(leftOf(l, half), i), lanes);
                  Value right = l.add(l.mul(i, stride), column);
                  for (int64_t k = 0; k < lanes; ++k)
                    for (int64_t j = 0; j < sizes.width / 8; ++j) {
                      Value at = l.add(right, l.index(k * stride + j * 8));
                      Value y = loadLanes(l, tile, at, 2);
                      for (int64_t half : {0, 1})
                        for (int64_t c : {0, 1}) {
                          Value &sum = next[j * 4 + half * 2 + c];
                          sum = fma(l, extract(l, x[half], k), extract(l, y, c),
                                    sum);
                        }
                    }
                  return next;
                });
}

Fragment AttentionProducts::multiply(ThreadBuilder &t, Value own, Value tile,
                                     ValueRange sums) {
  return multiplyAdds(t, own, tile, sums);
}

Fragment AttentionProducts::accumulate(ThreadBuilder &t, ValueRange weights,
                                       Value tile, ValueRange sums) {
  return accumulateAdds(t, weights, tile, sums);
}
