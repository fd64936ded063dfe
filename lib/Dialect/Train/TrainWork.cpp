//===- TrainWork.cpp - What the operations of plan and lists compute ------===//
#include "trainc/Dialect/Train/TrainOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

static nn::Work vectorWork(double operations) {
  nn::Work work;
  work.vector = operations;
  return work;
}

/// A fused multiply-add of each of `elements` squares.
static nn::Work squareWork(double elements) { return vectorWork(2 * elements); }

nn::Work GemmOp::countWork() {
  // What an epilogue computes is hidden behind that.
  nn::Work work;
  work.matrix = 2.0 * getBatch() * getM() * getN() * getK();
  return work;
}
nn::Unit GemmOp::getUnit() { return nn::Unit::Matrix; }

nn::Work ConvolutionOp::countWork() {
  double filter =
      double(getWeightType().getNumElements()) / getWeightType().getDimSize(0);
  nn::Work work;
  work.matrix = 2.0 * getOutputType().getNumElements() * filter;
  return work;
}
nn::Unit ConvolutionOp::getUnit() { return nn::Unit::Convolution; }

nn::Work SquareSumOp::countWork() {
  return squareWork(nn::getTensorType(getInput()).getNumElements());
}

/// Segments that a rank does not have count nothing.
template <typename Op> static int64_t countShardElements(Op op) {
  ArrayRef<int64_t> lengths = op.getLengths();
  int64_t all[] = {0, static_cast<int64_t>(lengths.size())}, most = 0;
  ArrayRef<int64_t> shards = op.getShards().value_or(all);
  for (size_t i = 0; i + 1 < shards.size(); ++i) {
    int64_t elements = 0;
    for (int64_t length : lengths.slice(shards[i], shards[i + 1] - shards[i]))
      elements += length;
    most = std::max(most, elements);
  }
  return most;
}

int64_t SegmentMapOp::countElements() { return countShardElements(*this); }
int64_t SegmentSquareSumOp::countElements() {
  return countShardElements(*this);
}

nn::Work SegmentMapOp::countWork() {
  return double(countElements()) * nn::countScalarWork(getBody().front());
}

nn::Work SegmentSquareSumOp::countWork() {
  double elements = countElements();
  nn::Work work = elements * nn::countScalarWork(getBody().front());
  work += squareWork(elements * getOutputs().size());
  return work;
}

nn::Work SumBlocksOp::countWork() {
  double terms = 0;
  for (int64_t count : getCounts())
    terms += count;
  for (auto set : getSets().getAsRange<DenseI64ArrayAttr>())
    terms += set.size();
  return vectorWork(terms);
}
