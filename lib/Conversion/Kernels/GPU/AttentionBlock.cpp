//===- AttentionBlock.cpp - Tiles and scores of attention, on a GPU -------===//
#include "AttentionBlock.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// What every GPU gives a block that does not ask for more.
static constexpr int64_t kSharedBytes = 48 << 10;
/// Most bytes of a row that a warp sums at once: its registers.
static constexpr int64_t kSumBytes = 512;
/// Most bytes of a row of a sum and of a product in the gradient, which has two of
/// each.
static constexpr int64_t kGradBytes = 640;

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
  AttentionSizes sizes(element);
  for (sizes.parts = 1;; ++sizes.parts) {
    sizes.width =
        llvm::alignTo(llvm::divideCeil(headSize, sizes.parts), kWarpRows);
    if (sizes.width * sizes.computeBytes > kSumBytes)
      continue;
    for (int64_t warps : {4, 2, 1})
      for (int64_t tile : {64, 32, 16}) {
        // Registers for two products and two sums of the gradient.
        if (owned > 1 && (tile + sizes.width) * sizes.computeBytes > kGradBytes)
          continue;
        sizes.rows = warps * kWarpRows;
        sizes.tile = tile;
        if (sizes.bytes(owned) <= kSharedBytes)
          return sizes;
      }
  }
}

