//===- Partition.cpp - Turn global shapes into those of one rank ----------===//
//
// This pass walks each entry once, forward, and builds beside it the code that one rank
// runs, on the part that it has. How an op is done in parts is its own rule (see
// ShardingRule.h); what is here is where parts go: what cuts a value, what adds one up,
// and what happens where neither fits. Ops that cannot be done in parts are decomposed
// in the global code, so that what they count (the elements of a mean) stays global.
//
// The loss of a rank is one term of the sum over ranks that is the loss. So the code of
// a rank is differentiated as it stands, and the sum over ranks of the gradients that
// the ranks store is the gradient.
//
//===----------------------------------------------------------------------===//
#include "CutParts.h"
#include "trainc/Transforms/Passes.h"

#define DEBUG_TYPE "train-partition"

namespace trainc {
#define GEN_PASS_DEF_PARTITIONPASS
#include "trainc/Transforms/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::parts;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// The code of one rank
//===----------------------------------------------------------------------===//

namespace {
/// What was done, for the statistics.
struct Counts {
  int64_t split = 0, reduced = 0, cut = 0, decomposed = 0;
};

/// The walk through one entry.
class Partitioner {
public:
  Partitioner(const Grid &grid, MLIRContext *context, Counts &counts)
      : grid(grid), b(context), counts(counts) {}

  /// Replaces the body of `entry`, whose inputs lie as `inputs` says.
  LogicalResult run(Operation *entry, ArrayRef<Layout> inputs);

private:
  LogicalResult convertBlock(Block &global);
  LogicalResult convertOp(Operation &op, bool &replaced);
  LogicalResult convertRecompute(RecomputeOp op);
  LogicalResult convertWrite(WriteOp op);
  LogicalResult convertYield(train::YieldOp op);
  LogicalResult convertByRule(Operation &op, const nn::ShardingRule &rule,
                              const Plan &plan);
  bool decompose(Operation &op);
  Operation *cloneWith(Operation &op, ValueRange operands,
                       ArrayRef<Layout> results);

  LogicalResult addUp(Operation &user, Value global);
  LogicalResult settleSums(Operation &op, const nn::ShardingRule &rule,
                           const Plan &plan, SmallVectorImpl<Value> &shares,
                           Axes &partial);
  Value share(Value local, ArrayRef<unsigned> axes);

  Layout wholeLayout(Value value) const {
    return {Split(nn::getTensorType(value).getRank()), {}};
  }

