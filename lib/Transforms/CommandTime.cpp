//===- CommandTime.cpp - About how long a command takes -------------------===//
#include "CommandTime.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/IterationSpace.h"

using namespace mlir;
using namespace trainc;
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

/// Arithmetic of an op inside of a kernel, as if it were of products.
static double flopsOf(Operation *op) {
  if (double flops = nn::countConvolutionFlops(op))
    return flops;
  if (double flops = nn::countAttentionFlops(op))
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
