//===- FormKernels.cpp - Group ops into kernels, share equal ones ---------===//
//
// This pass turns the ops of a list into launches and GEMMs. Grouping.h decides
// which ops become one kernel; here the groups are scheduled, outlined, and equal
// kernels are shared. Afterwards a list holds reads, writes, reshapes, launches
// and GEMMs only.
//
//===----------------------------------------------------------------------===//
#include "Grouping.h"
#include "Products.h"
#include "Users.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/CopyValue.h"
#include "trainc/Transforms/EraseDead.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

#define DEBUG_TYPE "train-form-kernels"

namespace trainc {
#define GEN_PASS_DEF_FORMKERNELSPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Outlining
//===----------------------------------------------------------------------===//

namespace {
/// Makes kernels and shares equal ones.
struct Outliner {
  ModuleOp module;
  SymbolTable symbols;
  llvm::StringMap<KernelOp> byText;
  int64_t launches = 0;

  explicit Outliner(ModuleOp module) : module(module), symbols(module) {}

  void outline(Block &block, ArrayRef<Operation *> group);

private:
  KernelOp getOrCreate(KernelOp candidate);
};
} // namespace

/// The name of what `group` computes: the source's op names, first three.
static std::string kernelName(ArrayRef<Operation *> group) {
  llvm::SetVector<StringRef> parts;
  for (Operation *op : group) {
    if (isa<nn::ConstantOp>(op) && group.size() > 1)
      continue;
    if (auto loc = dyn_cast<NameLoc>(op->getLoc()))
      parts.insert(loc.getName().getValue());
    else
      parts.insert(op->getName().stripDialect());
  }
  std::string name = "k";
  for (StringRef part : parts.getArrayRef().take_front(3))
    name += ("_" + part).str();
  return name;
}

KernelOp Outliner::getOrCreate(KernelOp candidate) {
  std::string name = candidate.getSymName().str();
  candidate.setSymName("k");
  std::string text;
  llvm::raw_string_ostream stream(text);
  candidate->print(stream,
                   OpPrintingFlags().printGenericOpForm().useLocalScope());
  auto [it, inserted] = byText.try_emplace(text, candidate);
  if (!inserted) {
    candidate.erase();
    return it->second;
  }
  candidate.setSymName(name);
  symbols.insert(candidate);
  return candidate;
}

/// Whether nothing after `position` needs the value read from `slice`, users in
/// `group` aside.
static bool isLastReader(Block &block, SymbolRefAttr slice,
                         const DenseSet<Operation *> &group,
                         Operation *position) {
  for (auto read : block.getOps<ReadOp>()) {
    auto isLater = [&](Operation *user) {
      return !group.contains(user) && position->isBeforeInBlock(user);
    };
    if (read.getSource() == slice && hasUser(read, isLater))
      return false;
  }
  return true;
}

/// The slice in which `value` stands from the list's begin on, or null.
static SymbolRefAttr sliceOf(Value value) {
  while (passesOn(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto read = value.getDefiningOp<ReadOp>();
  return read ? read.getSource() : SymbolRefAttr();
}

/// Whether each of the workgroups that share the space of `group` computes a part of
/// `result` of its own, and none needs the others'.
static bool spansAll(ArrayRef<Operation *> group, Value result) {
  auto space = IterationSpace::compute(group, /*column=*/false);
  return succeeded(space) && space->outerSize() * space->inner ==
                                 nn::getTensorType(result).getNumElements();
}

void Outliner::outline(Block &block, ArrayRef<Operation *> group) {
  DenseSet<Operation *> members(group.begin(), group.end());
  llvm::SetVector<Value> inputs, outputs;
  bool pointwise = true;
  for (Operation *op : group) {
    pointwise &= isa<nn::PointwiseOpInterface, nn::ConstantOp>(op);
    for (Value operand : op->getOperands())
      if (!members.contains(operand.getDefiningOp()))
        inputs.insert(operand);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) {
            return !members.contains(block.findAncestorOpInBlock(*user));
          }))
        outputs.insert(result);
  }
  // A result that replaces the slice an input was read from is written there; a
  // gradient of an embedding adds to what it is given, if nobody else needs it.
  SmallVector<int64_t> inplace(outputs.size(), -1);
  auto embedding = dyn_cast<nn::EmbeddingGradOp>(group.front());
  if (embedding && embedding.getInit() && embedding.getInit().hasOneUse() &&
      isa_and_nonnull<GemmOp, LaunchOp>(embedding.getInit().getDefiningOp()))
    inplace[0] = llvm::find(inputs, embedding.getInit()) - inputs.begin();
  pointwise |= embedding != nullptr;
  // Elements outside of the segments stay: the result must stand where they are.
  if (auto map = dyn_cast<SegmentMapOp>(group.back()))
    for (auto [i, target] : llvm::enumerate(map.getTargets()))
      inplace[llvm::find(outputs, map.getOutputs()[i]) - outputs.begin()] =
          llvm::find(inputs, map.getArrays()[target]) - inputs.begin();
  DenseSet<int64_t> taken;
  for (auto [i, output] : llvm::enumerate(outputs)) {
    if (!pointwise || inplace[i] >= 0)
      break;
    for (Operation *user : output.getUsers()) {
      auto write = dyn_cast<WriteOp>(user);
      if (!write)
        continue;
      for (auto [j, input] : llvm::enumerate(inputs)) {
        auto read = input.getDefiningOp<ReadOp>();
        if (read && read.getSource() == write.getTarget() &&
            input.getType() == output.getType() && !taken.contains(j) &&
            llvm::count_if(inputs,
                           [&](Value other) {
                             return sliceOf(other) == read.getSource();
                           }) == 1 &&
            spansAll(group, output) &&
            isLastReader(block, read.getSource(), members, group.back())) {
          inplace[i] = j;
          taken.insert(j);
        }
      }
      break;
    }
  }

