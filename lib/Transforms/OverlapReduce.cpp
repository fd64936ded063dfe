//===- OverlapReduce.cpp - Start to sum gradients while others are made ---===//
//
// This pass starts the reduce-scatter of a bucket in the list that makes its
// gradients, behind the command that writes the last of them; the list `apply`
// then waits for it.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Passes.h"

#define DEBUG_TYPE "train-overlap-reduce"

namespace trainc {
#define GEN_PASS_DEF_OVERLAPREDUCEPASS
#include "trainc/Transforms/Passes.h.inc"
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

/// The last command of `block` that writes to `range`, elements of `arena`; null if
/// none does.
static Operation *findLastWriter(Block &block, ArenaOp arena,
                                 ArrayRef<int64_t> range) {
  int64_t width = nn::getElementBytes(arena.getFlatType().getElementType());
  Operation *last = nullptr;
  for (Operation &op : block)
    for (SymbolRefAttr slice : findWritten(op)) {
      if (slice.getRootReference() != arena.getSymNameAttr() ||
          slice.getNestedReferences().empty())
        continue;
      int64_t first = arena.getLocalOffset(arena.findSlice(
                          slice.getLeafReference().getValue())) /
                      width;
      if (first >= range[0] && first < range[0] + range[1])
        last = &op;
    }
  return last;
}

namespace {
struct OverlapReducePass
    : trainc::impl::OverlapReducePassBase<OverlapReducePass> {
  void overlap(ListOp first, ListOp apply, SymbolTable &symbols) {
    SmallVector<Operation *> chain;
    ReadOp read;
    for (auto candidate : apply.getBody().getOps<ReadOp>())
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
    Block &block = first.getBody().front();
    SmallVector<std::pair<Operation *, ReduceScatterOp>> started;
    for (Operation *op : chain)
      if (auto scatter = dyn_cast<ReduceScatterOp>(op);
          scatter && started.size() < kMostStarted)
        if (Operation *writer =
                findLastWriter(block, arena, scatter.getRange()))
          started.push_back({writer, scatter});
    llvm::stable_sort(started, [](auto &a, auto &b) {
      return a.first != b.first && a.first->isBeforeInBlock(b.first);
    });

    // They are waited for in the order of their starts, before anything else.
    SmallVector<Operation *> order;
    for (auto [writer, scatter] : started)
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

    DenseMap<Operation *, Operation *> behind;
    for (auto [writer, scatter] : started) {
      OpBuilder b(writer->getContext());
      Operation *&previous = behind.try_emplace(writer, writer).first->second;
      b.setInsertionPointAfter(previous);
      previous = StartOp::create(b, scatter.getLoc(),
                                 FlatSymbolRefAttr::get(arena.getSymNameAttr()),
                                 scatter.getAxesAttr(), scatter.getRangeAttr());
      scatter.setStarted(true);
      ++numStarted;
    }
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    for (auto step : module.getOps<StepOp>()) {
      ListOp first, apply;
      for (auto list : module.getOps<ListOp>())
        if (list.getEntry() == step.getSymName()) {
          if (!list.getWorkspace()) {
            list.emitOpError("expects planned memory; run train-plan-memory "
                             "before train-overlap-reduce");
            return signalPassFailure();
          }
          if (list.getKind() == "first")
            first = list;
          else if (list.getKind() == "apply")
            apply = list;
        }
      if (first && apply && step.getAccumulate() == 1)
        overlap(first, apply, symbols);
    }
  }
};
} // namespace
