//===- Coalesce.cpp - Lay out arenas for passes over memory ---------------===//
//
// This pass gives every parameter its place in its bucket, the same in each arena, on a
// boundary that suits vectors, cache lines or pages, and every bucket its size. What was
// named then has numbers.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainLayout.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-coalesce"

namespace trainc {
#define GEN_PASS_DEF_COALESCEPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Where a parameter goes, at `free` or behind it: no block of its norm may lie in
/// two shards, which end at multiples of blocks.
static int64_t placeOf(int64_t free, int64_t elements, int64_t unit,
                       bool isSharded) {
  int64_t place = llvm::alignTo(free, unit);
  if (!isSharded || place / kNormBlock == (place + elements - 1) / kNormBlock)
    return place;
  return llvm::alignTo(place, std::max(unit, kNormBlock));
}

namespace {
struct Placer {
  Placer(ModuleOp module, StepOp step, int64_t alignSize)
      : module(module), step(step), alignSize(alignSize),
        bucketOf(mapBuckets(module)) {}

  ModuleOp module;
  StepOp step;
  int64_t alignSize;
  BucketMap bucketOf;
  SymbolTableCollection tables;
  int64_t numSlices = 0, paddingBytes = 0;

  LogicalResult verifyNeeds();
  void placeAll();
  void place(BucketOp bucket, ArrayRef<ArenaOp> arenas);
  void refine(Operation *op);
};
} // namespace

/// Checks that all arenas but that of the scalars have buckets, and the alignment.
LogicalResult Placer::verifyNeeds() {
  for (auto arena : module.getOps<ArenaOp>()) {
    if (arena.getRole() == TRAINC_ROLE_SCALARS)
      continue;
    if (arena.getSpans().empty())
      return arena.emitOpError(
          "expects buckets; run train-form-buckets before train-coalesce");
    int64_t width = nn::getElementBytes(arena.getElementType());
    if (alignSize < width || !llvm::isPowerOf2_64(alignSize))
      return arena.emitOpError("expects an align-size that is a power of two "
                               "not below the ")
             << width << " bytes of an element of @"
             << (*arena.getSlices().begin()).getSymName() << ", got "
             << alignSize;
  }
  return success();
}

/// Lays out `bucket`, which `arenas` have.
void Placer::place(BucketOp bucket, ArrayRef<ArenaOp> arenas) {
  ArenaOp first = arenas.front();
  bool isShared = getReducedAxes(step) && first.getRole() != TRAINC_ROLE_BUFFER;
  int64_t unit = 1;
  for (ArenaOp arena : arenas)
    unit = std::max<int64_t>(
        unit, alignSize / nn::getElementBytes(arena.getElementType()));
  SmallVector<int64_t> offsets;
  int64_t end = 0, used = 0;
  for (auto param : bucket.getParams().getAsRange<FlatSymbolRefAttr>()) {
    int64_t elements = tables.lookupSymbolIn<SliceOp>(first, param.getAttr())
                           .getTensorType()
                           .getNumElements();
    offsets.push_back(placeOf(end, elements, unit, isShared));
    end = offsets.back() + elements;
    used += elements;
  }
  int64_t whole =
      isShared ? getExchange(step, first).pieces * std::max(unit, kNormBlock)
               : unit;
  end = llvm::alignTo(end, whole);
  bucket.setElements(end);
  bucket.setOffsets(offsets);
  for (ArenaOp arena : arenas) {
    int64_t width = nn::getElementBytes(arena.getElementType());
    numSlices += offsets.size();
    paddingBytes += (end - used) * width;
    remark::passed(
        arena.getLoc(),
        remark::RemarkOpts::name("Coalesced").category("train-coalesce"))
        << remark::metric("Arena", arena.getSymName())
        << remark::metric("Bucket", bucket.getSymName())
        << remark::metric("Slices", static_cast<int64_t>(offsets.size()))
        << remark::metric("Bytes", end * width)
        << remark::metric("Padding", (end - used) * width);
  }
}

/// Where `param` is in `bucket`, in elements.
static int64_t offsetIn(BucketOp bucket, FlatSymbolRefAttr param) {
  auto at = llvm::find(bucket.getParams(), param);
  return (*bucket.getOffsets())[at - bucket.getParams().begin()];
}

/// Gives `op` numbers for what it names, and its result its size.
void Placer::refine(Operation *op) {
  if (auto view = dyn_cast<ViewOp>(op); view && view.getSlice()) {
    FlatSymbolRefAttr slice = view.getSliceAttr();
    view.setOffset(offsetIn(bucketOf.lookup(slice.getAttr()), slice));
    view.removeSliceAttr();
    return;
  }
  if (op->getNumResults() != 1 || !isUnplacedBucket(op->getResult(0).getType()))
    return;
  Type element = nn::getTensorType(op->getResult(0)).getElementType();
  Type type;
  if (auto read = dyn_cast<ReadOp>(op)) {
    auto arena = tables.lookupSymbolIn<ArenaOp>(
        module, read.getSource().getRootReference());
    type = getStoredType(arena, read.getSource().getNestedReferences(), tables);
  } else if (auto flat = dyn_cast<FlattenOp>(op)) {
    BucketOp bucket;
    SmallVector<int64_t> offsets;
    for (auto slice : flat.getSlicesAttr().getAsRange<FlatSymbolRefAttr>()) {
      bucket = bucketOf.lookup(slice.getAttr());
      offsets.push_back(offsetIn(bucket, slice));
    }
    flat.setOffsets(offsets);
    flat.removeSlicesAttr();
    type = RankedTensorType::get({int64_t(*bucket.getElements())}, element);
  } else {
    RankedTensorType from = nn::getTensorType(op->getOperand(0));
    auto gather = dyn_cast<AllGatherOp>(op);
    type = gather && !gather.getInPlace()
               ? RankedTensorType::get(
                     {from.getNumElements() *
                      getMesh(module).getCount(gather.getAxes())},
                     element)
               : from;
  }
  op->getResult(0).setType(type);
}

void Placer::placeAll() {
  llvm::MapVector<StringAttr, SmallVector<ArenaOp>> arenasOf; // by bucket
  for (auto arena : module.getOps<ArenaOp>())
    for (SpanOp span : arena.getSpans())
      arenasOf[span.getSymNameAttr()].push_back(arena);
  for (auto &[name, arenas] : arenasOf) {
    auto bucket = tables.lookupSymbolIn<BucketOp>(module, name);
    if (!bucket.getElements())
      place(bucket, arenas);
  }
  module.walk([&](Operation *op) { refine(op); });
}

namespace {
struct CoalescePass : trainc::impl::CoalescePassBase<CoalescePass> {
  using CoalescePassBase::CoalescePassBase;

  void runOnOperation() override {
    if (getOperation().getOps<ArenaOp>().empty())
      return;
    StepOp step = getStep(getOperation());
    if (!step)
      return signalPassFailure();
    Placer placer(getOperation(), step, alignSize);
    if (failed(placer.verifyNeeds()))
      return signalPassFailure();
    placer.placeAll();
    numSlices += placer.numSlices;
    paddingBytes += placer.paddingBytes;
  }
};
} // namespace
