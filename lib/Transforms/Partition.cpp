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
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Passes.h"
#include <map>

#define DEBUG_TYPE "train-partition"

namespace trainc {
#define GEN_PASS_DEF_PARTITIONPASS
#include "trainc/Transforms/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

/// Axes of the mesh, by number.
using Axes = SmallVector<unsigned, 2>;
/// The axes over which each dimension of a tensor is split, the slowest first.
using Split = SmallVector<Axes>;

namespace {
/// The axes of the mesh that have more than one rank.
struct Grid {
  explicit Grid(MeshOp mesh) {
    for (auto [name, size] : llvm::zip(mesh.getAxes(), mesh.getSizes()))
      if (size > 1) {
        names.push_back(cast<StringAttr>(name));
        sizes.push_back(size);
      }
  }

  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes;

  int64_t count(ArrayRef<unsigned> axes) const {
    int64_t result = 1;
    for (unsigned axis : axes)
      result *= sizes[axis];
    return result;
  }
  ArrayAttr toAttr(ArrayRef<unsigned> axes) const {
    SmallVector<Attribute> result;
    for (unsigned axis : axes)
      result.push_back(names[axis]);
    return ArrayAttr::get(names.front().getContext(), result);
  }
  Axes all() const {
    return llvm::to_vector<2>(llvm::seq<unsigned>(names.size()));
  }
  /// What `split`, a verified attribute or null, says of a tensor of this rank.
  Split read(Attribute split, int64_t rank) const {
    Split result(rank);
    if (split)
      for (auto [axes, dim] :
           llvm::zip(cast<ArrayAttr>(split).getAsRange<ArrayAttr>(), result))
        for (Attribute axis : axes) {
          const auto *it = llvm::find(names, axis);
          if (it != names.end())
            dim.push_back(it - names.begin());
        }
    return result;
  }
  ArrayAttr write(const Split &split) const {
    SmallVector<Attribute> dims;
    for (const Axes &axes : split)
      dims.push_back(toAttr(axes));
    return ArrayAttr::get(names.front().getContext(), dims);
  }
  /// `split([host, data], [])`.
  std::string print(const Split &split) const {
    std::string text = "split(";
    llvm::raw_string_ostream os(text);
    llvm::interleaveComma(split, os, [&](const Axes &axes) {
      os << "[";
      llvm::interleaveComma(
          axes, os, [&](unsigned axis) { os << names[axis].getValue(); });
      os << "]";
    });
    os << ")";
    return text;
  }
};

/// How a tensor lies on the ranks.
struct Layout {
  Split split;
  /// Ascending: the tensor is the sum of those of the ranks that differ in these.
  Axes partial;

