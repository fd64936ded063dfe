//===- ReduceGradients.cpp - Sums of gradients over ranks -----------------===//
#include "ReduceGradients.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/PlanValues.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

SmallVector<ArenaOp> GradientReducer::gradientArenas() {
  SmallVector<ArenaOp> arenas;
  for (auto arena : step->getParentOfType<ModuleOp>().getOps<ArenaOp>()) {
    if (arena.getRole() != "gradients" || getExchange(step, arena).pieces == 1)
      continue;
    auto slice = cast<FlatSymbolRefAttr>(arena.getSlices()[0]);
    if (step.trains(symbols.lookup<ParamOp>(slice.getAttr())))
      arenas.push_back(arena);
  }
  return arenas;
}

/// `value`, of `arena`, with this rank's piece of elements [first, first + count) summed
/// over ranks.
Value GradientReducer::sumRange(OpBuilder &b, ArenaOp arena, Value value,
                                int64_t first, int64_t count) {
  Location loc = arena.getLoc();
  Exchange exchange = getExchange(step, arena);
  auto range = b.getDenseI64ArrayAttr({first, count});
  value = ReduceScatterOp::create(b, loc, value.getType(), value,
                                  exchange.pieceAxes, range);
  if (!exchange.otherAxes.empty())
    value = AllReduceOp::create(b, loc, value.getType(), value,
                                exchange.otherAxes, range, exchange.pieceAxes);
  ++reduced;
  return value;
}

/// The gradients of `arena`, of which this rank's pieces are summed over ranks.
Value GradientReducer::sumGradients(OpBuilder &b, ArenaOp arena) {
  Value value = ReadOp::create(b, arena.getLoc(), arena.getFlatType(),
                               SymbolRefAttr::get(arena.getSymNameAttr()));
  for (const ArenaOp::Bucket &bucket : arena.getAllBuckets())
    value = sumRange(b, arena, value, bucket.first, bucket.count);
  return value;
}

/// Gives every rank all pieces of `value`, gradients laid out as `arena`.
Value GradientReducer::gatherGradients(OpBuilder &b, ArenaOp arena,
                                       Value value) {
  for (const ArenaOp::Bucket &bucket : arena.getAllBuckets()) {
    value = AllGatherOp::create(
        b, arena.getLoc(), value.getType(), value,
        getExchange(step, arena).pieceAxes,
        b.getDenseI64ArrayAttr({bucket.first, bucket.count}));
    ++gathered;
  }
  return value;
}

void GradientReducer::reduceOnce(OpBuilder b) {
  for (ArenaOp arena : gradientArenas()) {
    Value value = sumGradients(b, arena);
    if (!sharded)
      value = gatherGradients(b, arena, value);
    WriteOp::create(b, arena.getLoc(), value,
                    SymbolRefAttr::get(arena.getSymNameAttr()));
  }
}

//===----------------------------------------------------------------------===//
// In every micro-step
//===----------------------------------------------------------------------===//

/// The arena for what is summed over ranks of `gradients`: this rank's pieces. Steps
/// share it.
ArenaOp GradientReducer::addMerged(ArenaOp gradients) {
  StringRef element = gradients.getSymName();
  element.consume_front(kGradientArena);
  std::string name = (kMergedArena + element).str();
  if (auto existing = symbols.lookup<ArenaOp>(name))
    return existing;
  ArenaOp merged = gradients.clone();
  merged.setSymName(name);
  merged.setRole("merged gradients");
  Exchange exchange = getExchange(step, gradients);
  merged.setShardAttr(exchange.pieceAxes);
  merged.setPieces(SmallVector<bool>(gradients.getAllBuckets().size(), true));
  merged.setBytes(gradients.getBytes() / exchange.pieces);
  symbols.insert(merged, std::next(gradients->getIterator()));
  return merged;
}

/// Sets each element of segments of the first array, in place, to what `element` makes
/// of those of all arrays, the block's first arguments, and of the uniform operands.
Value GradientReducer::mapSegments(
    OpBuilder &b, Location loc, ValueRange arrays, ValueRange uniforms,
    Value shard, const Segments &segments,
    function_ref<Value(OpBuilder &, Block &)> element) {
  SmallVector<Attribute> offsets;
  for (ArrayRef<int64_t> list : segments.offsets)
    offsets.push_back(b.getDenseI64ArrayAttr(list));
  auto map = SegmentMapOp::create(
      b, loc, arrays.front().getType(), arrays, uniforms,
      /*grouped=*/ValueRange(), /*each=*/ValueRange(), shard, segments.lengths,
      SmallVector<int64_t>(segments.lengths.size(), 0), b.getArrayAttr(offsets),
      /*indexed=*/false, DenseI64ArrayAttr(), DenseI64ArrayAttr(),
      b.getDenseI64ArrayAttr(segments.shards),
      /*targets=*/ArrayRef<int64_t>{0});
  Block &block = map.getBody().emplaceBlock();
  for (ValueRange values : {arrays, uniforms})
    for (Value value : values)
      block.addArgument(nn::getTensorType(value).getElementType(), loc);
  OpBuilder inner = OpBuilder::atBlockEnd(&block);
  train::YieldOp::create(inner, loc, element(inner, block), Value(), Value());
  return map.getResult(0);
}

