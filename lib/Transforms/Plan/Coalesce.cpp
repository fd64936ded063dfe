//===- Coalesce.cpp - Lay out arenas for passes over memory ---------------===//
//
// This pass gives every slice of an arena its place: in the order in which the
// backward pass makes the gradients, the same in each arena, each on a boundary that
// suits vectors, cache lines or pages.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-coalesce"

namespace trainc {
#define GEN_PASS_DEF_COALESCEPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

static RankedTensorType typeOf(ArenaOp arena, size_t slice) {
  return cast<RankedTensorType>(
      cast<TypeAttr>(arena.getTypes()[slice]).getValue());
}

static int64_t widthOf(RankedTensorType type) {
  return nn::getElementBytes(type.getElementType());
}

/// Whether the arena holds tensors: scalars have places that the runtime knows.
static bool holdsTensors(ArenaOp arena) { return arena.getRole() != "scalars"; }

/// Checks that nothing depends on places yet, and the alignment.
static LogicalResult verifyNeeds(ModuleOp module, int64_t alignSize) {
  WalkResult result = module.walk([&](Operation *op) {
    if (auto arena = dyn_cast<ArenaOp>(op); arena && holdsTensors(arena))
      for (size_t i = 0; i < arena.getSlices().size(); ++i)
        if (int64_t width = widthOf(typeOf(arena, i));
            alignSize < width || !llvm::isPowerOf2_64(alignSize)) {
          arena.emitOpError("expects an align-size that is a power of two not "
                            "below the ")
              << width << " bytes of an element of " << arena.getSlices()[i]
              << ", got " << alignSize;
          return WalkResult::interrupt();
        }
    if (!isa<SegmentMapOp, SegmentSquareSumOp>(op))
      return WalkResult::advance();
    op->emitOpError(
        "depends on the places of slices; train-coalesce comes before "
        "train-fuse-optimizer");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct CoalescePass : trainc::impl::CoalescePassBase<CoalescePass> {
  using CoalescePassBase::CoalescePassBase;

  void layOut(ArenaOp arena, const DenseMap<StringAttr, int64_t> &made) {
    auto rank = [&](size_t slice) {
      auto name = cast<FlatSymbolRefAttr>(arena.getSlices()[slice]).getAttr();
      auto it = made.find(name);
      return it == made.end() ? INT64_MAX : it->second;
    };
    auto order =
        llvm::to_vector(llvm::seq<size_t>(0, arena.getSlices().size()));
    llvm::sort(order, [&](size_t a, size_t b) {
      return std::pair(rank(a), a) < std::pair(rank(b), b);
    });
    SmallVector<Attribute> slices, types;
    SmallVector<int64_t> offsets;
    int64_t bytes = 0;
    for (size_t slice : order) {
      RankedTensorType type = typeOf(arena, slice);
      int64_t size = widthOf(type) * type.getNumElements();
      int64_t whole = llvm::alignTo(size, alignSize);
      slices.push_back(arena.getSlices()[slice]);
      types.push_back(arena.getTypes()[slice]);
      offsets.push_back(bytes);
      remark::passed(
          arena.getLoc(),
          remark::RemarkOpts::name("Coalesced").category("train-coalesce"))
          << remark::metric("Arena", arena.getSymName())
          << remark::metric("Slice",
                            cast<FlatSymbolRefAttr>(slices.back()).getValue())
          << remark::metric("Offset", bytes) << remark::metric("Bytes", size)
          << remark::metric("Padding", whole - size);
      bytes += whole;
      ++numSlices;
      paddingBytes += whole - size;
    }
    Builder b(arena.getContext());
    arena.setSlicesAttr(b.getArrayAttr(slices));
    arena.setTypesAttr(b.getArrayAttr(types));
    arena.setOffsetsAttr(b.getDenseI64ArrayAttr(offsets));
    arena.setBytes(bytes);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(verifyNeeds(module, alignSize)))
      return signalPassFailure();
    // When each gradient is complete.
    DenseMap<StringAttr, int64_t> made;
    int64_t position = 0;
    SymbolTable symbols(module);
    auto add = [&](SymbolRefAttr target) {
      if (isGradient(target, symbols))
        made[target.getLeafReference()] = position++;
    };
    for (auto step : module.getOps<StepOp>())
      for (Operation &op : step.getBody().front())
        if (auto write = dyn_cast<WriteOp>(op))
          add(write.getTarget());
        else if (auto accumulate = dyn_cast<AccumulateOp>(op))
          add(accumulate.getTarget());
    for (auto arena : module.getOps<ArenaOp>())
      if (holdsTensors(arena))
        layOut(arena, made);
  }
};
} // namespace
