//===- ChooseSaved.cpp - What the forward pass keeps for the backward -----===//
//
// This pass lets the backward pass compute pointwise values of the forward pass again,
// where it keeps fewer bytes then. Which values are kept is a minimum cut between
// what only the forward pass can compute and what the backward pass reads, as in
// PyTorch's min-cut rematerialization partitioner.
//
//===----------------------------------------------------------------------===//
#include "MinCut.h"
#include "Products.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/EraseDead.h"

#define DEBUG_TYPE "train-choose-saved"

namespace trainc {
#define GEN_PASS_DEF_CHOOSESAVEDPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Bytes up to which a value stays in a cache: to keep it costs less than to compute it
/// again.
static constexpr int64_t kCachedBytes = 1 << 18;

/// Whether it is computed again inside of the kernel that reads it. The bits of a dropout
/// cost more than to read them.
static bool canComputeAgain(Operation *op) {
  return isa_and_nonnull<nn::PointwiseOpInterface, nn::ReshapeOp>(op) &&
         !isa<nn::DropoutOp>(op);
}

/// Whether an op of the backward pass can take what it reads from the same kernel; else that
/// must stand in memory.
static bool takesFromKernel(Operation *op) {
  return isa<nn::PointwiseOpInterface, nn::ReduceOp>(op);
}

/// Whether it need not be kept: it is there, or costs nothing.
static bool isAlwaysThere(Value value) {
  return !value.getDefiningOp() || value.getDefiningOp<ReadOp>() ||
         value.getDefiningOp<nn::ConstantOp>() ||
         value.getDefiningOp<nn::IotaOp>();
}

/// Whether it holds gradients, of this rank or summed over ranks in every micro-step.
static bool holdsGradients(ArenaOp arena) {
  trainc_role role = arena.getRole();
  return role == TRAINC_ROLE_GRADIENT || role == TRAINC_ROLE_MERGED;
}

namespace {
struct ListSaver {
  ListSaver(ListOp list, SymbolTable &symbols)
      : block(list.getBody().front()), symbols(symbols) {}

  Block &block;
  SymbolTable &symbols;
  /// Ops that the loss, the outputs or buffers depend on, or on which no gradient does.
  DenseSet<Operation *> forward;
  /// What is in memory for the backward pass in any case.
  DenseSet<Value> there;
  /// What it reads and the pass may decide about, and those of it that are kept.
  llvm::SetVector<Value> read;
  DenseSet<Value> kept;
  DenseMap<Value, Value> again, barriers;
  int64_t bytesBefore = 0, bytesAfter = 0;

