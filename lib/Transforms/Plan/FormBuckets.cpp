//===- FormBuckets.cpp - Lay out arenas in buckets for collectives --------===//
//
// This pass cuts the parameters, in the order in which their gradients are
// complete, into buckets, and gives each bucket one range of every arena that holds
// something of its parameters: at equal distances in elements, so that a piece of a
// bucket is the same elements in each arena.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-form-buckets"

namespace trainc {
#define GEN_PASS_DEF_FORMBUCKETSPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// A slice in an arena.
struct Slice {
  ArenaOp arena;
  size_t index;

  RankedTensorType type() const {
    return cast<RankedTensorType>(
        cast<TypeAttr>(arena->getAttrOfType<ArrayAttr>("types")[index])
            .getValue());
  }
  int64_t width() const { return nn::getElementBytes(type().getElementType()); }
};

/// Parameters of one bucket, all with slices in the same arenas.
struct Bucket {
  SmallVector<StringAttr> params;
  SmallVector<int64_t> offsets; // in elements, from the bucket's start
  int64_t elements = 0;
};

/// An arena being filled anew.
struct Layout {
  SmallVector<Attribute> slices, types;
  SmallVector<int64_t> offsets, ends;
  int64_t elements = 0;
};
} // namespace

/// Whether an arena holds something per parameter.
static bool isOfParameters(ArenaOp arena) {
  StringRef role = arena.getRole();
  return role == "parameters" || role == "compute copies" ||
         role == "gradients" || role == "state";
}

/// Where a parameter goes, at `free` or behind it: no block of its norm may lie in
/// two pieces, which end at multiples of blocks.
static int64_t placeOf(int64_t free, int64_t elements, int64_t unit) {
  int64_t place = llvm::alignTo(free, unit);
  bool whole = place / kNormBlock == (place + elements - 1) / kNormBlock;
  return whole ? place : llvm::alignTo(place, std::max(unit, kNormBlock));
}

namespace {
struct FormBucketsPass : trainc::impl::FormBucketsPassBase<FormBucketsPass> {
  using FormBucketsPassBase::FormBucketsPassBase;

  /// The slices of each parameter, in the order of the arenas; parameters in
  /// that of the gradients, those without a gradient last.
  llvm::MapVector<StringAttr, SmallVector<Slice>> findSlices(ModuleOp module) {
    llvm::MapVector<StringAttr, SmallVector<Slice>> slices;
    for (auto arena : module.getOps<ArenaOp>())
      if (arena.getRole() == "gradients")
        for (Attribute name : arena.getSlices())
          slices[cast<FlatSymbolRefAttr>(name).getAttr()];
    for (auto arena : module.getOps<ArenaOp>())
      if (isOfParameters(arena))
        for (auto [i, name] : llvm::enumerate(arena.getSlices()))
          slices[cast<FlatSymbolRefAttr>(name).getAttr()].push_back({arena, i});
    return slices;
  }

  void add(const Bucket &bucket, ArrayRef<Slice> first,
           const llvm::MapVector<StringAttr, SmallVector<Slice>> &slices,
           llvm::MapVector<Operation *, Layout> &layouts) {
    for (size_t k = 0; k < first.size(); ++k) {
      Layout &layout = layouts[first[k].arena];
      for (auto [name, offset] : llvm::zip(bucket.params, bucket.offsets)) {
        const Slice &slice = slices.find(name)->second[k];
        layout.slices.push_back(FlatSymbolRefAttr::get(name));
        layout.types.push_back(TypeAttr::get(slice.type()));
        layout.offsets.push_back((layout.elements + offset) * slice.width());
      }
      layout.elements += bucket.elements;
      layout.ends.push_back(layout.elements);
    }
    ArenaOp arena = first.front().arena;
    remark::passed(arena.getLoc(), remark::RemarkOpts::name("Bucket").category(
                                       "train-form-buckets"))
        << remark::metric("First", bucket.params.front().getValue())
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
    if (!getReducedAxes(step))
      return;
    for (auto arena : module.getOps<ArenaOp>())
      if (isOfParameters(arena) &&
          (!arena.getFlatType() || arena.getBuckets())) {
        arena.emitOpError(
            "expects one element type and no buckets yet; train-form-buckets "
            "comes after train-plan-step");
        return signalPassFailure();
      }

    auto slices = findSlices(module);
    llvm::MapVector<Operation *, Layout> layouts;
    // The open bucket of the parameters that have slices in the same arenas.
    llvm::MapVector<ArrayAttr, Bucket> open;
    auto signature = [&](ArrayRef<Slice> all) {
      SmallVector<Attribute> names;
      for (Slice slice : all)
        names.push_back(FlatSymbolRefAttr::get(slice.arena.getSymNameAttr()));
      return ArrayAttr::get(module.getContext(), names);
    };
    auto unitOf = [&](ArrayRef<Slice> all) {
      int64_t unit = 1;
      for (const Slice &slice : all)
        unit = std::max<int64_t>(unit, alignSize / slice.width());
      return unit;
    };
    auto widest = [&](ArrayRef<Slice> all) {
      int64_t width = 1;
      for (const Slice &slice : all)
        width = std::max(width, slice.width());
      return width;
    };
    auto close = [&](Bucket &bucket) {
      if (bucket.params.empty())
        return;
      ArrayRef<Slice> first = slices.find(bucket.params.front())->second;
      int64_t parts = getExchange(step, first.front().arena).pieces;
      bucket.elements = llvm::alignTo(
          bucket.elements, parts * std::max(unitOf(first), kNormBlock));
      add(bucket, first, slices, layouts);
      bucket = Bucket();
    };
    for (auto &[name, all] : slices) {
      Bucket &bucket = open[signature(all)];
      int64_t elements = all.front().type().getNumElements();
      if ((bucket.elements + elements) * widest(all) > bucketSize)
        close(bucket);
      bucket.elements = placeOf(bucket.elements, elements, unitOf(all));
      bucket.params.push_back(name);
      bucket.offsets.push_back(bucket.elements);
      bucket.elements += elements;
    }
    for (auto &[key, bucket] : open)
      close(bucket);

    Builder b(module.getContext());
    for (auto &[op, layout] : layouts) {
      auto arena = cast<ArenaOp>(op);
      int64_t width = nn::getElementBytes(arena.getFlatType().getElementType());
      arena.setSlicesAttr(b.getArrayAttr(layout.slices));
      arena.setTypesAttr(b.getArrayAttr(layout.types));
      arena.setOffsetsAttr(b.getDenseI64ArrayAttr(layout.offsets));
      arena.setBucketsAttr(b.getDenseI64ArrayAttr(layout.ends));
      arena.setBytes(layout.elements * width);
    }
  }
};
} // namespace
