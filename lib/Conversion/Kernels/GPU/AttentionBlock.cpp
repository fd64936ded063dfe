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
/// Most registers of a lane for sums, products and own rows of the gradient: with simple
/// scores, with others, and of short rows, so few that more blocks are at work.
static constexpr int64_t kSimpleGradRegisters = 208, kGradRegisters = 160;
static constexpr int64_t kShortGradRegisters = 128;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

int64_t AttentionSizes::firstOwn(int64_t owned) const {
  if (doubled && owned * rows <= ahead())
    return ahead();
  int64_t all = tileRows() + owned * rows;
  bool fits = all * stride() * storedBytes + statisticsBytes() <= kSharedBytes;
  return doubled && !fits ? 0 : tileRows();
}

int64_t AttentionSizes::bytes(int64_t owned) const {
  int64_t all = std::max(tileRows(), firstOwn(owned) + owned * rows);
  int64_t result = all * stride() * storedBytes + statisticsBytes();
  if (!tensor)
    result += rows * weightStride() * computeBytes;
  return result;
}

/// Chooses rows and tile for what is set, if there is such a choice.
static bool chooseTile(AttentionSizes &sizes, int64_t owned,
                       int64_t mostRegisters) {
  for (int64_t warps : {4, 2, 1})
    for (int64_t tile : {64, 32, 16}) {
      sizes.rows = warps * kWarpRows;
      sizes.tile = tile;
      bool fits = owned == 1 || sizes.gradRegisters() <= mostRegisters;
      if (fits && sizes.bytes(owned) <= kSharedBytes)
        return true;
    }
  return false;
}

AttentionSizes trainc::chooseAttentionSizes(const AttentionEmitter &e,
                                            int64_t owned) {
  AttentionSizes sizes(e.element);
  for (sizes.parts = 1;; ++sizes.parts) {
    sizes.width =
        llvm::alignTo(llvm::divideCeil(e.headSize, sizes.parts), kWarpRows);
    if (sizes.width * sizes.computeBytes > kSumBytes)
      continue;
    sizes.doubled = sizes.tensor && sizes.parts == 1;
    int64_t most = sizes.width <= kShortRow ? kShortGradRegisters
                   : hasSimpleScores(e)     ? kSimpleGradRegisters
                                            : kGradRegisters;
    if (sizes.doubled && chooseTile(sizes, owned, most))
      return sizes;
    sizes.doubled = false;
    if (chooseTile(sizes, owned, kGradRegisters))
      return sizes;
  }
}

bool trainc::hasSimpleScores(const AttentionEmitter &e) {
  constexpr int64_t mostRows = 64; // of a block or a tile
  return !e.mask && !e.segments && !e.window && !e.rate &&
         e.rows % mostRows == 0 && e.columns % mostRows == 0;
}

AttentionBlock::AttentionBlock(AttentionEmitter &e, ThreadBuilder &t,
                               AttentionSizes sizes, int64_t owned)
    : e(e), loc(e.loc), sizes(sizes),
      products(t, sizes, e.element, /*accumulates=*/true), owned(owned) {
  int64_t rows =
      std::max(sizes.tileRows(), sizes.firstOwn(owned) + owned * sizes.rows);
  memory = t.shared(products.stored, rows * sizes.stride());
  if (owned > 1)
    statistics = t.shared(e.compute, (sizes.doubled ? 2 : 1) * 2 * sizes.tile);
  bool addsMask = e.mask && !e.maskElement.isInteger(1);
  scalesLate = e.scale > 0 && !addsMask;
  factor = scalesLate ? e.scale * kLog2E : 1.0;
}

//===----------------------------------------------------------------------===//
// Copies
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

/// The pointer `bytes` behind another.
static Value behind(ThreadBuilder &t, Value pointer, int64_t bytes) {
  if (bytes == 0)
    return pointer;
  return LLVM::GEPOp::create(
      t.b, t.loc, pointer.getType(), t.b.getI8Type(), pointer,
      ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(static_cast<int32_t>(bytes))});
}

void AttentionBlock::copyAsync(ThreadBuilder &t, Value from, Value to,
                               Value inside) {
  Value count;
  if (inside)
    count = select(t, inside, arith::ConstantIntOp::create(t.b, loc, 16, 32),
                   arith::ConstantIntOp::create(t.b, loc, 0, 32));
  NVVM::CpAsyncOp::create(t.b, loc, to, from, 16,
                          NVVM::LoadCacheModifierKind::CG, count);
}