/// This rank's pieces of all buckets, which each of `arenas` has in pieces or whole.
GradientReducer::Segments GradientReducer::piecesOf(ArrayRef<ArenaOp> arenas) {
  int64_t pieces = getExchange(step, arenas.front()).pieces;
  Segments segments;
  for (ArenaOp arena : arenas) {
    SmallVector<int64_t> &starts = segments.offsets.emplace_back();
    for (int64_t piece = 0; piece < pieces; ++piece)
      for (const ArenaOp::Bucket &bucket : arena.getAllBuckets())
        starts.push_back(
            bucket.localFirst +
            (bucket.isPiece() ? 0 : piece * bucket.count / pieces));
  }
  ArenaOp target = arenas.front();
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (const ArenaOp::Bucket &bucket : target.getAllBuckets())
      segments.lengths.push_back(bucket.count / pieces);
    segments.shards.push_back(segments.lengths.size());
  }
  return segments;
}

/// Whether this micro-step begins a window.
static Value readBegins(OpBuilder &b, StepOp step) {
  Location loc = step.getLoc();
  std::string name = windowScalar(getWindow(step), "micro_step");
  return nn::CompareOp::create(b, loc, nn::CompareKind::eq,
                               readScalar(b, loc, name),
                               nn::scalarConstant(b, loc, b.getF64Type(), 0.0));
}

/// The window's sum of what the first two arguments are: with what the first
/// micro-step overwrites.
static Value mergeElement(OpBuilder &b, Block &args) {
  Location loc = args.getArgument(0).getLoc();
  Value sum =
      arith::AddFOp::create(b, loc, args.getArgument(0), args.getArgument(1));
  return arith::SelectOp::create(b, loc, args.getArgument(2),
                                 args.getArgument(1), sum);
}

static Location namedAfter(StringRef name, ArenaOp arena) {
  return NameLoc::get(StringAttr::get(arena.getContext(), name),
                      arena.getLoc());
}

/// Lets what happens once per window use `merged` in place of `gradients`.
void GradientReducer::readMerged(ArenaOp gradients, ArenaOp merged) {
  auto from = SymbolRefAttr::get(gradients.getSymNameAttr());
  auto to = SymbolRefAttr::get(merged.getSymNameAttr());
  SmallVector<ReadOp> reads;
  for (auto read : apply.getOps<ReadOp>())
    if (read.getSource() == from)
      reads.push_back(read);
  if (sharded) {
    for (ReadOp read : reads) {
      read.setSourceAttr(to);
      read.getResult().setType(merged.getFlatType());
    }
    return;
  }
  if (reads.empty())
    return;
  // Not before the totals, which peers start when they have read this rank's
  // gradients.
  OpBuilder b(reads.front());
  Location loc = gradients.getLoc();
  Value whole = ReadOp::create(b, loc, gradients.getFlatType(), from);
  Value own = ReadOp::create(b, loc, merged.getFlatType(), to);
  whole =
      mapSegments(b, namedAfter("unmerge", gradients), {whole, own}, {},
                  readPosition(b, step.getLoc(), *merged.getShard()),
                  piecesOf({gradients, merged}),
                  [](OpBuilder &, Block &args) { return args.getArgument(1); });
  WriteOp::create(b, loc, gatherGradients(b, gradients, whole), from);
}

void GradientReducer::reduceEachMicroStep() {
  Block &body = step.getBody().front();
  SmallVector<ArenaOp> arenas = gradientArenas();
  for (auto op : llvm::make_early_inc_range(body.getOps<AccumulateOp>()))
    if (llvm::is_contained(arenas, symbols.lookup<ArenaOp>(
                                       op.getTarget().getRootReference()))) {
      OpBuilder b(op);
      WriteOp::create(b, op.getLoc(), op.getValue(), op.getTarget());
      op.erase();
    }
  OpBuilder b(*body.getOps<WindowEndOp>().begin());
  Location loc = step.getLoc();
  MicroEndOp::create(b, loc);
  Value begins = readBegins(b, step);
  for (ArenaOp arena : arenas) {
    ArenaOp merged = addMerged(arena);
    Value sums = sumGradients(b, arena);
    WriteOp::create(b, loc, sums, SymbolRefAttr::get(arena.getSymNameAttr()));
    auto ref = SymbolRefAttr::get(merged.getSymNameAttr());
    Value window = ReadOp::create(b, loc, merged.getFlatType(), ref);
    window =
        mapSegments(b, namedAfter("merge", merged), {window, sums}, {begins},
                    readPosition(b, step.getLoc(), *merged.getShard()),
                    piecesOf({merged, arena}), mergeElement);
    WriteOp::create(b, loc, window, ref);
    readMerged(arena, merged);
  }
}

