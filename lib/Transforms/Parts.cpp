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

Split Grid::read(Attribute split, int64_t rank) const {
  Split result(rank);
  if (!split)
    return result;
  for (auto [axes, dim] :
       llvm::zip(cast<ArrayAttr>(split).getAsRange<ArrayAttr>(), result))
    for (Attribute axis : axes) {
      const auto *it = llvm::find(names, axis);
      if (it != names.end())
        dim.push_back(it - names.begin());
    }
  return result;
}

ArrayAttr Grid::write(const Split &split) const {
  SmallVector<Attribute> dims;
  for (const Axes &axes : split)
    dims.push_back(toAttr(axes));
  return ArrayAttr::get(names.front().getContext(), dims);
}

std::string Grid::print(const Split &split) const {
  std::string text = "split(";
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(split, os, [&](const Axes &axes) {
    os << "[";
    llvm::interleaveComma(axes, os,
                          [&](unsigned axis) { os << names[axis].getValue(); });
    os << "]";
  });
  os << ")";
  return text;
}

RankedTensorType Grid::getLocalType(RankedTensorType type,
                                    const Split &split) const {
  SmallVector<int64_t> shape(type.getShape());
  for (auto [size, axes] : llvm::zip(shape, split))
    size /= count(axes);
  return type.clone(shape);
}

bool Layout::isWhole() const {
  return partial.empty() &&
         llvm::all_of(split, [](const Axes &axes) { return axes.empty(); });
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
/// Which axes split each factor of an op's dimensions.
class Planner {
public:
  Planner(const Grid &grid, const nn::ShardingRule &rule)
      : grid(grid), rule(rule), axes(rule.factors.size()) {}

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

FailureOr<Plan> parts::planParts(const Grid &grid, const nn::ShardingRule &rule,
                                 ArrayRef<Split> operands,
                                 std::string &problem) {
  return Planner(grid, rule).plan(operands, problem);
}