void AttentionBlock::awaitCopies(ThreadBuilder &t) {
  if (copiesAsync()) {
    NVVM::CpAsyncCommitGroupOp::create(t.b, loc);
    NVVM::CpAsyncWaitGroupOp::create(t.b, loc, 0);
  }
  t.barrier();
}

bool AttentionBlock::stageWhole(ThreadBuilder &t, const HeadMatrix &matrix,
                                Value start, Value first, int64_t count,
                                const TileRows &to) {
  int64_t lanes = accessLanes(), ofRow = sizes.width / lanes;
  int64_t step = t.threads / ofRow; // rows from one copy to the next
  if (!copiesAsync() || sizes.width != e.headSize ||
      matrix.length % count != 0 || t.threads % ofRow != 0 || count % step != 0)
    return false;
  Value row = t.div(t.thread(), ofRow);
  Value column = t.mul(t.mod(t.thread(), ofRow), lanes);
  Value at = t.add(t.mul(t.add(first, row), matrix.stride), start);
  Value from = pointerTo(t, matrix.memref, t.add(at, column),
                         NVVM::NVVMMemorySpace::Global);
  Value shared = t.add(to.start, t.mul(row, sizes.stride()));
  Value target = pointerTo(t, to.memref, t.add(shared, column),
                           NVVM::NVVMMemorySpace::Shared);
  for (int64_t done = 0; done < count; done += step)
    copyAsync(t, behind(t, from, done * matrix.stride * sizes.storedBytes),
              behind(t, target, done * sizes.stride() * sizes.storedBytes),
              /*inside=*/Value());
  return true;
}

