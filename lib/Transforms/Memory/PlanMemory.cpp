//===- PlanMemory.cpp - Give every value of a list an address -------------===//
//
// This pass decides where each result of a command lives: in the slice it is written
// to or the output it is returned as, where nothing still needs what stands there, or
// else in the workspace. Workspace offsets are found offline from the lifetimes, by the
// best of several orders in which values choose the lowest offset that is free for as
// long as they live. It then turns the list into its buffer form.
//
//===----------------------------------------------------------------------===//
#include "Buffers.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "trainc/Transforms/CopyValue.h"
#include "trainc/Transforms/Memory/Passes.h"

#define DEBUG_TYPE "train-plan-memory"

namespace trainc {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "trainc/Transforms/Memory/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Values that are needed after they are changed in place
//===----------------------------------------------------------------------===//

/// The operands of `op` in whose memory it makes results.
static SmallVector<OpOperand *> findInPlace(Operation *op,
                                            SymbolTable &symbols) {
  SmallVector<OpOperand *> operands;
  auto addAll = [&](MutableOperandRange range) {
    for (OpOperand &operand : range)
      operands.push_back(&operand);
  };
  if (auto launch = dyn_cast<LaunchOp>(op)) {
    for (int64_t i : symbols.lookup<KernelOp>(launch.getKernel()).getInplace())
      if (i >= 0)
        operands.push_back(&op->getOpOperand(i));
  } else if (auto gemm = dyn_cast<GemmOp>(op)) {
    addAll(gemm.getInitMutable());
  } else if (auto convolution = dyn_cast<ConvolutionOp>(op)) {
    addAll(convolution.getInitMutable());
  } else if (getInPlaceOperand(op)) {
    operands.push_back(&op->getOpOperand(0));
  }
  return operands;
}

/// The value that `value` is a view of.
static Value findOwner(Value value) {
  while (Value before = Buffers::viewed(value))
    value = before;
  return value;
}

/// Whether something needs `value`, or a view of it, beside `operand` or after its op.
static bool isNeededBeside(Value value, OpOperand &operand) {
  return llvm::any_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (user->getNumResults() == 1 && Buffers::viewed(user->getResult(0)))
      return isNeededBeside(user->getResult(0), operand);
    return &use != &operand && !user->isBeforeInBlock(operand.getOwner());
  });
}

/// Copies what commands would change in place while it is still needed, and returns how often:
/// two equal values may have become one since kernels were formed.
static int64_t copyWhatIsNeeded(ListOp list, SymbolTable &symbols) {
  int64_t copies = 0;
  for (Operation &op : list.getBody().front())
    for (OpOperand *operand : findInPlace(&op, symbols)) {
      Value value = operand->get(), owner = findOwner(value);
      if (!owner.getDefiningOp() || owner.getDefiningOp<ReadOp>() ||
          !isNeededBeside(owner, *operand))
        continue;
      OpBuilder b(&op);
      operand->set(copyValue(b, op.getLoc(), value));
      ++copies;
    }
  return copies;
}

/// Whether nothing reads `input`, a gradient, behind what writes the one that it is a term of:
/// its one user is a copy, or adds it element by element.
static bool isTermAlone(Value input, SymbolTable &symbols) {
  if (!input.hasOneUse())
    return input.use_empty();
  OpOperand &use = *input.use_begin();
  Operation *user = use.getOwner();
  if (user->getNumResults() == 1 && Buffers::viewed(user->getResult(0)))
    return isTermAlone(user->getResult(0), symbols);
  auto launch = dyn_cast<LaunchOp>(user);
  if (!launch)
    return isa<WriteOp, FlattenOp>(user);
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  Block &body = kernel.getBody().front();
  return body.getArgument(use.getOperandNumber()).hasOneUse() &&
         llvm::all_of(body.without_terminator(), [](Operation &op) {
           return isa<nn::PointwiseOpInterface, nn::ConstantOp>(op);
         });
}

