//===- MergeLaunches.cpp - Fewer launches for norm and update -------------===//
//
// Two launches become one: the norm and what follows from its sums, which the block
// that ends last computes; and updates of disjoint segments, side by side.
//
//===----------------------------------------------------------------------===//
#include "Users.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace trainc {
#define GEN_PASS_DEF_MERGELAUNCHESPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// What a kernel may be a part of.
enum class Kind {
  None,
  Norm,  ///< sums of squares of segments, then perhaps a tail
  Tail,  ///< sums of blocks and work on single elements
  Update ///< maps of segments
};

struct Merger {
  explicit Merger(ModuleOp module) : module(module), symbols(module) {}

  ModuleOp module;
  SymbolTable symbols;
  int64_t merged = 0;

  void mergeIn(Block &block);

private:
  KernelOp kernelOf(LaunchOp launch) {
    return symbols.lookup<KernelOp>(launch.getKernel());
  }
  Kind kindOf(LaunchOp launch);
  bool tryMerge(LaunchOp first, LaunchOp second);
  void merge(LaunchOp first, LaunchOp second);
};
} // namespace

/// Whether `op` computes single elements only.
static bool isSingle(Operation *op) {
  auto isOne = [](Value value) {
    return nn::getTensorType(value).getNumElements() == 1;
  };
  return isa<nn::PointwiseOpInterface>(op) &&
         llvm::all_of(op->getOperands(), isOne) &&
         llvm::all_of(op->getResults(), isOne);
}

Kind Merger::kindOf(LaunchOp launch) {
  std::optional<Kind> kind;
  for (Operation &op :
       kernelOf(launch).getBody().front().without_terminator()) {
    if (isa<nn::ConstantOp>(op))
      continue;
    bool tail = isa<SumBlocksOp>(op) || isSingle(&op);
    Kind part = isa<SegmentMapOp>(op)         ? Kind::Update
                : isa<SegmentSquareSumOp>(op) ? Kind::Norm
                : tail                        ? Kind::Tail
                                              : Kind::None;
    if (!kind)
      kind = part;
    else if (part != kind && !(kind == Kind::Norm && part == Kind::Tail))
      return Kind::None;
  }
  return kind.value_or(Kind::None);
}

/// Makes one launch of the two, where `first` is.
void Merger::merge(LaunchOp first, LaunchOp second) {
  LaunchOp launches[] = {first, second};
  KernelOp kernels[] = {kernelOf(first), kernelOf(second)};
  // The operands that the new kernel needs.
  llvm::SetVector<Value> inputs(first.getInputs().begin(),
                                first.getInputs().end());
  for (Value input : second.getInputs())
    if (input.getDefiningOp() != first)
      inputs.insert(input);

  OpBuilder b(kernels[0]);
  std::string name = kernels[0].getSymName().str();
  StringRef suffix = kernels[1].getSymName();
  suffix.consume_front("k");
  auto kernel = KernelOp::create(b, kernels[0].getLoc(),
                                 StringRef(name + suffix.str()).take_front(60),
                                 {}, AbiAttr());
  Block &body = kernel.getBody().emplaceBlock();
  IRMapping operands; // of the launches
  for (Value input : inputs)
    operands.map(input, body.addArgument(input.getType(), input.getLoc()));
  b.setInsertionPointToEnd(&body);
  SmallVector<Value> returned, results;
  SmallVector<int64_t> inplace;
  // In which argument's memory a result of `first` is.
  DenseMap<Value, int64_t> placeOf;
  for (auto [launch, old] : llvm::zip(launches, kernels)) {
    Block &from = old.getBody().front();
    IRMapping mapping; // of each its own: they may share a kernel
    for (auto [argument, input] :
         llvm::zip(from.getArguments(), launch.getInputs()))
      mapping.map(argument, operands.lookup(input));
    for (Operation &op : from.without_terminator())
      b.clone(op, mapping);
    for (auto [value, result, place] :
         llvm::zip(from.getTerminator()->getOperands(), launch.getResults(),
                   old.getInplace())) {
      operands.map(result, mapping.lookup(value));
      int64_t argument = -1;
      if (place >= 0) {
        Value input = launch.getInputs()[place];
        auto known = placeOf.find(input);
        argument = known != placeOf.end()
                       ? known->second
                       : llvm::find(inputs, input) - inputs.begin();
      }
      placeOf[result] = argument;
      if (launch == first &&
          llvm::all_of(result.getUsers(),
                       [&](Operation *user) { return user == second; }))
        continue;
      returned.push_back(mapping.lookup(value));
      results.push_back(result);
      inplace.push_back(argument);
    }
  }
  train::ReturnOp::create(b, kernel.getLoc(), returned);
  kernel.setInplace(inplace);
  symbols.insert(kernel);

  b.setInsertionPoint(first);
  auto launch = LaunchOp::create(
      b, first.getLoc(), ValueRange(results).getTypes(),
      FlatSymbolRefAttr::get(kernel.getSymNameAttr()), inputs.getArrayRef());
  for (auto [from, to] : llvm::zip(results, launch.getResults()))
    from.replaceAllUsesWith(to);
  second.erase();
  first.erase();
}

