//===- PlanGemms.cpp - Choose back ends and tiles of GEMMs ----------------===//
//
// This pass gives each GEMM the back end and the tiles by which it is computed on the
// target, and each convolution the back end.
//
//===----------------------------------------------------------------------===//
#include "trainc/Analysis/Gemm.h"
#include "trainc/Transforms/Commands/Passes.h"

#define DEBUG_TYPE "train-plan-gemms"

namespace trainc {
#define GEN_PASS_DEF_PLANGEMMSPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
struct PlanGemmsPass : trainc::impl::PlanGemmsPassBase<PlanGemmsPass> {
  using PlanGemmsPassBase::PlanGemmsPassBase;

  void runOnOperation() override {
    if (cores < 1) {
      getOperation().emitError(
          "expects 1 or more cores in train-plan-gemms, got ")
          << int64_t(cores);
      return signalPassFailure();
    }
    GemmTarget target{gpu, tf32,         vector, avx512,   bf16,
                      amx, doublePumped, own,    splitF32, cores};
    for (auto list : getOperation().getOps<ListOp>()) {
      if (list.getWorkspace()) {
        list.emitOpError("expects memory that is not planned; run "
                         "train-plan-gemms before train-plan-memory");
        return signalPassFailure();
      }
      for (auto gemm : list.getBody().front().getOps<GemmOp>())
        if (!gemm.getPlan()) {
          gemm.setPlanAttr(planGemm(gemm, target));
          ++numPlanned;
        }
      for (auto convolution : list.getBody().front().getOps<ConvolutionOp>())
        if (!convolution.getPlan()) {
          convolution.setPlanAttr(planConvolution(convolution, target));
          ++numPlanned;
        }
    }
  }
};
} // namespace
