//===- PlanMemory.cpp - Give every value of a list an address -------------===//
//
// This pass decides where each result of a launch or GEMM lives: in the slice it
// is written to or the output it is returned as, where nothing still needs what
// stands there, or else in the workspace. Workspace offsets are found offline from
// the lifetimes, by the best of several orders in which values choose the lowest
// offset that is free for as long as they live. Copies that remain become copy
// commands.
//
//===----------------------------------------------------------------------===//
#include "Buffers.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Memory/Passes.h"

#define DEBUG_TYPE "train-plan-memory"

namespace trainc {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "trainc/Transforms/Memory/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Finds offsets in the workspace of `list` for what has no place yet.
static void assignOffsets(ListOp list, Buffers &buffers, bool reuse) {
  SmallVector<Buffer *> open = buffers.inWorkspace();
  SmallVector<Lifetime> lifetimes;
  for (Buffer *buffer : open)
    lifetimes.push_back(buffer->lifetime());
  Layout layout = layOut(lifetimes, reuse);
  Builder b(list.getContext());
  for (auto [buffer, offset] : llvm::zip(open, layout.offsets))
    buffer->place = placeOf(b, b.getStringAttr("workspace"), offset);
  for (auto &[value, buffer] : buffers.buffers)
    if (buffer.flat) {
      auto whole =
          cast<ArrayAttr>(buffers.buffers.find(buffer.flat)->second.place);
      buffer.place = placeOf(
          b, whole[0], cast<IntegerAttr>(whole[1]).getInt() + buffer.offset);
    }
  list.setWorkspace(layout.bytes);
  list.setAlive(mostAlive(lifetimes));
}

/// Says at every command where its results are.
static void annotate(ListOp list, Buffers &buffers) {
  Builder b(list.getContext());
  for (Operation &op : list.getBody().front()) {
    if (!isCommand(&op))
      continue;
    SmallVector<Attribute> places;
    for (Value result : op.getResults())
      places.push_back(
          buffers.buffers.find(buffers.source(result))->second.place);
    op.setAttr("places", b.getArrayAttr(places));
  }
}

/// Checks that only commands are left in `list`.
static LogicalResult verifyNeeds(ListOp list) {
  for (Operation &op : list.getBody().front())
    if (!isCommand(&op) &&
        !isa<ReadOp, WriteOp, ViewOp, AwaitOp, nn::ReshapeOp, train::ReturnOp>(
            op))
      return op.emitOpError(
          "is no command; run train-form-kernels before train-plan-memory");
  return success();
}

namespace {
struct PlanMemoryPass : trainc::impl::PlanMemoryPassBase<PlanMemoryPass> {
  using PlanMemoryPassBase::PlanMemoryPassBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto list : getOperation().getOps<ListOp>()) {
      if (list.getWorkspace())
        continue;
      if (failed(verifyNeeds(list)))
        return signalPassFailure();
      Buffers buffers(list, symbols);
      assignOffsets(list, buffers, reuse);
      annotate(list, buffers);
      for (WriteOp write : buffers.direct)
        write.erase();
      numCopies += buffers.copies;
      numAvoided += buffers.direct.size();
    }
  }
};
} // namespace
