//===- Decompose.cpp - Decompose composite ops into primitives ------------===//
//
// This pass replaces composite `nn` ops in lists by their decompositions, so that
// kernels are formed from few kinds of ops: pointwise ops, reductions (which keep
// their dimensions and are over an innermost run or over further-out dimensions,
// not both), matrix products, and ops that are kernels of their own.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Analysis/Convolution.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/EraseDead.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "nn-decompose"

namespace trainc {
#define GEN_PASS_DEF_DECOMPOSEPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;

/// The number of dims at the end of `shape` that `reduced` marks (size-1
/// dimensions may be either).
static int64_t innermostRun(ArrayRef<int64_t> shape, ArrayRef<bool> reduced) {
  int64_t run = 0;
  for (int64_t i = shape.size() - 1; i >= 0; --i) {
    if (!reduced[i] && shape[i] != 1)
      break;
    ++run;
  }
  return run;
}

/// Whether a reduction over further-out dimensions goes over each batch alone first:
/// threads then read rows that they wrote themselves, and only few results cross.
static bool reducesByBatch(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  constexpr int64_t fewRows = 16;
  if (dims.size() < 2 || llvm::any_of(shape.take_front(dims.front()),
                                      [](int64_t size) { return size != 1; }))
    return false;
  int64_t rows = 1;
  for (int64_t dim : dims.drop_front())
    rows *= shape[dim];
  return rows >= fewRows;
}

/// Rewrites a reduction into the normal form, of one order; failure if it is normal.
static LogicalResult normalizeReduce(nn::ReduceOp op, bool gpu) {
  RankedTensorType type = nn::getTensorType(op.getInput());
  int64_t rank = type.getRank();
  SmallVector<bool> reduced(rank, false);
  for (int64_t dim : op.getDims())
    reduced[dim] = true;
  int64_t inner = rank - innermostRun(type.getShape(), reduced);
  SmallVector<int64_t> outerDims, innerDims;
  for (int64_t i = 0; i < rank; ++i)
    if (reduced[i] && type.getDimSize(i) != 1)
      (i < inner ? outerDims : innerDims).push_back(i);
  OpBuilder b(op);
  Type element = type.getElementType(), compute = nn::getComputeType(element);
  SmallVector<int64_t> batchDims;
  if (!gpu && reducesByBatch(type.getShape(), outerDims)) {
    batchDims.push_back(outerDims.front());
    outerDims.erase(outerDims.begin());
  }
  bool split = (!outerDims.empty() && !innerDims.empty()) || !batchDims.empty();
  auto orderOf = [&](bool isInner) {
    return nn::ReduceOrderAttr::get(b.getContext(),
                                    gpu       ? nn::ReduceOrder::threads
                                    : isInner ? nn::ReduceOrder::lanes
                                              : nn::ReduceOrder::sequence);
  };
  if (op.getKeep() && !split && compute == element &&
      op.getDims().size() == outerDims.size() + innerDims.size()) {
    op.setOrderAttr(orderOf(outerDims.empty()));
    return failure();
  }
  Value value = nn::castTo(b, op.getLoc(), op.getInput(), compute);
  auto reduce = [&](ArrayRef<int64_t> dims, bool isInner) {
    if (!dims.empty())
      value = nn::ReduceOp::create(b, op.getLoc(), op.getKind(), value, dims,
                                   /*keep=*/true, orderOf(isInner));
  };
  reduce(innerDims, /*isInner=*/true);
  reduce(outerDims, /*isInner=*/false);
  reduce(batchDims, /*isInner=*/false);
  value = nn::castTo(b, op.getLoc(), value, element);
  value = nn::reshapeTo(b, op.getLoc(), value,
                        nn::getTensorType(op.getResult()).getShape());
  op.replaceAllUsesWith(value);
  op.erase();
  return success();
}

/// Whether `op` is a kernel of its own, as all convolutions are on a GPU, and sorts on a
/// CPU.
static bool isKernel(Operation &op, bool gpu) {
  if (op.hasTrait<nn::KernelPrimitive>())
    return true;
  if (isa<nn::SortOp>(op))
    return !gpu;
  if (!isa<nn::Conv2dOp, nn::Conv2dInputGradOp, nn::Conv2dWeightGradOp>(op))
    return false;
  auto forward = dyn_cast<nn::Conv2dOp>(op);
  if (gpu)
    return !forward || !forward.getBias();
  return !isa<nn::Conv2dWeightGradOp>(op) && getConvolution(&op);
}

/// A convolution that is no kernel of its own, or a gradient, as a command of a processor;
/// null if it is none, or has a bias.
static train::ConvolutionOp toCommand(OpBuilder &b, Operation &op) {
  auto create = [&](auto op, train::ConvolutionKind kind) {
    static constexpr int64_t ones[] = {1, 1}, zeros[] = {0, 0, 0, 0};
    return train::ConvolutionOp::create(
        b, op.getLoc(), op.getResult().getType(), kind, op->getOperand(0),
        op->getOperand(1), Value(), Value(), op.getStrides().value_or(ones),
        op.getPadding().value_or(zeros), op.getDilations().value_or(ones),
        op.getGroups(), /*accumulate=*/false, train::ConvolutionPlanAttr());
  };
  return llvm::TypeSwitch<Operation *, train::ConvolutionOp>(&op)
      .Case([&](nn::Conv2dOp op) {
        return op.getBias() ? train::ConvolutionOp()
                            : create(op, train::ConvolutionKind::forward);
      })
      .Case([&](nn::Conv2dInputGradOp op) {
        return create(op, train::ConvolutionKind::input_gradient);
      })
      .Case([&](nn::Conv2dWeightGradOp op) {
        return create(op, train::ConvolutionKind::weight_gradient);
      })
      .Default([](Operation *) { return train::ConvolutionOp(); });
}

/// Most parts of the gradient of a weight, and elements of all of them.
static constexpr int64_t kMaxParts = 16;
static constexpr int64_t kPartElements = 1 << 20;

/// The gradient of a weight on a CPU as the sum of those of several ranges of the batch,
/// each by blocks of rows; null where one product of matrices is faster.
static Value sumParts(OpBuilder &b, nn::Conv2dWeightGradOp op) {
  Location loc = op.getLoc();
  RankedTensorType type = nn::getTensorType(op.getResult());
  int64_t batch = nn::getTensorType(op.getInput()).getDimSize(0);
  int64_t parts =
      std::min({kMaxParts, batch, kPartElements / type.getNumElements()});
  if (parts < std::min<int64_t>(batch, 4) || !getConvolution(op))
    return {};
  Value sums = nn::Conv2dWeightPartsOp::create(
      b, loc, op.getInput(), op.getGrad(), type.getShape().take_back(2),
      op.getStridesAttr(), op.getPaddingAttr(), op.getDilationsAttr(),
      llvm::divideCeil(batch, parts));
  sums = nn::ReduceOp::create(b, loc, nn::ReduceKind::sum, sums,
                              ArrayRef<int64_t>{0}, /*keep=*/false);
  int64_t outputs = type.getDimSize(0);
  sums =
      nn::reshapeTo(b, loc, sums, {type.getNumElements() / outputs, outputs});
  sums = nn::TransposeOp::create(b, loc, sums, ArrayRef<int64_t>{1, 0});
  return nn::reshapeTo(b, loc, sums, type.getShape());
}

/// Gives the gradient of an attention the sums of out dout that kernels of GPUs read;
/// whether it had none.
template <typename Op> static bool giveDelta(Op op) {
  if (!op || op.getDelta())
    return false;
  OpBuilder b(op);
  ArrayRef<int64_t> rows = nn::getTensorType(op.getLse()).getShape();
  int64_t batch = rows[0], heads = rows[1], length = rows[2];
  int64_t elements = nn::getTensorType(op.getOut()).getNumElements();
  auto byHead = [&](Value value) {
    value = nn::reshapeTo(
        b, op.getLoc(), value,
        {batch, length, heads, elements / (batch * length * heads)});
    return nn::castTo(b, op.getLoc(), value,
                      nn::getTensorType(op.getLse()).getElementType());
  };
  Value products = nn::MulOp::create(b, op.getLoc(), byHead(op.getOut()),
                                     byHead(op.getDout()));
  Value sums = nn::ReduceOp::create(b, op.getLoc(), nn::ReduceKind::sum,
                                    products, int64_t(3), /*keep=*/true);
  sums = nn::reshapeTo(b, op.getLoc(), sums, {batch, length, heads});
  op.getDeltaMutable().assign(sums);
  return true;
}

/// Rows of a chunk of logits on a GPU at least: each chunk reads the weight and adds to its
/// gradient, which takes as long as the products of some hundred rows do.
static constexpr int64_t kChunkRowsOnGPU = 8192;

/// Logits on a GPU have a multiple of so many columns, as the library multiplies matrices whose
/// sizes are multiples of 16 bytes several times as fast.
static constexpr int64_t kRowElements = 64;

/// The columns of the logits of `op`.
template <typename Op> static int64_t columnsOf(Op op, bool gpu) {
  int64_t classes = op.countClasses();
  Type type = nn::getTensorType(op.getHidden()).getElementType();
  bool aligned = classes * nn::getElementBytes(type) % 16 == 0;
  // Smoothing adds up all logits, and indices must be numbers of the targets' type.
  if (!gpu || aligned || !op.getLabelSmoothing().isZero() ||
      nn::getElementBytes(nn::getTensorType(op.getTargets()).getElementType()) <
          4)
    return classes;
  return llvm::alignTo(classes, kRowElements);
}

/// Decomposes a loss head, and says in how many rows at once it is computed.
template <typename Op>
static FailureOr<SmallVector<Value>> decomposeLossHead(OpBuilder &b, Op op,
                                                       bool gpu) {
  int64_t rows = gpu ? op.getChunkRows(kChunkRowsOnGPU) : op.getChunkRows();
  remark::passed(op.getLoc(),
                 remark::RemarkOpts::name("LossHead").category("nn-decompose"))
      << remark::metric("Rows",
                        nn::getTensorType(op.getTargets()).getNumElements())
      << remark::metric("RowsAtOnce", rows)
      << remark::metric("Classes", op.countClasses());
  return op.decomposeInChunks(b, rows, columnsOf(op, gpu));
}

namespace {
struct DecomposePass : trainc::impl::DecomposePassBase<DecomposePass> {
  using DecomposePassBase::DecomposePassBase;

