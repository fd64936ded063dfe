//===- DecomposeWhole.cpp - Simpler operations on global shapes -----------===//
#include "DecomposeWhole.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"

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