  bool isWhole() const {
    return partial.empty() &&
           llvm::all_of(split, [](const Axes &axes) { return axes.empty(); });
  }
};

/// What this rank has of a value.
struct Local {
  Value value;
  Layout layout;
};

/// How one op is done in parts.
struct Plan {
  std::vector<Split> operands, results;
  /// Over which its results are split or sums.
  Axes used, summed;
};
} // namespace

template <typename T> static std::string toText(const T &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

/// Says what was done to a value, of `type` on one rank.
static void remarkOn(Location loc, StringRef what, Type type, ArrayAttr axes) {
  remark::passed(loc,
                 remark::RemarkOpts::name(what).category("train-partition"))
      << remark::metric("Type", toText(type))
      << remark::metric("Over", toText(axes));
}

static RankedTensorType getLocalType(const Grid &grid, RankedTensorType type,
                                     const Split &split) {
  SmallVector<int64_t> shape(type.getShape());
  for (auto [size, axes] : llvm::zip(shape, split))
    size /= grid.count(axes);
  return type.clone(shape);
}

static void insertSorted(Axes &axes, ArrayRef<unsigned> more) {
  for (unsigned axis : more)
    if (!llvm::is_contained(axes, axis))
      axes.insert(llvm::upper_bound(axes, axis), axis);
}

static Axes without(ArrayRef<unsigned> axes, ArrayRef<unsigned> others) {
  Axes result;
  for (unsigned axis : axes)
    if (!llvm::is_contained(others, axis))
      result.push_back(axis);
  return result;
}

//===----------------------------------------------------------------------===//
// Planning one op
//===----------------------------------------------------------------------===//

namespace {
/// Which axes split each factor of an op's dimensions.
class Planner {
public:
  Planner(const Grid &grid, const nn::ShardingRule &rule)
      : grid(grid), rule(rule), axes(rule.factors.size()) {}

  /// Plans by what the operands are split over. `problem` says why it cannot be.
  FailureOr<Plan> plan(ArrayRef<Split> operands, std::string &problem);

private:
  bool assign(ArrayRef<unsigned> factors, ArrayRef<unsigned> given);
  bool compose(ArrayRef<unsigned> factors, Axes &result) const;
  std::string describe(StringRef what, unsigned index, int64_t dim, Value value,
                       ArrayRef<unsigned> given) const;

  const Grid &grid;
  const nn::ShardingRule &rule;
  SmallVector<Axes> axes;
};
} // namespace

/// Splits `factors`, of one dimension, over the axes `given`: the slowest first, each as
/// far as it goes. False if that does not come out even.
bool Planner::assign(ArrayRef<unsigned> factors, ArrayRef<unsigned> given) {
  for (unsigned factor : factors) {
    if (given.empty())
      return true;
    const auto &[size, kind] = rule.factors[factor];
    int64_t left = size;
    Axes taken;
    while (kind != nn::FactorKind::Whole && !given.empty() && left > 1 &&
           left % grid.sizes[given.front()] == 0) {
      left /= grid.sizes[given.front()];
      taken.push_back(given.front());
      given = given.drop_front();
    }
    if (!taken.empty())
      axes[factor] = taken;
    if (left != 1)
      break;
  }
  return given.empty();
}

/// The axes of a dimension of `factors`; false if the parts would have gaps.
bool Planner::compose(ArrayRef<unsigned> factors, Axes &result) const {
  bool complete = true;
  for (unsigned factor : factors) {
    if (!axes[factor].empty() && !complete)
      return false;
    llvm::append_range(result, axes[factor]);
    complete &= grid.count(axes[factor]) == rule.factors[factor].size;
  }
  return true;
}

std::string Planner::describe(StringRef what, unsigned index, int64_t dim,
                              Value value, ArrayRef<unsigned> given) const {
  std::string text;
  llvm::raw_string_ostream(text)
      << "dimension " << dim << " of " << what << " " << index << ", "
      << "'" << value.getType() << "', over " << grid.toAttr(given);
  return text;
}

FailureOr<Plan> Planner::plan(ArrayRef<Split> operands, std::string &problem) {
  Operation *op = rule.op;
  for (auto [i, split] : llvm::enumerate(operands))
    for (auto [dim, given] : llvm::enumerate(split)) {
      if (given.empty())
        continue;
      SmallVector<Axes> before = axes;
      if (!assign(rule.operands[i][dim], given)) {
        problem = "cannot be done in parts along " +
                  describe("operand", i, dim, op->getOperand(i), given);
        return failure();
      }
      for (auto [old, now] : llvm::zip(before, axes))
        if (!old.empty() && old != now) {
          problem = "has operands whose annotations are in conflict, along " +
                    describe("operand", i, dim, op->getOperand(i), given);
          return failure();
        }
    }
  Plan plan;
  for (auto [i, factor] : llvm::enumerate(rule.factors)) {
    for (unsigned axis : axes[i])
      if (llvm::is_contained(plan.used, axis)) {
        problem =
            ("has operands whose annotations are in conflict: two dimensions "
             "are split over '" +
             grid.names[axis].getValue() + "'")
                .str();
        return failure();
      }
    insertSorted(plan.used, axes[i]);
    if (factor.kind == nn::FactorKind::Sum)
      insertSorted(plan.summed, axes[i]);
  }
  auto composeAll = [&](ArrayRef<SmallVector<nn::ShardingRule::Factors>> values,
                        std::vector<Split> &splits, StringRef what) {
    for (auto [i, dims] : llvm::enumerate(values)) {
      Split &split = splits.emplace_back(dims.size());
      for (auto [dim, factors] : llvm::enumerate(dims))
        if (!compose(factors, split[dim])) {
          bool isResult = what == "result";
          problem =
              "cannot be done in parts along " +
              describe(what, i, dim,
                       isResult ? Value(op->getResult(i)) : op->getOperand(i),
                       plan.used);
          return failure();
        }
    }
    return success();
  };
  if (failed(composeAll(rule.operands, plan.operands, "operand")) ||
      failed(composeAll(rule.results, plan.results, "result")))
    return failure();
  for (unsigned i = 0; i < operands.size(); ++i)
    for (auto [dim, given] : llvm::enumerate(operands[i]))
      if (!given.empty() && given != plan.operands[i][dim]) {
        problem = "has operands whose annotations are in conflict, along " +
                  describe("operand", i, dim, op->getOperand(i), given);
        return failure();
      }
  return plan;
}

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
  LogicalResult convertYield(train::YieldOp op, bool isStep);
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
  Value cut(Value global, const Split &split);
  Value cutPointwise(nn::PointwiseOpInterface op, OpResult global,
                     const Split &split);
  Value getIndex(ArrayRef<unsigned> axes, Location loc);
  Value getOffset(ArrayRef<unsigned> axes, int64_t stride, Location loc);
  void placeDropout(nn::DropoutOp op, nn::DropoutOp global, const Split &split);

  Layout wholeLayout(Value value) const {
    return {Split(nn::getTensorType(value).getRank()), {}};
  }

  const Grid &grid;
  OpBuilder b;
  Counts &counts;
  Block *body = nullptr;
  DenseMap<Value, Local> locals;
  /// Positions over axes, made at the start of the body.
  DenseMap<Attribute, Value> indices;
  /// What cut made of pointwise values, while one value is cut.
  std::map<std::pair<void *, std::vector<unsigned>>, Value> cuts;
};
} // namespace

