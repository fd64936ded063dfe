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
#include "DecomposeWhole.h"
#include "JoinParts.h"
#include "Splits.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Transforms/EraseDead.h"
#include "trainc/Transforms/Partition/Passes.h"

#define DEBUG_TYPE "train-partition"

namespace trainc {
#define GEN_PASS_DEF_PARTITIONPASS
#include "trainc/Transforms/Partition/Passes.h.inc"
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
  int64_t split = 0, reduced = 0, scattered = 0, joined = 0, gathered = 0,
          cut = 0, decomposed = 0;
};

/// The walk through one entry.
class Partitioner {
public:
  Partitioner(const Grid &grid, SymbolTable &symbols, MLIRContext *context,
              Counts &counts)
      : grid(grid), symbols(symbols), b(context), counts(counts) {}

  /// Replaces the body of `entry`, whose inputs lie as `inputs` says.
  LogicalResult run(Operation *entry, ArrayRef<Layout> inputs);

private:
  LogicalResult convertBlock(Block &global);
  LogicalResult convertOp(Operation &op, bool &replaced);
  LogicalResult convertRecompute(RecomputeOp op);
  void convertRead(ReadOp op);
  LogicalResult convertWrite(WriteOp op);
  LogicalResult convertConstrain(ConstrainOp op);
  LogicalResult convertYield(train::YieldOp op);
  LogicalResult convertByRule(Operation &op, const nn::ShardingRule &rule,
                              const Plan &plan);
  void fillOperands(Operation &op, const nn::ShardingRule &rule,
                    const Plan &plan, MutableArrayRef<Value> operands);
  bool constrainSum(nn::AddOp op);
  Operation *cloneWith(Operation &op, ValueRange operands,
                       ArrayRef<Layout> results);

  LogicalResult settleSums(Operation &op, const nn::ShardingRule &rule,
                           const Plan &plan, SmallVectorImpl<Value> &shares,
                           Axes &partial);

  Layout wholeLayout(Value value) const {
    return {Split(nn::getTensorType(value).getRank()), {}};
  }

  const Grid &grid;
  SymbolTable &symbols;
  OpBuilder b;
  Counts &counts;
  bool isStep = false;
  DenseMap<Value, Local> locals;
  Cutter cutter{grid, b, locals};
  Joiner joiner{grid, b, locals};
};
} // namespace

//===----------------------------------------------------------------------===//
// Sums over ranks
//===----------------------------------------------------------------------===//

