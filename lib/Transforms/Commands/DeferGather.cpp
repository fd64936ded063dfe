//===- DeferGather.cpp - Gather a bucket while the next ones are updated --===//
//
// This pass moves the wait for a gather of a range of an arena down to the first command
// that touches the range, or to the end of the list.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "trainc/Transforms/Commands/Passes.h"

#define DEBUG_TYPE "train-defer-gather"

namespace trainc {
#define GEN_PASS_DEF_DEFERGATHERPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Whether `start` gathers a range of an arena in place, and is waited for at once.
static bool isDeferrable(StartOp start) {
  return start.getCollective() == Collective::all_gather && !start.getInput() &&
         isWaitedForAtOnce(start) &&
         getAddress(start.getOut()).getMemory() == Memory::arena;
}

namespace {
struct DeferGatherPass : trainc::impl::DeferGatherPassBase<DeferGatherPass> {
  void defer(ListOp list, SymbolTable &symbols, Layouts &layouts) {
    SmallVector<StartOp> starts;
    for (auto start : list.getBody().getOps<StartOp>())
      if (start.getToken())
        starts.push_back(start);
    // Collectives are waited for in the order of their starts: from the last one on.
    Operation *next = list.getBody().front().getTerminator();
    for (size_t i = starts.size(); i-- > 0;) {
      StartOp start = starts[i];
      Operation *wait = *start.getToken().user_begin();
      if (isDeferrable(start)) {
        Operation *full = i + kMostInFlight < starts.size()
                              ? starts[i + kMostInFlight].getOperation()
                              : nullptr;
        moveDown(wait, next, full, getPlace(start.getOut(), layouts), symbols,
                 layouts);
      }
      // What is waited for at once stays so.
      next = isWaitedForAtOnce(start) ? start.getOperation() : wait;
    }
  }

  /// Moves `wait` to before the first command that touches `place`, `next` or `full`.
  void moveDown(Operation *wait, Operation *next, Operation *full,
                const Place &place, SymbolTable &symbols, Layouts &layouts) {
    Operation *end = wait->getNextNode();
    bool computes = false;
    for (; end != next && end != full; end = end->getNextNode()) {
      auto command = dyn_cast<CommandOpInterface>(end);
      if (command &&
          llvm::any_of(command.getAccesses(symbols), [&](const Access &access) {
            return getPlace(access.buffer, layouts).overlaps(place);
          }))
        break;
      computes |= isa<LaunchOp, GemmOp, ConvolutionOp>(end);
    }
    if (!computes)
      return;
    wait->moveBefore(end);
    ++numDeferred;
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    Layouts layouts(module);
    for (auto list : module.getOps<ListOp>()) {
      if (!list.getWorkspace()) {
        list.emitOpError("expects planned memory; run train-plan-memory "
                         "before train-defer-gather");
        return signalPassFailure();
      }
      defer(list, symbols, layouts);
    }
  }
};
} // namespace
