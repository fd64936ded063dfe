//===- NNWork.cpp - What the operations compute ---------------------------===//
//
// The rules by which arithmetic is counted, and the formulas of the operations
// that have one (CostOpInterface). test/Analysis/cost.mlir holds them against
// the loops that nn-to-linalg makes.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/CastInterfaces.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

Work &Work::operator+=(const Work &other) {
  matrix += other.matrix;
  repeated += other.repeated;
  vector += other.vector;
  functions += other.functions;
  read += other.read;
  written += other.written;
  return *this;
}

Work nn::operator*(double times, Work work) {
  work.matrix *= times;
  work.repeated *= times;
  work.vector *= times;
  work.functions *= times;
  work.read *= times;
  work.written *= times;
  return work;
}

/// Whether `value` says where an element stands: an index, or the outcome of a
/// comparison of indices.
static bool isOfIndices(Value value) {
  Type type = getElementTypeOrSelf(value);
  if (type.isIndex())
    return true;
  Operation *op = value.getDefiningOp();
  return op && type.isInteger(1) && op->getNumOperands() > 0 &&
         llvm::all_of(op->getOperands(), isOfIndices);
}

Work nn::countScalarWork(Operation *op) {
  Work work;
  bool isMath = isa<math::MathDialect>(op->getDialect());
  if (!isMath && !isa<arith::ArithDialect>(op->getDialect()))
    return work;
  if (isa<CastOpInterface>(op) || op->hasTrait<OpTrait::ConstantLike>() ||
      isOfIndices(op->getResult(0)))
    return work;
  if (auto select = dyn_cast<arith::SelectOp>(op);
      select && isOfIndices(select.getCondition()))
    return work;
  if (!isMath ||
      isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::ClampFOp,
          math::CopySignOp, math::CountLeadingZerosOp,
          math::CountTrailingZerosOp, math::CtPopOp, math::FloorOp,
          math::IsFiniteOp, math::IsInfOp, math::IsNaNOp, math::IsNormalOp,
          math::RoundEvenOp, math::RoundOp, math::SqrtOp, math::TruncOp>(op))
    work.vector = 1;
  else if (isa<math::FmaOp>(op))
    work.vector = 2;
  else
    work.functions = 1;
  return work;
}

Work nn::countScalarWork(Block &block) {
  Work work;
  for (Operation &op : block)
    work += countScalarWork(&op);
  return work;
}

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

static double elementsOf(Value value) {
  return static_cast<double>(getTensorType(value).getNumElements());
}

static Work vectorWork(double operations) {
  Work work;
  work.vector = operations;
  return work;
}

/// Of `outputs`, each the sum of `terms` products.
static Work contractionWork(Value outputs, double terms) {
  Work work;
  work.matrix = 2 * elementsOf(outputs) * terms;
  return work;
}

Work ReduceOp::countWork() {
  SmallVector<int64_t> outer;
  ArrayRef<int64_t> shape = getTensorType(getInput()).getShape();
  int64_t first = splitReduction(*this, outer);
  bool hasRun = first < static_cast<int64_t>(shape.size());
  double terms = elementsOf(getInput());
  double ofRuns = terms / ShapedType::getNumElements(shape.drop_front(first));
  // What the runs give is reduced over further-out dimensions.
  return vectorWork((hasRun ? terms : 0) + (outer.empty() ? 0 : ofRuns));
}

Work SortOp::countWork() {
  // Kernels merge runs of 1, 2, 4, ... elements: each time one comparison of an
  // element.
  int64_t size = getTensorType(getInput()).getDimSize(getDim());
  return vectorWork(elementsOf(getInput()) * llvm::Log2_64_Ceil(size));
}

Work MatmulOp::countWork() {
  ArrayRef<int64_t> lhs = getTensorType(getLhs()).getShape();
  Work work = contractionWork(getResult(),
                              lhs[lhs.size() - (getTransposeLhs() ? 2 : 1)]);
  if (getBias())
    work.vector = elementsOf(getResult());
  return work;
}
Unit MatmulOp::getUnit() { return Unit::Matrix; }

Work EmbeddingGradOp::countWork() { return vectorWork(elementsOf(getGrad())); }

Work RotatePairsOp::countWork() {
  // -sin, a product by sin, a multiply-add by cos.
  return vectorWork(4 * elementsOf(getResult()));
}

//===----------------------------------------------------------------------===//
// Convolution and pooling: the same on all targets, whoever computes it
//===----------------------------------------------------------------------===//

/// Elements of a filter of `weight`: of the terms of an output.
static double filterOf(Value weight) {
  return elementsOf(weight) / getTensorType(weight).getDimSize(0);
}

Work Conv2dOp::countWork() {
  Work work = contractionWork(getResult(), filterOf(getWeight()));
  if (getBias())
    work.vector = elementsOf(getResult());
  return work;
}
Work Conv2dInputGradOp::countWork() {
  return contractionWork(getGrad(), filterOf(getWeight()));
}
Work Conv2dWeightGradOp::countWork() {
  return contractionWork(getGrad(), filterOf(getResult()));
}
Work Conv2dWeightPartsOp::countWork() {
  double channels = getTensorType(getInput()).getDimSize(1);
  return contractionWork(getGrad(), channels * getWindow()[0] * getWindow()[1]);
}
Unit Conv2dOp::getUnit() { return Unit::Convolution; }
Unit Conv2dInputGradOp::getUnit() { return Unit::Convolution; }
Unit Conv2dWeightGradOp::getUnit() { return Unit::Convolution; }
Unit Conv2dWeightPartsOp::getUnit() { return Unit::Convolution; }

