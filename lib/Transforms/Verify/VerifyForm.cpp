//===- VerifyForm.cpp - Check that a module is in a form ------------------===//
//
// This pass states the contract between phases (DESIGN: five forms) as code. It
// changes nothing and stops at the first violation.
//
//===----------------------------------------------------------------------===//
#include "VerifyPlaces.h"
#include "VerifyWorkgroups.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/Transforms/Verify/Passes.h"
#include <map>

#define DEBUG_TYPE "train-verify-form"

namespace trainc {
#define GEN_PASS_DEF_VERIFYFORMPASS
#include "trainc/Transforms/Verify/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Whether a source may hold `op`, where it stands.
static bool isSource(Operation *op) {
  if (isa<ModuleOp>(op->getParentOp()))
    return isa<MeshOp, ParamOp, BufferOp, ScheduleOp, OptimizerOp, StepOp,
               EvalOp, func::FuncOp>(op);
  // Verifiers say what these regions hold.
  if (isa<ScheduleOp, OptimizerOp, nn::MapOp>(op->getParentOp()))
    return true;
  return isa<nn::NNDialect>(op->getDialect()) ||
         isa<ReadOp, WriteOp, train::YieldOp, RecomputeOp, ConstrainOp,
             func::CallOp, func::ReturnOp>(op);
}

static LogicalResult verifySource(ModuleOp module) {
  WalkResult result = module.walk([&](Operation *op) {
    if (op != module && !isSource(op)) {
      op->emitOpError("is not allowed here in a source");
      return WalkResult::interrupt();
    }
    auto step = dyn_cast<StepOp>(op);
    auto eval = dyn_cast<EvalOp>(op);
    bool hasSplits =
        (step && step.getOutputSplits()) || (eval && eval.getOutputSplits());
    if ((step && step.getOver()) || hasSplits) {
      op->emitOpError("expects no ")
          << (hasSplits ? "output_splits" : "over")
          << " in a source, which train-partition sets";
      return WalkResult::interrupt();
    }
    SymbolRefAttr ref;
    if (auto read = dyn_cast<ReadOp>(op))
      ref = read.getSource();
    else if (auto write = dyn_cast<WriteOp>(op))
      ref = write.getTarget();
    if (ref && !ref.getNestedReferences().empty()) {
      op->emitOpError("expects a parameter or buffer in a source, got ") << ref;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

static LogicalResult verifyGradients(ModuleOp module) {
  WalkResult calls = module.walk([](Operation *op) {
    if (!isa<func::FuncOp, func::CallOp, RecomputeOp>(op))
      return WalkResult::advance();
    op->emitOpError("is not allowed in form 1");
    return WalkResult::interrupt();
  });
  if (calls.wasInterrupted())
    return failure();
  for (Operation &op : module.getOps()) {
    auto optimizer = dyn_cast<OptimizerOp>(op);
    auto schedule = dyn_cast<ScheduleOp>(op);
    if ((optimizer && optimizer.getKind()) || (schedule && schedule.getKind()))
      return op.emitOpError("expects a region in form 1");
  }
  if (!getStep(module))
    return failure();
  for (auto step : module.getOps<StepOp>()) {
    DenseMap<StringAttr, int64_t> stored;
    for (auto store : step.getBody().getOps<StoreGradientOp>())
      ++stored[store.getParamAttr().getAttr()];
    for (auto param : module.getOps<ParamOp>()) {
      int64_t expected = step.trains(param) ? 1 : 0;
      int64_t found = stored.lookup(param.getSymNameAttr());
      if (found != expected)
        return param.emitOpError("expects ")
               << expected << " stored gradients in form 1, got " << found;
    }
  }
  return success();
}

/// What `op` reads or writes; null if nothing.
static SymbolRefAttr storageOf(Operation *op) {
  if (auto read = dyn_cast<ReadOp>(op))
    return read.getSource();
  if (auto write = dyn_cast<WriteOp>(op))
    return write.getTarget();
  return {};
}

/// Checks that an arena is read and written by buckets or by slices, not both: their order
/// would not be seen. What ends micro-steps and what an update does are
/// lists of their own.
static LogicalResult verifyStorage(Block &block, SymbolTable &symbols) {
  DenseMap<StringAttr, bool> byBucket;
  for (Operation &op : block)
    if (isa<MicroEndOp, WindowEndOp>(op))
      byBucket.clear();
    else if (SymbolRefAttr ref = storageOf(&op)) {
      if (ref.getNestedReferences().empty())
        return op.emitOpError("expects a slice or bucket of an arena in form "
                              "2, got ")
               << ref;
      bool mine = symbols.lookup<BucketOp>(ref.getLeafReference()) != nullptr;
      auto [it, inserted] = byBucket.try_emplace(ref.getRootReference(), mine);
      if (it->second != mine)
        return op.emitOpError("expects @")
               << ref.getRootReference().getValue()
               << " either by buckets or by slices in a block";
    }
  return success();
}

static LogicalResult verifyPlan(StepOp step, SymbolTable &symbols) {
  if (!llvm::hasSingleElement(step.getBody().getOps<WindowEndOp>()))
    return step.emitOpError("expects one train.window_end in form 2");
  WindowEndOp end = *step.getBody().getOps<WindowEndOp>().begin();
  auto microEnds = step.getBody().getOps<MicroEndOp>();
  if (!microEnds.empty() && (!llvm::hasSingleElement(microEnds) ||
                             end->isBeforeInBlock(*microEnds.begin())))
    return step.emitOpError(
        "expects one train.micro_end at most, before train.window_end");
  auto branches = step.getBody().getOps<scf::IfOp>();
  bool single = llvm::hasSingleElement(branches);
  if (step.getAccumulate() == 1 ? !single && !branches.empty() : !single)
    return step.emitOpError("expects one conditional region in form 2 for "
                            "windows of ")
           << step.getAccumulate() << "; run train-gradient-merge";
  return verifyStorage(step.getBody().front(), symbols);
}

static LogicalResult verifyPlan(ModuleOp module) {
  if (!getStep(module))
    return failure();
  SymbolTable symbols(module);
  WalkResult result = module.walk([&](Operation *op) {
    SymbolRefAttr ref = storageOf(op);
    if (ref && !symbols.lookup<ArenaOp>(ref.getRootReference())) {
      op->emitOpError("expects a slice or bucket of an arena in form 2, got ")
          << ref;
      return WalkResult::interrupt();
    }
    if (isa<StoreGradientOp>(op)) {
      op->emitOpError("is not allowed in form 2");
      return WalkResult::interrupt();
    }
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      if (failed(verifyStorage(branch.getThenRegion().front(), symbols)))
        return WalkResult::interrupt();
      if (!branch.getCondition().getDefiningOp<WindowEndOp>()) {
        op->emitOpError("expects a condition from train.window_end in form 2");
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  for (auto step : module.getOps<StepOp>())
    if (failed(verifyPlan(step, symbols)))
      return failure();
  return success();
}

/// What commands of `list` write, but collectives in place, which only pass on what
/// others have made there: slices, and arenas as wholes.
static DenseSet<Attribute> findWritten(ListOp list, SymbolTable &symbols) {
  DenseSet<Attribute> written;
  for (auto command : list.getBody().getOps<CommandOpInterface>()) {
    auto start = dyn_cast<StartOp>(*command);
    if (start && !start.getInput())
      continue;
    for (const Access &access : command.getAccesses(symbols))
      if (auto symbol = getAddress(access.buffer).getSymbol();
          symbol && access.write)
        written.insert(*symbol);
  }
  return written;
}

/// Checks that commands of a step write every parameter that it trains, and its states,
/// once per update, and its gradient in every micro-step: that is what a step is for,
/// though no command may use it. What steps share is in lists of `first`.
static LogicalResult verifyWriters(ModuleOp module, StringRef step,
                                   StringRef first) {
  std::map<ListKind, ListOp> lists; // of the step
  std::map<ListKind, DenseSet<Attribute>> written;
  SymbolTable symbols(module);
  for (auto list : module.getOps<ListOp>()) {
    bool isShared =
        list.getKind() == ListKind::apply || list.getKind() == ListKind::merge;
    if (list.getEntry() != (isShared ? first : step))
      continue;
    lists[list.getKind()] = list;
    written[list.getKind()] = findWritten(list, symbols);
  }
  StringAttr window;
  if (auto op = symbols.lookup<StepOp>(first))
    window = getWindow(op);
  BucketMap buckets = mapBuckets(module);
  for (auto arena : module.getOps<ArenaOp>()) {
    trainc_role role = arena.getRole();
    bool isGradient =
        role == TRAINC_ROLE_GRADIENT || role == TRAINC_ROLE_MERGED;
    if (!isGradient && role != TRAINC_ROLE_MASTER && role != TRAINC_ROLE_STATE)
      continue;
    auto whole = SymbolRefAttr::get(arena.getSymNameAttr());
    for (SliceOp op : arena.getSlices()) {
      auto param = symbols.lookup<ParamOp>(op.getSymName());
      if (!param || param.getFrozen() || param.getWindowAttr() != window)
        continue;
      SymbolRefAttr slice =
          sliceRef(module.getContext(), arena.getSymName(), op.getSymName());
      auto isWritten = [&](ListKind kind) {
        const auto &targets = written[kind];
        if (targets.contains(whole) || targets.contains(slice))
          return true;
        BucketOp bucket = buckets.lookup(op.getSymNameAttr());
        return bucket && targets.contains(sliceRef(module.getContext(),
                                                   arena.getSymName(),
                                                   bucket.getSymName()));
      };
      // What ends every micro-step stands behind the other lists.
      if (isGradient && isWritten(ListKind::merge))
        continue;
      for (ListKind kind : {ListKind::first, ListKind::next, ListKind::apply})
        if (ListOp list = lists[kind];
            list && isGradient == (kind != ListKind::apply) && !isWritten(kind))
          return list.emitOpError("expects a command that writes ")
                 << slice << " in form 3, got none";
    }
  }
  return success();
}

/// Checks that an address of an input or output is of one that the entry has.
static LogicalResult verifyPort(AddressOp address, Operation *entry) {
  bool isInput = address.getMemory() == Memory::input;
  if (!isInput && address.getMemory() != Memory::output)
    return success();
  Block &block = entry->getRegion(0).front();
  auto types = isInput ? TypeRange(block.getArgumentTypes())
                       : TypeRange(cast<train::YieldOp>(block.getTerminator())
                                       .getValues()
                                       .getTypes());
  size_t number = address.getNumber();
  MemRefType type = address.getType();
  if (number < types.size())
    if (auto port = cast<RankedTensorType>(types[number]);
        port.getElementType() == type.getElementType() &&
        port.getNumElements() == type.getNumElements())
      return success();
  return address.emitOpError("expects an ")
         << stringifyMemory(address.getMemory())
         << " that the entry has, of as many elements of its type, got number "
         << number << " of type " << type;
}

static LogicalResult verifyCommands(ListOp list) {
  if (!list.getWorkspace())
    return list.emitOpError("expects a planned workspace in form 3");
  Block &block = list.getBody().front();
  if (block.getNumArguments() != 0 ||
      block.getTerminator()->getNumOperands() != 0)
    return list.emitOpError("expects addresses of inputs and outputs in form "
                            "3, got arguments or returned values");
  Operation *entry =
      SymbolTable::lookupNearestSymbolFrom(list, list.getEntryAttr());
  for (Operation &op : block) {
    auto command = dyn_cast<CommandOpInterface>(op);
    if (command && !command.isOnBuffers())
      return op.emitOpError("expects buffers in form 3, got tensors");
    if (!command && !isa<AddressOp, ViewOp, WaitOp, train::ReturnOp>(op))
      return op.emitOpError("is not a command of form 3");
    if (auto gemm = dyn_cast<GemmOp>(op); gemm && !gemm.getPlan())
      return op.emitOpError("expects a plan in form 3; run train-plan-gemms");
    if (auto convolution = dyn_cast<ConvolutionOp>(op);
        convolution && !convolution.getPlan())
      return op.emitOpError("expects a plan in form 3; run train-plan-gemms");
    if (auto address = dyn_cast<AddressOp>(op); address && entry)
      if (failed(verifyPort(address, entry)))
        return failure();
  }
  return success();
}

/// The collectives that `list` leaves in flight.
static SmallVector<StartOp> findPending(ListOp list) {
  return llvm::filter_to_vector(
      list.getBody().getOps<StartOp>(),
      [](StartOp start) { return start.getPending().has_value(); });
}

/// Checks that those before `list` leave the same in flight, and what.
static LogicalResult findInFlight(ListOp list, SymbolTable &symbols,
                                  SmallVector<StartOp> &inFlight) {
  auto namesOf = [](ArrayRef<StartOp> starts) {
    return llvm::map_to_vector(
        starts, [](StartOp start) { return start.getPendingAttr(); });
  };
  SmallVector<ListOp> before = getPredecessors(list);
  for (ListOp one : before) {
    SmallVector<StartOp> starts = findPending(one);
    auto step = symbols.lookup<StepOp>(one.getEntry());
    if (!starts.empty() && list.getKind() == ListKind::apply &&
        one.getKind() != ListKind::merge && step && step.getAccumulate() > 1)
      return starts.front().emitOpError("is left in flight, and the next "
                                        "micro-step does not wait for it (P5)");
    if (one != before.front() && namesOf(starts) != namesOf(inFlight))
      return one.emitOpError("expects to leave in flight what @")
             << before.front().getSymName() << " does, in its order (P5)";
    inFlight = starts;
  }
  return success();
}

static LogicalResult verifyCommands(ModuleOp module) {
  SymbolTable symbols(module);
  if (failed(verifyLayout(module, "form 3")))
    return failure();
  Layouts layouts(module);
  DenseSet<Operation *> followed;
  for (auto list : module.getOps<ListOp>()) {
    SmallVector<StartOp> inFlight;
    if (failed(verifyCommands(list)) ||
        failed(findInFlight(list, symbols, inFlight)) ||
        failed(verifyPlaces(list, inFlight, symbols, layouts)))
      return failure();
    for (ListOp before : getPredecessors(list))
      followed.insert(before);
  }
  for (auto list : module.getOps<ListOp>())
    if (!followed.contains(list))
      for (StartOp start : findPending(list))
        return start.emitOpError(
            "is left in flight, and no list follows that waits for it (P5)");
  for (auto apply : module.getOps<ListOp>()) {
    if (apply.getKind() != ListKind::apply)
      continue;
    llvm::SetVector<StringRef> steps;
    steps.insert(apply.getEntry());
    for (auto step : module.getOps<StepOp>())
      if (getFirstOfWindow(step).getSymName() == apply.getEntry())
        steps.insert(step.getSymName());
    for (StringRef step : steps)
      if (failed(verifyWriters(module, step, apply.getEntry())))
        return failure();
  }
  return success();
}

static LogicalResult verifyTarget(ModuleOp module) {
  for (auto nested : module.getOps<ModuleOp>())
    for (auto function : nested.getOps<func::FuncOp>())
      if (failed(verifyWorkgroups(function)))
        return failure();
  return success();
}

namespace {
struct VerifyFormPass : trainc::impl::VerifyFormPassBase<VerifyFormPass> {
  using VerifyFormPassBase::VerifyFormPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (form < 0 || form > 4) {
      module.emitError("expects form 0, 1, 2, 3 or 4, got ") << form.getValue();
      return signalPassFailure();
    }
    LogicalResult result = form == 0   ? verifySource(module)
                           : form == 1 ? verifyGradients(module)
                           : form == 2 ? verifyPlan(module)
                           : form == 3 ? verifyCommands(module)
                                       : verifyTarget(module);
    if (failed(result))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
