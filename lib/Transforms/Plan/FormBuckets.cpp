//===- FormBuckets.cpp - Form buckets of parameters -----------------------===//
//
// This pass lists the parameters, in the order in which their gradients are
// complete, in buckets, and gives every arena that holds something of them a span for
// each. Parameters of one bucket have slices in the same arenas.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "train-form-buckets"

namespace trainc {
#define GEN_PASS_DEF_FORMBUCKETSPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// Parameters with slices in the same arenas.
struct Bucket {
  SmallVector<Attribute> params;
  SmallVector<ArenaOp> arenas;
  int64_t elements = 0;
};
} // namespace

/// Whether an arena has buckets: scalars have places that the runtime knows.
static bool hasBuckets(ArenaOp arena) {
  return arena.getRole() != TRAINC_ROLE_SCALARS;
}

/// When the gradient of each parameter is complete.
static DenseMap<StringAttr, int64_t> orderGradients(ModuleOp module) {
  DenseMap<StringAttr, int64_t> order;
  SymbolTable symbols(module);
  auto add = [&](SymbolRefAttr target) {
    if (isGradient(target, symbols))
      order[target.getLeafReference()] = order.size();
  };
  for (auto step : module.getOps<StepOp>())
    for (Operation &op : step.getBody().front())
      if (auto write = dyn_cast<WriteOp>(op))
        add(write.getTarget());
      else if (auto accumulate = dyn_cast<AccumulateOp>(op))
        add(accumulate.getTarget());
  return order;
}

/// The slices of each parameter and buffer: parameters in the order of their gradients,
/// what has none last.
static SmallVector<std::pair<StringAttr, SmallVector<SliceOp>>>
findSlices(ModuleOp module) {
  llvm::MapVector<StringAttr, SmallVector<SliceOp>> slices;
  for (auto arena : module.getOps<ArenaOp>())
    if (hasBuckets(arena))
      for (SliceOp slice : arena.getSlices())
        slices[slice.getSymNameAttr()].push_back(slice);
  DenseMap<StringAttr, int64_t> made = orderGradients(module);
  DenseMap<StringAttr, std::pair<int64_t, int64_t>> position;
  for (auto &[name, list] : slices) {
    auto it = made.find(name);
    int64_t index = position.size();
    position[name] = {it == made.end() ? INT64_MAX : it->second, index};
  }
  auto ordered = slices.takeVector();
  llvm::sort(ordered, [&](const auto &a, const auto &b) {
    return position.lookup(a.first) < position.lookup(b.first);
  });
  return ordered;
}

namespace {
struct FormBucketsPass : trainc::impl::FormBucketsPassBase<FormBucketsPass> {
  using FormBucketsPassBase::FormBucketsPassBase;

  void create(const Bucket &bucket, SymbolTable &symbols) {
    ModuleOp module = getOperation();
    OpBuilder b(module.getContext());
    b.setInsertionPoint(*module.getOps<ArenaOp>().begin());
    auto op = BucketOp::create(b, module.getLoc(), "bucket",
                               b.getArrayAttr(bucket.params), IntegerAttr(),
                               DenseI64ArrayAttr());
    symbols.insert(op, b.getInsertionPoint());
    for (ArenaOp arena : bucket.arenas) {
      b.setInsertionPointToEnd(&arena.getBody().front());
      SpanOp::create(b, arena.getLoc(), op.getSymNameAttr(), ArrayAttr());
    }
    remark::passed(module.getLoc(), remark::RemarkOpts::name("Bucket").category(
                                        "train-form-buckets"))
        << remark::metric("First",
                          cast<FlatSymbolRefAttr>(bucket.params[0]).getValue())
        << remark::metric("Parameters",
                          static_cast<int64_t>(bucket.params.size()))
        << remark::metric("Elements", bucket.elements);
    ++numBuckets;
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    StepOp step = getStep(module);
    if (!step)
      return signalPassFailure();
    for (auto arena : module.getOps<ArenaOp>())
      if (hasBuckets(arena) &&
          (!arena.getElementType() || !arena.getSpans().empty())) {
        arena.emitOpError(
            "expects one element type and no buckets yet; train-form-buckets "
            "comes after train-plan-step");
        return signalPassFailure();
      }
    // Ranks exchange buckets; without them there is one of each kind.
    int64_t limit = bucketSize == 0 || getReducedAxes(step)
                        ? int64_t(bucketSize)
                        : INT64_MAX;
    SymbolTable symbols(module);
    // The open bucket of the parameters that have slices in the same arenas.
    llvm::MapVector<ArrayAttr, Bucket> open;
    for (auto &[name, slices] : findSlices(module)) {
      SmallVector<Attribute> arenas;
      int64_t width = 1;
      for (SliceOp slice : slices) {
        arenas.push_back(FlatSymbolRefAttr::get(slice.getArena()));
        width = std::max(
            width, nn::getElementBytes(slice.getTensorType().getElementType()));
      }
      Bucket &bucket = open[ArrayAttr::get(&getContext(), arenas)];
      SliceOp any = slices.front();
      int64_t elements = any.getTensorType().getNumElements();
      if (!bucket.params.empty() &&
          (bucket.elements + elements) * width > limit) {
        create(bucket, symbols);
        bucket = Bucket();
      }
      if (bucket.params.empty())
        for (SliceOp slice : slices)
          bucket.arenas.push_back(slice.getArena());
      bucket.params.push_back(FlatSymbolRefAttr::get(name));
      bucket.elements += elements;
    }
    for (auto &[key, bucket] : open)
      create(bucket, symbols);
  }
};
} // namespace
