//===- DecomposeWhole.cpp - Simpler operations on global shapes -----------===//
#include "DecomposeWhole.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace trainc;

/// Whether a gradient can go through `op`, or need not.
static bool isDifferentiable(Operation &op) {
  auto isFloat = [](Value value) {
    return isa<FloatType>(nn::getTensorType(value).getElementType());
  };
  return isa<nn::DifferentiableOpInterface>(op) ||
         llvm::none_of(op.getOperands(), isFloat) ||
         llvm::none_of(op.getResults(), isFloat);
}

/// A product with a bias as a product that may be a sum, and the bias; null if `op` is
/// none.
static Value separateBias(OpBuilder &b, Operation &op) {
  Value bias, product;
  if (auto linear = dyn_cast<nn::LinearOp>(op)) {
    bias = linear.getBias();
    if (bias)
      product = nn::LinearOp::create(b, op.getLoc(), linear.getInput(),
                                     linear.getWeight(), Value());
  } else if (auto matmul = dyn_cast<nn::MatmulOp>(op)) {
    bias = matmul.getBias();
    if (bias)
      product = nn::MatmulOp::create(
          b, op.getLoc(), matmul.getLhs(), matmul.getRhs(), Value(),
          matmul.getTransposeLhs(), matmul.getTransposeRhs());
  }
  return bias ? nn::AddOp::create(b, op.getLoc(), product, bias).getResult()
              : Value();
}

/// Says at what picks the class of a row which classes there are: targets are checked by
/// that where no loss says it any more.
static void markClasses(nn::CrossEntropyOp op, ArrayRef<Operation *> parts) {
  for (Operation *part : parts)
    if (auto compare = dyn_cast<nn::CompareOp>(part);
        compare && compare.getLhs().getDefiningOp<nn::IotaOp>())
      compare->setAttr(train::kClassesAttr,
                       DenseI64ArrayAttr::get(
                           op.getContext(),
                           {nn::getTensorType(op.getLogits()).getShape().back(),
                            static_cast<int64_t>(op.getIgnoreIndex())}));
}

bool parts::decomposeWhole(Operation &op, bool needsGradients) {
  OpBuilder before(&op);
  if (Value separate = separateBias(before, op)) {
    op.getResult(0).replaceAllUsesWith(separate);
    op.erase();
    return true;
  }
  auto composite = dyn_cast<nn::DecomposableOpInterface>(op);
  if (!composite || op.hasTrait<nn::KernelPrimitive>() ||
      isa<nn::RandomOpInterface>(op))
    return false;
  Operation *previous = op.getPrevNode();
  OpBuilder global(&op);
  // Chunks of rows would be parts of what ranks share.
  auto head = dyn_cast<nn::LinearCrossEntropyOp>(op);
  FailureOr<SmallVector<Value>> values =
      head ? head.buildWhole(global) : composite.decompose(global);
  if (failed(values))
    return false;
  SmallVector<Operation *> parts;
  for (Operation *part = op.getPrevNode(); part != previous;
       part = part->getPrevNode())
    parts.push_back(part);
  if (auto loss = dyn_cast<nn::CrossEntropyOp>(op))
    markClasses(loss, parts);
  bool isGood = !needsGradients || llvm::all_of(parts, [](Operation *part) {
    return isDifferentiable(*part);
  });
  if (!isGood) {
    for (Operation *part : parts)
      part->erase();
    return false;
  }
  // A softmax does not depend on the maximum that it takes away.
  if (isa<nn::LogSoftmaxOp, nn::SoftmaxOp>(op))
    for (Operation *part : parts)
      if (auto reduce = dyn_cast<nn::ReduceOp>(part);
          reduce && reduce.getKind() == nn::ReduceKind::max) {
        OpBuilder after(reduce->getNextNode());
        Value maximum = nn::StopGradientOp::create(after, reduce.getLoc(),
                                                   reduce.getResult());
        reduce.getResult().replaceAllUsesExcept(maximum,
                                                maximum.getDefiningOp());
      }
  op.replaceAllUsesWith(*values);
  op.erase();
  return true;
}

/// How many leading dimensions have all of those of the terms that are uneven.
template <typename Op>
static int64_t countUneven(const parts::Grid &grid, Op op,
                           ArrayRef<parts::Split> splits) {
  int64_t rank = 0;
  for (auto [operand, split] : llvm::zip(op->getOperands(), splits)) {
    if (operand != op->getOperand(0) && operand != op.getTargets() &&
        operand != op.getWeights())
      continue;
    ArrayRef<int64_t> shape = nn::getTensorType(op.getTargets()).getShape();
    for (auto [dim, size, part] :
         llvm::enumerate(shape.take_front(split.size()),
                         ArrayRef(split).take_front(shape.size())))
      if (!part.isWhole() && grid.isUneven(size, part))
        rank = std::max<int64_t>(rank, dim + 1);
  }
  return rank;
}

/// `perElement`: weights may have the first of the terms' dimensions alone.
template <typename Op>
static bool weigh(const parts::Grid &grid, Op op, ArrayRef<parts::Split> splits,
                  bool perElement) {
  int64_t rank = countUneven(grid, op, splits);
  Value weights = op.getWeights();
  if (!rank || (weights && nn::getTensorType(weights).getRank() >= rank))
    return false;
  OpBuilder b(op);
  ArrayRef<int64_t> shape = nn::getTensorType(op.getTargets()).getShape();
  if (perElement)
    shape = shape.take_front(rank);
  if (weights) {
    SmallVector<int64_t> some(nn::getTensorType(weights).getShape());
    some.resize(rank, 1);
    weights = nn::reshapeTo(b, op.getLoc(), weights, some);
  } else {
    Type compute = nn::getTensorType(op.getCount()).getElementType();
    weights = nn::scalarConstant(b, op.getLoc(), compute, 1.0);
  }
  op.getWeightsMutable().assign(nn::BroadcastOp::create(
      b, op.getLoc(), nn::getTensorType(weights).clone(shape), weights));
  return true;
}

bool parts::weighUneven(const Grid &grid, Operation &op,
                        ArrayRef<Split> splits) {
  return llvm::TypeSwitch<Operation *, bool>(&op)
      .Case<nn::MseOp, nn::BceWithLogitsOp>([&](auto loss) {
        return weigh(grid, loss, splits, /*perElement=*/true);
      })
      .Case<nn::CrossEntropyOp, nn::LinearCrossEntropyOp>([&](auto loss) {
        return weigh(grid, loss, splits, /*perElement=*/false);
      })
      .Default(false);
}
