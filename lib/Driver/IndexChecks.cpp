//===- IndexChecks.cpp - Which values of integer inputs are indices -------===//
#include "IndexChecks.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include <map>

using namespace mlir;
using namespace trainc;

static bool allows(const trainc_index_check &check, int64_t index) {
  return (index >= 0 && index < check.high) ||
         (check.has_ignore && index == check.ignore);
}

/// Narrows `check` to what `other` allows, too: beside a range one index at most.
static void intersect(trainc_index_check &check,
                      const trainc_index_check &other) {
  trainc_index_check before = check;
  check.high = std::min(check.high, other.high);
  check.has_ignore = check.ignore = 0;
  for (const trainc_index_check &one : {before, other})
    if (one.has_ignore && allows(before, one.ignore) &&
        allows(other, one.ignore) && !allows(check, one.ignore)) {
      check.has_ignore = 1;
      check.ignore = one.ignore;
    }
}

/// Lets `check`, of all elements of the input of `slice`, be of those that it takes; false if
/// they are no runs at equal distances.
static bool narrow(trainc_index_check &check, nn::SliceOp slice) {
  struct Loop {
    int64_t size, stride;
  };
  SmallVector<Loop> loops; // from the last dimension, joined where they are one
  int64_t begin = 0, inner = 1;
  ArrayRef<int64_t> from = nn::getTensorType(slice.getInput()).getShape();
  SmallVector<int64_t> steps = slice.getAllStrides();
  for (int64_t i = from.size(); i-- > 0; inner *= from[i]) {
    int64_t size = slice.getSizes()[i], stride = steps[i] * inner;
    begin += slice.getOffsets()[i] * inner;
    if (size == 1)
      continue;
    if (!loops.empty() && stride == loops.back().size * loops.back().stride)
      loops.back().size *= size;
    else
      loops.push_back({size, stride});
  }
  if (loops.empty() || loops.front().stride != 1)
    loops.insert(loops.begin(), {1, 1});
  if (loops.size() > 2)
    return false;
  Loop rows = loops.size() == 2 ? loops[1] : Loop{1, 0};
  check.begin = begin;
  check.rows = rows.size;
  check.stride = rows.stride;
  check.run = loops[0].size;
  return true;
}

namespace {
struct Finder {
  int64_t elements; // of the input
  /// By which of its elements.
  std::map<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>,
           trainc_index_check>
      checks = {};

  void add(trainc_index_check check, int64_t high,
           std::optional<int64_t> ignore = std::nullopt);
  void visit(Value value, trainc_index_check check, bool inOrder);
};
} // namespace

void Finder::add(trainc_index_check check, int64_t high,
                 std::optional<int64_t> ignore) {
  check.high = high;
  check.has_ignore = ignore.has_value();
  check.ignore = ignore.value_or(0);
  auto [it, inserted] = checks.try_emplace(
      {check.begin, check.rows, check.stride, check.run}, check);
  if (!inserted)
    intersect(it->second, check);
}

/// Whether the result of a cast has all values of its input.
static bool isWidening(Operation *op) {
  if (!isa<nn::CastOp>(op))
    return false;
  auto widthOf = [](Type type) {
    return getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  };
  return widthOf(op->getResult(0).getType()) >=
         widthOf(op->getOperand(0).getType());
}

/// Whether `op` takes the part of a rank, of which others take the rest.
static bool isPartOfRank(Operation *op) {
  auto part = dyn_cast<nn::PartOp>(op);
  SmallVector<Value> open;
  if (part)
    open.push_back(part.getIndex());
  while (!open.empty()) {
    Operation *maker = open.pop_back_val().getDefiningOp();
    if (!maker)
      continue;
    if (isa<train::ReadOp, train::ProcessIndexOp>(maker))
      return true;
    llvm::append_range(open, maker->getOperands());
  }
  return false;
}

/// Adds what the users of `value`, the elements of `check`, allow. `inOrder`: they are all of
/// the input's, as they stand there.
void Finder::visit(Value value, trainc_index_check check, bool inOrder) {
  RankedTensorType type = nn::getTensorType(value);
  if (!isa<IntegerType>(type.getElementType()))
    return;
  inOrder &= type.getNumElements() == elements;
  auto addLoss = [&](auto loss, int64_t classes) {
    add(check, classes, static_cast<int64_t>(loss.getIgnoreIndex()));
  };
  for (Operation *user : value.getUsers()) {
    if (auto embedding = dyn_cast<nn::EmbeddingOp>(user)) {
      add(check, embedding.countRows());
    } else if (auto gather = dyn_cast<nn::GatherOp>(user)) {
      if (gather.getIndices() == value)
        add(check,
            nn::getTensorType(gather.getInput()).getDimSize(gather.getDim()));
    } else if (auto loss = dyn_cast<nn::CrossEntropyOp>(user)) {
      addLoss(loss, nn::getTensorType(loss.getLogits()).getShape().back());
    } else if (auto loss = dyn_cast<nn::LinearCrossEntropyOp>(user)) {
      addLoss(loss, loss.countClasses());
    } else if (auto loss = dyn_cast<nn::LinearCrossEntropyGradOp>(user)) {
      addLoss(loss, loss.countClasses());
    } else if (auto compare = dyn_cast<nn::CompareOp>(user)) {
      if (auto range =
              compare->getAttrOfType<DenseI64ArrayAttr>(train::kClassesAttr))
        add(check, range[0], range[1]);
    } else if (isa<nn::ReshapeOp>(user) || isWidening(user)) {
      visit(user->getResult(0), check, inOrder);
    } else if (isa<nn::TransposeOp, nn::BroadcastOp, nn::ConcatOp>(user) ||
               isPartOfRank(user)) {
      visit(user->getResult(0), check, /*inOrder=*/false);
    } else if (auto slice = dyn_cast<nn::SliceOp>(user)) {
      trainc_index_check taken = check;
      if (inOrder && narrow(taken, slice))
        visit(slice.getResult(), taken, /*inOrder=*/false);
    }
  }
}

std::vector<trainc_index_check> trainc::findIndexChecks(BlockArgument input) {
  Finder finder{nn::getTensorType(input).getNumElements()};
  trainc_index_check all = {};
  all.input = input.getArgNumber();
  finder.visit(input, all, /*inOrder=*/true);
  std::vector<trainc_index_check> checks;
  for (auto &[elements, check] : finder.checks)
    checks.push_back(check);
  return checks;
}
