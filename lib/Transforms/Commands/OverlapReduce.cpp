//===- OverlapReduce.cpp - Start to sum gradients while others are made ---===//
//
// This pass starts the reduce-scatter of a bucket in the lists that make its
// gradients, behind the last command that writes or reads one of them; the list `merge` or, in
// windows of one micro-step, `apply` then waits for it.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Commands/Passes.h"

#define DEBUG_TYPE "train-overlap-reduce"

namespace trainc {
#define GEN_PASS_DEF_OVERLAPREDUCEPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Collectives that are waited for later leave room for others.
static constexpr size_t kMostStarted = 24;

/// Ranges of one arena that are exchanged one after the other, in place.
static SmallVector<Operation *> findChain(ReadOp read) {
  SmallVector<Operation *> chain;
  Value value = read.getResult();
  while (value.hasOneUse()) {
    Operation *user = *value.user_begin();
    if (!isCollective(user) || getInPlaceOperand(user) != value)
      break;
    chain.push_back(user);
    value = user->getResult(0);
  }
  return chain;
}

/// The slices that `op`, a command, writes.
static SmallVector<SymbolRefAttr> findWritten(Operation &op) {
  SmallVector<SymbolRefAttr> written;
  if (auto write = dyn_cast<WriteOp>(op))
    written.push_back(write.getTarget());
  if (auto places = op.getAttrOfType<ArrayAttr>("places"))
    for (auto place : places.getAsRange<ArrayAttr>())
      if (auto slice = dyn_cast<SymbolRefAttr>(place[0]))
        written.push_back(slice);
  return written;
}

/// The slices in which operands of `op`, a command, stand.
static SmallVector<SymbolRefAttr> findUsed(Operation &op) {
  SmallVector<SymbolRefAttr> used;
  for (Value value : op.getOperands()) {
    while (isa_and_nonnull<nn::ReshapeOp, ViewOp>(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    Operation *maker = value.getDefiningOp();
    if (auto read = dyn_cast_or_null<ReadOp>(maker))
      used.push_back(read.getSource());
    else if (auto places =
                 maker ? maker->getAttrOfType<ArrayAttr>("places") : nullptr)
      if (auto slice = dyn_cast<SymbolRefAttr>(cast<ArrayAttr>(
              places[cast<OpResult>(value).getResultNumber()])[0]))
        used.push_back(slice);
  }
  return used;
}

/// The last command of `block` that touches `range`, elements of `arena`; null if none
/// writes there, or if what is returned stands there.
static Operation *findLastUser(Block &block, ArenaOp arena,
                               ArrayRef<int64_t> range) {
  int64_t width = nn::getElementBytes(arena.getFlatType().getElementType());
  auto isInRange = [&](SymbolRefAttr slice) {
    if (slice.getRootReference() != arena.getSymNameAttr() ||
        slice.getNestedReferences().empty())
      return false;
    int64_t first = arena.getLocalOffset(
                        arena.findSlice(slice.getLeafReference().getValue())) /
                    width;
    return first >= range[0] && first < range[0] + range[1];
  };
  Operation *last = nullptr;
  bool written = false;
  for (Operation &op : block) {
    bool writes = llvm::any_of(findWritten(op), isInRange);
    written |= writes;
    if (writes || (!isa<nn::ReshapeOp, ViewOp>(op) &&
                   llvm::any_of(findUsed(op), isInRange)))
      last = &op;
  }
  return written && last != block.getTerminator() ? last : nullptr;
}

namespace {
struct OverlapReducePass
    : trainc::impl::OverlapReducePassBase<OverlapReducePass> {
  /// Starts in each of `makers` what `waiter`, which comes next, does.
  void overlap(ArrayRef<ListOp> makers, ListOp waiter, SymbolTable &symbols) {
    SmallVector<Operation *> chain;
    ReadOp read;
    for (auto candidate : waiter.getBody().getOps<ReadOp>())
      if (auto found = findChain(candidate);
          llvm::any_of(found, llvm::IsaPred<ReduceScatterOp>)) {
        // Those of two types would have to be waited for in one order.
        if (read)
          return;
        read = candidate;
        chain = found;
      }
    if (!read)
      return;
    auto arena = symbols.lookup<ArenaOp>(read.getSource().getRootReference());
    auto userIn = [&](ListOp maker, ReduceScatterOp scatter) {
      return findLastUser(maker.getBody().front(), arena, *scatter.getRange());
    };
    SmallVector<std::pair<Operation *, ReduceScatterOp>> started;
    for (Operation *op : chain)
      if (auto scatter = dyn_cast<ReduceScatterOp>(op);
          scatter && started.size() < kMostStarted &&
          llvm::all_of(makers,
                       [&](ListOp maker) { return userIn(maker, scatter); }))
        started.push_back({userIn(makers.front(), scatter), scatter});
    llvm::sort(started, [](auto &a, auto &b) {
      return a.first == b.first ? a.second->isBeforeInBlock(b.second)
                                : a.first->isBeforeInBlock(b.first);
    });

    // They are waited for in the order of their starts, before anything else.
    SmallVector<Operation *> order;
    for (auto [user, scatter] : started)
      order.push_back(scatter);
    for (Operation *op : chain)
      if (!llvm::is_contained(order, op))
        order.push_back(op);
    Operation *end = chain.back()->getNextNode();
    Value last = chain.back()->getResult(0), value = read.getResult();
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : last.getUses())
      uses.push_back(&use);
    for (Operation *op : order) {
      op->moveBefore(end);
      op->setOperand(0, value);
      value = op->getResult(0);
    }
    for (OpOperand *use : uses)
      use->set(value);

    // All lists start them in one order.
    for (ListOp maker : makers) {
      Operation *previous = nullptr;
      for (auto [first, scatter] : started) {
        Operation *behind = userIn(maker, scatter);
        if (previous && behind->isBeforeInBlock(previous))
          behind = previous;
        OpBuilder b(behind->getContext());
        b.setInsertionPointAfter(behind);
        previous = StartOp::create(
            b, scatter.getLoc(), FlatSymbolRefAttr::get(arena.getSymNameAttr()),
            scatter.getAxesAttr(), scatter.getRangeAttr());
      }
    }
    for (auto [first, scatter] : started)
      scatter.setStarted(true);
    numStarted += started.size();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    // Of all steps, which share `merge` and `apply`.
    SmallVector<ListOp> makers;
    ListOp merge, apply;
    int64_t accumulate = 1;
    for (auto list : module.getOps<ListOp>()) {
      auto step = symbols.lookup<StepOp>(list.getEntry());
      if (!step)
        continue;
      if (!list.getWorkspace()) {
        list.emitOpError("expects planned memory; run train-plan-memory "
                         "before train-overlap-reduce");
        return signalPassFailure();
      }
      accumulate = step.getAccumulate();
      if (list.getKind() == "merge")
        merge = list;
      else if (list.getKind() == "apply")
        apply = list;
      else
        makers.push_back(list);
    }
    // What several micro-steps have accumulated is complete at the end of the last.
    ListOp waiter = merge || accumulate > 1 ? merge : apply;
    auto awaits = [](ListOp list) {
      return !list.getBody().getOps<AwaitOp>().empty();
    };
    if (waiter && !makers.empty() && llvm::none_of(makers, awaits))
      overlap(makers, waiter, symbols);
  }
};
} // namespace