  const Grid &grid;
  OpBuilder b;
  Counts &counts;
  bool isStep = false;
  DenseMap<Value, Local> locals;
  Cutter cutter{grid, b, locals};
};
} // namespace

//===----------------------------------------------------------------------===//
// Sums over ranks
//===----------------------------------------------------------------------===//

/// Makes a sum that `user` needs whole, for all users from here on.
LogicalResult Partitioner::addUp(Operation &user, Value global) {
  Local &local = locals[global];
  RankedTensorType type = nn::getTensorType(local.value);
  Type element = type.getElementType();
  if (element.isInteger(64))
    return user.emitOpError(
        "needs a sum of i64 over ranks; expected a narrower "
        "integer or a float");
  Location loc = global.getLoc();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(local.value);
  // Sums of narrow integers are exact in f64, and wrap when they are narrowed again.
  Value value = local.value;
  bool isInteger = isa<IntegerType>(element);
  if (isInteger)
    value = nn::castTo(b, loc, value, b.getF64Type());
  value = AllReduceOp::create(b, loc, value, grid.toAttr(local.layout.partial),
                              DenseI64ArrayAttr(), ArrayAttr());
  if (isInteger)
    value =
        nn::castTo(b, loc, nn::castTo(b, loc, value, b.getI64Type()), element);
  remarkOn(loc, "AddedUp", value.getType(), grid.toAttr(local.layout.partial));
  local.value = value;
  local.layout.partial.clear();
  ++counts.reduced;
  return success();
}

/// This rank's term of a sum over `axes` of equal terms, that is `local`, a float scalar.
Value Partitioner::share(Value local, ArrayRef<unsigned> axes) {
  Location loc = local.getLoc();
  Type element = nn::getTensorType(local).getElementType();
  Type compute = nn::getComputeType(element);
  Value count = nn::scalarConstant(b, loc, compute,
                                   static_cast<double>(grid.count(axes)));
  Value quotient =
      nn::DivOp::create(b, loc, nn::castTo(b, loc, local, compute), count);
  return nn::castTo(b, loc, quotient, element);
}

/// Decides which sums among the operands stay sums. `partial` is over what the results
/// are sums then; `shares` holds the operands that are to be terms of such a sum and are
/// whole, else null.
LogicalResult Partitioner::settleSums(Operation &op,
                                      const nn::ShardingRule &rule,
                                      const Plan &plan,
                                      SmallVectorImpl<Value> &shares,
                                      Axes &partial) {
  auto partialOf = [&](unsigned i) -> Axes & {
    return locals[op.getOperand(i)].layout.partial;
  };
  ArrayRef<unsigned> best;
  size_t most = 0;
  for (ArrayRef<unsigned> group : rule.linear) {
    Axes over;
    size_t sums = 0;
    for (unsigned i : group) {
      insertSorted(over, partialOf(i));
      sums += !partialOf(i).empty();
    }
    // A whole term is shared among ranks if all terms are numbers; of larger ones that
    // would be a pass over memory, and rounding.
    auto isNumber = [&](unsigned i) {
      auto type = nn::getTensorType(op.getOperand(i));
      return type.getRank() == 0 && isa<FloatType>(type.getElementType());
    };
    bool fits =
        without(over, plan.used).size() == over.size() &&
        (llvm::all_of(group, isNumber) ||
         llvm::all_of(group, [&](unsigned i) { return partialOf(i) == over; }));
    if (fits && sums > most) {
      best = group;
      most = sums;
      partial = over;
    }
  }
  bool added = false;
  for (unsigned i = 0; i < op.getNumOperands(); ++i)
    if (!partialOf(i).empty() && !llvm::is_contained(best, i)) {
      if (failed(addUp(op, op.getOperand(i))))
        return failure();
      added = true;
    }
  partial = most ? partial : Axes();
  // An operand may stand in two places.
  if (added && most) {
    partial.clear();
    return settleSums(op, rule, plan, shares, partial);
  }
  shares.assign(op.getNumOperands(), Value());
  for (unsigned i : best)
    if (Axes missing = without(partial, partialOf(i)); !missing.empty())
      shares[i] = share(locals[op.getOperand(i)].value, missing);
  return success();
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Appends `op` on local operands, its results lying as `results` says.
Operation *Partitioner::cloneWith(Operation &op, ValueRange operands,
                                  ArrayRef<Layout> results) {
  Operation *local = b.clone(op);
  local->setOperands(operands);
  for (auto [global, result, layout] :
       llvm::zip(op.getResults(), local->getResults(), results)) {
    result.setType(grid.getLocalType(nn::getTensorType(global), layout.split));
    locals[global] = {result, layout};
  }
  return local;
}

LogicalResult Partitioner::convertByRule(Operation &op,
                                         const nn::ShardingRule &rule,
                                         const Plan &plan) {
  SmallVector<Value> operands;
  Axes partial;
  if (failed(settleSums(op, rule, plan, operands, partial)))
    return failure();
  cutter.cutOperands(op, plan.operands, operands);
  insertSorted(partial, plan.summed);
  SmallVector<Layout> results;
  for (const Split &split : plan.results)
    results.push_back({split, partial});
  Operation *local = cloneWith(op, operands, results);
  if (auto shardable = dyn_cast<nn::ShardableOpInterface>(local))
    shardable.adaptToTypes();
  if (auto dropout = dyn_cast<nn::DropoutOp>(local))
    cutter.placeDropout(dropout, cast<nn::DropoutOp>(op), plan.results[0]);
  ++counts.split;
  return success();
}

/// Whether a gradient can go through `op`, or need not.
static bool isDifferentiable(Operation &op) {
  auto isFloat = [](Value value) {
    return isa<FloatType>(nn::getTensorType(value).getElementType());
  };
  return isa<nn::DifferentiableOpInterface>(op) ||
         llvm::none_of(op.getOperands(), isFloat) ||
         llvm::none_of(op.getResults(), isFloat);
}

/// Replaces `op`, in the global code, by simpler nn ops; in a step by such that have
/// gradients.
bool Partitioner::decompose(Operation &op) {
  auto composite = dyn_cast<nn::DecomposableOpInterface>(op);
  if (!composite || op.hasTrait<nn::KernelPrimitive>() ||
      isa<nn::DropoutOp>(op))
    return false;
  Operation *previous = op.getPrevNode();
  OpBuilder global(&op);
  auto values = composite.decompose(global);
  if (failed(values))
    return false;
  SmallVector<Operation *> parts;
  for (Operation *part = op.getPrevNode(); part != previous;
       part = part->getPrevNode())
    parts.push_back(part);
  bool isGood = !isStep || llvm::all_of(parts, [](Operation *part) {
    return isDifferentiable(*part);
  });
  if (!isGood) {
    for (Operation *part : parts)
      part->erase();
    return false;
  }
  op.replaceAllUsesWith(*values);
  op.erase();
  ++counts.decomposed;
  return true;
}

/// Sets `replaced` if the op was decomposed instead, and is gone.
LogicalResult Partitioner::convertOp(Operation &op, bool &replaced) {
  auto known = llvm::map_range(op.getOperands(), [&](Value operand) -> Local & {
    return locals[operand];
  });
  SmallVector<Value> operands;
  std::vector<Split> splits;
  bool isWhole = true;
  for (Local &local : known) {
    operands.push_back(local.value);
    splits.push_back(local.layout.split);
    isWhole &= local.layout.isWhole();
  }
  if (isWhole) {
    SmallVector<Layout> results;
    for (Value result : op.getResults())
      results.push_back(wholeLayout(result));
    cloneWith(op, operands, results);
    return success();
  }
  std::string problem = "has no rule by which it is done in parts";
  if (auto rule = nn::getShardingRule(&op)) {
    auto plan = planParts(grid, *rule, splits, problem);
    if (succeeded(plan))
      return convertByRule(op, *rule, *plan);
  }
  replaced = decompose(op);
  if (replaced)
    return success();
  InFlightDiagnostic error = op.emitOpError(problem);
  for (auto [i, split] : llvm::enumerate(splits))
    if (llvm::any_of(split, [](const Axes &axes) { return !axes.empty(); }))
      error.attachNote(op.getOperand(i).getLoc())
          << "operand " << i << " is " << grid.print(split);
  return error;
}

LogicalResult Partitioner::convertRecompute(RecomputeOp op) {
  Block &global = op.getBody().front();
  Region region;
  Block *block = new Block;
  region.push_back(block);
  auto end = b.saveInsertionPoint();
  b.setInsertionPointToEnd(block);
  if (failed(convertBlock(global)))
    return failure();
  SmallVector<Value> values;
  for (Value value : global.getTerminator()->getOperands())
    values.push_back(locals[value].value);
  train::YieldOp::create(b, global.getTerminator()->getLoc(), values, Value(),
                         Value());
  b.restoreInsertionPoint(end);
  OperationState state(op.getLoc(), RecomputeOp::getOperationName());
  state.addTypes(ValueRange(values).getTypes());
  state.addAttributes(op->getAttrs());
  state.addRegion()->takeBody(region);
  Operation *local = b.create(state);
  for (auto [result, value, mine] :
       llvm::zip(op.getResults(), global.getTerminator()->getOperands(),
                 local->getResults())) {
    Layout layout = locals[value].layout;
    locals[result] = {mine, layout};
  }
  return success();
}

LogicalResult Partitioner::convertWrite(WriteOp op) {
  if (!locals[op.getValue()].layout.partial.empty() &&
      failed(addUp(*op, op.getValue())))
    return failure();
  const Local &local = locals[op.getValue()];
  if (!local.layout.isWhole())
    return op.emitOpError("expects a value that all ranks have, got one with ")
           << grid.print(local.layout.split);
  WriteOp::create(b, op.getLoc(), local.value, op.getTarget());
  return success();
}

LogicalResult Partitioner::convertYield(train::YieldOp op) {
  Location loc = op.getLoc();
  Value loss, weight;
  auto asTerm = [&](Value global) -> Value {
    const Local &local = locals[global];
    Axes missing = without(grid.all(), local.layout.partial);
    return missing.empty() ? local.value : share(local.value, missing);
  };
  if (op.getLoss())
    loss = asTerm(op.getLoss());
  if (op.getWeight())
    weight = asTerm(op.getWeight());
  else if (isStep)
    weight = share(nn::scalarConstant(b, loc, b.getF64Type(), 1.0), grid.all());
  SmallVector<Value> values;
  for (Value value : op.getValues()) {
    if (!locals[value].layout.partial.empty() && failed(addUp(*op, value)))
      return failure();
    values.push_back(locals[value].value);
  }
  train::YieldOp::create(b, loc, values, loss, weight);
  return success();
}

LogicalResult Partitioner::convertBlock(Block &global) {
  // What a decomposition builds stands before the op and is looked at next.
  for (Operation *op = &global.front(); op != global.getTerminator();) {
    Operation *previous = op->getPrevNode(), *next = op->getNextNode();
    bool replaced = false;
    LogicalResult result = success();
    if (auto region = dyn_cast<RecomputeOp>(op))
      result = convertRecompute(region);
    else if (auto write = dyn_cast<WriteOp>(op))
      result = convertWrite(write);
    else
      result = convertOp(*op, replaced);
    if (failed(result))
      return failure();
    op = !replaced  ? next
         : previous ? previous->getNextNode()
                    : &global.front();
  }
  return success();
}

LogicalResult Partitioner::run(Operation *entry, ArrayRef<Layout> inputs) {
  Block &global = entry->getRegion(0).front();
  Region region;
  Block *body = new Block;
  region.push_back(body);
  cutter.body = body;
  isStep = isa<StepOp>(entry);
  for (auto [input, layout] : llvm::zip(global.getArguments(), inputs)) {
    auto type = cast<RankedTensorType>(input.getType());
    locals[input] = {body->addArgument(grid.getLocalType(type, layout.split),
                                       input.getLoc()),
                     layout};
  }
  b.setInsertionPointToEnd(body);
  auto yield = cast<train::YieldOp>(global.getTerminator());
  if (failed(convertBlock(global)) || failed(convertYield(yield)))
    return failure();
  if (auto eval = dyn_cast<EvalOp>(entry)) {
    SmallVector<Attribute> splits;
    bool any = false;
    for (Value value : yield.getValues()) {
      const Layout &layout = locals[value].layout;
      any |= !layout.isWhole();
      splits.push_back(layout.isWhole() ? ArrayAttr::get(b.getContext(), {})
                                        : grid.write(layout.split));
    }
    if (any)
      eval.setOutputSplitsAttr(b.getArrayAttr(splits));
  }
  entry->getRegion(0).takeBody(region);
  counts.cut += cutter.numCut;
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(entry->getRegion(0).front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

static Attribute getSplit(ArrayAttr splits, size_t i) {
  return splits ? splits[i] : Attribute();
}

/// How the inputs of `entry` lie on the ranks. An input that is a gradient is this
/// rank's term of it.
static FailureOr<SmallVector<Layout>> getInputLayouts(const Grid &grid,
                                                      Operation *entry,
                                                      ArrayAttr names,
                                                      ArrayAttr splits) {
  SmallVector<Layout> layouts;
  auto step = dyn_cast<StepOp>(entry);
  for (BlockArgument input : entry->getRegion(0).getArguments()) {
    unsigned i = input.getArgNumber();
    auto type = cast<RankedTensorType>(input.getType());
    Layout &layout = layouts.emplace_back();
    layout.split = grid.read(getSplit(splits, i), type.getRank());
    if (step && step.getInputGradient(i)) {
      if (!layout.isWhole())
        return entry->emitOpError(
                   "expects a gradient among the inputs to be whole, "
                   "got input ")
               << names[i] << " with " << grid.print(layout.split);
      layout.partial = grid.all();
    }
    for (auto [dim, axes] : llvm::enumerate(layout.split))
      if (int64_t parts = grid.count(axes); type.getDimSize(dim) % parts != 0)
        return entry->emitOpError("expects input ")
               << names[i] << " to divide into " << parts
               << " parts along dimension " << dim << ", over "
               << grid.toAttr(axes) << ", got size " << type.getDimSize(dim);
  }
  return layouts;
}

/// Checks that each axis of several ranks splits something in the step.
static LogicalResult verifyUse(const Grid &grid, StepOp step,
                               ArrayRef<Layout> inputs) {
  Axes used;
  for (const Layout &layout : inputs) {
    insertSorted(used, layout.partial);
    for (const Axes &axes : layout.split)
      insertSorted(used, axes);
  }
  for (unsigned axis : without(grid.all(), used))
    return step.emitOpError("expects an input that is split over axis '")
           << grid.names[axis].getValue() << "' of " << grid.sizes[axis]
           << " ranks, or a gradient among the inputs; got neither";
  return success();
}

static LogicalResult verifyParams(const Grid &grid, ModuleOp module) {
  for (auto param : module.getOps<ParamOp>()) {
    Split split =
        grid.read(param.getSplitAttr(), param.getTensorType().getRank());
    if (llvm::any_of(split, [](const Axes &axes) { return !axes.empty(); }))
      return param.emitOpError("is split over axes of several ranks (")
             << grid.print(split) << "); expected a parameter that is whole";
  }
  return success();
}

/// Erases what says how tensors are split.
static void eraseSplits(ModuleOp module) {
  for (Operation &op : module.getOps())
    if (auto param = dyn_cast<ParamOp>(op))
      param.removeSplitAttr();
    else if (auto step = dyn_cast<StepOp>(op))
      step.removeInputSplitsAttr();
    else if (auto eval = dyn_cast<EvalOp>(op))
      eval.removeInputSplitsAttr();
}

namespace {
struct PartitionPass : trainc::impl::PartitionPassBase<PartitionPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    MeshOp mesh = getMesh(module);
    if (!mesh)
      return;
    Grid grid(mesh);
    if (grid.names.empty())
      return eraseSplits(module);
    StepOp step = getStep(module);
    if (!step)
      return signalPassFailure();
    if (step.getOver())
      return;
    SmallVector<Operation *> entries{step};
    for (auto eval : module.getOps<EvalOp>())
      entries.push_back(eval);
    SmallVector<SmallVector<Layout>> layouts;
    for (Operation *entry : entries) {
      auto eval = dyn_cast<EvalOp>(entry);
      auto inputs = getInputLayouts(
          grid, entry, eval ? eval.getInputNames() : step.getInputNames(),
          eval ? eval.getInputSplitsAttr() : step.getInputSplitsAttr());
      if (failed(inputs))
        return signalPassFailure();
      layouts.push_back(*inputs);
    }
    if (failed(verifyUse(grid, step, layouts[0])) ||
        failed(verifyParams(grid, module)))
      return signalPassFailure();

    Counts counts;
    for (auto [entry, inputs] : llvm::zip(entries, layouts))
      if (failed(Partitioner(grid, &getContext(), counts).run(entry, inputs)))
        return signalPassFailure();
    step.setOverAttr(grid.toAttr(grid.all()));
    numSplit += counts.split;
    numReduced += counts.reduced;
    numCut += counts.cut;
    numDecomposed += counts.decomposed;
  }
};
} // namespace