/// Finds the writes of a result of the first update that one of the second update
/// replaces, to the same slice: nobody else may need the former.
static bool findReplaced(Value former, LaunchOp second, KernelOp kernel,
                         llvm::SetVector<WriteOp> &replaced) {
  auto targetOf = [](Operation *user) {
    auto write = dyn_cast<WriteOp>(user);
    return write ? write.getTarget() : SymbolRefAttr();
  };
  for (Operation *user : former.getUsers()) {
    if (user == second)
      continue;
    SymbolRefAttr target = targetOf(user);
    bool later = false;
    for (auto [result, place] :
         llvm::zip(second.getResults(), kernel.getInplace()))
      later |= target && place >= 0 && second.getInputs()[place] == former &&
               llvm::is_contained(llvm::map_range(result.getUsers(), targetOf),
                                  target);
    if (!later)
      return false;
    replaced.insert(cast<WriteOp>(user));
  }
  return true;
}

/// Whether what stands between both reads a slice that `second` changes in place.
static bool isReadBetween(LaunchOp first, LaunchOp second, KernelOp kernel) {
  for (int64_t place : kernel.getInplace()) {
    auto changed = place < 0
                       ? ReadOp()
                       : second.getInputs()[place].getDefiningOp<ReadOp>();
    auto isBetween = [&](Operation *user) {
      return first->isBeforeInBlock(user) && user->isBeforeInBlock(second);
    };
    for (auto read : first->getBlock()->getOps<ReadOp>())
      if (changed && read.getSource() == changed.getSource() &&
          hasUser(read, isBetween))
        return true;
  }
  return false;
}

/// Merges `second` into `first`, which stands before it, if what it reads can stand
/// before that, too.
bool Merger::tryMerge(LaunchOp first, LaunchOp second) {
  Kind kinds[] = {kindOf(first), kindOf(second)};
  bool tail = kinds[0] == Kind::Norm && kinds[1] == Kind::Tail;
  bool updates = kinds[0] == Kind::Update && kinds[1] == Kind::Update;
  if (!tail && !updates)
    return false;
  bool uses = false;
  SmallVector<Operation *> reads;
  llvm::SetVector<WriteOp> replaced;
  for (Value input : second.getInputs()) {
    Operation *producer = input.getDefiningOp();
    if (producer == first) {
      uses = true;
      if (updates && !findReplaced(input, second, kernelOf(second), replaced))
        return false;
    } else if (producer && first->isBeforeInBlock(producer)) {
      if (!isa<ReadOp>(producer))
        return false;
      reads.push_back(producer);
    }
  }
  if ((tail && !uses) || isReadBetween(first, second, kernelOf(second)))
    return false;
  for (Operation *read : reads)
    read->moveBefore(first);
  for (WriteOp write : replaced)
    write.erase();
  merge(first, second);
  ++merged;
  return true;
}

void Merger::mergeIn(Block &block) {
  for (auto second : llvm::make_early_inc_range(block.getOps<LaunchOp>())) {
    if (kindOf(second) != Kind::Tail && kindOf(second) != Kind::Update)
      continue;
    auto before = llvm::make_range(std::next(Block::reverse_iterator(second)),
                                   block.rend());
    for (Operation &op : before)
      if (auto first = dyn_cast<LaunchOp>(op))
        if (tryMerge(first, second))
          break;
  }
}

namespace {
struct MergeLaunchesPass
    : trainc::impl::MergeLaunchesPassBase<MergeLaunchesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto list : module.getOps<ListOp>())
      if (list.getWorkspace()) {
        list.emitOpError("expects memory that is not planned; run "
                         "train-merge-launches before train-plan-memory");
        return signalPassFailure();
      }
    Merger merger(module);
    for (auto list : module.getOps<ListOp>())
      merger.mergeIn(list.getBody().front());
    numMerged += merger.merged;
    if (merger.merged == 0)
      return markAllAnalysesPreserved();
    for (auto kernel : llvm::make_early_inc_range(module.getOps<KernelOp>()))
      if (SymbolTable::symbolKnownUseEmpty(kernel, module))
        kernel.erase();
  }
};
} // namespace
