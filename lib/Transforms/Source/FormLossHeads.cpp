//===- FormLossHeads.cpp - Join logits and their cross entropy ------------===//
//
// This pass turns a product and the cross entropy of it, which alone uses it, into one op,
// whose logits never stand whole in memory. It changes no value of the loss.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Source/Passes.h"

#define DEBUG_TYPE "train-form-loss-heads"

namespace trainc {
#define GEN_PASS_DEF_FORMLOSSHEADSPASS
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;

namespace {
/// A product of rows and a matrix; `bias` may be null.
struct Product {
  Value rows, matrix, bias;
  bool transposed;
};
} // namespace

static std::optional<Product> matchProduct(Value value) {
  if (auto linear = value.getDefiningOp<nn::LinearOp>())
    return Product{linear.getInput(), linear.getWeight(), linear.getBias(),
                   false};
  if (auto matmul = value.getDefiningOp<nn::MatmulOp>())
    if (!matmul.getTransposeLhs() &&
        nn::getTensorType(matmul.getRhs()).getRank() == 2)
      return Product{matmul.getLhs(), matmul.getRhs(), matmul.getBias(),
                     matmul.getTransposeRhs()};
  return std::nullopt;
}

/// Replaces `loss` by a loss head if its logits are a product that nothing else uses.
static bool formLossHead(nn::CrossEntropyOp loss) {
  RankedTensorType type = nn::getTensorType(loss.getLogits());
  Value logits = loss.getLogits();
  nn::CastOp wide;
  while (logits.hasOneUse()) {
    if (auto reshape = logits.getDefiningOp<nn::ReshapeOp>()) {
      logits = reshape.getInput();
      ArrayRef<int64_t> shape = nn::getTensorType(logits).getShape();
      if (shape.empty() || shape.back() != type.getShape().back())
        return false;
    } else if (auto cast = logits.getDefiningOp<nn::CastOp>(); cast && !wide) {
      logits = cast.getInput();
      wide = cast;
    } else {
      break;
    }
  }
  std::optional<Product> product = matchProduct(logits);
  if (!product || !logits.hasOneUse() ||
      logits.getParentBlock() != loss->getBlock())
    return false;
  // A cast but that to the compute type rounds what this op does not.
  Type element = nn::getTensorType(logits).getElementType();
  if (wide && (element == type.getElementType() ||
               nn::getComputeType(element) != type.getElementType()))
    return false;
  OpBuilder b(loss);
  Location loc = loss.getLoc();
  ArrayRef<int64_t> rows =
      nn::getTensorType(product->rows).getShape().drop_back();
  Value weights = loss.getWeights();
  auto head = nn::LinearCrossEntropyOp::create(
      b, loc, product->rows, product->matrix, product->bias,
      nn::reshapeTo(b, loc, loss.getTargets(), rows),
      weights ? nn::reshapeTo(b, loc, weights, rows) : Value(),
      product->transposed, wide && wide.getUnrounded(), loss.getIgnoreIndex(),
      loss.getLabelSmoothing());
  loss.replaceAllUsesWith(head);
  Operation *unused = loss;
  while (unused->use_empty()) {
    Value input = unused->getOperand(0);
    unused->erase();
    if (input == product->rows)
      break;
    unused = input.getDefiningOp();
  }
  return true;
}

namespace {
struct FormLossHeadsPass
    : trainc::impl::FormLossHeadsPassBase<FormLossHeadsPass> {
  void runOnOperation() override {
    for (auto list : getOperation().getOps<train::ListOp>()) {
      list.emitOpError("expects steps; run train-form-loss-heads before "
                       "train-outline-lists");
      return signalPassFailure();
    }
    SmallVector<nn::CrossEntropyOp> losses;
    getOperation().walk([&](nn::CrossEntropyOp op) { losses.push_back(op); });
    for (nn::CrossEntropyOp loss : losses)
      if (formLossHead(loss))
        ++numFormed;
  }
};
} // namespace