  void runOnOperation() override {
    for (auto list : getOperation().getOps<train::ListOp>()) {
      Block &block = list.getBody().front();
      eraseDead(block);
      if (failed(decomposeBlock(block)))
        return signalPassFailure();
      eraseDead(block);
    }
  }

  LogicalResult decomposeBlock(Block &block) {
    // What a decomposition builds stands before the op and is looked at next.
    for (auto it = block.begin(); it != block.end();) {
      Operation &op = *it;
      Operation *previous = op.getPrevNode();
      auto restart = [&] {
        it = previous ? std::next(previous->getIterator()) : block.begin();
      };
      if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
        if (succeeded(normalizeReduce(reduce, gpu)))
          restart();
        else
          ++it;
        continue;
      }
      if (gpu && (giveDelta(dyn_cast<nn::AttentionGradOp>(op)) ||
                  giveDelta(dyn_cast<nn::PackedAttentionGradOp>(op)))) {
        restart();
        continue;
      }
      auto composite = dyn_cast<nn::DecomposableOpInterface>(op);
      if (!composite || isKernel(op, gpu)) {
        ++it;
        continue;
      }
      // Kernels are named after the ops of the source.
      if (!isa<NameLoc>(op.getLoc()))
        op.setLoc(NameLoc::get(
            StringAttr::get(op.getContext(), op.getName().stripDialect()),
            op.getLoc()));
      OpBuilder b(&op);
      FailureOr<SmallVector<Value>> values = failure();
      auto weightGrad = dyn_cast<nn::Conv2dWeightGradOp>(op);
      if (Value sum = weightGrad ? sumParts(b, weightGrad) : Value())
        values = SmallVector<Value>{sum};
      else if (auto command = toCommand(b, op))
        values = SmallVector<Value>{command.getResult()};
      else if (auto head = dyn_cast<nn::LinearCrossEntropyOp>(op))
        values = decomposeLossHead(b, head, gpu);
      else if (auto grads = dyn_cast<nn::LinearCrossEntropyGradOp>(op))
        values = decomposeLossHead(b, grads, gpu);
      else
        values = composite.decompose(b);
      if (failed(values))
        return failure();
      op.replaceAllUsesWith(*values);
      op.erase();
      restart();
      ++numDecomposed;
    }
    return success();
  }
};
} // namespace
