//===- AssignRandom.cpp - Number what draws random numbers ----------------===//
//
// This pass gives every op that draws a site: the number that makes its draws
// differ from those of the others. Gradients and recomputation copy the op with
// its site, so that they draw the same numbers; it needs to run before them.
// Evals have no dropout afterwards.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Source/Passes.h"

#define DEBUG_TYPE "train-assign-random"

namespace trainc {
#define GEN_PASS_DEF_ASSIGNRANDOMPASS
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// The ops that draw without a site; `taken` receives the sites of the others.
static FailureOr<SmallVector<nn::RandomOpInterface>>
findUnnumbered(ModuleOp module, DenseMap<int64_t, Operation *> &taken) {
  SmallVector<nn::RandomOpInterface> unnumbered;
  WalkResult result = module.walk([&](nn::RandomOpInterface op) {
    if (!op.draws())
      return WalkResult::advance();
    if (!op.getSite()) {
      unnumbered.push_back(op);
      return WalkResult::advance();
    }
    auto [it, inserted] = taken.try_emplace(*op.getSite(), op);
    if (inserted)
      return WalkResult::advance();
    (op->emitOpError("expects a site of its own, got ")
     << static_cast<int64_t>(*op.getSite()))
            .attachNote(it->second->getLoc())
        << "the other draw of this site is here";
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted())
    return failure();
  return unnumbered;
}

/// Whether `op` had a dropout, which it has no more; one of its own is erased.
static bool removeDropout(Operation *op) {
  if (auto dropout = dyn_cast<nn::DropoutOp>(op)) {
    dropout.replaceAllUsesWith(dropout.getInput());
    dropout.erase();
    return true;
  }
  auto remove = [](auto attention) {
    attention.removeSiteAttr();
    attention.removeStridesAttr();
    attention.getFirstMutable().clear();
    attention.getSeedMutable().clear();
    attention.getUpdateMutable().clear();
    attention.getMicroStepMutable().clear();
    return static_cast<bool>(attention.removeRateAttr());
  };
  if (auto attention = dyn_cast<nn::AttentionOp>(op))
    return remove(attention);
  if (auto attention = dyn_cast<nn::PackedAttentionOp>(op))
    return remove(attention);
  return false;
}

namespace {
struct AssignRandomPass : trainc::impl::AssignRandomPassBase<AssignRandomPass> {
  void runOnOperation() override {
    for (auto eval : getOperation().getOps<EvalOp>())
      eval.walk([&](Operation *op) { numRemoved += removeDropout(op); });
    DenseMap<int64_t, Operation *> taken;
    auto unnumbered = findUnnumbered(getOperation(), taken);
    if (failed(unnumbered))
      return signalPassFailure();
    int64_t site = 0;
    for (nn::RandomOpInterface op : *unnumbered) {
      while (taken.contains(site))
        ++site;
      op.setSite(site++);
      ++numSites;
    }
  }
};
} // namespace
