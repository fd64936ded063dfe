//===- Parts.cpp - Which part of a tensor each rank has -------------------===//
//
// Splits follow from operands to results through the factors of an op's rule: each axis
// goes to the slowest factor of its dimension that it divides, and from there to all
// dimensions with that factor.
//
//===----------------------------------------------------------------------===//
#include "Parts.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::parts;

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

Grid::Grid(train::MeshOp mesh) {
  for (auto [name, size] : llvm::zip(mesh.getAxes(), mesh.getSizes()))
    if (size > 1) {
      names.push_back(cast<StringAttr>(name));
      sizes.push_back(size);
    }
}

int64_t Grid::count(ArrayRef<unsigned> axes) const {
  int64_t result = 1;
  for (unsigned axis : axes)
    result *= sizes[axis];
  return result;
}

Axes Grid::all() const {
  return llvm::to_vector<2>(llvm::seq<unsigned>(names.size()));
}

ArrayAttr Grid::toAttr(ArrayRef<unsigned> axes) const {
  SmallVector<Attribute> result;
  for (unsigned axis : axes)
    result.push_back(names[axis]);
  return ArrayAttr::get(names.front().getContext(), result);
}

Split Grid::read(Attribute split, int64_t rank,
                 DenseI64ArrayAttr blocks) const {
  Split result(rank);
  if (!split)
    return result;
  for (auto [i, axes] :
       llvm::enumerate(cast<ArrayAttr>(split).getAsRange<ArrayAttr>())) {
    for (Attribute axis : axes) {
      const auto *it = llvm::find(names, axis);
      if (it != names.end())
        result[i].axes.push_back(it - names.begin());
    }
    if (blocks)
      result[i].blocks = blocks[i];
  }
  return result;
}

ArrayAttr Grid::write(const Split &split) const {
  SmallVector<Attribute> dims;
  for (const DimSplit &dim : split)
    dims.push_back(toAttr(dim.axes));
  return ArrayAttr::get(names.front().getContext(), dims);
}

std::string Grid::print(const Split &split) const {
  std::string text = "split(";
  llvm::raw_string_ostream os(text);
  bool hasBlocks = false;
  llvm::interleaveComma(split, os, [&](const DimSplit &dim) {
    os << "[";
    llvm::interleaveComma(dim.axes, os,
                          [&](unsigned axis) { os << names[axis].getValue(); });
    os << "]";
    hasBlocks |= !dim.isWhole() && dim.blocks != 1;
  });
  os << ")";
  if (!hasBlocks)
    return text;
  os << " blocks [";
  llvm::interleaveComma(split, os, [&](const DimSplit &dim) {
    os << (dim.isWhole() ? 1 : dim.blocks);
  });
  os << "]";
  return text;
}

RankedTensorType Grid::getLocalType(RankedTensorType type,
                                    const Split &split) const {
  SmallVector<int64_t> shape(type.getShape());
  for (auto [size, dim] : llvm::zip(shape, split))
    size = getPartSize(size, dim);
  return type.clone(shape);
}

int64_t Grid::getPartSize(int64_t size, const DimSplit &split) const {
  if (split.isWhole())
    return size;
  return split.blocks *
         llvm::divideCeil(size / split.blocks, count(split.axes));
}

bool Layout::isWhole() const {
  return partial.empty() &&
         llvm::all_of(split, [](const DimSplit &dim) { return dim.isWhole(); });
}

void parts::insertSorted(Axes &axes, ArrayRef<unsigned> more) {
  for (unsigned axis : more)
    if (!llvm::is_contained(axes, axis))
      axes.insert(llvm::upper_bound(axes, axis), axis);
}

Axes parts::without(ArrayRef<unsigned> axes, ArrayRef<unsigned> others) {
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
/// How each factor of an op's dimensions is split.
class Planner {
public:
  Planner(const Grid &grid, const nn::ShardingRule &rule)
      : grid(grid), rule(rule), splits(rule.factors.size()) {}

  FailureOr<Plan> plan(ArrayRef<Split> operands, std::string &problem);

private:
  bool assign(ArrayRef<unsigned> factors, const DimSplit &dim);
  bool compose(ArrayRef<unsigned> factors, DimSplit &result) const;
  std::string describe(StringRef what, unsigned index, int64_t dim, Value value,
                       ArrayRef<unsigned> given) const;

  const Grid &grid;
  const nn::ShardingRule &rule;
  SmallVector<DimSplit> splits;
};
} // namespace

static int64_t countLargerThanOne(const nn::ShardingRule &rule,
                                  ArrayRef<unsigned> factors) {
  return llvm::count_if(factors,
                        [&](unsigned i) { return rule.factors[i].size > 1; });
}

unsigned parts::getOnlyFactor(const nn::ShardingRule &rule,
                              ArrayRef<unsigned> factors) {
  return *llvm::find_if(factors,
                        [&](unsigned i) { return rule.factors[i].size > 1; });
}

