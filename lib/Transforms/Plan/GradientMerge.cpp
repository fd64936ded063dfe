//===- GradientMerge.cpp - One update for several micro-steps -------------===//
//
// This pass makes a window of k micro-steps of a plan: gradients and the sums of
// losses and weights are accumulated where they were written, and all that happens
// once per update moves into a conditional region. Nothing is set to zero: the first
// micro-step overwrites, and producers add in place in the others.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"

#define DEBUG_TYPE "train-gradient-merge"

namespace trainc {
#define GEN_PASS_DEF_GRADIENTMERGEPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Whether `target` holds a sum over the micro-steps of `window`.
static bool isSum(SymbolRefAttr target, SymbolTable &symbols,
                  StringAttr window) {
  auto arena = symbols.lookup<ArenaOp>(target.getRootReference());
  StringRef slice = target.getLeafReference();
  return isGradient(target, symbols) ||
         (arena && arena.getRole() == TRAINC_ROLE_SCALARS &&
          (slice == windowScalar(window, "loss_sum") ||
           slice == windowScalar(window, "weight_sum")));
}

namespace {
struct GradientMergePass
    : trainc::impl::GradientMergePassBase<GradientMergePass> {
  void runOnOperation() override {
    if (!getStep(getOperation()))
      return signalPassFailure();
    for (auto step : getOperation().getOps<StepOp>())
      if (failed(merge(step)))
        return signalPassFailure();
  }

  LogicalResult merge(StepOp step) {
    Block &body = step.getBody().front();
    if (step.getAccumulate() == 1 || !body.getOps<scf::IfOp>().empty())
      return success();
    auto ends = body.getOps<WindowEndOp>();
    if (!llvm::hasSingleElement(ends))
      return step.emitOpError("expects a plan with one train.window_end; run "
                              "train-plan-step first");
    WindowEndOp end = *ends.begin();
    SymbolTable symbols(getOperation());
    StringAttr window = getWindow(step);
    for (auto write : llvm::make_early_inc_range(body.getOps<WriteOp>())) {
      if (end->isBeforeInBlock(write))
        break;
      if (!isSum(write.getTarget(), symbols, window))
        continue;
      OpBuilder b(write);
      AccumulateOp::create(b, write.getLoc(), write.getValue(),
                           write.getTarget());
      remark::passed(
          write.getLoc(),
          remark::RemarkOpts::name("Merged").category("train-gradient-merge"))
          << remark::metric("Sum", write.getTarget().getLeafReference())
          << remark::metric("MicroSteps",
                            static_cast<int64_t>(step.getAccumulate()));
      write.erase();
      ++numSums;
    }
    OpBuilder b(body.getTerminator());
    auto branch = scf::IfOp::create(b, end.getLoc(), end.getDue(),
                                    /*withElse=*/false);
    Block &then = branch.getThenRegion().front();
    then.getOperations().splice(then.begin(), body.getOperations(),
                                std::next(end->getIterator()),
                                branch->getIterator());
    return success();
  }
};
} // namespace
