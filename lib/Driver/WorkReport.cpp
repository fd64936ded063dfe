//===- WorkReport.cpp - What a step has to compute and move ---------------===//
#include "Reports.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/CSE.h"
#include "trainc/Analysis/Cost.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// Of one rank. Flops and saved bytes are of a micro-step, those of state of an update.
struct StepWork {
  std::string name;
  int64_t accumulate = 1;
  /// Of products, convolutions and attention, by the type of their factors.
  llvm::MapVector<StringRef, double> matrix;
  /// Of all other arithmetic, a function as ten.
  double vector = 0;
  double stateBytes = 0, savedBytes = 0;
};
} // namespace

static StringRef nameOf(Type type) {
  if (type.isF64())
    return "f64";
  if (type.isBF16())
    return "bf16";
  return type.isF16() ? "f16" : "f32";
}

/// The value whose elements `value` has, in another order or type.
static Value originOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<nn::ReshapeOp, nn::TransposeOp, nn::CastOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// Computes nothing twice: what `train.recompute` repeats is no work that the step has to
/// do.
static void removeRecomputation(ModuleOp module) {
  SmallVector<BarrierOp> barriers;
  module.walk([&](BarrierOp op) { barriers.push_back(op); });
  for (BarrierOp op : barriers) {
    op.replaceAllUsesWith(op.getInput());
    op.erase();
  }
  IRRewriter rewriter(module.getContext());
  DominanceInfo dominance(module);
  eliminateCommonSubExpressions(rewriter, dominance, module);
}

static StepWork workOfStep(StepOp step, SymbolTable &symbols) {
  StepWork result;
  result.name = step.getSymName().str();
  result.accumulate = step.getAccumulate();
  Operation *seed = nullptr;
  llvm::SetVector<Value> saved;
  for (Operation &op : step.getBody().front()) {
    if (isa<SeedOp>(op) && !seed)
      seed = &op;
    if (auto store = dyn_cast<StoreGradientOp>(op)) {
      auto param = symbols.lookup<ParamOp>(store.getParam());
      auto optimizer = symbols.lookup<OptimizerOp>(*param.getOptimizer());
      double states =
          optimizer.getStateNames().size() + (optimizer.getEma() ? 1 : 0);
      constexpr double readAndWritten = 2;
      result.stateBytes +=
          readAndWritten * (nn::countBytes(param.getTensorType()) +
                            states * nn::countBytes(gradientType(param)));
    }
    nn::Work work = workOf(&op);
    result.vector += flopsOf(work, nn::Unit::Vector) - work.matrix;
    if (work.matrix > 0)
      result.matrix[nameOf(getElementTypeOrSelf(op.getOperand(0).getType()))] +=
          work.matrix - work.repeated;
    if (!seed || work.matrix == 0)
      continue;
    for (Value operand : op.getOperands()) {
      Value origin = originOf(operand);
      Operation *maker = origin.getDefiningOp();
      if (maker && maker->getBlock() == seed->getBlock() &&
          maker->isBeforeInBlock(seed) && !isa<ReadOp>(maker) &&
          !maker->hasTrait<OpTrait::ConstantLike>())
        saved.insert(origin);
    }
  }
  constexpr double writtenAndRead = 2;
  for (Value value : saved)
    result.savedBytes += writtenAndRead * nn::countBytes(value);
  return result;
}

std::string trainc::buildWorkReport(ModuleOp module, StringRef name,
                                    bool json) {
  removeRecomputation(module);
  SymbolTable symbols(module);
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::Array steps;
  for (auto step : module.getOps<StepOp>()) {
    StepWork work = workOfStep(step, symbols);
    if (json) {
      llvm::json::Object matrix;
      for (auto &[type, flops] : work.matrix)
        matrix[type] = flops;
      steps.push_back(llvm::json::Object{{"name", work.name},
                                         {"accumulate", work.accumulate},
                                         {"matrix_flops", std::move(matrix)},
                                         {"vector_flops", work.vector},
                                         {"saved_bytes", work.savedBytes},
                                         {"state_bytes", work.stateBytes}});
      continue;
    }
    auto line = [&](const Twine &what, double number, const char *unit) {
      os << llvm::left_justify(what.str(), 52)
         << llvm::format("%12.3f %s\n", number, unit);
    };
    os << work.name << ":\n";
    for (auto &[type, flops] : work.matrix)
      line("  products of " + type, flops / 1e9, "GFLOP");
    line("  other arithmetic", work.vector / 1e9, "GFLOP");
    line("  values kept for gradients of products, both ways",
         work.savedBytes / 1e6, "MB");
    line("  parameters and states of an update, both ways",
         work.stateBytes / 1e6, "MB");
    if (work.accumulate > 1)
      line("  micro-steps of an update", work.accumulate, "");
  }
  if (json)
    os << llvm::formatv("{0:2}",
                        llvm::json::Value(llvm::json::Object{
                            {"name", name}, {"steps", std::move(steps)}}))
       << "\n";
  return text;
}