//===----------------------------------------------------------------------===//
// Bucket by bucket
//===----------------------------------------------------------------------===//

/// What the step stores of a bucket.
struct GradientReducer::Stored {
  SmallVector<Value> values;
  SmallVector<int64_t> offsets; // in elements, from the bucket's start
  Operation *last = nullptr;    // that makes a value
};

/// Takes away what stores the gradients of `bucket`, whose first slice is `slice`.
GradientReducer::Stored
GradientReducer::takeStores(ArenaOp arena, const ArenaOp::Bucket &bucket,
                            int64_t &slice,
                            const DenseMap<Attribute, Operation *> &stores) {
  int64_t width = nn::getElementBytes(arena.getFlatType().getElementType());
  int64_t slices = arena.getSlices().size();
  Stored stored;
  for (; slice < slices; ++slice) {
    int64_t first = arena.getOffsets()[slice] / width;
    if (first >= bucket.first + bucket.count)
      break;
    // Null if nothing makes the gradient, which then stays zero.
    Operation *store = stores.lookup(
        sliceRef(arena.getContext(), arena.getSymName(),
                 cast<FlatSymbolRefAttr>(arena.getSlices()[slice]).getValue()));
    if (!store)
      continue;
    Value value = store->getOperand(0);
    Operation *maker = value.getDefiningOp();
    if (maker && (!stored.last || stored.last->isBeforeInBlock(maker)))
      stored.last = maker;
    stored.values.push_back(value);
    stored.offsets.push_back(first - bucket.first);
    store->erase();
  }
  return stored;
}

/// The parts of what is stored of a bucket that lie in each rank's piece of it, in the
/// arena that has pieces alone and in the bucket: what stands between is undefined.
GradientReducer::Segments
GradientReducer::piecesOf(const Stored &stored, const ArenaOp::Bucket &own) {
  Segments segments;
  segments.offsets.resize(2);
  int64_t size = own.localCount;
  for (int64_t first = 0; first < own.count; first += size) {
    for (auto [value, offset] : llvm::zip(stored.values, stored.offsets)) {
      int64_t elements = nn::getTensorType(value).getNumElements();
      int64_t begin = std::max(offset, first);
      int64_t end = std::min(offset + elements, first + size);
      if (begin >= end)
        continue;
      segments.lengths.push_back(end - begin);
      segments.offsets[0].push_back(own.localFirst + begin - first);
      segments.offsets[1].push_back(begin);
    }
    segments.shards.push_back(segments.lengths.size());
  }
  return segments;
}

void GradientReducer::reduceByBucket() {
  Block &body = step.getBody().front();
  DenseMap<Attribute, Operation *> stores; // of gradients, by slice
  for (Operation &op : body) {
    SymbolRefAttr target;
    if (auto write = dyn_cast<WriteOp>(op))
      target = write.getTarget();
    else if (auto accumulate = dyn_cast<AccumulateOp>(op))
      target = accumulate.getTarget();
    if (target && isGradient(target, symbols))
      stores[target] = &op;
  }
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  Value begins;
  if (step.getAccumulate() > 1)
    begins = readBegins(b, step);
  auto takeSum = [](OpBuilder &, Block &args) { return args.getArgument(1); };

  for (ArenaOp arena : gradientArenas()) {
    ArenaOp merged = addMerged(arena);
    auto ref = SymbolRefAttr::get(merged.getSymNameAttr());
    Location loc = arena.getLoc();
    b.setInsertionPointToStart(&body);
    Value shard = readPosition(b, step.getLoc(), *merged.getShard());
    Operation *top = (begins ? begins : shard).getDefiningOp();
    int64_t slice = 0;
    for (auto [bucket, own] :
         llvm::zip(arena.getAllBuckets(), merged.getAllBuckets())) {
      Stored stored = takeStores(arena, bucket, slice, stores);
      if (stored.values.empty())
        continue;
      b.setInsertionPointAfter(stored.last ? stored.last : top);
      auto type = arena.getFlatType().clone({bucket.count});
      Value sums =
          FlattenOp::create(b, loc, type, stored.values, stored.offsets)
              .getResult();
      sums = sumRange(b, arena, sums, 0, bucket.count);
      Value window = ReadOp::create(b, loc, merged.getFlatType(), ref);
      Location name = namedAfter("merge", merged);
      Segments segments = piecesOf(stored, own);
      window = begins ? mapSegments(b, name, {window, sums}, {begins}, shard,
                                    segments, mergeElement)
                      : mapSegments(b, name, {window, sums}, {}, shard,
                                    segments, takeSum);
      WriteOp::create(b, loc, window, ref);
    }
    readMerged(arena, merged);
  }
}