/// This rank's position over `axes`, as tensor<i64>.
Value Partitioner::getIndex(ArrayRef<unsigned> axes, Location loc) {
  ArrayAttr names = grid.toAttr(axes);
  Value &index = indices[names];
  if (!index) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(body);
    index = ProcessIndexOp::create(
        b, loc, RankedTensorType::get({}, b.getI64Type()), names);
  }
  return index;
}

/// `stride` times the position over `axes`.
Value Partitioner::getOffset(ArrayRef<unsigned> axes, int64_t stride,
                             Location loc) {
  Value index = getIndex(axes, loc);
  if (stride == 1)
    return index;
  auto type = RankedTensorType::get({}, b.getI64Type());
  Value factor = nn::ConstantOp::create(b, loc, type,
                                        DenseElementsAttr::get(type, stride));
  return nn::MulOp::create(b, loc, index, factor);
}

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
// Parts of whole values
//===----------------------------------------------------------------------===//

/// What this rank's part of a pointwise op is computed from, and computes.
Value Partitioner::cutPointwise(nn::PointwiseOpInterface op, OpResult global,
                                const Split &split) {
  ArrayRef<int64_t> shape = nn::getTensorType(global).getShape();
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    ArrayRef<int64_t> mine = nn::getTensorType(operand).getShape();
    Split part(mine.size());
    size_t offset = shape.size() - mine.size();
    for (size_t dim = 0; dim < mine.size(); ++dim)
      if (mine[dim] == shape[offset + dim])
        part[dim] = split[offset + dim];
    operands.push_back(cut(operand, part));
  }
  Operation *local = b.clone(*op);
  local->setOperands(operands);
  for (Value result : local->getResults())
    result.setType(getLocalType(grid, nn::getTensorType(result), split));
  return local->getResult(global.getResultNumber());
}

