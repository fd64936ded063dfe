//===- AttentionBlock.cpp - Tiles of attention, on a GPU ------------------===//
#include "AttentionBlock.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "trainc/Dialect/NN/NNBuilders.h"
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

Fragment AttentionBlock::stageAndMultiply(ThreadBuilder &t,
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
    return stageAndMultiply(t, o, tile);
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
