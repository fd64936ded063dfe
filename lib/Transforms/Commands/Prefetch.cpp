//===- Prefetch.cpp - Gather parameters before they are used --------------===//
//
// This pass starts to gather a bucket of parameters when the one before it is there,
// and waits for it where it was gathered. At most one is under way.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Commands/Passes.h"

#define DEBUG_TYPE "train-prefetch"

namespace trainc {
#define GEN_PASS_DEF_PREFETCHPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// What `gather` depends on, its read of an arena of which ranks have pieces first; empty
/// if it gathers something else.
static SmallVector<Operation *> findSource(AllGatherOp gather,
                                           SymbolTable &symbols) {
  SmallVector<Operation *> source;
  Operation *op = gather.getInput().getDefiningOp();
  for (; isa_and_nonnull<ViewOp, nn::ReshapeOp>(op);
       op = op->getOperand(0).getDefiningOp())
    source.insert(source.begin(), op);
  auto read = dyn_cast_or_null<ReadOp>(op);
  if (gather.getInPlace() || !read ||
      read.getSource().getNestedReferences().empty())
    return {};
  auto arena = symbols.lookup<ArenaOp>(read.getSource().getRootReference());
  SpanOp span =
      arena ? arena.findSpan(read.getSource().getLeafReference()) : SpanOp();
  if (!span || !span.getOver())
    return {};
  source.insert(source.begin(), op);
  return source;
}

/// Whether a command stands between the two.
static bool haveCommandBetween(Operation *first, Operation *second) {
  for (Operation *op = first->getNextNode(); op != second;
       op = op->getNextNode())
    if (!isa<ReadOp, ViewOp, nn::ReshapeOp>(op))
      return true;
  return false;
}

namespace {
struct PrefetchPass : trainc::impl::PrefetchPassBase<PrefetchPass> {
  void prefetch(ListOp list, SymbolTable &symbols) {
    Operation *before = nullptr; // when it is done the one before is there
    for (auto gather : llvm::make_early_inc_range(
             list.getBody().front().getOps<AllGatherOp>())) {
      SmallVector<Operation *> source = findSource(gather, symbols);
      if (source.empty())
        continue;
      if (!before || !haveCommandBetween(before, gather)) {
        before = gather;
        continue;
      }
      OpBuilder b(gather);
      Operation *behind = before;
      for (Operation *op : source) {
        // Others may use it, too.
        Operation *copy = op->clone();
        b.setInsertionPointAfter(behind);
        b.insert(copy);
        if (op != source.front())
          copy->setOperand(0, behind->getResult(0));
        behind = copy;
      }
      b.setInsertionPointAfter(behind);
      auto start = StartOp::create(b, gather.getLoc(), Collective::all_gather,
                                   behind->getResult(0), gather.getAxesAttr());
      b.setInsertionPoint(gather);
      auto wait = WaitOp::create(b, gather.getLoc(), start.getToken(),
                                 gather.getType());
      gather.replaceAllUsesWith(wait.getResult());
      gather.erase();
      for (Operation *op : llvm::reverse(source))
        if (op->use_empty())
          op->erase();
      before = wait;
      ++numStarted;
    }
  }

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto list : getOperation().getOps<ListOp>()) {
      if (list.getWorkspace()) {
        list.emitOpError("expects memory that is not planned; run "
                         "train-prefetch before train-plan-memory");
        return signalPassFailure();
      }
      // In the others parameters change.
      if (list.getKind() == ListKind::first || list.getKind() == ListKind::next)
        prefetch(list, symbols);
    }
  }
};
} // namespace
