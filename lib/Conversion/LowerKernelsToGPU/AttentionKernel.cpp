//===- AttentionKernel.cpp - Attention by blocks, on a GPU ----------------===//
//
// A block of threads has rows of one head in shared memory and goes over tiles of
// what they meet: forward and for dq its rows are queries and the tiles keys and
// values, for dk and dv its rows are keys and the tiles queries. Scores never leave
// registers, but for the second product. Every sum belongs to one lane: no atomic
// operation, and the same result in each run.
//
// A long row of a head goes by parts: scores are sums over all of them, and each
// block makes one part of the results.
//
//===----------------------------------------------------------------------===//
#include "../LowerKernels/AttentionEmitter.h"
#include "AttentionProducts.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace trainc;

namespace {
/// What a block multiplies: own[i] with tiles[i], of the heads that these have.
struct Operands {
  SmallVector<HeadMatrix, 2> own, tiles;
  Value ownHead, tileHead, batchIndex;
  /// The block's first row, and the part of the results that it makes.
  Value first, part;
  /// The rows are queries, and the tiles keys.
  bool rowsAreQueries;
};

struct BlockEmitter {
  BlockEmitter(AttentionEmitter &e, ThreadBuilder &t, AttentionSizes sizes,
               int64_t owned);

  AttentionEmitter &e;
  Location loc;
  AttentionSizes sizes;
  AttentionProducts products;
  SmallVector<Value, 2> own, tiles;
  /// Of the gradient: lse and out . dout of the queries of a tile.
  Value statistics;

  void emitForward(ThreadBuilder &t, Value out, Value lse);
  void emitKeyGrads(ThreadBuilder &t, Value number, HeadMatrix dk,
                    HeadMatrix dv);
  void emitQueryGrads(ThreadBuilder &t, Value number, HeadMatrix dq);

private:
  /// Copies `count` rows of a head from `first` on, the part at element `d`, 0 where
  /// there is none.
  void stage(ThreadBuilder &t, const HeadMatrix &matrix, Value batchIndex,
             Value head, Value first, Value d, int64_t count, Value to);
  /// Whether copies go past registers: 16 bytes each, with no change.
  bool copiesAsync() const { return sizes.tensor && accessLanes() == 8; }
  /// Begins to copy 16 bytes, or zeros if not `inside`.
  void copyAsync(ThreadBuilder &t, Value from, Value at, Value to,
                 Value sharedAt, Value inside);
  /// All threads see what was staged.
  void awaitCopies(ThreadBuilder &t);
  void stageOwn(ThreadBuilder &t, const Operands &o, Value d);
  void stageTiles(ThreadBuilder &t, const Operands &o, Value low, Value d,
                  size_t count);
  /// Stages the tile from row `low` on; the products of all own matrices with it,
  /// one behind the other. `more`, if given, runs before threads wait for the tile.
  Fragment multiplyTile(ThreadBuilder &t, const Operands &o, Value low,
                        function_ref<void(ThreadBuilder &)> more = {});
  /// The scores, in place of products.
  void finishScores(ThreadBuilder &t, const Operands &o, Value low, Value head,
                    MutableArrayRef<Value> scores);
  Value loadMask(ThreadBuilder &t, Value batchIndex, Value head, Value query,
                 Value key);
  /// p and its gradient from score and dp.
  std::pair<Value, Value> scoreGrad(ThreadBuilder &t, Value score, Value dp,
                                    Value lse, Value delta);
  /// out . dout of a row of queries, in all 4 lanes that have the row.
  Value dotOut(ThreadBuilder &t, Value batchIndex, Value head, Value row);
  Value loadLse(ThreadBuilder &t, Value batchIndex, Value head, Value row);
  void storeRows(ThreadBuilder &t, const Operands &o, ValueRange sums,
                 const HeadMatrix &to, Value head);