/// Copies, before anything else, inputs that may stand where the gradients are that they are
/// terms of, if more than the sum needs them; returns how many.
static int64_t copyGivenGradients(ListOp list, SymbolTable &symbols) {
  auto step = symbols.lookup<StepOp>(list.getEntry());
  if (!step || step.getAccumulate() > 1)
    return 0;
  int64_t copies = 0;
  for (BlockArgument input : list.getBody().getArguments()) {
    if (!step.getInputGradient(input.getArgNumber()) ||
        isTermAlone(input, symbols))
      continue;
    OpBuilder b = OpBuilder::atBlockBegin(input.getOwner());
    auto uses = llvm::map_to_vector(input.getUses(),
                                    [](OpOperand &use) { return &use; });
    Value copy = copyValue(b, input.getLoc(), input);
    for (OpOperand *use : uses)
      use->set(copy);
    ++copies;
  }
  return copies;
}

//===----------------------------------------------------------------------===//
// Offsets
//===----------------------------------------------------------------------===//

/// Finds offsets in the workspace of `list` for what has no place yet.
static void assignOffsets(ListOp list, Buffers &buffers, bool reuse) {
  SmallVector<Buffer *> open = buffers.inWorkspace();
  SmallVector<Lifetime> lifetimes;
  for (Buffer *buffer : open)
    lifetimes.push_back(buffer->lifetime());
  Layout layout = layOut(lifetimes, reuse);
  for (auto [buffer, offset] : llvm::zip(open, layout.offsets))
    buffer->place = {Memory::workspace, {}, offset};
  for (auto &[value, buffer] : buffers.buffers)
    if (buffer.flat) {
      Origin whole = *buffers.buffers.find(buffer.flat)->second.place;
      buffer.place = {Memory::workspace, {}, whole.number + buffer.offset};
    }
  list.setWorkspace(layout.bytes);
  list.setAlive(mostAlive(lifetimes));
}

//===----------------------------------------------------------------------===//
// Buffer form
//===----------------------------------------------------------------------===//

namespace {
/// Turns a list into its buffer form, command by command.
struct ToBuffers {
  ToBuffers(ListOp list, Buffers &buffers, SymbolTable &symbols,
            Layouts &layouts)
      : list(list), buffers(buffers), symbols(symbols), layouts(layouts),
        b(list.getContext()),
        direct(buffers.direct.begin(), buffers.direct.end()) {}

  LogicalResult run();

private:
  /// The address of a value's memory, and from which of its elements on it stands there.
  struct Root {
    Value address;
    int64_t offset = 0;
  };
  Value addressOf(Origin origin, Type type);
  Root rootOf(Value value);
  Value bufferOf(Value value);
  Value viewOf(Root root, MemRefType type);

  struct Written;
  const Written *findWriter(Value address);
  void noteWritten(Operation *op, Value address);
  LogicalResult checkOperands(Operation *op);
  LogicalResult place(Operation *op, ValueRange results,
                      ArrayRef<Value> inPlace);
  void copy(Location loc, Value value, Value target);

  LogicalResult convert(LaunchOp launch);
  LogicalResult convert(GemmOp gemm);
  LogicalResult convert(ConvolutionOp convolution);
  LogicalResult convert(FlattenOp flat);
  LogicalResult convertCollective(Operation *op);
  LogicalResult convert(Operation *op);

  ListOp list;
  Buffers &buffers;
  SymbolTable &symbols;
  Layouts &layouts;
  OpBuilder b;
  DenseSet<Operation *> direct; // writes of what is made in its place
  DenseMap<Value, Root> roots;  // of sources
  DenseMap<Value, Value> tokens;
  /// Of sources that commands have changed in place: the value that stands there now.
  DenseMap<Value, Value> current;
  /// What has been written of an arena: where, and by what last, in that order.
  struct Written {
    Place place;
    Operation *op;
    Value address;
  };
  DenseMap<Attribute, std::vector<Written>> written; // by arena
  /// Of values read from arenas: who had last written there.
  DenseMap<Value, Operation *> writerAtRead;
};
} // namespace

