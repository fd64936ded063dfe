//===- AttentionEmitter.cpp - Blocks of an attention ----------------------===//
#include "AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include <cmath>

using namespace mlir;
using namespace trainc;

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

template <typename Op> void AttentionEmitter::setScores(Op op) {
  std::optional<APFloat> value = op.getScale();
  scale = value ? value->convertToDouble() : 1 / std::sqrt(double(headSize));
  if (op.getWindow()) // of 32 bits with what is added to it
    window = std::min<int64_t>(*op.getWindow(), rows + columns);
  if (op.getRate()) {
    rate = op.getRate()->convertToDouble();
    site = *op.getSite();
    seed = input(op.getSeed());
    update = input(op.getUpdate());
    microStep = input(op.getMicroStep());
    if (op.getFirst())
      firstDraw = input(op.getFirst());
    drawStrides = op.getStrides() ? llvm::to_vector(*op.getStrides())
                                  : nn::getScoreStrides(nn::getScoreShape(op));
  }
  if constexpr (requires { op.getSegments(); })
    if (op.getSegments()) {
      segments = input(op.getSegments());
      segmentElement = nn::getTensorType(op.getSegments()).getElementType();
    }
  if (!op.getMask())
    return;
  mask = input(op.getMask());
  RankedTensorType type = nn::getTensorType(op.getMask());
  maskElement = type.getElementType();
  maskStrides.assign(4, 0);
  int64_t stride = 1;
  for (int64_t i = type.getRank() - 1; i >= 0; --i) {
    if (type.getDimSize(i) != 1)
      maskStrides[4 - type.getRank() + i] = stride;
    stride *= type.getDimSize(i);
  }
}

template <typename Op> void AttentionEmitter::setResults(Op op) {
  lse = input(op.getLse());
  if (op.getDelta())
    delta = input(op.getDelta());
  out = {input(op.getOut()), rows, heads * headSize, 0};
  dout = {input(op.getDout()), rows, heads * headSize, 0};
}

void AttentionEmitter::setPacked(Value qkv, int64_t headCount,
                                 int64_t kvHeadCount) {
  RankedTensorType type = nn::getTensorType(qkv);
  batch = type.getDimSize(0);
  rows = columns = type.getDimSize(1);
  heads = headCount;
  kvHeads = kvHeadCount;
  int64_t stride = type.getDimSize(2);
  headSize = stride / (heads + 2 * kvHeads);
  element = type.getElementType();
  q = {input(qkv), rows, stride, 0};
  k = {input(qkv), rows, stride, heads * headSize};
  v = {input(qkv), rows, stride, (heads + kvHeads) * headSize};
  compute = nn::getComputeType(element);
  vectorType = VectorType::get({kLanes}, compute);
}

template <typename Op> static void setSeparate(AttentionEmitter &e, Op op) {
  RankedTensorType qType = nn::getTensorType(op.getQ());
  RankedTensorType kType = nn::getTensorType(op.getK());
  e.batch = qType.getDimSize(0);
  e.rows = qType.getDimSize(1);
  e.columns = kType.getDimSize(1);
  e.heads = qType.getDimSize(2);
  e.kvHeads = kType.getDimSize(2);
  e.headSize = qType.getDimSize(3);
  e.element = qType.getElementType();
  e.compute = nn::getComputeType(e.element);
  e.vectorType = VectorType::get({kLanes}, e.compute);
  auto at = [&](Value value) { return e.function.inputs.lookup(value); };
  int64_t qStride = e.heads * e.headSize, kStride = e.kvHeads * e.headSize;
  e.q = {at(op.getQ()), e.rows, qStride, 0};
  e.k = {at(op.getK()), e.columns, kStride, 0};
  e.v = {at(op.getV()), e.columns, kStride, 0};
}

AttentionEmitter::AttentionEmitter(KernelFunction &function, nn::AttentionOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setSeparate(*this, op);
  setScores(op);
}

AttentionEmitter::AttentionEmitter(KernelFunction &function,
                                   nn::AttentionGradOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setSeparate(*this, op);
  setScores(op);
  setResults(op);
}

AttentionEmitter::AttentionEmitter(KernelFunction &function,
                                   nn::PackedAttentionOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setPacked(op.getQkv(), op.getHeads(),
            op.getKvHeads().value_or(op.getHeads()));
  setScores(op);
}