  Value constant(ThreadBuilder &t, double value) {
    return nn::splatConstant(t.b, loc, e.compute, value);
  }
  Value infinity(ThreadBuilder &t) {
    return constant(t, -std::numeric_limits<double>::infinity());
  }
  Value finite(ThreadBuilder &t, Value value);
  Value exp(ThreadBuilder &t, Value x, Value y) {
    return math::ExpOp::create(
        t.b, loc, arith::SubFOp::create(t.b, loc, x, y).getResult());
  }
  Value select(ThreadBuilder &t, Value condition, Value x, Value y) {
    return arith::SelectOp::create(t.b, loc, condition, x, y);
  }
  /// Elements of a row that are copied at once: 16 bytes where they are stored.
  int64_t accessLanes() const;
  /// The lane's row of the block, in its first or second half of 16.
  Value ownRow(ThreadBuilder &t, const Operands &o, int64_t half) {
    return t.add(o.first, t.add(products.row, t.index(half * 8)));
  }
};
} // namespace

BlockEmitter::BlockEmitter(AttentionEmitter &e, ThreadBuilder &t,
                           AttentionSizes sizes, int64_t owned)
    : e(e), loc(e.loc), sizes(sizes), products(t, sizes, e.element, e.compute) {
  for (int64_t i = 0; i < owned; ++i)
    own.push_back(t.shared(products.stored, sizes.rows * sizes.stride()));
  for (int64_t i = 0; i < 2; ++i)
    tiles.push_back(t.shared(products.stored, sizes.tile * sizes.stride()));
  if (owned > 1)
    statistics = t.shared(e.compute, 2 * sizes.tile);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

int64_t BlockEmitter::accessLanes() const {
  int64_t lanes = 16 / sizes.storedBytes;
  while (e.headSize % lanes != 0)
    lanes /= 2;
  return lanes;
}

static Value pointerTo(ThreadBuilder &t, Value memref, Value at,
                       NVVM::NVVMMemorySpace space) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  Value base =
      memref::ExtractAlignedPointerAsIndexOp::create(t.b, t.loc, memref);
  at = t.add(base, t.mul(at, nn::getElementBytes(element)));
  at = arith::IndexCastOp::create(t.b, t.loc, t.b.getI64Type(), at);
  auto type = LLVM::LLVMPointerType::get(t.b.getContext(), unsigned(space));
  return LLVM::IntToPtrOp::create(t.b, t.loc, type, at);
}

void BlockEmitter::copyAsync(ThreadBuilder &t, Value from, Value at, Value to,
                             Value sharedAt, Value inside) {
  Value all = arith::ConstantIntOp::create(t.b, loc, 16, 32);
  Value none = arith::ConstantIntOp::create(t.b, loc, 0, 32);
  NVVM::CpAsyncOp::create(
      t.b, loc, pointerTo(t, to, sharedAt, NVVM::NVVMMemorySpace::Shared),
      pointerTo(t, from, at, NVVM::NVVMMemorySpace::Global), 16,
      NVVM::LoadCacheModifierKind::CG, select(t, inside, all, none));
}

void BlockEmitter::awaitCopies(ThreadBuilder &t) {
  if (copiesAsync()) {
    NVVM::CpAsyncCommitGroupOp::create(t.b, loc);
    NVVM::CpAsyncWaitGroupOp::create(t.b, loc, 0);
  }
  t.barrier();
}

