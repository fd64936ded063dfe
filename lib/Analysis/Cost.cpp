//===- Cost.cpp - Arithmetic and time of operations and commands ----------===//
#include "trainc/Analysis/Cost.h"
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;
using namespace trainc::train;

/// Pointwise code reaches this part of the speed of products.
static constexpr double kPointwise = 0.25;

int64_t trainc::bytesOf(Value value) {
  RankedTensorType type = nn::getTensorType(value);
  return type.getNumElements() * nn::getElementBytes(type.getElementType());
}

int64_t trainc::bytesOf(ValueRange values) {
  int64_t bytes = 0;
  for (Value value : values)
    bytes += bytesOf(value);
  return bytes;
}

double trainc::countAttentionFlops(Operation *op) {
  bool gradient = isa<AttentionGradOp, PackedAttentionGradOp>(op);
  if (!gradient && !isa<AttentionOp, PackedAttentionOp>(op))
    return 0;
  Value out = TypeSwitch<Operation *, Value>(op)
                  .Case<AttentionOp, AttentionGradOp, PackedAttentionOp,
                        PackedAttentionGradOp>(
                      [](auto attention) { return attention.getOut(); });
  double keys = getScoreShape(op).columns;
  if (op->hasAttr("causal"))
    keys /= 2;
  if (auto window = op->getAttrOfType<IntegerAttr>("window"))
    keys = std::min<double>(keys, window.getInt());
  return (gradient ? 10 : 4) * keys *
         double(getTensorType(out).getNumElements());
}

double trainc::countConvolutionFlops(Operation *op) {
  // Each output is a sum of as many products as a filter has elements.
  auto count = [](Value outputs, double filter) {
    return 2.0 * getTensorType(outputs).getNumElements() * filter;
  };
  auto filterOf = [](Value weight) {
    RankedTensorType type = getTensorType(weight);
    return double(type.getNumElements()) / type.getDimSize(0);
  };
  return llvm::TypeSwitch<Operation *, double>(op)
      .Case([&](Conv2dOp op) {
        return count(op.getResult(), filterOf(op.getWeight()));
      })
      .Case([&](Conv2dInputGradOp op) {
        return count(op.getGrad(), filterOf(op.getWeight()));
      })
      .Case([&](Conv2dWeightGradOp op) {
        return count(op.getGrad(), filterOf(op.getResult()));
      })
      .Case([&](Conv2dWeightPartsOp op) {
        double taps = double(op.getWindow()[0]) * op.getWindow()[1];
        return count(op.getGrad(),
                     getTensorType(op.getInput()).getDimSize(1) * taps);
      })
      .Default(0.0);
}

/// Arithmetic of an op inside of a kernel, as if it were of products.
static double flopsOf(Operation *op) {
  if (double flops = countConvolutionFlops(op))
    return flops;
  if (double flops = countAttentionFlops(op))
    return flops;
  double elements = 0;
  for (Value operand : op->getOperands())
    elements =
        std::max<double>(elements, nn::getTensorType(operand).getNumElements());
  double cost = 1;
  if (isa<nn::MapOp>(op))
    cost = llvm::range_size(op->getRegion(0).front());
  else if (!isCheap(op) && isa<nn::PointwiseOpInterface>(op))
    cost = 10;
  return cost * elements / kPointwise;
}

bool trainc::isNarrow(Value value) {
  return nn::getElementBytes(nn::getTensorType(value).getElementType()) == 2;
}

double trainc::secondsOf(const Speed &speed, ArrayRef<Operation *> ops,
                         int64_t bytes, bool narrow) {
  double flops = 0;
  for (Operation *op : ops)
    flops += flopsOf(op);
  return speed.time(bytes, flops, narrow);
}

double trainc::secondsOf(const Speed &speed, Operation *op,
                         SymbolTable &symbols) {
  double bytes = bytesOf(op->getOperands()) + bytesOf(op->getResults());
  if (auto gemm = dyn_cast<GemmOp>(op))
    return speed.time(
        bytes, 2.0 * gemm.getBatch() * gemm.getM() * gemm.getN() * gemm.getK(),
        isNarrow(gemm.getLhs()));
  auto launch = dyn_cast<LaunchOp>(op);
  if (!launch)
    return speed.time(bytes, 0, false);
  SmallVector<Operation *> ops;
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  for (Operation &inner : kernel.getBody().front().without_terminator())
    ops.push_back(&inner);
  return secondsOf(speed, ops, bytes, isNarrow(op->getResult(0)));
}