Value ToBuffers::addressOf(Origin origin, Type type) {
  return AddressOp::create(b, list.getLoc(), bufferLike(type), origin.memory,
                           origin.symbol, origin.number);
}

/// Of a value that stands somewhere already.
ToBuffers::Root ToBuffers::rootOf(Value value) {
  int64_t offset = 0;
  while (true) {
    if (auto view = value.getDefiningOp<ViewOp>())
      offset += int64_t(view.getOffset());
    Value before = Buffers::viewed(value);
    if (!before && !(before = buffers.former(value)))
      break;
    value = before;
  }
  Root root = roots.lookup(value);
  return {root.address, root.offset + offset};
}

Value ToBuffers::viewOf(Root root, MemRefType type) {
  if (root.offset == 0 && root.address.getType() == type)
    return root.address;
  return ViewOp::create(b, root.address.getLoc(), type, root.address,
                        root.offset);
}

Value ToBuffers::bufferOf(Value value) {
  return viewOf(rootOf(value), bufferLike(value.getType()));
}

//===----------------------------------------------------------------------===//
// Whether operands still stand where they are
//===----------------------------------------------------------------------===//

/// What last wrote any of `address`, in an arena; null if nothing has.
const ToBuffers::Written *ToBuffers::findWriter(Value address) {
  Place place = getPlace(address, layouts);
  for (const Written &last : llvm::reverse(written[place.base]))
    if (last.place.overlaps(place))
      return &last;
  return nullptr;
}

void ToBuffers::noteWritten(Operation *op, Value address) {
  Place place = getPlace(address, layouts);
  std::vector<Written> &ofArena = written[place.base];
  llvm::erase_if(ofArena,
                 [&](const Written &old) { return old.place == place; });
  ofArena.push_back({place, op, address});
}

/// Checks that nothing has been written over the operands of `op` by name or in place.
LogicalResult ToBuffers::checkOperands(Operation *op) {
  for (Value operand : op->getOperands()) {
    if (!isa<RankedTensorType>(operand.getType()))
      continue;
    Value owner = findOwner(operand), source = buffers.source(owner);
    if (auto read = source.getDefiningOp<ReadOp>()) {
      const Written *last = findWriter(roots.lookup(source).address);
      if (last && last->op != writerAtRead.lookup(source))
        return (op->emitOpError("uses a value read from ")
                << read.getSource() << " before it was written")
                   .attachNote(last->op->getLoc())
               << "written here";
    }
    Value now = current.lookup(source);
    if ((now ? now : source) != owner)
      return (op->emitOpError("uses a value after it was changed in place"))
                 .attachNote(now.getLoc())
             << "changed here";
  }
  return success();
}

/// Gives `results` of command `op` their addresses; `inPlace` is, of each, the operand in
/// whose memory it is made, or null.
LogicalResult ToBuffers::place(Operation *op, ValueRange results,
                               ArrayRef<Value> inPlace) {
  for (auto [result, operand] : llvm::zip(results, inPlace)) {
    Value source = buffers.source(result);
    if (source != result) {
      current[source] = result;
      continue;
    }
    Origin origin = *buffers.buffers.find(result)->second.place;
    if (operand && !buffers.source(operand).getDefiningOp<ReadOp>())
      return op->emitOpError("expects what it changes in place to be read from "
                             "a slice, or made by a command");
    roots[result] =
        operand ? rootOf(operand) : Root{addressOf(origin, result.getType())};
    if (origin.memory == Memory::arena)
      noteWritten(op, roots[result].address);
  }
  return success();
}