  /// Returns how many ops are computed again.
  int64_t run();

private:
  void findForward();
  void findRead();
  void chooseKept();
  Value keptBehindBarrier(OpBuilder &b, Value value);
  Value computeAgain(OpBuilder &b, Value value);
  bool isFree(Value value) const {
    return isAlwaysThere(value) || there.contains(value) ||
           nn::countBytes(value) <= kCachedBytes;
  }
};
} // namespace

void ListSaver::findForward() {
  SmallVector<Operation *> stack;
  for (Operation &op : block) {
    auto write = dyn_cast<WriteOp>(op);
    auto arena =
        write ? symbols.lookup<ArenaOp>(write.getTarget().getRootReference())
              : ArenaOp();
    if (isa<train::ReturnOp>(op) || (arena && !holdsGradients(arena)))
      stack.push_back(&op);
  }
  while (!stack.empty())
    for (Value operand : stack.pop_back_val()->getOperands())
      if (Operation *op = operand.getDefiningOp();
          op && forward.insert(op).second)
        stack.push_back(op);
  // And what waits for no gradient: rules make values of the forward pass again, and a loss
  // head has its gradient at once.
  auto isReady = [&](Value value) {
    return isAlwaysThere(value) || forward.contains(value.getDefiningOp());
  };
  for (Operation &op : block)
    if ((takesFromKernel(&op) || isa<nn::ReshapeOp>(op)) &&
        llvm::all_of(op.getOperands(), isReady))
      forward.insert(&op);
}

void ListSaver::findRead() {
  for (Operation &op : block)
    for (Value operand : op.getOperands())
      if (!forward.contains(&op) && forward.contains(operand.getDefiningOp())) {
        read.insert(operand);
        if (takesFromKernel(&op))
          continue;
        // What is a view of it is there, too.
        there.insert(operand);
        while (auto view = operand.getDefiningOp<nn::ReshapeOp>())
          there.insert(operand = view.getInput());
      }
  read.remove_if([&](Value value) { return isFree(value); });
}

void ListSaver::chooseKept() {
  FlowGraph graph;
  size_t source = graph.addNode(), sink = graph.addNode();
  // Of each value two nodes; the edge between them is cut where it is kept.
  DenseMap<Value, size_t> nodes;
  SmallVector<Value> stack;
  auto nodeOf = [&](Value value) {
    auto [it, inserted] = nodes.try_emplace(value, 0);
    if (inserted) {
      it->second = graph.addNode();
      graph.addEdge(it->second, graph.addNode(), nn::countBytes(value));
      stack.push_back(value);
    }
    return it->second;
  };
  for (Value value : read)
    graph.addEdge(nodeOf(value) + 1, sink, FlowGraph::unlimited);
  while (!stack.empty()) {
    Value value = stack.pop_back_val();
    size_t node = nodes.lookup(value);
    if (!canComputeAgain(value.getDefiningOp())) {
      graph.addEdge(source, node, FlowGraph::unlimited);
      continue;
    }
    for (Value operand : value.getDefiningOp()->getOperands())
      if (!isFree(operand))
        graph.addEdge(nodeOf(operand) + 1, node, FlowGraph::unlimited);
  }
  std::vector<bool> atSink = graph.cut(source, sink);
  for (auto [value, node] : nodes)
    if (!atSink[node] && atSink[node + 1]) {
      kept.insert(value);
      bytesAfter += nn::countBytes(value);
    }
  for (Value value : read)
    bytesBefore += nn::countBytes(value);
}

/// A value that is kept, as the backward pass reads it: its kernels stay apart from those
/// of the forward pass that make or read it.
Value ListSaver::keptBehindBarrier(OpBuilder &b, Value value) {
  if (isAlwaysThere(value) && nn::countBytes(value) <= kCachedBytes)
    return value;
  Value &barrier = barriers[value];
  if (!barrier)
    barrier = BarrierOp::create(b, value.getLoc(), value);
  return barrier;
}

/// `value`, made of what is kept.
Value ListSaver::computeAgain(OpBuilder &b, Value value) {
  if (kept.contains(value) || isFree(value))
    return keptBehindBarrier(b, value);
  if (Value done = again.lookup(value))
    return done;
  Operation *op = value.getDefiningOp();
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, computeAgain(b, operand));
  Operation *copy = b.clone(*op, mapping);
  for (auto [original, result] :
       llvm::zip(op->getResults(), copy->getResults()))
    again[original] = result;
  return again.lookup(value);
}

int64_t ListSaver::run() {
  findForward();
  findRead();
  chooseKept();
  if (bytesAfter == bytesBefore)
    return 0;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (forward.contains(&op) || !takesFromKernel(&op))
      continue;
    OpBuilder b(&op);
    for (OpOperand &operand : op.getOpOperands()) {
      Value value = operand.get();
      if ((read.contains(value) && !kept.contains(value)) ||
          barriers.contains(value))
        operand.set(computeAgain(b, value));
    }
  }
  eraseDead(block);
  return again.size();
}

namespace {
struct ChooseSavedPass : trainc::impl::ChooseSavedPassBase<ChooseSavedPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto list : getOperation().getOps<ListOp>()) {
      Block &block = list.getBody().front();
      if (!block.getOps<LaunchOp>().empty()) {
        list.emitOpError("expects primitives; run train-choose-saved before "
                         "train-form-kernels");
        return signalPassFailure();
      }
      if (failed(formProducts(list, symbols)))
        return signalPassFailure();
      ListSaver saver(list, symbols);
      int64_t count = saver.run();
      if (!count)
        continue;
      numComputedAgain += count;
      bytesNotKept += saver.bytesBefore - saver.bytesAfter;
      remark::passed(list.getLoc(), remark::RemarkOpts::name("ChosenSaved")
                                        .category("train-choose-saved"))
          << remark::metric("List", list.getSymName())
          << remark::metric("ComputedAgain", count)
          << remark::metric("BytesNotKept",
                            saver.bytesBefore - saver.bytesAfter);
    }
  }
};
} // namespace