void AttentionBlock::stage(ThreadBuilder &t, const HeadMatrix &matrix,
                           Value batchIndex, Value head, Value first, Value d,
                           int64_t count, const TileRows &to) {
  constexpr int64_t atOnce = 8; // loads before the first store
  int64_t lanes = accessLanes(), ofRow = sizes.width / lanes;
  int64_t total = count * ofRow, threads = t.threads;
  Value start = t.mul(head, e.headSize);
  if (matrix.offset)
    start = t.add(start, t.index(matrix.offset));
  start = t.add(start, t.mul(batchIndex, matrix.length * matrix.stride));
  if (stageWhole(t, matrix, start, first, count, to))
    return;
  auto type = VectorType::get({lanes}, e.compute);
  Value zero = nn::splatConstant(t.b, loc, type, 0.0);
  auto sharedAt = [&](ThreadBuilder &t, Value number) {
    Value row = t.mul(t.div(number, ofRow), sizes.stride());
    return t.add(t.add(to.start, row), t.mul(t.mod(number, ofRow), lanes));
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
    Value at = t.add(t.add(t.mul(row, matrix.stride), start), column);
    if (copiesAsync()) {
      copyAsync(t,
                pointerTo(t, matrix.memref, at, NVVM::NVVMMemorySpace::Global),
                pointerTo(t, to.memref, sharedAt(t, number),
                          NVVM::NVVMMemorySpace::Shared),
                inside);
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
        t.storeVector(value, to.memref, sharedAt(t, number), products.stored,
                      Value(), lanes, /*aligned=*/true);
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
  for (auto [i, matrix] : llvm::enumerate(o.own))
    stage(t, matrix, o.batchIndex, o.ownHead, o.first, d, sizes.rows,
          ownRows(t, i));
}

void AttentionBlock::stageTiles(ThreadBuilder &t, const AttentionOperands &o,
                                const AttentionTile &tile, Value d,
                                size_t count) {
  for (size_t i = 0; i < count; ++i)
    stageTile(t, o, i, tile, d);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

Fragment AttentionBlock::forTiles(ThreadBuilder &t, const AttentionOperands &o,
                                  ValueRange initial, TileBody body) {
  if (sizes.doubled)
    return forTilesAhead(t, o, initial, body);
  if (sizes.parts == 1)
    stageOwn(t, o, t.index(0));
  return t.loop(t.index(0), t.index(o.members), 1, initial,
                [&](LoopBuilder &l, Value member, ValueRange carried) {
                  Value head = l.add(o.tileHead, member);
                  return l.loop(
                      o.begin, o.end, sizes.tile, carried,
                      [&](LoopBuilder &l, Value low, ValueRange carried) {
                        ThreadBuilder t(l.b, loc, sizes.threads());
                        return body(t, {head, low, Value(), Value()}, carried);
                      });
                });
}

Fragment AttentionBlock::forTilesAhead(ThreadBuilder &t,
                                       const AttentionOperands &o,
                                       ValueRange initial, TileBody body) {
  Value zero = t.index(0);
  AttentionTile first{o.tileHead, o.begin, zero, zero};
  auto stageFirst = [&] {
    stageTiles(t, o, first, zero, o.tiles.size());
    storeStatistics(t, o, first, loadStatistics(t, o, first));
  };
  int64_t firstOwn = sizes.firstOwn(owned);
  stageOwn(t, o, zero);
  if (firstOwn > 0)
    stageFirst();
  awaitCopies(t);
  loaded.clear();
  for (size_t i = 0; i < o.own.size(); ++i)
    loaded.push_back(products.load(t, ownRows(t, i)));
  if (firstOwn < sizes.tileRows())
    t.barrier(); // tiles come to stand there
  if (firstOwn == 0) {
    stageFirst();
    awaitCopies(t);
  }
  Value last = t.index(o.members - 1);
  auto run = [&](ThreadBuilder &t, Value member, Value low,
                 ValueRange carried) {
    size_t count = carried.size() - 2;
    AttentionTile tile{t.add(o.tileHead, member), low, carried[count],
                       carried[count + 1]};
    auto other = [&](Value at, int64_t distance) -> Value {
      return arith::SubIOp::create(t.b, loc, t.index(distance), at);
    };
    AttentionTile next{tile.head, t.add(low, t.index(sizes.tile)),
                       other(tile.at, sizes.ahead() * sizes.stride()),
                       other(tile.statistics, 2 * sizes.tile)};
    // Behind the last tile of a head comes the first one of the next head.
    Value isThere = t.less(next.low, o.end);
    if (o.members > 1) {
      Value another = t.min(t.add(member, t.index(1)), last);
      next.head = select(t, isThere, tile.head, t.add(o.tileHead, another));
      next.low = select(t, isThere, next.low, o.begin);
      isThere = either(t, isThere, t.less(member, last));
    }
    t.when(isThere, [&](ThreadBuilder &t) {
      stageTiles(t, o, next, zero, o.tiles.size());
    });
    Fragment shifts = loadStatistics(t, o, next);
    Fragment results = body(t, tile, carried.take_front(count));
    storeStatistics(t, o, next, shifts);
    awaitCopies(t); // and all have done with this tile
    results.append({next.at, next.statistics});
    return results;
  };
  Fragment carried(initial);
  carried.append({first.at, first.statistics});
  Fragment results = t.loop(
      zero, t.index(o.members), 1, carried,
      [&](LoopBuilder &l, Value member, ValueRange carried) {
        return l.loop(o.begin, o.end, sizes.tile, carried,
                      [&](LoopBuilder &l, Value low, ValueRange carried) {
                        ThreadBuilder t(l.b, loc, sizes.threads());
                        return run(t, member, low, carried);
                      });
      });
  results.pop_back_n(2);
  return results;
}

Fragment AttentionBlock::multiplyStaged(ThreadBuilder &t,
                                        const AttentionOperands &o,
                                        const AttentionTile &tile) {
  awaitCopies(t); // and all have done with the second tile before
  stageTile(t, o, 1, tile, t.index(0));
  Fragment results = products.multiply(t, ownRows(t, 0), tileRows(t, 0, tile),
                                       products.zeros(t, sizes.tile));
  awaitCopies(t); // and all have done with the first tile
  AttentionTile next{tile.head, t.add(tile.low, t.index(sizes.tile)), Value(),
                     Value()};
  t.when(t.less(next.low, o.end),
         [&](ThreadBuilder &t) { stageTile(t, o, 0, next, t.index(0)); });
  return results;
}

Fragment AttentionBlock::multiplyParts(ThreadBuilder &t,
                                       const AttentionOperands &o,
                                       const AttentionTile &tile) {
  size_t count = o.own.size();
  auto multiply = [&](ThreadBuilder &t, ValueRange sums) {
    Fragment results;
    for (size_t i = 0; i < count; ++i)
      results.append(products.multiply(
          t, ownRows(t, i), tileRows(t, i, tile),
          sums.slice(i * sums.size() / count, sums.size() / count)));
    return results;
  };
  Fragment zeros = products.zeros(t, count * sizes.tile);
  t.barrier(); // all have done with the tile before
  storeStatistics(t, o, tile, loadStatistics(t, o, tile));
  if (sizes.parts == 1) {
    stageTiles(t, o, tile, t.index(0), o.tiles.size());
    awaitCopies(t);
    return multiply(t, zeros);
  }
  Fragment results =
      t.loop(t.index(0), t.index(sizes.parts * sizes.width), sizes.width, zeros,
             [&](LoopBuilder &l, Value d, ValueRange sums) {
               ThreadBuilder t(l.b, loc, sizes.threads());
               stageOwn(t, o, d);
               stageTiles(t, o, tile, d, count);
               awaitCopies(t);
               Fragment next = multiply(t, sums);
               t.barrier();
               return next;
             });
  stageTiles(t, o, tile, t.mul(o.part, sizes.width), o.tiles.size());
  awaitCopies(t);
  return results;
}

Fragment AttentionBlock::multiplyTiles(ThreadBuilder &t,
                                       const AttentionOperands &o,
                                       const AttentionTile &tile) {
  if (!sizes.doubled)
    return multiplyParts(t, o, tile);
  Fragment results;
  for (auto [i, own] : llvm::enumerate(loaded))
    results.append(products.multiplyLoaded(t, own, tileRows(t, i, tile),
                                           products.zeros(t, sizes.tile)));
  return results;
}

void AttentionBlock::storeRows(ThreadBuilder &t, const AttentionOperands &o,
                               ValueRange sums, const HeadMatrix &to,
                               Value head) {
  Value d = t.add(t.mul(o.part, sizes.width), products.column);
  int64_t lanes = e.headSize % 2 == 0 ? 2 : 1;
  for (int64_t half : {0, 1}) {
    Value row = ownRow(t, o, half);
    auto storeRow = [&](ThreadBuilder &t) {
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
    };
    if (to.length % sizes.rows == 0)
      storeRow(t);
    else
      t.when(t.less(row, t.index(to.length)), storeRow);
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

Value AttentionBlock::exp2(ThreadBuilder &t, Value score, Value shift) {
  Value x =
      factor == 1.0
          ? arith::AddFOp::create(t.b, loc, score, shift).getResult()
          : math::FmaOp::create(t.b, loc, score, constant(t, factor), shift)
                .getResult();
  if (!e.compute.isF32())
    return math::Exp2Op::create(t.b, loc, x);
  return LLVM::CallIntrinsicOp::create(
             t.b, loc, e.compute, t.b.getStringAttr("llvm.nvvm.ex2.approx.ftz"),
             ValueRange(x))
      .getResult(0);
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

Value AttentionBlock::hidesSome(ThreadBuilder &t, const AttentionOperands &o,
                                const AttentionTile &tile) {
  Value result, end = t.add(tile.low, t.index(sizes.tile));
  auto orAbove = [&](Value x, Value y) {
    result = either(t, result, compare(t, arith::CmpIPredicate::sgt, x, y));
  };
  auto fromFirst = [&](int64_t distance) {
    return t.add(o.first, t.index(distance));
  };
  int64_t shift = e.columns - e.rows;
  if (e.causal && o.rowsAreQueries) {
    orAbove(end, fromFirst(shift + 1)); // of the first query
    if (e.window)                       // of the last one
      orAbove(fromFirst(sizes.rows + shift - *e.window), tile.low);
  } else if (e.causal) {
    orAbove(fromFirst(sizes.rows - 1 - shift), tile.low); // of the last key
    if (e.window)                                         // of the first one
      orAbove(end, fromFirst(*e.window - shift));
  }
  int64_t length = o.rowsAreQueries ? e.columns : e.rows;
  if (length % sizes.tile != 0)
    orAbove(end, t.index(length));
  return result;
}

void AttentionBlock::hideScores(ThreadBuilder &t, const AttentionOperands &o,
                                const AttentionTile &tile,
                                MutableArrayRef<Value> scores) {
  // The lane's first row sees its columns from `low` to below `high`. Key j is visible to
  // query i where i + shift - window < j <= i + shift.
  Value row = ownRow(t, o, 0), first = t.add(tile.low, products.column);
  auto place = [&](Value x, int64_t distance) -> Value {
    x = arith::SubIOp::create(t.b, loc, t.add(x, t.index(distance)), first);
    return arith::IndexCastOp::create(t.b, loc, t.b.getI32Type(), x);
  };
  int64_t shift = e.columns - e.rows, window = e.window.value_or(0);
  int64_t length = o.rowsAreQueries ? e.columns : e.rows;
  Value low, high, end;
  if (e.causal && o.rowsAreQueries)
    high = place(row, shift + 1);
  else if (e.causal)
    low = place(row, -shift);
  if (e.window && o.rowsAreQueries)
    low = place(row, shift + 1 - window);
  else if (e.window)
    high = place(row, window - shift);
  if (length % sizes.tile != 0)
    end = place(t.index(length), 0);
  Value infinity = this->infinity(t);
  for (auto [i, score] : llvm::enumerate(scores)) {
    int64_t half = i / 2 % 2;
    auto hide = [&](arith::CmpIPredicate predicate, Value bound,
                    int64_t column) {
      if (!bound)
        return;
      Value isSeen =
          compare(t, predicate, bound,
                  arith::ConstantIntOp::create(t.b, loc, column, 32));
      score = select(t, isSeen, score, infinity);
    };
    int64_t column = i / 4 * 8 + i % 2, fromRow = column - half * 8;
    hide(arith::CmpIPredicate::sle, low, fromRow);
    hide(arith::CmpIPredicate::sgt, high, fromRow);
    hide(arith::CmpIPredicate::sgt, end, column);
  }
}

void AttentionBlock::finishScores(ThreadBuilder &t, const AttentionOperands &o,
                                  const AttentionTile &tile,
                                  MutableArrayRef<Value> scores) {
  Value infinity = this->infinity(t);
  for (auto [i, score] : llvm::enumerate(scores)) {
    if (!scalesLate)
      score = mul(t, score, constant(t, e.scale * kLog2E));
    if (!e.mask && !e.segments)
      continue;
    Value row = ownRow(t, o, i / 2 % 2);
    Value column =
        t.add(tile.low, t.add(products.column, t.index(i / 4 * 8 + i % 2)));
    Value query = o.rowsAreQueries ? row : column;
    Value key = o.rowsAreQueries ? column : row;
    if (e.mask) {
      Value head = o.rowsAreQueries ? o.ownHead : tile.head;
      Value value = loadMask(t, o.batchIndex, head, query, key);
      if (e.maskElement.isInteger(1))
        score = select(t, value, score, infinity);
      else
        score =
            math::FmaOp::create(t.b, loc, value, constant(t, kLog2E), score);
    }
    if (e.segments) {
      Value isSame = compare(t, arith::CmpIPredicate::eq,
                             loadSegment(t, o.batchIndex, query),
                             loadSegment(t, o.batchIndex, key));
      score = select(t, isSame, score, infinity);
    }
  }
  Value hides = hidesSome(t, o, tile);
  if (!hides) {
    // Without a branch ptxas loads operands of later products already here, and spills.
    Value all = arith::ConstantIntOp::create(t.b, loc, -1, 32);
    NVVM::SyncWarpOp::create(t.b, loc, all);
    return;
  }
  auto yield = [&](bool hidden) {
    return [&, hidden](OpBuilder &b, Location loc) {
      Fragment results(scores);
      ThreadBuilder inner(b, loc, t.threads);
      if (hidden)
        hideScores(inner, o, tile, results);
      scf::YieldOp::create(b, loc, results);
    };
  };
  auto branch = scf::IfOp::create(t.b, loc, hides, yield(true), yield(false));
  llvm::copy(branch.getResults(), scores.begin());
}

Fragment AttentionBlock::drawScores(ThreadBuilder &t,
                                    const AttentionOperands &o,
                                    const AttentionTile &tile, size_t count) {
  Fragment words;
  if (!e.rate)
    return words;
  nn::RandomCounter counter = e.loadCounter(t);
  Value headDraw =
      e.firstDrawOf(t, o.batchIndex, o.rowsAreQueries ? o.ownHead : tile.head);
  auto indexAt = [&](Value query, Value key) -> Value {
    Value at = t.add(headDraw, t.add(t.mul(query, e.drawStrides[3]), key));
    return arith::IndexCastOp::create(t.b, loc, t.b.getI64Type(), at);
  };
  if (!o.rowsAreQueries) {
    for (size_t i = 0; i < count; ++i) {
      Value query =
          t.add(tile.low, t.add(products.column, t.index(i / 4 * 8 + i % 2)));
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
    Value key = t.add(tile.low, t.add(products.column, t.index(i / 4 * 8)));
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