/// Copies `value` to `target`, an address, unless it stands there.
void ToBuffers::copy(Location loc, Value value, Value target) {
  Value source = bufferOf(value);
  if (!(getPlace(source, layouts) == getPlace(target, layouts)))
    CopyOp::create(b, loc, source, target);
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

LogicalResult ToBuffers::convert(LaunchOp launch) {
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  SmallVector<Value> inPlace;
  for (int64_t argument : kernel.getInplace())
    inPlace.push_back(argument < 0 ? Value() : launch.getInputs()[argument]);
  SmallVector<Value> inputs, outs;
  for (auto [i, input] : llvm::enumerate(launch.getInputs()))
    if (!llvm::is_contained(kernel.getInplace(), static_cast<int64_t>(i)))
      inputs.push_back(bufferOf(input));
  if (failed(place(launch, launch.getResults(), inPlace)))
    return failure();
  for (Value result : launch.getResults())
    outs.push_back(bufferOf(result));
  LaunchOp::create(b, launch.getLoc(), TypeRange(), launch.getKernelAttr(),
                   inputs, outs)
      ->setDiscardableAttrs(launch->getDiscardableAttrDictionary());
  return success();
}

LogicalResult ToBuffers::convert(GemmOp gemm) {
  auto maybe = [&](Value value) { return value ? bufferOf(value) : Value(); };
  Value lhs = bufferOf(gemm.getLhs()), rhs = bufferOf(gemm.getRhs());
  Value bias = maybe(gemm.getBias()), at = maybe(gemm.getAt());
  SmallVector<Value> inPlace(gemm->getNumResults()), outs;
  inPlace[0] = gemm.getInit();
  if (failed(place(gemm, gemm->getResults(), inPlace)))
    return failure();
  for (Value result : gemm->getResults())
    outs.push_back(bufferOf(result));
  auto made = GemmOp::create(
      b, gemm.getLoc(), Type(), Type(), Type(), lhs, rhs, bias, Value(), at,
      outs, gemm.getM(), gemm.getN(), gemm.getK(), gemm.getBatch(),
      gemm.getTransposeLhs(), gemm.getTransposeRhs(), gemm.getBroadcastRhs(),
      gemm.getEpilogue(), gemm.getBiasGradient(), bool(gemm.getInit()),
      gemm.getPlanAttr());
  made->setDiscardableAttrs(gemm->getDiscardableAttrDictionary());
  return success();
}

LogicalResult ToBuffers::convert(ConvolutionOp op) {
  Value lhs = bufferOf(op.getLhs()), rhs = bufferOf(op.getRhs());
  if (failed(place(op, op->getResults(), {op.getInit()})))
    return failure();
  auto made = ConvolutionOp::create(
      b, op.getLoc(), Type(), op.getKind(), lhs, rhs, Value(),
      bufferOf(op.getResult()), op.getStrides(), op.getPadding(),
      op.getDilations(), op.getGroups(), bool(op.getInit()), op.getPlanAttr());
  made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  return success();
}

LogicalResult ToBuffers::convert(FlattenOp flat) {
  SmallVector<Value> inputs;
  for (Value input : flat.getInputs())
    inputs.push_back(bufferOf(input));
  if (failed(place(flat, flat->getResults(), {Value()})))
    return failure();
  FlattenOp::create(b, flat.getLoc(), Type(), inputs,
                    bufferOf(flat.getResult()), flat.getOffsets(), ArrayAttr());
  return success();
}

LogicalResult ToBuffers::convertCollective(Operation *op) {
  auto started = dyn_cast<StartOp>(op);
  auto sum = dyn_cast<AllReduceOp>(op);
  Collective kind = started                ? started.getCollective()
                    : sum                  ? Collective::all_reduce
                    : isa<AllGatherOp>(op) ? Collective::all_gather
                                           : Collective::reduce_scatter;
  ArrayAttr pieceOf = sum       ? sum.getPieceOfAttr()
                      : started ? started.getPieceOfAttr()
                                : ArrayAttr();
  Value result = Buffers::resultOf(op), operand = getInPlaceOperand(op), input;
  if (!operand)
    input = bufferOf(op->getOperand(0));
  if (failed(place(op, result, {operand})))
    return failure();
  Value out = bufferOf(result);
  auto start = StartOp::create(b, op->getLoc(), kind, input, out,
                               op->getAttrOfType<ArrayAttr>("axes"), pieceOf);
  if (started)
    tokens[result] = start.getToken();
  else
    WaitOp::create(b, op->getLoc(), start.getToken());
  return success();
}

LogicalResult ToBuffers::convert(Operation *op) {
  b.setInsertionPoint(op);
  if (failed(checkOperands(op)))
    return failure();
  if (auto launch = dyn_cast<LaunchOp>(op))
    return convert(launch);
  if (auto gemm = dyn_cast<GemmOp>(op))
    return convert(gemm);
  if (auto convolution = dyn_cast<ConvolutionOp>(op))
    return convert(convolution);
  if (auto flat = dyn_cast<FlattenOp>(op))
    return convert(flat);
  if (isCollective(op) || isa<StartOp>(op))
    return convertCollective(op);
  if (auto read = dyn_cast<ReadOp>(op)) {
    Value address =
        addressOf({Memory::arena, read.getSource()}, read.getType());
    const Written *last = findWriter(address);
    if (last) // of two that are alike the one that was written
      address =
          last->place == getPlace(address, layouts) ? last->address : address;
    roots[read] = {address};
    writerAtRead[read] = last ? last->op : nullptr;
  } else if (auto write = dyn_cast<WriteOp>(op)) {
    if (direct.contains(op))
      return success();
    Value target = addressOf({Memory::arena, write.getTarget()},
                             write.getValue().getType());
    copy(op->getLoc(), write.getValue(), target);
    noteWritten(op, target);
  } else if (auto wait = dyn_cast<WaitOp>(op)) {
    WaitOp::create(b, op->getLoc(), tokens.lookup(wait.getResult()));
  } else if (isa<train::ReturnOp>(op)) {
    for (auto [i, value] : llvm::enumerate(op->getOperands()))
      copy(op->getLoc(), value,
           addressOf({Memory::output, {}, static_cast<int64_t>(i)},
                     value.getType()));
    train::ReturnOp::create(b, op->getLoc(), ValueRange());
  }
  return success();
}

LogicalResult ToBuffers::run() {
  Block &block = list.getBody().front();
  SmallVector<Operation *> commands;
  for (Operation &op : block)
    commands.push_back(&op);
  b.setInsertionPointToStart(&block);
  for (BlockArgument argument : block.getArguments())
    if (!argument.use_empty())
      roots[argument] = {addressOf({Memory::input, {}, argument.getArgNumber()},
                                   argument.getType())};
  for (Operation *op : commands)
    if (failed(convert(op)))
      return failure();
  for (Operation *op : llvm::reverse(commands))
    op->erase();
  block.eraseArguments(0, block.getNumArguments());
  for (auto address : llvm::make_early_inc_range(block.getOps<AddressOp>()))
    if (address.use_empty())
      address.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Checks that only commands are left in `list`.
static LogicalResult verifyNeeds(ListOp list) {
  for (Operation &op : list.getBody().front())
    if (!isCommand(&op) &&
        !isa<ReadOp, WriteOp, ViewOp, WaitOp, nn::ReshapeOp, train::ReturnOp>(
            op))
      return op.emitOpError(
          "is no command; run train-form-kernels before train-plan-memory");
  return success();
}

namespace {
struct PlanMemoryPass : trainc::impl::PlanMemoryPassBase<PlanMemoryPass> {
  using PlanMemoryPassBase::PlanMemoryPassBase;

  void runOnOperation() override {
    if (failed(verifyLayout(getOperation(), "train-plan-memory")))
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    Layouts layouts(getOperation());
    for (auto list : getOperation().getOps<ListOp>()) {
      if (list.getWorkspace())
        continue;
      if (failed(verifyNeeds(list)))
        return signalPassFailure();
      numCopies += copyGivenGradients(list, symbols);
      numCopies += copyWhatIsNeeded(list, symbols);
      Buffers buffers(list, symbols);
      assignOffsets(list, buffers, reuse);
      if (failed(ToBuffers(list, buffers, symbols, layouts).run()))
        return signalPassFailure();
      numCopies += buffers.copies;
      numAvoided += buffers.direct.size();
    }
  }
};
} // namespace