AttentionEmitter::AttentionEmitter(KernelFunction &function,
                                   nn::PackedAttentionGradOp op)
    : function(function), loc(op.getLoc()), causal(op.getCausal()) {
  setPacked(op.getQkv(), op.getHeads(),
            op.getKvHeads().value_or(op.getHeads()));
  setScores(op);
  setResults(op);
}

//===----------------------------------------------------------------------===//
// Loops and vectors
//===----------------------------------------------------------------------===//

/// Scores that are computed by blocks of `lanes` of `ofLanes` rows against `others`:
/// a causal block against all that its first or last row sees.
static int64_t scoresOf(int64_t ofLanes, int64_t others, bool causal,
                        int64_t lanes) {
  int64_t padded = llvm::alignTo(ofLanes, lanes);
  return padded * (causal ? (others + lanes) / 2 : others);
}

void AttentionEmitter::setBlocks(int64_t ofLanes, int64_t others) {
  // A vector half as long needs as many loads as multiply-adds.
  constexpr double dearer = 1.1;
  constexpr int64_t few = kLanes / 2;
  if (scoresOf(ofLanes, others, causal, few) * dearer <
      scoresOf(ofLanes, others, causal, kLanes))
    blockLanes = few;
  vectorType = VectorType::get({blockLanes}, compute);
}

int64_t AttentionEmitter::tileRows() const {
  int64_t vectorBytes = blockLanes * nn::getElementBytes(compute);
  return std::max<int64_t>(function.registerBytes / 2 / vectorBytes, 1);
}

void AttentionEmitter::inRegisterTiles(
    LoopBuilder &l, Value count,
    function_ref<void(LoopBuilder &, Value, int64_t)> body) {
  const int64_t many = tileRows();
  Value middle = l.mul(l.div(count, many), many);
  l.loop(l.index(0), middle, many,
         [&](LoopBuilder &l, Value at) { body(l, at, many); });
  l.loop(middle, count, 1, [&](LoopBuilder &l, Value at) { body(l, at, 1); });
}

Value AttentionEmitter::scratch(LoopBuilder &l, int64_t rows) {
  return function.allocateScratch(l, compute, rows * blockLanes);
}

Value AttentionEmitter::load(LoopBuilder &l, Value scratch, Value row) {
  return vector::LoadOp::create(l.b, loc, vectorType, scratch,
                                ValueRange(l.mul(row, blockLanes)));
}

void AttentionEmitter::store(LoopBuilder &l, Value vector, Value scratch,
                             Value row) {
  vector::StoreOp::create(l.b, loc, vector, scratch,
                          ValueRange(l.mul(row, blockLanes)));
}

Value AttentionEmitter::constant(LoopBuilder &l, double value) {
  return nn::splatConstant(l.b, loc, vectorType, value);
}

