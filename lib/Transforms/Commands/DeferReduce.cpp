//===- DeferReduce.cpp - Sum a bucket while the next gradients are made ---===//
//
// This pass starts the reduce-scatter of a bucket that stands in memory of its own where
// its last gradient is made, and waits for it before the next bucket's is started. What
// reads the sums moves there.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "train-defer-reduce"

namespace trainc {
#define GEN_PASS_DEF_DEFERREDUCEPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Whether `op` sums a bucket that stands in memory of its own.
static bool sumsBucket(Operation *op) {
  auto scatter = dyn_cast<ReduceScatterOp>(op);
  return scatter && scatter.getInPlace() &&
         scatter.getInput().getDefiningOp<FlattenOp>();
}

/// Where what is started at `sums` is waited for: before the next bucket is summed, before
/// anything else that was started later is waited for, and in the list.
static Operation *findEnd(Operation *sums) {
  Operation *op = sums->getNextNode();
  for (; !op->hasTrait<OpTrait::IsTerminator>(); op = op->getNextNode()) {
    if (sumsBucket(op))
      return op->getOperand(0).getDefiningOp()->isBeforeInBlock(sums)
                 ? op
                 : op->getOperand(0).getDefiningOp();
    auto wait = dyn_cast<WaitOp>(op);
    if (wait && sums->isBeforeInBlock(wait.getToken().getDefiningOp()))
      return op;
  }
  return op;
}

/// Whether something that was started before `sums` is waited for behind `end`.
static bool isOvertaken(Operation *sums, Operation *end) {
  auto starts = sums->getBlock()->getOps<StartOp>();
  return llvm::any_of(starts, [&](StartOp start) {
    return start->isBeforeInBlock(sums) &&
           end->isBeforeInBlock(*start.getToken().user_begin());
  });
}

/// What depends on `sums` and stands before `end`, in order; none if it cannot be moved there.
static std::optional<SmallVector<Operation *>> findUsers(Operation *sums,
                                                         Operation *end) {
  llvm::SetVector<Operation *> users;
  SmallVector<Operation *> open{sums};
  while (!open.empty())
    for (Operation *user : open.pop_back_val()->getUsers()) {
      if (!user->isBeforeInBlock(end))
        continue;
      if (!isa<AllReduceOp, LaunchOp, nn::ReshapeOp, ViewOp, WriteOp>(user))
        return std::nullopt;
      if (users.insert(user))
        open.push_back(user);
    }
  SmallVector<Operation *> ordered = users.takeVector();
  llvm::sort(ordered,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ordered;
}

namespace {
struct DeferReducePass : trainc::impl::DeferReducePassBase<DeferReducePass> {
  void defer(ReduceScatterOp sums) {
    Operation *end = findEnd(sums);
    auto users = findUsers(sums, end);
    auto isOther = [&](Operation &op) {
      return isa<LaunchOp, GemmOp, ConvolutionOp>(op) &&
             !llvm::is_contained(*users, &op);
    };
    if (!users || isOvertaken(sums, end) ||
        llvm::none_of(llvm::make_range(std::next(sums->getIterator()),
                                       end->getIterator()),
                      isOther))
      return;
    OpBuilder b(sums);
    auto start =
        StartOp::create(b, sums.getLoc(), Collective::reduce_scatter,
                        sums.getInput(), sums.getAxesAttr(), /*inPlace=*/true);
    b.setInsertionPoint(end);
    auto wait =
        WaitOp::create(b, sums.getLoc(), start.getToken(), sums.getType());
    sums.replaceAllUsesWith(wait.getResult());
    sums.erase();
    for (Operation *user : *users)
      user->moveBefore(end);
    ++numDeferred;
  }

  void runOnOperation() override {
    for (auto list : getOperation().getOps<ListOp>()) {
      if (list.getWorkspace()) {
        list.emitOpError("expects memory that is not planned; run "
                         "train-defer-reduce before train-plan-memory");
        return signalPassFailure();
      }
      SmallVector<ReduceScatterOp> sums;
      for (auto op : list.getBody().getOps<ReduceScatterOp>())
        if (sumsBucket(op))
          sums.push_back(op);
      for (ReduceScatterOp op : sums)
        defer(op);
    }
  }
};
} // namespace