Work Col2imOp::countWork() {
  ArrayRef<int64_t> columns = getTensorType(getColumns()).getShape();
  return vectorWork(elementsOf(getResult()) * columns[1] * columns[2]);
}

/// `perTap` operations for each element of `value` and of the window.
static Work windowWork(Value value, ArrayRef<int64_t> window, double perTap) {
  return vectorWork(elementsOf(value) * window[0] * window[1] * perTap);
}

Work MaxPool2dOp::countWork() {
  // Is it the first, a number, greater, both, either, and two choices; where
  // there is padding, also whether it is none.
  bool padded = llvm::any_of(getPadding().value_or(ArrayRef<int64_t>()),
                             [](int64_t size) { return size != 0; });
  return windowWork(getResult(), getWindow(), padded ? 8 : 7);
}
Work MaxPool2dGradOp::countWork() {
  // Is it that one, a choice, a sum.
  return windowWork(getResult(), getWindow(), 3);
}
Work AvgPool2dOp::countWork() {
  Work work = windowWork(getResult(), getWindow(), 1);
  work.vector += elementsOf(getResult());
  return work;
}
Work AvgPool2dGradOp::countWork() {
  // A quotient, a sum.
  return windowWork(getResult(), getWindow(), 2);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// The sum over n = 1 ... `count` of min(n, most).
static double sumUpTo(double count, double most) {
  if (count <= most)
    return count * (count + 1) / 2;
  return most * (most + 1) / 2 + (count - most) * most;
}

/// The pairs of a query and a key of one head of q that have a score.
static double countPairs(const ScoreShape &shape, bool causal,
                         std::optional<int64_t> window) {
  double rows = shape.rows, columns = shape.columns;
  if (!causal)
    return rows * columns;
  // The last query sees all keys, each one before it one less, or `window` of
  // them.
  double most = window ? static_cast<double>(*window) : columns;
  return sumUpTo(columns, most) - sumUpTo(std::max(columns - rows, 0.0), most);
}

/// The words by which four scores are dropped out, for one of them.
static Work countDraw(MLIRContext *context) {
  Block scratch;
  OpBuilder b(context);
  b.setInsertionPointToEnd(&scratch);
  Location loc = b.getUnknownLoc();
  SmallVector<Type> types(5, b.getI64Type());
  scratch.addArguments(types, SmallVector<Location>(types.size(), loc));
  auto argument = [&](unsigned i) -> Value { return scratch.getArgument(i); };
  buildRandomWords(
      b, loc,
      {argument(0), argument(1), argument(2), argument(3), argument(4)});
  return 0.25 * countScalarWork(scratch);
}

/// Of an attention, or its gradient, with `out` as its output.
template <typename Op>
static Work attentionWork(Op op, Value segments, bool gradient) {
  ScoreShape shape = getScoreShape(op);
  double heads = shape.kvHeads * shape.group;
  double rows = shape.batch * heads * shape.rows;
  double pairs =
      shape.batch * heads * countPairs(shape, op.getCausal(), op.getWindow());
  double headSize = elementsOf(op.getOut()) / rows;
  // A multiply-add is 2. Forward: scores, and sums of values. Backward: both
  // again, and the gradients of q, k and v.
  Work work;
  work.matrix = 2 * (gradient ? 5 : 2) * pairs * headSize;
  work.repeated = gradient ? 2 * pairs * headSize : 0; // scores
  // Of a pair: scale, maximum, difference, sum, quotient; or scale, difference,
  // the derivative of softmax, scale. Of a row the maximum or lse, where it is
  // finite.
  work.vector = 5 * pairs + (gradient ? 2 : 5) * rows;
  work.functions = pairs + (gradient ? 0 : rows);
  if (gradient) // sums of out x dout
    work.vector += 2 * elementsOf(op.getOut());
  if (op.getMask())
    work.vector += pairs;
  if (segments)
    work.vector += pairs + pairs / heads;
  if (op.getRate()) {
    // A comparison; a product and a choice of each value that is dropped out.
    work += pairs * countDraw(op.getContext());
    work.vector += (gradient ? 5 : 3) * pairs;
  }
  return work;
}

Work AttentionOp::countWork() {
  return attentionWork(*this, getSegments(), /*gradient=*/false);
}
Work AttentionGradOp::countWork() {
  return attentionWork(*this, getSegments(), /*gradient=*/true);
}
Work PackedAttentionOp::countWork() {
  return attentionWork(*this, /*segments=*/Value(), /*gradient=*/false);
}
Work PackedAttentionGradOp::countWork() {
  return attentionWork(*this, /*segments=*/Value(), /*gradient=*/true);
}
Unit AttentionOp::getUnit() { return Unit::Attention; }
Unit AttentionGradOp::getUnit() { return Unit::Attention; }
Unit PackedAttentionOp::getUnit() { return Unit::Attention; }
Unit PackedAttentionGradOp::getUnit() { return Unit::Attention; }