void BlockEmitter::stage(ThreadBuilder &t, const HeadMatrix &matrix,
                         Value batchIndex, Value head, Value first, Value d,
                         int64_t count, Value to) {
  constexpr int64_t atOnce = 8; // loads before the first store
  int64_t lanes = accessLanes(), ofRow = sizes.width / lanes;
  int64_t total = count * ofRow, threads = t.threads;
  Value start = t.mul(head, e.headSize);
  if (matrix.offset)
    start = t.add(start, t.index(matrix.offset));
  auto type = VectorType::get({lanes}, e.compute);
  Value zero = nn::splatConstant(t.b, loc, type, 0.0);
  auto sharedAt = [&](ThreadBuilder &t, Value number) {
    return t.add(t.mul(t.div(number, ofRow), sizes.stride()),
                 t.mul(t.mod(number, ofRow), lanes));
  };
  // Null if the copy is under way.
  auto load = [&](ThreadBuilder &t, Value number) -> Value {
    Value row = t.add(first, t.div(number, ofRow));
    Value column = t.add(d, t.mul(t.mod(number, ofRow), lanes));
    Value inside = t.less(row, t.index(matrix.length));
    row = t.min(row, t.index(matrix.length - 1));
    if (sizes.parts * sizes.width != e.headSize) {
      Value inRow = t.less(column, t.index(e.headSize));
      inside = arith::AndIOp::create(t.b, loc, inside, inRow);
      column = select(t, inRow, column, t.index(0));
    }
    Value token = t.add(t.mul(batchIndex, matrix.length), row);
    Value at = t.add(t.add(t.mul(token, matrix.stride), start), column);
    if (copiesAsync()) {
      copyAsync(t, matrix.memref, at, to, sharedAt(t, number), inside);
      return Value();
    }
    Value value = t.loadVector(matrix.memref, at, e.element, Value(), lanes,
                               /*aligned=*/true);
    return select(t, inside, value, zero);
  };
  auto copy = [&](ThreadBuilder &t, Value number, int64_t rounds) {
    SmallVector<Value> numbers, values;
    for (int64_t i = 0; i < rounds; ++i) {
      numbers.push_back(t.add(number, t.index(i * threads)));
      values.push_back(load(t, numbers.back()));
    }
    for (auto [number, value] : llvm::zip(numbers, values))
      if (value)
        t.storeVector(value, to, sharedAt(t, number), products.stored, Value(),
                      lanes, /*aligned=*/true);
  };
  Value id = t.thread();
  int64_t whole = total / threads, step = threads * atOnce;
  t.loop(id, t.index(total / step * step), step,
         [&](LoopBuilder &l, Value number) {
           ThreadBuilder body(l.b, loc, threads);
           copy(body, number, atOnce);
         });
  if (int64_t rest = whole % atOnce)
    copy(t, t.add(id, t.index((whole - rest) * threads)), rest);
  if (total % threads != 0) {
    Value number = t.add(id, t.index(whole * threads));
    t.when(t.less(number, t.index(total)),
           [&](ThreadBuilder &t) { copy(t, number, 1); });
  }
}

void BlockEmitter::stageOwn(ThreadBuilder &t, const Operands &o, Value d) {
  for (auto [matrix, to] : llvm::zip(o.own, own))
    stage(t, matrix, o.batchIndex, o.ownHead, o.first, d, sizes.rows, to);
}

void BlockEmitter::stageTiles(ThreadBuilder &t, const Operands &o, Value low,
                              Value d, size_t count) {
  for (auto [matrix, to] :
       llvm::zip(ArrayRef(o.tiles).take_front(count), tiles))
    stage(t, matrix, o.batchIndex, o.tileHead, low, d, sizes.tile, to);
}

Fragment BlockEmitter::multiplyTile(ThreadBuilder &t, const Operands &o,
                                    Value low,
                                    function_ref<void(ThreadBuilder &)> more) {
  size_t count = o.own.size();
  auto multiply = [&](ThreadBuilder &t, ValueRange sums) {
    Fragment results;
    for (size_t i = 0; i < count; ++i)
      results.append(products.multiply(
          t, own[i], tiles[i],
          sums.slice(i * sums.size() / count, sums.size() / count)));
    return results;
  };
  Fragment zeros = products.zeros(t, count * sizes.tile);
  t.barrier(); // all have done with the tile before
  if (more)
    more(t);
  if (sizes.parts == 1) {
    stageTiles(t, o, low, t.index(0), o.tiles.size());
    awaitCopies(t);
    return multiply(t, zeros);
  }
  Fragment results =
      t.loop(t.index(0), t.index(sizes.parts * sizes.width), sizes.width, zeros,
             [&](LoopBuilder &l, Value d, ValueRange sums) {
               ThreadBuilder t(l.b, loc, sizes.threads());
               stageOwn(t, o, d);
               stageTiles(t, o, low, d, count);
               awaitCopies(t);
               Fragment next = multiply(t, sums);
               t.barrier();
               return next;
             });
  stageTiles(t, o, low, t.mul(o.part, sizes.width), o.tiles.size());
  awaitCopies(t);
  return results;
}