  OpBuilder b(module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  auto kernel = KernelOp::create(b, group.front()->getLoc(), kernelName(group),
                                 inplace, AbiAttr());
  Block &body = kernel.getBody().emplaceBlock();
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, body.addArgument(input.getType(), input.getLoc()));
  b.setInsertionPointToEnd(&body);
  for (Operation *op : group)
    b.clone(*op, mapping);
  SmallVector<Value> returned;
  for (Value output : outputs)
    returned.push_back(mapping.lookup(output));
  train::ReturnOp::create(b, kernel.getLoc(), returned);
  kernel = getOrCreate(kernel);

  b.setInsertionPointAfter(group.back());
  SmallVector<Type> types;
  for (Value output : outputs)
    types.push_back(output.getType());
  auto launch = LaunchOp::create(
      b, group.front()->getLoc(), types,
      FlatSymbolRefAttr::get(kernel.getSymNameAttr()), inputs.getArrayRef());
  for (auto [output, result] :
       llvm::zip(outputs.takeVector(), launch.getResults()))
    output.replaceAllUsesWith(result);
  for (Operation *op : llvm::reverse(group))
    op->erase();
  ++launches;
}

/// What collectives and updates have made `value` of, in place; null if it is none of theirs.
static Value madeOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto map = dyn_cast_if_present<SegmentMapOp>(op))
    return map
        .getArrays()[map.getTargets()[cast<OpResult>(value).getResultNumber()]];
  return op && isCollective(op) ? getInPlaceOperand(op) : Value();
}

/// What they make of `value` in place; null if nothing does, or several.
static Value madeFrom(Value value) {
  Value made;
  for (Operation *user : value.getUsers())
    for (Value result : user->getResults())
      if (madeOf(result) == value) {
        if (made)
          return {};
        made = result;
      }
  return made;
}

/// Whether `array` stands in an arena, of which `result`, or what collectives and other updates
/// make of it in place, is written there alone.
static bool replacesArena(Value array, Value result) {
  while (Value before = madeOf(array))
    array = before;
  while (Value next = madeFrom(result))
    result = next;
  auto read = array.getDefiningOp<ReadOp>();
  WriteOp only;
  for (Operation *user : result.getUsers())
    if (auto write = dyn_cast<WriteOp>(user)) {
      if (only)
        return false;
      only = write;
    }
  return read && only && only.getTarget() == read.getSource();
}