/// This rank's part of `global`, which is whole along the dimensions that are not split
/// as `split` says.
Value Partitioner::cut(Value global, const Split &split) {
  const Local &whole = locals[global];
  if (whole.layout.split == split)
    return whole.value;
  std::vector<unsigned> key;
  for (const Axes &axes : split) {
    llvm::append_range(key, axes);
    key.push_back(~0u);
  }
  Value &known = cuts[{global.getAsOpaquePointer(), key}];
  if (known)
    return known;
  RankedTensorType type = getLocalType(grid, nn::getTensorType(global), split);
  Location loc = global.getLoc();
  Operation *op = whole.layout.isWhole() ? global.getDefiningOp() : nullptr;
  Value result;
  if (auto constant = dyn_cast_if_present<nn::ConstantOp>(op);
      constant && constant.getValue().isSplat()) {
    auto value = dyn_cast<DenseElementsAttr>(constant.getValue());
    result = value
                 ? nn::ConstantOp::create(b, loc, type, value.resizeSplat(type))
                 : Value();
  } else if (auto iota = dyn_cast_if_present<nn::IotaOp>(op)) {
    // In i64: every element gets the value that it has in the whole tensor.
    int64_t dim = iota.getDim();
    result =
        nn::IotaOp::create(b, loc, type.clone(b.getI64Type()), iota.getDim());
    if (!split[dim].empty())
      result = nn::AddOp::create(
          b, loc, result, getOffset(split[dim], type.getDimSize(dim), loc));
    result = nn::castTo(b, loc, result, type.getElementType());
  } else if (auto pointwise = dyn_cast_if_present<nn::PointwiseOpInterface>(op);
             pointwise && llvm::all_of(op->getOperands(), [&](Value operand) {
               return locals[operand].layout.isWhole();
             })) {
    result = cutPointwise(pointwise, cast<OpResult>(global), split);
  }
  if (!result) {
    result = whole.value;
    for (auto [dim, axes] : llvm::enumerate(split))
      if (!axes.empty() && whole.layout.split[dim].empty()) {
        result = nn::PartOp::create(b, loc, result, getIndex(axes, loc), dim,
                                    grid.count(axes));
        remarkOn(loc, "Cut", result.getType(), grid.toAttr(axes));
      }
    ++counts.cut;
  }
  cuts[{global.getAsOpaquePointer(), key}] = result;
  return result;
}

/// Gives a dropout of a part the places of its elements in the whole.
void Partitioner::placeDropout(nn::DropoutOp op, nn::DropoutOp global,
                               const Split &split) {
  SmallVector<int64_t> strides =
      computeSuffixProduct(global.getType().getShape());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  Value first;
  for (auto [dim, axes] : llvm::enumerate(split)) {
    if (axes.empty())
      continue;
    Value offset = getOffset(axes, strides[dim] * op.getType().getDimSize(dim),
                             op.getLoc());
    first = first ? nn::AddOp::create(b, op.getLoc(), first, offset).getResult()
                  : offset;
  }
  if (!first)
    return;
  op.getFirstMutable().assign(first);
  op.setStrides(strides);
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
    result.setType(getLocalType(grid, nn::getTensorType(global), layout.split));
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
  cuts.clear();
  for (auto [value, global, split] :
       llvm::zip(operands, op.getOperands(), plan.operands))
    if (!value)
      value = cut(global, split);
  insertSorted(partial, plan.summed);
  SmallVector<Layout> results;
  for (const Split &split : plan.results)
    results.push_back({split, partial});
  Operation *local = cloneWith(op, operands, results);
  if (auto shardable = dyn_cast<nn::ShardableOpInterface>(local))
    shardable.adaptToTypes();
  if (auto dropout = dyn_cast<nn::DropoutOp>(local))
    placeDropout(dropout, cast<nn::DropoutOp>(op), plan.results[0]);
  ++counts.split;
  return success();
}

/// Replaces `op`, in the global code, by simpler nn ops.
bool Partitioner::decompose(Operation &op) {
  auto composite = dyn_cast<nn::DecomposableOpInterface>(op);
  if (!composite || op.hasTrait<nn::KernelPrimitive>() ||
      isa<nn::DropoutOp>(op))
    return false;
  OpBuilder global(&op);
  auto values = composite.decompose(global);
  if (failed(values))
    return false;
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
    auto plan = Planner(grid, *rule).plan(splits, problem);
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

LogicalResult Partitioner::convertYield(train::YieldOp op, bool isStep) {
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
  body = new Block;
  region.push_back(body);
  for (auto [input, layout] : llvm::zip(global.getArguments(), inputs)) {
    auto type = cast<RankedTensorType>(input.getType());
    locals[input] = {body->addArgument(getLocalType(grid, type, layout.split),
                                       input.getLoc()),
                     layout};
  }
  b.setInsertionPointToEnd(body);
  auto yield = cast<train::YieldOp>(global.getTerminator());
  if (failed(convertBlock(global)) ||
      failed(convertYield(yield, isa<StepOp>(entry))))
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
