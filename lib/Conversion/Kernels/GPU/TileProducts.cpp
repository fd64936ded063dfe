//===- TileProducts.cpp - Products of tiles in shared memory --------------===//
#include "TileProducts.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

TileSizes::TileSizes(Type element)
    : computeBytes(nn::getElementBytes(nn::getComputeType(element))),
      tensor(element.isBF16() || element.isF16()) {
  storedBytes = tensor ? 2 : computeBytes;
}

//===----------------------------------------------------------------------===//
// Products by additions
//===----------------------------------------------------------------------===//

TileProducts::TileProducts(ThreadBuilder &t, TileSizes sizes, Type element,
                           bool accumulates)
    : sizes(sizes), compute(nn::getComputeType(element)) {
  stored = sizes.tensor ? element : compute;
  lane = t.mod(t.thread(), kWarp);
  warp = t.div(t.thread(), kWarp);
  row = t.add(t.mul(warp, kWarpRows), t.div(lane, 4));
  column = t.mul(t.mod(lane, 4), 2);
  if (accumulates && !sizes.tensor)
    weightMemory = t.shared(compute, sizes.rows * sizes.weightStride());
}

Fragment TileProducts::zeros(ThreadBuilder &t, int64_t columns) {
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

Fragment TileProducts::multiplyAdds(ThreadBuilder &t, const TileRows &own,
                                    const TileRows &tile, ValueRange sums) {
  int64_t lanes = 16 / sizes.computeBytes, stride = sizes.stride();
  Value left = elementOf(t, own, t.mul(row, stride));
  Value right = elementOf(t, tile, t.mul(column, stride));
  return t.loop(
      t.index(0), t.index(sizes.width), lanes, sums,
      [&](LoopBuilder &l, Value d, ValueRange carried) {
        Fragment next(carried);
        Value x[2];
        for (int64_t half : {0, 1})
          x[half] = loadLanes(l, own.memref,
                              l.add(l.add(left, l.index(half * 8 * stride)), d),
                              lanes);
        for (int64_t j = 0; j < sizes.tile / 8; ++j)
          for (int64_t c : {0, 1}) {
            Value at = l.add(right, l.index((j * 8 + c) * stride));
            Value y = loadLanes(l, tile.memref, l.add(at, d), lanes);
            for (int64_t i = 0; i < lanes; ++i)
              for (int64_t half : {0, 1}) {
                Value &sum = next[j * 4 + half * 2 + c];
                sum = fma(l, extract(l, x[half], i), extract(l, y, i), sum);
              }
          }
        return next;
      });
}

Fragment TileProducts::accumulateAdds(ThreadBuilder &t, ValueRange weights,
                                      const TileRows &tile, ValueRange sums) {
  int64_t lanes = 16 / sizes.computeBytes, stride = sizes.stride();
  Value left = t.mul(row, sizes.weightStride());
  Value start = elementOf(t, tile, column);
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
  return t.loop(
      t.index(0), t.index(sizes.tile), lanes, sums,
      [&](LoopBuilder &l, Value i, ValueRange carried) {
        Fragment next(carried);
        Value x[2];
        for (int64_t half : {0, 1})
          x[half] =
              loadLanes(l, weightMemory, l.add(leftOf(l, half), i), lanes);
        Value right = l.add(l.mul(i, stride), start);
        for (int64_t k = 0; k < lanes; ++k)
          for (int64_t j = 0; j < sizes.width / 8; ++j) {
            Value at = l.add(right, l.index(k * stride + j * 8));
            Value y = loadLanes(l, tile.memref, at, 2);
            for (int64_t half : {0, 1})
              for (int64_t c : {0, 1}) {
                Value &sum = next[j * 4 + half * 2 + c];
                sum = fma(l, extract(l, x[half], k), extract(l, y, c), sum);
              }
          }
        return next;
      });
}

//===----------------------------------------------------------------------===//
// Products by tensor cores
//===----------------------------------------------------------------------===//

Type TileProducts::pairType() const {
  if (stored.isF16())
    return VectorType::get({2}, stored);
  return IntegerType::get(stored.getContext(), 32);
}

Value TileProducts::matrixPointer(ThreadBuilder &t, const TileRows &rows,
                                  bool columnsFirst) {
  // Lanes 8 i to 8 i + 7 point at the rows of matrix i.
  Value eighth = t.mod(t.div(lane, 8), 2), half = t.div(lane, 16);
  Value down = columnsFirst ? half : eighth;
  Value right = columnsFirst ? eighth : half;
  Value at = t.add(t.mod(lane, 8), t.mul(down, 8));
  at = t.add(t.mul(at, sizes.stride()), t.mul(right, 8));
  at = elementOf(t, rows, at);
  Value base =
      memref::ExtractAlignedPointerAsIndexOp::create(t.b, t.loc, rows.memref);
  at = t.add(base, t.mul(at, sizes.storedBytes));
  at = arith::IndexCastOp::create(t.b, t.loc, t.b.getI64Type(), at);
  auto type = LLVM::LLVMPointerType::get(
      t.b.getContext(), unsigned(NVVM::NVVMMemorySpace::Shared));
  return LLVM::IntToPtrOp::create(t.b, t.loc, type, at);
}

SmallVector<Value> TileProducts::loadMatrices(ThreadBuilder &t, Value pointer,
                                              int64_t row, int64_t column,
                                              bool transposed) {
  MLIRContext *context = t.b.getContext();
  int64_t offset = (row * sizes.stride() + column) * sizes.storedBytes;
  Value at = LLVM::GEPOp::create(
      t.b, t.loc, pointer.getType(), t.b.getI8Type(), pointer,
      ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(int32_t(offset))});
  Type i32 = t.b.getI32Type();
  auto type = LLVM::LLVMStructType::getLiteral(context, {i32, i32, i32, i32});
  auto layout = transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row;
  Value loaded =
      NVVM::LdMatrixOp::create(t.b, t.loc, type, at, /*num=*/4, layout,
                               NVVM::LdStMatrixShapeAttr::get(context, 8, 8),
                               NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> results;
  for (int64_t i = 0; i < 4; ++i) {
    Value word = LLVM::ExtractValueOp::create(t.b, t.loc, loaded, i);
    if (pairType() != i32)
      word = LLVM::BitcastOp::create(t.b, t.loc, pairType(), word);
    results.push_back(word);
  }
  return results;
}

void TileProducts::multiplyMatrix(ThreadBuilder &t, ArrayRef<Value> left,
                                  ArrayRef<Value> right,
                                  MutableArrayRef<Value> sums) {
  auto type = LLVM::LLVMStructType::getLiteral(t.b.getContext(),
                                               SmallVector<Type>(4, compute));
  auto number = stored.isF16() ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  Value results = NVVM::MmaOp::create(
      t.b, t.loc, type, left, right, sums, ArrayRef<int64_t>{16, 8, 16},
      std::nullopt, std::nullopt, std::array<NVVM::MMATypes, 2>{number, number},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                     NVVM::MMALayout::col});
  for (auto [i, sum] : llvm::enumerate(sums))
    sum = LLVM::ExtractValueOp::create(t.b, t.loc, results, i);
}

