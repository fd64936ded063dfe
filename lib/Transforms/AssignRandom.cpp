//===- AssignRandom.cpp - Number the dropouts of the step -----------------===//
//
// This pass gives every dropout of the step a site: the number that makes its
// draws differ from those of the others. Gradients and recomputation copy the
// op with its site, so that they draw the same numbers; it needs to run before
// them. Evals have no dropout afterwards.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Passes.h"

#define DEBUG_TYPE "train-assign-random"

namespace trainc {
#define GEN_PASS_DEF_ASSIGNRANDOMPASS
#include "trainc/Transforms/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// The dropouts of `step` without a site; `taken` receives the sites of the
/// others.
static FailureOr<SmallVector<nn::DropoutOp>>
findUnnumbered(StepOp step, DenseMap<int64_t, nn::DropoutOp> &taken) {
  SmallVector<nn::DropoutOp> unnumbered;
  WalkResult result = step.walk([&](nn::DropoutOp op) {
    if (!op.getSite()) {
      unnumbered.push_back(op);
      return WalkResult::advance();
    }
    auto [it, inserted] = taken.try_emplace(*op.getSite(), op);
    if (inserted)
      return WalkResult::advance();
    (op.emitOpError("expects a site of its own, got ")
     << static_cast<int64_t>(*op.getSite()))
            .attachNote(it->second.getLoc())
        << "the other dropout of this site is here";
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted())
    return failure();
  return unnumbered;
}

namespace {
struct AssignRandomPass : trainc::impl::AssignRandomPassBase<AssignRandomPass> {
  void runOnOperation() override {
    DenseMap<int64_t, nn::DropoutOp> taken;
    for (auto step : getOperation().getOps<StepOp>()) {
      auto unnumbered = findUnnumbered(step, taken);
      if (failed(unnumbered))
        return signalPassFailure();
      int64_t site = 0;
      for (nn::DropoutOp op : *unnumbered) {
        while (taken.contains(site))
          ++site;
        op.setSite(site++);
        ++numSites;
      }
    }
    for (auto eval : getOperation().getOps<EvalOp>())
      eval.walk([&](nn::DropoutOp op) {
        op.replaceAllUsesWith(op.getInput());
        op.erase();
        ++numRemoved;
      });
  }
};
} // namespace