/// Checks that `list` holds only what a kernel computes or a command does.
static LogicalResult verifyNeeds(ListOp list) {
  for (Operation &op : list.getBody().front())
    if (!isa<nn::NNDialect>(op.getDialect()) && !isCollective(&op) &&
        !isa<ReadOp, WriteOp, LaunchOp, GemmOp, ConvolutionOp, SquareSumOp,
             SegmentMapOp, SegmentSquareSumOp, SumBlocksOp, FlattenOp, ViewOp,
             BarrierOp, train::ReturnOp>(op))
      return op.emitOpError("cannot be made a command");
  for (auto map : list.getBody().getOps<SegmentMapOp>())
    for (auto [target, result] : llvm::zip(map.getTargets(), map.getOutputs()))
      if (!replacesArena(map.getArrays()[target], result))
        return map.emitOpError(
                   "expects targets that are read from an arena, and "
                   "results that are written back there, got ")
               << map.getArrays()[target];
  return success();
}

/// Lets equal reshapes be one, so that kernels take what they are of as one argument.
static void mergeReshapes(Block &block) {
  DenseMap<std::pair<Value, Type>, Value> known;
  for (auto reshape :
       llvm::make_early_inc_range(block.getOps<nn::ReshapeOp>())) {
    Value &first = known[{reshape.getInput(), reshape.getType()}];
    if (!first) {
      first = reshape.getResult();
      continue;
    }
    reshape.replaceAllUsesWith(first);
    reshape.erase();
  }
}

/// Copies what a slice holds at first where it is still needed after a write to it: for what
/// another write or the end of the list takes, to swap two buffers for example.
static void copyOldValues(Block &block) {
  DenseMap<SymbolRefAttr, WriteOp> firstWrites;
  for (auto write : block.getOps<WriteOp>())
    firstWrites.try_emplace(write.getTarget(), write);
  for (auto read : llvm::make_early_inc_range(block.getOps<ReadOp>())) {
    WriteOp write = firstWrites.lookup(read.getSource());
    auto isBehind = [&](Operation *user) {
      return write->isBeforeInBlock(user);
    };
    if (!write || !hasUser(read, isBehind))
      continue;
    OpBuilder b(read->getContext());
    b.setInsertionPointAfter(read);
    Value old = copyValue(b, read.getLoc(), read);
    // The copy itself reads before the write.
    read.getResult().replaceUsesWithIf(old, [&](OpOperand &use) {
      Operation *user = use.getOwner();
      return passesOn(user) ? hasUser(user->getResult(0), isBehind)
                            : isBehind(user);
    });
  }
}

/// Joins more tensors than a kernel has inputs in steps, by parts.
static void splitConcats(Block &block) {
  for (auto concat : llvm::make_early_inc_range(block.getOps<nn::ConcatOp>())) {
    OpBuilder b(concat);
    SmallVector<Value> inputs(concat.getInputs());
    while (inputs.size() > kMaxInputs) {
      SmallVector<Value> parts;
      for (ArrayRef<Value> rest = inputs; !rest.empty();) {
        ArrayRef<Value> part = rest.take_front(kMaxInputs);
        rest = rest.drop_front(part.size());
        parts.push_back(part.size() == 1
                            ? part.front()
                            : nn::ConcatOp::create(b, concat.getLoc(), part,
                                                   concat.getDim())
                                  .getResult());
      }
      inputs = std::move(parts);
    }
    concat.getInputsMutable().assign(inputs);
  }
}

namespace {
struct FormKernelsPass : trainc::impl::FormKernelsPassBase<FormKernelsPass> {
  using FormKernelsPassBase::FormKernelsPassBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto list : getOperation().getOps<ListOp>())
      if (failed(verifyNeeds(list)))
        return signalPassFailure();
    Outliner outliner(getOperation());
    for (auto list : llvm::to_vector(getOperation().getOps<ListOp>())) {
      Block &block = list.getBody().front();
      if (failed(formProducts(list, symbols)))
        return signalPassFailure();
      if (fuse) {
        mergeReshapes(block);
        viewSlices(block);
        flattenConcats(block);
      }
      if (gpu)
        splitConcats(block);
      numGemms += llvm::range_size(block.getOps<GemmOp>());
      for (ArrayRef<Operation *> group : formGroups(block, fuse, gpu))
        outliner.outline(block, group);
      // Barriers kept kernels apart; now there are kernels.
      for (auto barrier :
           llvm::make_early_inc_range(block.getOps<BarrierOp>())) {
        barrier.replaceAllUsesWith(barrier.getInput());
        barrier.erase();
      }
      eraseDead(block);
      copyOldValues(block);
    }
    numLaunches += outliner.launches;
    numKernels += outliner.byText.size();
  }
};
} // namespace