void AttentionEmitter::clear(LoopBuilder &l, Value scratch, int64_t rows) {
  Value zero = constant(l, 0.0);
  l.loop(l.index(0), l.index(rows), 1,
         [&](LoopBuilder &l, Value row) { store(l, zero, scratch, row); });
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

int64_t AttentionEmitter::rowLanes() const {
  bool half =
      llvm::alignTo(headSize, kLanes / 2) < llvm::alignTo(headSize, kLanes);
  return half ? kLanes / 2 : kLanes;
}

int64_t AttentionEmitter::paddedSize() const {
  return llvm::alignTo(headSize, function.transposedSize(compute));
}

Value AttentionEmitter::insideRow(LoopBuilder &l, Value d, int64_t lanes) {
  if (headSize % lanes == 0)
    return Value();
  return l.maskBelow(arith::SubIOp::create(l.b, loc, l.index(headSize), d),
                     lanes);
}

Value AttentionEmitter::countLanes(LoopBuilder &l, Value first,
                                   int64_t length) {
  if (length % blockLanes == 0 && !hasEmptyBlocks)
    return Value();
  Value rest = arith::SubIOp::create(l.b, loc, l.index(length), first);
  if (hasEmptyBlocks)
    rest = arith::MaxSIOp::create(l.b, loc, rest, l.index(0));
  return l.min(rest, l.index(blockLanes));
}

Value AttentionEmitter::lanesBelow(LoopBuilder &l, Value first,
                                   int64_t length) {
  Value count = countLanes(l, first, length);
  return count ? l.maskBelow(count, blockLanes) : Value();
}

Rows AttentionEmitter::rowsOf(LoopBuilder &l, const HeadMatrix &m,
                              Value batchIndex, Value head, Value first) {
  Value token = l.add(l.mul(batchIndex, m.length), first);
  Value base = l.add(l.mul(token, m.stride), l.mul(head, headSize));
  if (m.offset)
    base = l.add(base, l.index(m.offset));
  return {m.memref, base, m.stride, element};
}

Value AttentionEmitter::offset(LoopBuilder &l, const Rows &rows, Value row) {
  return l.add(rows.base, l.mul(row, rows.stride));
}

Value AttentionEmitter::scratchToWiden(LoopBuilder &l, int64_t count) {
  if (element == compute)
    return Value();
  return function.allocateScratch(l, compute, count * headSize);
}

Value AttentionEmitter::scratchToGather(LoopBuilder &l, int64_t count,
                                        const HeadMatrix &matrix) {
  constexpr int64_t many = 4; // tiles that are worth a copy
  int64_t line = train::kCacheLine / nn::getElementBytes(compute);
  if (matrix.stride == headSize || line < many * tileRows())
    return scratchToWiden(l, count);
  return function.allocateScratch(l, compute, count * headSize);
}

void AttentionEmitter::copyRows(LoopBuilder &l, std::optional<Rows> from,
                                Value count, const Rows &to, double factor) {
  int64_t lanes = rowLanes();
  l.loop(l.index(0), count, 1, [&](LoopBuilder &l, Value row) {
    Value source = from ? offset(l, *from, row) : Value();
    Value target = offset(l, to, row);
    l.loop(l.index(0), l.index(headSize), lanes, [&](LoopBuilder &l, Value d) {
      Value mask = insideRow(l, d, lanes);
      Value x = from ? l.loadVector(from->memref, l.add(source, d),
                                    from->element, mask, lanes)
                     : nn::splatConstant(
                           l.b, loc, VectorType::get({lanes}, compute), 0.0);
      if (factor != 1.0)
        x = arith::MulFOp::create(
            l.b, loc, x, nn::splatConstant(l.b, loc, x.getType(), factor));
      l.storeVector(x, to.memref, l.add(target, d), to.element, mask);
    });
  });
}

Rows AttentionEmitter::widen(LoopBuilder &l, const Rows &rows, Value count,
                             Value buffer) {
  if (!buffer)
    return rows;
  Rows wide{buffer, l.index(0), headSize, compute};
  copyRows(l, rows, count, wide);
  return wide;
}

void AttentionEmitter::inBlocks(LoopBuilder &l, const Rows &rows, Value count,
                                BlockBody body) {
  const int64_t side = function.transposedSize(compute);
  l.loop(l.index(0), l.index(headSize), side, [&](LoopBuilder &l, Value d) {
    Value size = l.min(arith::SubIOp::create(l.b, loc, l.index(headSize), d),
                       l.index(side));
    for (int64_t first = 0; first < blockLanes; first += side) {
      SmallVector<Value> offsets, masks;
      for (int64_t i = 0; i < side; ++i) {
        Value lane = l.index(first + i), mask;
        if (count) {
          Value isInside = arith::CmpIOp::create(
              l.b, loc, arith::CmpIPredicate::ult, lane, count);
          mask = l.maskBelow(
              arith::SelectOp::create(l.b, loc, isInside, size, l.index(0)),
              side);
        } else if (headSize % side != 0) {
          mask = l.maskBelow(size, side);
        }
        offsets.push_back(l.add(offset(l, rows, lane), d));
        masks.push_back(mask);
      }
      Value at = l.add(l.mul(d, blockLanes), l.index(first));
      body(l, at, offsets, masks);
    }
  });
}

void AttentionEmitter::pack(LoopBuilder &l, const Rows &rows, Value count,
                            Value transposed) {
  inBlocks(l, rows, count,
           [&](LoopBuilder &l, Value at, ArrayRef<Value> offsets,
               ArrayRef<Value> masks) {
             SmallVector<Value> block;
             for (auto [offset, mask] : llvm::zip(offsets, masks))
               block.push_back(l.loadVector(rows.memref, offset, element, mask,
                                            function.transposedSize(compute)));
             transpose(l, block);
             for (auto [i, column] : llvm::enumerate(block))
               vector::StoreOp::create(
                   l.b, loc, column, transposed,
                   ValueRange(l.add(at, l.index(i * blockLanes))));
           });
}

void AttentionEmitter::unpack(LoopBuilder &l, Value transposed,
                              const Rows &rows, Value count, Value begin) {
  const int64_t side = function.transposedSize(compute);
  auto type = VectorType::get({side}, compute);
  inBlocks(l, rows, count,
           [&](LoopBuilder &l, Value at, ArrayRef<Value> offsets,
               ArrayRef<Value> masks) {
             SmallVector<Value> block;
             if (begin)
               at = l.add(at, l.mul(begin, blockLanes));
             for (int64_t i = 0; i < side; ++i)
               block.push_back(vector::LoadOp::create(
                   l.b, loc, type, transposed,
                   ValueRange(l.add(at, l.index(i * blockLanes)))));
             transpose(l, block);
             for (auto [row, offset, mask] : llvm::zip(block, offsets, masks))
               l.storeVector(row, rows.memref, offset, element, mask);
           });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void AttentionEmitter::prefetch(LoopBuilder &l, const Rows &rows, Value row,
                                Value d, bool isWrite, unsigned locality) {
  memref::PrefetchOp::create(l.b, loc, rows.memref,
                             ValueRange(l.add(offset(l, rows, row), d)),
                             isWrite, locality, /*isDataCache=*/true);
}

void AttentionEmitter::prefetchRow(LoopBuilder &l, const Rows &rows, Value row,
                                   bool isWrite, unsigned locality) {
  for (int64_t d = 0; d < headSize; d += rows.lineSize())
    prefetch(l, rows, row, l.index(d), isWrite, locality);
}

void AttentionEmitter::prefetchRows(LoopBuilder &l, const Rows &rows,
                                    Value count, bool isWrite) {
  l.loop(l.index(0), count, 1, [&](LoopBuilder &l, Value row) {
    prefetchRow(l, rows, row, isWrite, /*locality=*/2);
  });
}

void AttentionEmitter::multiply(LoopBuilder &l, const Rows &rows, Value count,
                                Value transposed, Value products) {
  inRegisterTiles(l, count, [&](LoopBuilder &l, Value at, int64_t tile) {
    SmallVector<Value> offsets;
    for (int64_t i = 0; i < tile; ++i)
      offsets.push_back(offset(l, rows, l.add(at, l.index(i))));
    if (rows.stride != headSize)
      for (int64_t i = 0; i < tile; ++i)
        prefetchRow(l, rows, l.add(at, l.index(tile + i)));
    SmallVector<Value> initial(tile, constant(l, 0.0));
    auto sums =
        l.loop(l.index(0), l.index(headSize), 1, initial,
               [&](LoopBuilder &l, Value d, ValueRange sums) {
                 Value right = load(l, transposed, d);
                 SmallVector<Value> next;
                 for (int64_t i = 0; i < tile; ++i) {
                   Value left = l.loadScalar(rows.memref, l.add(offsets[i], d),
                                             rows.element);
                   next.push_back(math::FmaOp::create(
                       l.b, loc, l.splat(left, blockLanes), right, sums[i]));
                 }
                 return next;
               });
    for (int64_t i = 0; i < tile; ++i)
      store(l, sums[i], products, l.add(at, l.index(i)));
  });
}

void AttentionEmitter::accumulate(LoopBuilder &l, const Rows &rows, Value count,
                                  Value weights, Value sums, Value factor) {
  inRegisterTiles(
      l, l.index(headSize), [&](LoopBuilder &l, Value d, int64_t tile) {
        Value ahead =
            l.min(l.add(d, l.index(rows.lineSize())), l.index(headSize - 1));
        SmallVector<Value> initial;
        for (int64_t i = 0; i < tile; ++i) {
          Value sum = load(l, sums, l.add(d, l.index(i)));
          if (factor)
            sum = arith::MulFOp::create(l.b, loc, sum, factor);
          initial.push_back(sum);
        }
        auto results = l.loop(
            l.index(0), count, 1, initial,
            [&](LoopBuilder &l, Value row, ValueRange sums) {
              Value right = load(l, weights, row);
              Value base = l.add(offset(l, rows, row), d);
              if (rows.stride != headSize)
                prefetch(l, rows, row, ahead);
              SmallVector<Value> next;
              for (int64_t i = 0; i < tile; ++i) {
                Value left = l.loadScalar(rows.memref, l.add(base, l.index(i)),
                                          rows.element);
                next.push_back(math::FmaOp::create(
                    l.b, loc, l.splat(left, blockLanes), right, sums[i]));
              }
              return next;
            });
        for (int64_t i = 0; i < tile; ++i)
          store(l, results[i], sums, l.add(d, l.index(i)));
      });
}

void AttentionEmitter::addProducts(LoopBuilder &l, const Rows &rows,
                                   Value lanes, Value weights, Value count,
                                   const Rows &sums, Value isFirst) {
  int64_t width = rowLanes();
  auto type = VectorType::get({width}, compute);
  Value zero = nn::splatConstant(l.b, loc, type, 0.0);
  l.loop(l.index(0), l.index(headSize), width, [&](LoopBuilder &l, Value d) {
    Value mask = insideRow(l, d, width);
    inRegisterTiles(l, count, [&](LoopBuilder &l, Value at, int64_t tile) {
      SmallVector<Value> offsets, weightAt, initial;
      for (int64_t i = 0; i < tile; ++i) {
        Value row = l.add(at, l.index(i));
        weightAt.push_back(l.mul(row, blockLanes));
        offsets.push_back(l.add(offset(l, sums, row), d));
        Value sum = l.loadVector(sums.memref, offsets[i], compute, mask, width);
        initial.push_back(
            arith::SelectOp::create(l.b, loc, isFirst, zero, sum));
      }
      auto results = l.loop(
          l.index(0), lanes, 1, initial,
          [&](LoopBuilder &l, Value lane, ValueRange sums) {
            Value right =
                l.loadVector(rows.memref, l.add(offset(l, rows, lane), d),
                             rows.element, mask, width);
            SmallVector<Value> next;
            for (int64_t i = 0; i < tile; ++i) {
              Value left =
                  l.loadScalar(weights, l.add(weightAt[i], lane), compute);
              left = vector::BroadcastOp::create(l.b, loc, type, left);
              next.push_back(
                  math::FmaOp::create(l.b, loc, left, right, sums[i]));
            }
            return next;
          });
      for (int64_t i = 0; i < tile; ++i)
        l.storeVector(results[i], sums.memref, offsets[i], compute, mask);
    });
  });
}

Value AttentionEmitter::dot(LoopBuilder &l, const Rows &x, const Rows &y) {
  auto type = VectorType::get({kLanes}, compute);
  Value sum =
      l.loop(l.index(0), l.index(headSize), kLanes,
             nn::splatConstant(l.b, loc, type, 0.0),
             [&](LoopBuilder &l, Value d, ValueRange sum) {
               Value mask = insideRow(l, d, kLanes);
               Value left =
                   l.loadVector(x.memref, l.add(x.base, d), x.element, mask);
               Value right =
                   l.loadVector(y.memref, l.add(y.base, d), y.element, mask);
               return SmallVector<Value>{
                   math::FmaOp::create(l.b, loc, left, right, sum[0])};
             })
          .front();
  return l.combineLanes(nn::ReduceKind::sum, sum);
}

//===----------------------------------------------------------------------===//
// Kinds
//===----------------------------------------------------------------------===//

/// Where the result is stored; null if nobody reads it.
static Value resultOf(const KernelFunction &function, Value value) {
  auto it = function.outputs.find(value);
  return it == function.outputs.end() ? Value() : it->second.front();
}

int64_t trainc::dispatchAttention(KernelFunction &function, Operation *op,
                                  AttentionForward forward,
                                  AttentionBackward backward) {
  auto emitForward = [&](auto attention) {
    AttentionEmitter e(function, attention);
    return forward(e, resultOf(function, attention.getOut()),
                   resultOf(function, attention.getLse()));
  };
  if (auto attention = dyn_cast<nn::AttentionOp>(op))
    return emitForward(attention);
  if (auto attention = dyn_cast<nn::PackedAttentionOp>(op))
    return emitForward(attention);
  if (auto grad = dyn_cast<nn::AttentionGradOp>(op)) {
    AttentionEmitter e(function, grad);
    auto result = [&](Value value, const HeadMatrix &like) {
      return HeadMatrix{resultOf(function, value), like.length, like.stride, 0};
    };
    return backward(e, result(grad.getDq(), e.q), result(grad.getDk(), e.k),
                    result(grad.getDv(), e.v));
  }
  auto grad = cast<nn::PackedAttentionGradOp>(op);
  AttentionEmitter e(function, grad);
  HeadMatrix dq = e.q, dk = e.k, dv = e.v;
  dq.memref = dk.memref = dv.memref = resultOf(function, grad.getDqkv());
  return backward(e, dq, dk, dv);
}