Value TileProducts::pointerToOwn(ThreadBuilder &t, const TileRows &own) {
  Value start = elementOf(t, own, t.mul(warp, kWarpRows * sizes.stride()));
  return matrixPointer(t, {own.memref, start}, /*columnsFirst=*/false);
}

Fragment TileProducts::load(ThreadBuilder &t, const TileRows &own) {
  Value pointer = pointerToOwn(t, own);
  Fragment words;
  for (int64_t d = 0; d < sizes.width; d += 16)
    words.append(loadMatrices(t, pointer, 0, d, /*transposed=*/false));
  return words;
}

Fragment
TileProducts::multiplyMatrices(ThreadBuilder &t, const TileRows &tile,
                               ValueRange sums,
                               function_ref<SmallVector<Value>(int64_t)> left) {
  Fragment next(sums);
  Value right = matrixPointer(t, tile, /*columnsFirst=*/true);
  for (int64_t d = 0; d < sizes.width; d += 16) {
    SmallVector<Value> x = left(d);
    for (int64_t i = 0; i < sizes.tile; i += 16) {
      SmallVector<Value> y = loadMatrices(t, right, i, d, /*transposed=*/false);
      for (int64_t part : {0, 1})
        multiplyMatrix(t, x, ArrayRef(y).slice(2 * part, 2),
                       MutableArrayRef(next).slice(i / 2 + 4 * part, 4));
    }
  }
  return next;
}

Fragment TileProducts::accumulateMatrices(ThreadBuilder &t, ValueRange weights,
                                          const TileRows &tile,
                                          ValueRange sums) {
  Fragment next(sums);
  Value right = matrixPointer(t, tile, /*columnsFirst=*/false);
  for (int64_t i = 0; i < sizes.tile; i += 16) {
    // Results of 8 columns each are the halves of an operand of 16.
    SmallVector<Value> x;
    for (int64_t at = i / 2; at < i / 2 + 8; at += 2) {
      Value pair = vector::FromElementsOp::create(
          t.b, t.loc, VectorType::get({2}, compute), weights.slice(at, 2));
      pair = arith::TruncFOp::create(t.b, t.loc, VectorType::get({2}, stored),
                                     pair);
      if (pair.getType() != pairType())
        pair = LLVM::BitcastOp::create(t.b, t.loc, pairType(), pair);
      x.push_back(pair);
    }
    for (int64_t d = 0; d < sizes.width; d += 16) {
      SmallVector<Value> y = loadMatrices(t, right, i, d, /*transposed=*/true);
      for (int64_t part : {0, 1})
        multiplyMatrix(t, x, ArrayRef(y).slice(2 * part, 2),
                       MutableArrayRef(next).slice(d / 2 + 4 * part, 4));
    }
  }
  return next;
}

Fragment TileProducts::multiply(ThreadBuilder &t, const TileRows &own,
                                const TileRows &tile, ValueRange sums) {
  if (!sizes.tensor)
    return multiplyAdds(t, own, tile, sums);
  Value pointer = pointerToOwn(t, own);
  return multiplyMatrices(t, tile, sums, [&](int64_t d) {
    return loadMatrices(t, pointer, 0, d, /*transposed=*/false);
  });
}

Fragment TileProducts::multiplyLoaded(ThreadBuilder &t, ArrayRef<Value> own,
                                      const TileRows &tile, ValueRange sums) {
  return multiplyMatrices(t, tile, sums, [&](int64_t d) {
    return SmallVector<Value>(own.slice(d / 4, 4));
  });
}

Fragment TileProducts::accumulate(ThreadBuilder &t, ValueRange weights,
                                  const TileRows &tile, ValueRange sums) {
  return sizes.tensor ? accumulateMatrices(t, weights, tile, sums)
                      : accumulateAdds(t, weights, tile, sums);
}