/// Whether all elements are zeros, which are terms of any sum.
static bool isZero(Value value) {
  auto constant = value.getDefiningOp<nn::ConstantOp>();
  DenseElementsAttr elements =
      constant ? nn::getDense(constant.getValue()) : DenseElementsAttr();
  return elements && elements.isSplat() &&
         isa<FloatType>(elements.getElementType()) &&
         elements.getSplatValue<APFloat>().isPosZero();
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
        (llvm::all_of(group, isNumber) || llvm::all_of(group, [&](unsigned i) {
           return partialOf(i) == over || isZero(op.getOperand(i));
         }));
    if (fits && sums > most) {
      best = group;
      most = sums;
      partial = over;
    }
  }
  bool added = false;
  for (unsigned i = 0; i < op.getNumOperands(); ++i)
    if (!partialOf(i).empty() && !llvm::is_contained(best, i)) {
      if (failed(joiner.addUp(op, op.getOperand(i))))
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
    if (Axes missing = without(partial, partialOf(i));
        !missing.empty() && !isZero(op.getOperand(i)))
      shares[i] = joiner.share(locals[op.getOperand(i)].value, missing);
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

/// What fills up a part in which `op` takes an operand along a factor of this kind; null
/// if it may be anything finite.
static Attribute getFill(Operation &op, nn::FactorKind kind, Type element) {
  if (kind == nn::FactorKind::Sum)
    return isa<nn::EmbeddingOp>(op) ? Attribute() : getNumber(element, 0.0, 0);
  // Behind a mask rows that fill up may be -inf as a whole, of which there is no softmax.
  if (kind == nn::FactorKind::Parallel &&
      isa<nn::SoftmaxOp, nn::LogSoftmaxOp>(op))
    return getNumber(element, 0.0, 0);
  auto reduce = dyn_cast<nn::ReduceOp>(op);
  if (!reduce || kind != nn::FactorKind::Join)
    return getPointwiseFill(op, element);
  double infinity = std::numeric_limits<double>::infinity();
  unsigned width = element.getIntOrFloatBitWidth();
  switch (reduce.getKind()) {
  case nn::ReduceKind::max:
    return getNumber(element, -infinity, llvm::minIntN(width));
  case nn::ReduceKind::min:
    return getNumber(element, infinity, llvm::maxIntN(width));
  default:
    return getNumber(element, 1.0, 1);
  }
}

/// Fills up what is uneven among the parts that the local `op` takes.
void Partitioner::fillOperands(Operation &op, const nn::ShardingRule &rule,
                               const Plan &plan,
                               MutableArrayRef<Value> operands) {
  for (auto [i, split] : llvm::enumerate(plan.operands)) {
    RankedTensorType global = nn::getTensorType(op.getOperand(i));
    for (auto [dim, part] : llvm::enumerate(split)) {
      int64_t size = global.getDimSize(dim);
      if (part.isWhole() || !grid.isUneven(size, part))
        continue;
      unsigned factor = getOnlyFactor(rule, rule.operands[i][dim]);
      nn::FactorKind kind = rule.factors[factor].kind;
      Attribute fill = getFill(op, kind, global.getElementType());
      // Zeros in one operand are enough.
      if (!fill || (kind == nn::FactorKind::Sum &&
                    findWeights(rule, factor) != static_cast<unsigned>(i)))
        continue;
      operands[i] = cutter.fillUp(operands[i], dim, size, part, fill);
    }
  }
}

/// How the log-sum-exp of an attention, or of its gradients, is split.
static const Split &lseOf(Operation &op, const Plan &plan) {
  if (isa<nn::AttentionOp, nn::PackedAttentionOp>(op))
    return plan.results[1];
  return plan.operands[isa<nn::AttentionGradOp>(op) ? 4 : 2];
}

LogicalResult Partitioner::convertByRule(Operation &op,
                                         const nn::ShardingRule &rule,
                                         const Plan &plan) {
  SmallVector<Value> operands;
  Axes partial;
  if (failed(settleSums(op, rule, plan, operands, partial)))
    return failure();
  if (isa<nn::EmbeddingOp>(op))
    if (const DimSplit &rows = plan.operands[0][0];
        !rows.isWhole() && rows.blocks != 1)
      return op.emitOpError("expects the rows of its table split as one "
                            "block, got ")
             << rows.blocks << " blocks";
  cutter.cutOperands(op, plan.operands, operands);
  fillOperands(op, rule, plan, operands);
  insertSorted(partial, plan.summed);
  SmallVector<Layout> results;
  for (const Split &split : plan.results)
    results.push_back({split, partial});
  Operation *local = cloneWith(op, operands, results);
  if (auto shardable = dyn_cast<nn::ShardableOpInterface>(local))
    shardable.adaptToTypes();
  if (auto dropout = dyn_cast<nn::DropoutOp>(local))
    locals[op.getResult(0)].value = cutter.placeDraws(
        dropout, cast<nn::DropoutOp>(op).getType(), plan.results[0]);
  else if (auto scores = dyn_cast<nn::RandomOpInterface>(local);
           scores && !isa<nn::RandomOp>(local) && scores.draws() &&
           failed(cutter.placeScores(scores, op, lseOf(op, plan))))
    return failure();
  if (auto embedding = dyn_cast<nn::EmbeddingOp>(local))
    cutter.placeRows(embedding, cast<nn::EmbeddingOp>(op), plan.operands[0][0]);
  if (!plan.joined.empty())
    locals[op.getResult(0)].value =
        joiner.join(cast<nn::ReduceOp>(local), plan.joined);
  ++counts.split;
  return success();
}

/// Where only a train.constrain uses `op`, which adds something to a sum over ranks,
/// constrains the sum instead, in the global code: it need not be whole. What is added is,
/// or is split like that already.
bool Partitioner::constrainSum(nn::AddOp op) {
  Value result = op.getResult();
  auto constrain = result.hasOneUse()
                       ? dyn_cast<ConstrainOp>(*result.user_begin())
                       : ConstrainOp();
  auto isSum = [&](Value value) {
    return !locals[value].layout.partial.empty();
  };
  if (!constrain || constrain->getBlock() != op->getBlock() ||
      isSum(op.getLhs()) == isSum(op.getRhs()))
    return false;
  unsigned number = isSum(op.getLhs()) ? 0 : 1;
  Value sum = op.getOperand(number), added = op.getOperand(1 - number);
  RankedTensorType type = nn::getTensorType(result);
  const Layout &layout = locals[added].layout;
  bool alike = added.getType() == type &&
               layout.split == grid.read(constrain.getSplit(), type.getRank());
  if (sum.getType() != type || (!alike && !layout.isWhole()))
    return false;
  OpBuilder global(op);
  op.setOperand(number, ConstrainOp::create(global, constrain.getLoc(), sum,
                                            constrain.getSplitAttr()));
  constrain.replaceAllUsesWith(result);
  constrain.erase();
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
  if (weighUneven(grid, op, splits)) {
    replaced = true;
    return success();
  }
  std::string problem = "has no rule by which it is done in parts";
  if (auto rule = nn::getShardingRule(&op)) {
    auto plan = planParts(grid, *rule, splits, problem);
    if (succeeded(plan))
      return convertByRule(op, *rule, *plan);
  }
  replaced = decomposeWhole(op, /*needsGradients=*/isStep);
  counts.decomposed += replaced;
  if (replaced)
    return success();
  InFlightDiagnostic error = op.emitOpError(problem);
  for (auto [i, split] : llvm::enumerate(splits))
    if (llvm::any_of(split, [](const DimSplit &dim) { return !dim.isWhole(); }))
      error.attachNote(op.getOperand(i).getLoc())
          << "operand " << i << " is " << grid.print(split)
          << "; a train.constrain gathers it, or splits it otherwise";
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

/// A rank has its part of a parameter that is split.
void Partitioner::convertRead(ReadOp op) {
  Layout layout = wholeLayout(op);
  if (auto param = symbols.lookup<ParamOp>(op.getSource().getRootReference()))
    layout.split = readSplit(grid, param);
  cloneWith(*op, {}, layout);
}

LogicalResult Partitioner::convertWrite(WriteOp op) {
  if (!locals[op.getValue()].layout.partial.empty() &&
      failed(joiner.addUp(*op, op.getValue())))
    return failure();
  const Local &local = locals[op.getValue()];
  if (!local.layout.isWhole())
    return op.emitOpError("expects a value that all ranks have, got one with ")
           << grid.print(local.layout.split);
  WriteOp::create(b, op.getLoc(), local.value, op.getTarget());
  return success();
}

LogicalResult Partitioner::convertConstrain(ConstrainOp op) {
  Value input = op.getInput();
  RankedTensorType type = nn::getTensorType(input);
  Split wanted = grid.read(op.getSplit(), type.getRank());
  if (failed(verifyDivides(grid, op, "its size", type, wanted,
                           /*mayBeUneven=*/true)))
    return failure();
  // What others need whole is added up for them anyway.
  if (input.hasOneUse() && isa<FloatType>(type.getElementType()))
    joiner.scatter(op.getLoc(), locals[input], wanted);
  if (!locals[input].layout.partial.empty() && failed(joiner.addUp(*op, input)))
    return failure();
  Local local = locals[input];
  joiner.gather(op.getLoc(), type, local, [&](int64_t dim) {
    return local.layout.split[dim] != wanted[dim];
  });
  local.value = cutter.cutWhole(local, wanted);
  local.layout.split = wanted;
  locals[op.getResult()] = local;
  return success();
}

LogicalResult Partitioner::convertYield(train::YieldOp op) {
  Location loc = op.getLoc();
  Value loss, weight;
  auto asTerm = [&](Value global) -> Value {
    const Local &local = locals[global];
    Axes missing = without(grid.all(), local.layout.partial);
    return missing.empty() ? local.value : joiner.share(local.value, missing);
  };
  if (op.getLoss())
    loss = asTerm(op.getLoss());
  if (op.getWeight())
    weight = asTerm(op.getWeight());
  else if (isStep)
    weight = joiner.share(nn::scalarConstant(b, loc, b.getF64Type(), 1.0),
                          grid.all());
  SmallVector<Value> values;
  for (Value value : op.getValues()) {
    if (!locals[value].layout.partial.empty() &&
        failed(joiner.addUp(*op, value)))
      return failure();
    joiner.gatherUneven(value);
    values.push_back(locals[value].value);
  }
  train::YieldOp::create(b, loc, values, loss, weight);
  return success();
}

LogicalResult Partitioner::convertBlock(Block &global) {
  // What is built in the global code stands before the op and is looked at next.
  for (Operation *op = &global.front(); op != global.getTerminator();) {
    Operation *previous = op->getPrevNode(), *next = op->getNextNode();
    bool replaced = false;
    LogicalResult result = success();
    if (auto region = dyn_cast<RecomputeOp>(op))
      result = convertRecompute(region);
    else if (auto write = dyn_cast<WriteOp>(op))
      result = convertWrite(write);
    else if (auto constrain = dyn_cast<ConstrainOp>(op))
      result = convertConstrain(constrain);
    else if (auto read = dyn_cast<ReadOp>(op))
      convertRead(read);
    else if (auto add = dyn_cast<nn::AddOp>(op); add && constrainSum(add))
      replaced = true;
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
  SmallVector<Attribute> splits;
  bool any = false;
  for (Value value : yield.getValues()) {
    const Layout &layout = locals[value].layout;
    any |= !layout.isWhole();
    splits.push_back(layout.isWhole() ? ArrayAttr::get(b.getContext(), {})
                                      : grid.write(layout.split));
  }
  if (any)
    entry->setAttr("output_splits", b.getArrayAttr(splits));
  entry->getRegion(0).takeBody(region);
  counts.cut += cutter.numCut;
  counts.reduced += joiner.numReduced;
  counts.scattered += joiner.numScattered;
  counts.gathered += joiner.numGathered;
  counts.joined += joiner.numJoined;
  eraseDead(entry->getRegion(0).front());
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

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
    if (mesh.getSize("pipe") > 1) {
      mesh.emitOpError("expects no axis 'pipe' of several ranks: a step is not "
                       "cut into stages of a pipeline yet (see "
                       "docs/Rationale.md); got ")
          << mesh.getSize("pipe");
      return signalPassFailure();
    }
    StepOp step = getStep(module);
    if (!step)
      return signalPassFailure();
    if (step.getOver())
      return;
    SmallVector<Operation *> entries;
    for (auto each : module.getOps<StepOp>())
      entries.push_back(each);
    for (auto eval : module.getOps<EvalOp>())
      entries.push_back(eval);
    SmallVector<SmallVector<Layout>> layouts;
    SymbolTable symbols(module);
    for (Operation *entry : entries) {
      auto inputs = getInputLayouts(
          grid, entry, symbols, entry->getAttrOfType<ArrayAttr>("input_names"),
          entry->getAttrOfType<ArrayAttr>("input_splits"));
      if (failed(inputs))
        return signalPassFailure();
      layouts.push_back(*inputs);
    }
    for (auto [each, inputs] : llvm::zip(module.getOps<StepOp>(), layouts)) {
      if (failed(verifyUse(grid, each, inputs)))
        return signalPassFailure();
      if (Value loss =
              cast<train::YieldOp>(each.getBody().front().getTerminator())
                  .getLoss())
        each.setLossTerms(countLossTerms(loss));
    }
    if (failed(verifyParams(grid, module)))
      return signalPassFailure();

    Counts counts;
    for (auto [entry, inputs] : llvm::zip(entries, layouts))
      if (failed(Partitioner(grid, symbols, &getContext(), counts)
                     .run(entry, inputs)))
        return signalPassFailure();
    divideParams(grid, module);
    for (auto [each, inputs] : llvm::zip(module.getOps<StepOp>(), layouts)) {
      setGradientSplits(grid, each, inputs);
      each.setOverAttr(grid.toAttr(grid.all()));
    }
    numSplit += counts.split;
    numReduced += counts.reduced;
    numScattered += counts.scattered;
    numJoined += counts.joined;
    numGathered += counts.gathered;
    numCut += counts.cut;
    numDecomposed += counts.decomposed;
  }
};
} // namespace
