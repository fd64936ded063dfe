//===- Convolution.cpp - Convolutions as kernels of their own -------------===//
#include "trainc/Analysis/Convolution.h"
#include "trainc/Dialect/NN/Window.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

/// Elements of the columns of a block, with as many of the grad: about a
/// quarter of a second-level cache in f32.
static constexpr int64_t kBlockElements = 1 << 16;
/// Elements of a weight that stays in the second-level cache beside them.
static constexpr int64_t kWeightElements = 1 << 13;
/// Outputs of a block that are worth the set-up of one.
static constexpr int64_t kLeastOutputs = 16;

/// The convolution of `input` with `window`; its fields but blockRows.
static std::optional<Convolution> fill(RankedTensorType input, int64_t outputs,
                                       const Window &window) {
  auto sizes = outputSizes(std::nullopt, "", window, input);
  if (failed(sizes))
    return std::nullopt;
  Convolution c;
  c.batch = input.getDimSize(0);
  c.channels = input.getDimSize(1);
  c.outputs = outputs;
  c.input = {input.getDimSize(2), input.getDimSize(3)};
  c.window = window.size;
  c.output = *sizes;
  c.stride = window.stride;
  c.low = window.low;
  c.high = window.high;
  c.dilation = window.dilation;
  return c;
}

/// Cuts `convolution` into blocks of rows; nullopt if it is not to be a kernel.
static std::optional<Convolution> cut(std::optional<Convolution> convolution,
                                      Type element) {
  if (!convolution || !(element.isF32() || element.isF64()))
    return std::nullopt;
  Convolution &c = *convolution;
  int64_t perOutput = c.depth() + c.outputs;
  if (c.depth() * c.outputs > kWeightElements || perOutput > kBlockElements)
    return std::nullopt;
  int64_t most = kBlockElements / perOutput / c.output[1];
  if (most == 0)
    return std::nullopt;
  int64_t blocks = llvm::divideCeil(c.output[0], most);
  c.blockRows = llvm::divideCeil(c.output[0], blocks);
  if (c.blockRows * c.output[1] < kLeastOutputs)
    return std::nullopt;
  // A padded channel of a block has its place beside the columns.
  int64_t rows =
      (c.blockRows - 1) * c.stride[0] + (c.window[0] - 1) * c.dilation[0] + 1;
  int64_t width = c.input[1] + c.low[1] + c.high[1];
  if (rows > kBlockElements || width > kBlockElements / rows)
    return std::nullopt;
  return convolution;
}

template <typename Op>
static FailureOr<Window> windowOf(Op op, ArrayRef<int64_t> size) {
  static constexpr int64_t ones[] = {1, 1};
  return makeWindow(std::nullopt, "", size, op.getStrides(), ones,
                    op.getPadding(), op.getDilations());
}

static std::optional<Convolution> of(Conv2dOp op) {
  RankedTensorType weight = getTensorType(op.getWeight());
  auto window = windowOf(op, weight.getShape().take_back(2));
  if (failed(window) || op.getBias() || op.getGroups() != 1)
    return std::nullopt;
  return fill(getTensorType(op.getInput()), weight.getDimSize(0), *window);
}

static std::optional<Convolution> of(Conv2dInputGradOp op) {
  RankedTensorType weight = getTensorType(op.getWeight());
  auto window = windowOf(op, weight.getShape().take_back(2));
  if (failed(window) || op.getGroups() != 1)
    return std::nullopt;
  for (int64_t d = 0; d < 2; ++d) {
    int64_t reach = window->dilation[d] * (window->size[d] - 1);
    if (window->stride[d] != 1 || window->low[d] > reach ||
        window->high[d] > reach)
      return std::nullopt;
    window->low[d] = reach - window->low[d];
    window->high[d] = reach - window->high[d];
  }
  return fill(getTensorType(op.getGrad()), weight.getDimSize(1), *window);
}

static std::optional<Convolution> of(Conv2dWeightGradOp op) {
  RankedTensorType weight = getTensorType(op.getResult());
  auto window = windowOf(op, weight.getShape().take_back(2));
  if (failed(window) || op.getGroups() != 1)
    return std::nullopt;
  return fill(getTensorType(op.getInput()), weight.getDimSize(0), *window);
}

static std::optional<Convolution> of(Conv2dWeightPartsOp op) {
  auto window = windowOf(op, op.getWindow());
  if (failed(window))
    return std::nullopt;
  return fill(getTensorType(op.getInput()),
              getTensorType(op.getGrad()).getDimSize(1), *window);
}

std::optional<Convolution> trainc::getConvolution(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<Convolution>>(op)
      .Case<Conv2dOp, Conv2dInputGradOp, Conv2dWeightGradOp,
            Conv2dWeightPartsOp>([](auto op) {
        return cut(of(op), getTensorType(op.getResult()).getElementType());
      })
      .Default([](Operation *) { return std::nullopt; });
}