void BlockEmitter::storeRows(ThreadBuilder &t, const Operands &o,
                             ValueRange sums, const HeadMatrix &to,
                             Value head) {
  Value d = t.add(t.mul(o.part, sizes.width), products.column);
  int64_t lanes = e.headSize % 2 == 0 ? 2 : 1;
  for (int64_t half : {0, 1}) {
    Value row = ownRow(t, o, half);
    t.when(t.less(row, t.index(to.length)), [&](ThreadBuilder &t) {
      Value token = t.add(t.mul(o.batchIndex, to.length), row);
      Value base = t.add(t.mul(token, to.stride), t.mul(head, e.headSize));
      if (to.offset)
        base = t.add(base, t.index(to.offset));
      for (int64_t j = 0; j < sizes.width / 8; ++j)
        for (int64_t c = 0; c < 2; c += lanes) {
          Value column = t.add(d, t.index(j * 8 + c));
          auto store = [&](ThreadBuilder &t) {
            auto type = VectorType::get({lanes}, e.compute);
            Value value = vector::FromElementsOp::create(
                t.b, loc, type, sums.slice(j * 4 + half * 2 + c, lanes));
            t.storeVector(value, to.memref, t.add(base, column), e.element,
                          Value(), lanes, /*aligned=*/true);
          };
          if (sizes.parts == 1 && j * 8 + 8 <= e.headSize)
            store(t);
          else
            t.when(t.less(column, t.index(e.headSize)), store);
        }
    });
  }
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Value BlockEmitter::finite(ThreadBuilder &t, Value value) {
  Value isMasked = arith::CmpFOp::create(t.b, loc, arith::CmpFPredicate::OEQ,
                                         value, infinity(t));
  return select(t, isMasked, constant(t, 0.0), value);
}

Value BlockEmitter::loadMask(ThreadBuilder &t, Value batchIndex, Value head,
                             Value query, Value key) {
  Value at = t.index(0);
  // What is past the ends reads the last element.
  query = t.min(query, t.index(e.rows - 1));
  key = t.min(key, t.index(e.columns - 1));
  Value coordinates[] = {batchIndex, head, query, key};
  for (auto [coordinate, stride] : llvm::zip(coordinates, e.maskStrides))
    if (stride != 0)
      at = t.add(at, t.mul(coordinate, stride));
  Value value = t.loadScalar(e.mask, at, e.maskElement);
  Type type = value.getType();
  if (e.maskElement.isInteger(1) || type == e.compute)
    return value;
  if (type.getIntOrFloatBitWidth() < e.compute.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(t.b, loc, e.compute, value);
  return arith::TruncFOp::create(t.b, loc, e.compute, value);
}

void BlockEmitter::finishScores(ThreadBuilder &t, const Operands &o, Value low,
                                Value head, MutableArrayRef<Value> scores) {
  int64_t tileLength = o.rowsAreQueries ? e.columns : e.rows;
  Value infinity = this->infinity(t), scale = constant(t, e.scale);
  for (auto [i, score] : llvm::enumerate(scores)) {
    int64_t j = i / 4, half = i / 2 % 2, c = i % 2;
    Value row = ownRow(t, o, half);
    Value column = t.add(low, t.add(products.column, t.index(j * 8 + c)));
    Value query = o.rowsAreQueries ? row : column;
    Value key = o.rowsAreQueries ? column : row;
    score = arith::MulFOp::create(t.b, loc, score, scale);
    if (e.mask) {
      Value value = loadMask(t, o.batchIndex, head, query, key);
      if (e.maskElement.isInteger(1))
        score = select(t, value, score, infinity);
      else
        score = arith::AddFOp::create(t.b, loc, score, value);
    }
    if (e.causal) {
      // Key j is visible to query i where j <= i + columns - rows.
      Value bound = t.add(query, t.index(e.columns - e.rows));
      Value isVisible = arith::CmpIOp::create(
          t.b, loc, arith::CmpIPredicate::sle, key, bound);
      score = select(t, isVisible, score, infinity);
    }
    if (tileLength % sizes.tile != 0)
      score = select(t, t.less(column, t.index(tileLength)), score, infinity);
  }
}

/// The end of the keys that `count` queries from `first` on see.
static Value visibleEnd(ThreadBuilder &t, const AttentionEmitter &e,
                        Value first, int64_t count) {
  if (!e.causal)
    return t.index(e.columns);
  Value end = t.add(first, t.index(count + e.columns - e.rows));
  end = arith::MinSIOp::create(t.b, t.loc, end, t.index(e.columns));
  return arith::MaxSIOp::create(t.b, t.loc, end, t.index(0));
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

void BlockEmitter::emitForward(ThreadBuilder &t, Value out, Value lse) {
  int64_t blocks = llvm::divideCeil(e.rows, sizes.rows);
  Operands o;
  o.own = {e.q};
  o.tiles = {e.k, e.v};
  o.rowsAreQueries = true;
  Value number = e.function.tile;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  o.first = t.mul(t.mod(number, blocks), sizes.rows);
  o.ownHead = t.mod(t.div(number, blocks), e.heads);
  o.tileHead = t.div(o.ownHead, e.heads / e.kvHeads);
  o.batchIndex = t.div(number, blocks * e.heads);
  if (sizes.parts == 1)
    stageOwn(t, o, t.index(0));

  // The maximum and the sum of exponentials so far of both rows, then the sums.
  Fragment initial{infinity(t), infinity(t), constant(t, 0.0),
                   constant(t, 0.0)};
  initial.append(products.zeros(t, sizes.width));
  Fragment state = t.loop(
      t.index(0), visibleEnd(t, e, o.first, sizes.rows), sizes.tile, initial,
      [&](LoopBuilder &l, Value low, ValueRange carried) {
        ThreadBuilder t(l.b, loc, sizes.threads());
        Fragment state(carried);
        Fragment scores = multiplyTile(t, o, low);
        finishScores(t, o, low, o.ownHead, scores);
        Value shifts[2], sums[2];
        for (int64_t half : {0, 1}) {
          Value max = state[half];
          Value local;
          for (auto [i, score] : llvm::enumerate(scores))
            if (int64_t(i / 2 % 2) == half)
              local =
                  local ? t.combine(nn::ReduceKind::max, local, score) : score;
          local = t.combineThreads(nn::ReduceKind::max, local, 4);
          state[half] = t.combine(nn::ReduceKind::max, max, local);
          shifts[half] = finite(t, state[half]);
          Value factor = exp(t, max, shifts[half]);
          state[2 + half] =
              arith::MulFOp::create(t.b, loc, state[2 + half], factor);
          for (size_t i = 4; i < state.size(); ++i)
            if (int64_t(i / 2 % 2) == half)
              state[i] = arith::MulFOp::create(t.b, loc, state[i], factor);
        }
        for (auto [i, score] : llvm::enumerate(scores)) {
          int64_t half = i / 2 % 2;
          score = exp(t, score, shifts[half]);
          sums[half] = sums[half]
                           ? t.combine(nn::ReduceKind::sum, sums[half], score)
                           : score;
        }
        for (int64_t half : {0, 1}) {
          Value sum = t.combineThreads(nn::ReduceKind::sum, sums[half], 4);
          state[2 + half] =
              t.combine(nn::ReduceKind::sum, state[2 + half], sum);
        }
        Fragment next(ArrayRef<Value>(state).take_front(4));
        next.append(products.accumulate(t, scores, tiles[1],
                                        ArrayRef<Value>(state).drop_front(4)));
        return next;
      });

  if (lse)
    for (int64_t half : {0, 1}) {
      Value log = math::LogOp::create(t.b, loc, state[2 + half]);
      log = arith::AddFOp::create(t.b, loc, finite(t, state[half]), log);
      Value row = ownRow(t, o, half);
      // One of the 4 lanes of one part's block writes.
      Value other = t.add(products.column, o.part);
      Value stores = arith::AndIOp::create(
          t.b, loc, t.less(row, t.index(e.rows)),
          arith::CmpIOp::create(t.b, loc, arith::CmpIPredicate::eq, other,
                                t.index(0)));
      t.when(stores, [&](ThreadBuilder &t) {
        Value head = t.add(t.mul(o.batchIndex, e.heads), o.ownHead);
        t.storeScalar(log, lse, t.add(t.mul(head, e.rows), row), e.compute);
      });
    }
  if (!out)
    return;
  Fragment sums(ArrayRef<Value>(state).drop_front(4));
  Value divisors[2];
  for (int64_t half : {0, 1}) {
    Value isZero = arith::CmpFOp::create(t.b, loc, arith::CmpFPredicate::OEQ,
                                         state[2 + half], constant(t, 0.0));
    divisors[half] = select(t, isZero, constant(t, 1.0), state[2 + half]);
  }
  for (auto [i, sum] : llvm::enumerate(sums))
    sum = arith::DivFOp::create(t.b, loc, sum, divisors[i / 2 % 2]);
  storeRows(t, o, sums, {out, e.rows, e.heads * e.headSize, 0}, o.ownHead);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

std::pair<Value, Value> BlockEmitter::scoreGrad(ThreadBuilder &t, Value score,
                                                Value dp, Value lse,
                                                Value delta) {
  Value p = exp(t, score, lse);
  Value ds = arith::MulFOp::create(
      t.b, loc, p, arith::SubFOp::create(t.b, loc, dp, delta).getResult());
  return {p, arith::MulFOp::create(t.b, loc, ds, constant(t, e.scale))};
}

Value BlockEmitter::dotOut(ThreadBuilder &t, Value batchIndex, Value head,
                           Value row) {
  int64_t lanes = accessLanes();
  Value token = t.add(t.mul(batchIndex, e.rows), row);
  Value base = t.add(t.mul(token, e.out.stride), t.mul(head, e.headSize));
  Value first = t.mul(t.mod(t.thread(), 4), lanes);
  Value zero =
      t.neutral(nn::ReduceKind::sum, VectorType::get({lanes}, e.compute));
  Value sum =
      t.loop(first, t.index(e.headSize), 4 * lanes, zero,
             [&](LoopBuilder &l, Value d, ValueRange sum) {
               auto load = [&](Value memref) {
                 return l.loadVector(memref, l.add(base, d), e.element, Value(),
                                     lanes, /*aligned=*/true);
               };
               return SmallVector<Value>{math::FmaOp::create(
                   l.b, loc, load(e.out.memref), load(e.dout.memref), sum[0])};
             })
          .front();
  return t.combineThreads(nn::ReduceKind::sum,
                          t.combineLanes(nn::ReduceKind::sum, sum), 4);
}

Value BlockEmitter::loadLse(ThreadBuilder &t, Value batchIndex, Value head,
                            Value row) {
  Value at = t.add(t.mul(batchIndex, e.heads), head);
  return finite(t,
                t.loadScalar(e.lse, t.add(t.mul(at, e.rows), row), e.compute));
}

void BlockEmitter::emitQueryGrads(ThreadBuilder &t, Value number,
                                  HeadMatrix dq) {
  int64_t blocks = llvm::divideCeil(e.rows, sizes.rows);
  Operands o;
  o.own = {e.q, e.dout};
  o.tiles = {e.k, e.v};
  o.rowsAreQueries = true;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  o.first = t.mul(t.mod(number, blocks), sizes.rows);
  o.ownHead = t.mod(t.div(number, blocks), e.heads);
  o.tileHead = t.div(o.ownHead, e.heads / e.kvHeads);
  o.batchIndex = t.div(number, blocks * e.heads);
  Value lse[2], delta[2];
  for (int64_t half : {0, 1}) {
    Value row = t.min(ownRow(t, o, half), t.index(e.rows - 1));
    lse[half] = loadLse(t, o.batchIndex, o.ownHead, row);
    delta[half] = dotOut(t, o.batchIndex, o.ownHead, row);
  }
  if (sizes.parts == 1)
    stageOwn(t, o, t.index(0));
  Fragment sums =
      t.loop(t.index(0), visibleEnd(t, e, o.first, sizes.rows), sizes.tile,
             products.zeros(t, sizes.width),
             [&](LoopBuilder &l, Value low, ValueRange carried) {
               ThreadBuilder t(l.b, loc, sizes.threads());
               Fragment results = multiplyTile(t, o, low);
               MutableArrayRef<Value> all(results);
               auto scores = all.take_front(all.size() / 2);
               finishScores(t, o, low, o.ownHead, scores);
               for (auto [i, score] : llvm::enumerate(scores)) {
                 int64_t half = i / 2 % 2;
                 score = scoreGrad(t, score, all[scores.size() + i], lse[half],
                                   delta[half])
                             .second;
               }
               return products.accumulate(t, scores, tiles[0], carried);
             });
  storeRows(t, o, sums, dq, o.ownHead);
}

void BlockEmitter::emitKeyGrads(ThreadBuilder &t, Value number, HeadMatrix dk,
                                HeadMatrix dv) {
  int64_t blocks = llvm::divideCeil(e.columns, sizes.rows);
  int64_t group = e.heads / e.kvHeads;
  Operands o;
  o.own = {e.k, e.v};
  o.tiles = {e.q, e.dout};
  o.rowsAreQueries = false;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  o.first = t.mul(t.mod(number, blocks), sizes.rows);
  o.ownHead = t.mod(t.div(number, blocks), e.kvHeads);
  o.batchIndex = t.div(number, blocks * e.kvHeads);
  if (sizes.parts == 1)
    stageOwn(t, o, t.index(0));
  // The first tile with a query that sees one of the keys.
  Value begin = t.index(0);
  if (e.causal) {
    begin =
        arith::SubIOp::create(t.b, loc, o.first, t.index(e.columns - e.rows));
    begin = arith::MaxSIOp::create(t.b, loc, begin, t.index(0));
    begin = t.mul(t.div(begin, sizes.tile), sizes.tile);
  }
  // lse and out . dout of the queries of the tile: 4 threads have a query.
  auto prepare = [&](ThreadBuilder &t, Value low) {
    for (int64_t done = 0; done < sizes.tile; done += sizes.threads() / 4) {
      Value at = t.add(t.div(t.thread(), 4), t.index(done));
      Value row = t.min(t.add(low, at), t.index(e.rows - 1));
      Value delta = dotOut(t, o.batchIndex, o.tileHead, row);
      Value isFirst = arith::CmpIOp::create(t.b, loc, arith::CmpIPredicate::eq,
                                            t.mod(t.thread(), 4), t.index(0));
      Value stores = arith::AndIOp::create(t.b, loc, isFirst,
                                           t.less(at, t.index(sizes.tile)));
      t.when(stores, [&](ThreadBuilder &t) {
        Value lse = loadLse(t, o.batchIndex, o.tileHead, row);
        t.storeScalar(lse, statistics, at, e.compute);
        t.storeScalar(delta, statistics, t.add(at, t.index(sizes.tile)),
                      e.compute);
      });
    }
  };
  Fragment initial = products.zeros(t, 2 * sizes.width);
  Fragment sums = t.loop(
      t.index(0), t.index(group), 1, initial,
      [&](LoopBuilder &l, Value member, ValueRange carried) {
        Value head = l.add(l.mul(o.ownHead, group), member);
        o.tileHead = head;
        return l.loop(
            begin, l.index(e.rows), sizes.tile, carried,
            [&](LoopBuilder &l, Value low, ValueRange carried) {
              ThreadBuilder t(l.b, loc, sizes.threads());
              Fragment results = multiplyTile(
                  t, o, low, [&](ThreadBuilder &t) { prepare(t, low); });
              MutableArrayRef<Value> all(results);
              auto scores = all.take_front(all.size() / 2);
              auto grads = all.drop_front(all.size() / 2);
              finishScores(t, o, low, head, scores);
              for (auto [i, score] : llvm::enumerate(scores)) {
                Value at = t.add(products.column, t.index(i / 4 * 8 + i % 2));
                Value lse = t.loadScalar(statistics, at, e.compute);
                Value delta = t.loadScalar(
                    statistics, t.add(at, t.index(sizes.tile)), e.compute);
                std::tie(score, grads[i]) =
                    scoreGrad(t, score, grads[i], lse, delta);
              }
              size_t half = carried.size() / 2;
              Fragment next = products.accumulate(t, grads, tiles[0],
                                                  carried.take_front(half));
              next.append(products.accumulate(t, scores, tiles[1],
                                              carried.drop_front(half)));
              return next;
            });
      });
  ArrayRef<Value> all(sums);
  if (dk.memref)
    storeRows(t, o, all.take_front(all.size() / 2), dk, o.ownHead);
  if (dv.memref)
    storeRows(t, o, all.drop_front(all.size() / 2), dv, o.ownHead);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

static int64_t emitForward(AttentionEmitter &e, Value out, Value lse) {
  AttentionSizes sizes = chooseAttentionSizes(e.element, e.headSize, 1);
  OpBuilder b = OpBuilder::atBlockEnd(&e.function.function.getBody().front());
  ThreadBuilder t(b, e.loc, sizes.threads());
  e.function.function->setAttr("threads", b.getI64IntegerAttr(t.threads));
  BlockEmitter(e, t, sizes, 1).emitForward(t, out, lse);
  func::ReturnOp::create(b, e.loc);
  return e.batch * e.heads * llvm::divideCeil(e.rows, sizes.rows) * sizes.parts;
}

/// The blocks of keys come first: they have the most to do.
static int64_t emitBackward(AttentionEmitter &e, HeadMatrix dq, HeadMatrix dk,
                            HeadMatrix dv) {
  AttentionSizes sizes = chooseAttentionSizes(e.element, e.headSize, 2);
  OpBuilder b = OpBuilder::atBlockEnd(&e.function.function.getBody().front());
  ThreadBuilder t(b, e.loc, sizes.threads());
  e.function.function->setAttr("threads", b.getI64IntegerAttr(t.threads));
  BlockEmitter emitter(e, t, sizes, 2);
  auto countBlocks = [&](int64_t heads, int64_t length) {
    return e.batch * heads * llvm::divideCeil(length, sizes.rows) * sizes.parts;
  };
  int64_t ofKeys =
      dk.memref || dv.memref ? countBlocks(e.kvHeads, e.columns) : 0;
  int64_t ofQueries = dq.memref ? countBlocks(e.heads, e.rows) : 0;
  Value number = e.function.tile, keys = t.index(ofKeys);
  if (ofKeys)
    t.when(t.less(number, keys),
           [&](ThreadBuilder &t) { emitter.emitKeyGrads(t, number, dk, dv); });
  if (ofQueries) {
    Value isOfQueries = arith::CmpIOp::create(
        b, e.loc, arith::CmpIPredicate::uge, number, keys);
    t.when(isOfQueries, [&](ThreadBuilder &t) {
      Value own = arith::SubIOp::create(t.b, e.loc, number, keys);
      emitter.emitQueryGrads(t, own, dq);
    });
  }
  func::ReturnOp::create(b, e.loc);
  return ofKeys + ofQueries;
}

int64_t trainc::emitAttentionOnGPU(KernelFunction &function, Operation *op) {
  return dispatchAttention(function, op, emitForward, emitBackward);
}