std::optional<unsigned> parts::findWeights(const nn::ShardingRule &rule,
                                           unsigned factor) {
  SmallVector<unsigned> candidates;
  if (rule.weights)
    candidates.push_back(*rule.weights);
  for (ArrayRef<unsigned> group : rule.linear)
    llvm::append_range(candidates, group);
  for (unsigned operand : candidates)
    for (ArrayRef<unsigned> factors : rule.operands[operand])
      if (llvm::is_contained(factors, factor))
        return operand;
  return std::nullopt;
}

/// Whether parts of `factor` may be filled up.
static bool mayBeUneven(const nn::ShardingRule &rule, unsigned factor) {
  nn::FactorKind kind = rule.factors[factor].kind;
  return !rule.needsEven && kind != nn::FactorKind::Whole &&
         (kind != nn::FactorKind::Sum || findWeights(rule, factor));
}

/// Splits `factors`, of one dimension, as `dim` says: behind its blocks the slowest first,
/// each as far as it goes. False if that does not come out even and there is more than
/// one.
bool Planner::assign(ArrayRef<unsigned> factors, const DimSplit &dim) {
  ArrayRef<unsigned> given = dim.axes;
  if (dim.blocks == 1 && countLargerThanOne(rule, factors) == 1) {
    unsigned only = getOnlyFactor(rule, factors);
    if (grid.isUneven(rule.factors[only].size, dim)) {
      splits[only] = dim;
      return mayBeUneven(rule, only);
    }
  }
  int64_t blocks = dim.blocks;
  for (unsigned factor : factors) {
    if (given.empty())
      return true;
    const auto &[size, kind] = rule.factors[factor];
    if (blocks > 1 && blocks % size == 0) {
      blocks /= size;
      continue;
    }
    if (size % blocks != 0)
      return false;
    int64_t left = size / blocks;
    Axes taken;
    while (kind != nn::FactorKind::Whole && !given.empty() && left > 1 &&
           left % grid.sizes[given.front()] == 0) {
      left /= grid.sizes[given.front()];
      taken.push_back(given.front());
      given = given.drop_front();
    }
    if (!taken.empty())
      splits[factor] = {taken, blocks};
    if (left != 1 || blocks != 1)
      break;
  }
  return given.empty();
}

/// How a dimension of `factors` is split; false if the parts of its blocks would have
/// gaps.
bool Planner::compose(ArrayRef<unsigned> factors, DimSplit &result) const {
  bool complete = true;
  int64_t blocks = 1;
  for (unsigned factor : factors) {
    const DimSplit &split = splits[factor];
    int64_t size = rule.factors[factor].size;
    if (split.isWhole() && result.isWhole()) {
      blocks *= size;
      continue;
    }
    if (grid.isUneven(size, split) && countLargerThanOne(rule, factors) != 1)
      return false;
    if (result.isWhole()) {
      result.blocks = blocks * split.blocks;
      complete = split.blocks == 1;
    } else if (!split.isWhole() && (!complete || split.blocks != 1)) {
      return false;
    }
    llvm::append_range(result.axes, split.axes);
    complete &= grid.count(split.axes) == size;
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
      if (given.isWhole())
        continue;
      SmallVector<DimSplit> before = splits;
      if (!assign(rule.operands[i][dim], given)) {
        problem = "cannot be done in parts along " +
                  describe("operand", i, dim, op->getOperand(i), given.axes);
        return failure();
      }
      for (auto [old, now] : llvm::zip(before, splits))
        if (!old.isWhole() && old != now) {
          problem = "has operands whose annotations are in conflict, along " +
                    describe("operand", i, dim, op->getOperand(i), given.axes);
          return failure();
        }
    }
  Plan plan;
  for (auto [i, factor] : llvm::enumerate(rule.factors)) {
    for (unsigned axis : splits[i].axes)
      if (llvm::is_contained(plan.used, axis)) {
        problem =
            ("has operands whose annotations are in conflict: two dimensions "
             "are split over '" +
             grid.names[axis].getValue() + "'")
                .str();
        return failure();
      }
    insertSorted(plan.used, splits[i].axes);
    if (factor.kind == nn::FactorKind::Sum)
      insertSorted(plan.summed, splits[i].axes);
    if (factor.kind == nn::FactorKind::Join)
      insertSorted(plan.joined, splits[i].axes);
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
      if (!given.isWhole() && given != plan.operands[i][dim]) {
        problem = "has operands whose annotations are in conflict, along " +
                  describe("operand", i, dim, op->getOperand(i), given.axes);
        return failure();
      }
  return plan;
}

FailureOr<Plan> parts::planParts(const Grid &grid, const nn::ShardingRule &rule,
                                 ArrayRef<Split> operands,
                                 std::string &problem) {
  return Planner(grid, rule).plan(operands, problem);
}
