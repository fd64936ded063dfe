//===- OutlineLists.cpp - Split the step into its command lists -----------===//
//
// This pass copies the body of each entry into lists: straight-line code that the
// runtime executes command by command. The step's conditional region becomes the
// list `apply`; an accumulation is a write in `first` and an addition in `next`. What
// ends every micro-step becomes the list `merge`.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Commands/Passes.h"

#define DEBUG_TYPE "train-outline-lists"

namespace trainc {
#define GEN_PASS_DEF_OUTLINELISTSPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// An empty list `entry.kind` after `entry`, with arguments of `inputs`.
static ListOp createList(Operation *entry, ListKind kind, TypeRange inputs,
                         IRMapping &mapping, ValueRange from) {
  OpBuilder b(entry->getContext());
  b.setInsertionPointAfter(entry);
  StringRef name = SymbolTable::getSymbolName(entry).getValue();
  auto list = ListOp::create(
      b, entry->getLoc(), b.getStringAttr(name + "." + stringifyListKind(kind)),
      FlatSymbolRefAttr::get(entry->getContext(), name),
      ListKindAttr::get(b.getContext(), kind), IntegerAttr(), IntegerAttr());
  Block &block = list.getBody().emplaceBlock();
  for (Value value : from)
    mapping.map(value, block.addArgument(value.getType(), value.getLoc()));
  return list;
}

/// Copies `op`, and before it what it uses of other blocks, constants and what is computed of
/// them: clean-ups move these out of conditional regions.
static void clone(OpBuilder &b, Operation &op, IRMapping &mapping) {
  op.walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      Operation *maker = operand.getDefiningOp();
      if (maker && !op.isAncestor(maker) && !mapping.contains(operand) &&
          isPure(maker))
        clone(b, *maker, mapping);
    }
  });
  b.clone(op, mapping);
}

static void returnOutputs(train::YieldOp yield, OpBuilder &b,
                          const IRMapping &mapping) {
  SmallVector<Value> outputs;
  for (Value value : yield.getValues())
    outputs.push_back(mapping.lookup(value));
  train::ReturnOp::create(b, yield->getParentOp()->getLoc(), outputs);
}

/// Whether all of a bucket is accumulated.
static bool isOfBucket(AccumulateOp accumulate, SymbolTable &symbols) {
  return symbols.lookup<BucketOp>(accumulate.getTarget().getLeafReference());
}

/// Copies what stands before the end of the micro-step, or the window, into a list.
static void outlineMicroStep(StepOp step, ListKind kind, SymbolTable &symbols) {
  IRMapping mapping;
  Block &body = step.getBody().front();
  ListOp list = createList(step, kind, body.getArgumentTypes(), mapping,
                           body.getArguments());
  OpBuilder b = OpBuilder::atBlockEnd(&list.getBody().front());
  for (Operation &op : body.without_terminator()) {
    if (isa<MicroEndOp, WindowEndOp>(op))
      break;
    auto accumulate = dyn_cast<AccumulateOp>(op);
    // Of a bucket a rank may have a shard: train-expand-updates knows.
    if (!accumulate || isOfBucket(accumulate, symbols)) {
      clone(b, op, mapping);
      continue;
    }
    Value value = mapping.lookup(accumulate.getValue());
    if (kind == ListKind::next) {
      Value old = ReadOp::create(b, op.getLoc(), value.getType(),
                                 accumulate.getTarget());
      value = nn::addTo(b, op.getLoc(), old, value);
    }
    WriteOp::create(b, op.getLoc(), value, accumulate.getTarget());
  }
  returnOutputs(cast<train::YieldOp>(body.getTerminator()), b, mapping);
}

/// Copies what ends every micro-step, behind `begin`, into a list.
static void outlineMerge(StepOp step, MicroEndOp begin, WindowEndOp end) {
  IRMapping mapping;
  ListOp list = createList(step, ListKind::merge, {}, mapping, {});
  OpBuilder b = OpBuilder::atBlockEnd(&list.getBody().front());
  for (Operation &op :
       llvm::make_range(std::next(begin->getIterator()), end->getIterator()))
    clone(b, op, mapping);
  train::ReturnOp::create(b, step.getLoc(), ValueRange());
}

/// Copies what happens once per update into a list.
static void outlineApply(StepOp step, WindowEndOp end) {
  IRMapping mapping;
  ListOp list = createList(step, ListKind::apply, {}, mapping, {});
  OpBuilder b = OpBuilder::atBlockEnd(&list.getBody().front());
  auto copy = [&](auto ops) {
    for (Operation &op : ops)
      if (!isa<scf::IfOp>(op) && !op.hasTrait<OpTrait::IsTerminator>())
        clone(b, op, mapping);
  };
  for (Operation *user : end->getUsers())
    copy(llvm::make_range(cast<scf::IfOp>(user).getThenRegion().front().begin(),
                          cast<scf::IfOp>(user).getThenRegion().front().end()));
  copy(llvm::make_range(std::next(end->getIterator()), end->getBlock()->end()));
  train::ReturnOp::create(b, step.getLoc(), ValueRange());
}

static void outlineEval(EvalOp eval) {
  IRMapping mapping;
  Block &body = eval.getBody().front();
  ListOp list = createList(eval, ListKind::first, body.getArgumentTypes(),
                           mapping, body.getArguments());
  OpBuilder b = OpBuilder::atBlockEnd(&list.getBody().front());
  for (Operation &op : body.without_terminator())
    b.clone(op, mapping);
  returnOutputs(cast<train::YieldOp>(body.getTerminator()), b, mapping);
}

namespace {
struct OutlineListsPass : trainc::impl::OutlineListsPassBase<OutlineListsPass> {
  /// What ends a micro-step and a window is the same for all steps of a window: only the
  /// first one has lists of it.
  LogicalResult outlineStep(StepOp step, SymbolTable &symbols) {
    auto ends = step.getBody().getOps<WindowEndOp>();
    if (!llvm::hasSingleElement(ends))
      return step.emitOpError("expects a plan with one train.window_end; run "
                              "train-plan-step first");
    if (getFirstOfWindow(step) == step) {
      outlineApply(step, *ends.begin());
      for (auto begin : step.getBody().getOps<MicroEndOp>())
        outlineMerge(step, begin, *ends.begin());
    }
    if (step.getAccumulate() > 1)
      outlineMicroStep(step, ListKind::next, symbols);
    outlineMicroStep(step, ListKind::first, symbols);
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!module.getOps<ListOp>().empty())
      return;
    if (!getStep(module))
      return signalPassFailure();
    SymbolTable symbols(module);
    for (auto step : llvm::to_vector(module.getOps<StepOp>()))
      if (failed(outlineStep(step, symbols)))
        return signalPassFailure();
    for (auto eval : llvm::to_vector(module.getOps<EvalOp>()))
      outlineEval(eval);
  }
};
} // namespace