AttentionBlock::AttentionBlock(AttentionEmitter &e, ThreadBuilder &t,
                               AttentionSizes sizes, int64_t owned)
    : e(e), loc(e.loc), sizes(sizes),
      products(t, sizes, e.element, /*accumulates=*/true) {
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

int64_t AttentionBlock::accessLanes() const {
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

void AttentionBlock::copyAsync(ThreadBuilder &t, Value from, Value at, Value to,
                               Value sharedAt, Value inside) {
  Value all = arith::ConstantIntOp::create(t.b, loc, 16, 32);
  Value none = arith::ConstantIntOp::create(t.b, loc, 0, 32);
  NVVM::CpAsyncOp::create(
      t.b, loc, pointerTo(t, to, sharedAt, NVVM::NVVMMemorySpace::Shared),
      pointerTo(t, from, at, NVVM::NVVMMemorySpace::Global), 16,
      NVVM::LoadCacheModifierKind::CG, select(t, inside, all, none));
}

void AttentionBlock::awaitCopies(ThreadBuilder &t) {
  if (copiesAsync()) {
    NVVM::CpAsyncCommitGroupOp::create(t.b, loc);
    NVVM::CpAsyncWaitGroupOp::create(t.b, loc, 0);
  }
  t.barrier();
}

void AttentionBlock::stage(ThreadBuilder &t, const HeadMatrix &matrix,
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

void AttentionBlock::stageOwn(ThreadBuilder &t, const AttentionOperands &o,
                              Value d) {
  for (auto [matrix, to] : llvm::zip(o.own, own))
    stage(t, matrix, o.batchIndex, o.ownHead, o.first, d, sizes.rows, to);
}

void AttentionBlock::stageTiles(ThreadBuilder &t, const AttentionOperands &o,
                                Value low, Value d, size_t count) {
  for (size_t i = 0; i < count; ++i)
    stageTile(t, o, i, low, d);
}

Fragment AttentionBlock::multiplyStaged(ThreadBuilder &t,
                                        const AttentionOperands &o, Value low,
                                        Value end) {
  awaitCopies(t); // and all have done with the second tile before
  stageTile(t, o, 1, low, t.index(0));
  Fragment results =
      products.multiply(t, own[0], tiles[0], products.zeros(t, sizes.tile));
  awaitCopies(t); // and all have done with the first tile
  Value next = t.add(low, t.index(sizes.tile));
  t.when(t.less(next, end),
         [&](ThreadBuilder &t) { stageTile(t, o, 0, next, t.index(0)); });
  return results;
}

Fragment
AttentionBlock::multiplyTile(ThreadBuilder &t, const AttentionOperands &o,
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

void AttentionBlock::storeRows(ThreadBuilder &t, const AttentionOperands &o,
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

Value AttentionBlock::finite(ThreadBuilder &t, Value value) {
  Value isMasked = arith::CmpFOp::create(t.b, loc, arith::CmpFPredicate::OEQ,
                                         value, infinity(t));
  return select(t, isMasked, constant(t, 0.0), value);
}

Value AttentionBlock::loadMask(ThreadBuilder &t, Value batchIndex, Value head,
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

Value AttentionBlock::loadSegment(ThreadBuilder &t, Value batchIndex,
                                  Value position) {
  // What is past the end reads the last element.
  position = t.min(position, t.index(e.rows - 1));
  return t.loadScalar(e.segments, t.add(t.mul(batchIndex, e.rows), position),
                      e.segmentElement);
}

void AttentionBlock::finishScores(ThreadBuilder &t, const AttentionOperands &o,
                                  Value low, Value head,
                                  MutableArrayRef<Value> scores) {
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
    if (e.segments) {
      Value isSame = arith::CmpIOp::create(t.b, loc, arith::CmpIPredicate::eq,
                                           loadSegment(t, o.batchIndex, query),
                                           loadSegment(t, o.batchIndex, key));
      score = select(t, isSame, score, infinity);
    }
    if (e.causal) {
      // Key j is visible to query i where j <= i + columns - rows.
      Value bound = t.add(query, t.index(e.columns - e.rows));
      Value isVisible = arith::CmpIOp::create(
          t.b, loc, arith::CmpIPredicate::sle, key, bound);
      score = select(t, isVisible, score, infinity);
      if (e.window) {
        Value before =
            arith::SubIOp::create(t.b, loc, bound, t.index(*e.window));
        Value isInside = arith::CmpIOp::create(
            t.b, loc, arith::CmpIPredicate::sgt, key, before);
        score = select(t, isInside, score, infinity);
      }
    }
    if (tileLength % sizes.tile != 0)
      score = select(t, t.less(column, t.index(tileLength)), score, infinity);
  }
}

Fragment AttentionBlock::drawScores(ThreadBuilder &t,
                                    const AttentionOperands &o, Value low,
                                    Value head, size_t count) {
  Fragment words;
  if (!e.rate)
    return words;
  nn::RandomCounter counter = e.loadCounter(t);
  Value headDraw = e.firstDrawOf(t, o.batchIndex, head);
  auto indexAt = [&](Value query, Value key) -> Value {
    Value at = t.add(headDraw, t.add(t.mul(query, e.drawStrides[3]), key));
    return arith::IndexCastOp::create(t.b, loc, t.b.getI64Type(), at);
  };
  if (!o.rowsAreQueries) {
    for (size_t i = 0; i < count; ++i) {
      Value query =
          t.add(low, t.add(products.column, t.index(i / 4 * 8 + i % 2)));
      counter.index = indexAt(query, ownRow(t, o, i / 2 % 2));
      words.push_back(nn::buildRandomWord(t.b, loc, counter));
    }
    return words;
  }
  // Both columns of a thread are of one group of 4, its first or second half.
  Value isSecond =
      arith::CmpIOp::create(t.b, loc, arith::CmpIPredicate::ne,
                            t.mod(t.div(products.column, 2), 2), t.index(0));
  Value two = arith::ConstantOp::create(t.b, loc, t.b.getI64IntegerAttr(2));
  for (size_t i = 0; i < count; i += 2) {
    Value key = t.add(low, t.add(products.column, t.index(i / 4 * 8)));
    counter.index = arith::ShRUIOp::create(
        t.b, loc, indexAt(ownRow(t, o, i / 2 % 2), key), two);
    auto group = nn::buildRandomWords(t.b, loc, counter);
    for (size_t c : {0, 1})
      words.push_back(select(t, isSecond, group[2 + c], group[c]));
  }
  return words;
}

Value AttentionBlock::visibleBegin(ThreadBuilder &t, Value first) {
  if (!e.window)
    return t.index(0);
  Value key = t.add(first, t.index(e.columns - e.rows - *e.window + 1));
  key = arith::MaxSIOp::create(t.b, loc, key, t.index(0));
  return t.mul(t.div(key, sizes.tile), sizes.tile);
}

Value trainc::visibleEnd(ThreadBuilder &t, const AttentionEmitter &e,
                         Value first, int64_t count) {
  if (!e.causal)
    return t.index(e.columns);
  Value end = t.add(first, t.index(count + e.columns - e.rows));
  end = arith::MinSIOp::create(t.b, t.loc, end, t.index(e.columns));
  return arith::MaxSIOp::create(t.b, t.loc, end, t.index(0));
}
