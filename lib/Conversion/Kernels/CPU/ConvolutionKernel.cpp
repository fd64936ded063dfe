//===- ConvolutionKernel.cpp - Convolutions by blocks of rows -------------===//
//
// A tile is a block of rows of one example's output, or, for the gradient of
// the weight, a run of examples. The columns of a block (see nn.im2col) are
// copied to scratch, [depth, lanes] with the outputs of the block in the
// lanes, by way of one padded channel at a time. Products take a few rows of
// one side as scalars and a vector of the other; their sums stay in registers.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "PaddedPlane.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Analysis/Convolution.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

namespace {

/// The weight [outputs, channels, taps] as it stands in memory: strides of the
/// first two, and whether taps stand in reverse.
struct Weight {
  Value memref;
  int64_t outputStride, channelStride;
  bool reversed;
};

struct ConvolutionEmitter {
  ConvolutionEmitter(KernelFunction &function, const Convolution &shape,
                     Location loc, Type element)
      : function(function), c(shape), loc(loc), element(element),
        lanes(llvm::alignTo(c.blockRows * c.output[1], kLanes)),
        blocks(llvm::divideCeil(c.output[0], c.blockRows)),
        plane(loc, element, c.input, c.low, c.high, c.stride[1],
              (c.blockRows - 1) * c.stride[0] +
                  (c.window[0] - 1) * c.dilation[0] + 1) {}

  int64_t emitForward(Value input, const Weight &weight, Value result);
  int64_t emitWeightParts(Value input, Value grad, Value result,
                          int64_t examples);

private:
  KernelFunction &function;
  const Convolution c;
  Location loc;
  Type element;
  /// Outputs in a row of columns.
  int64_t lanes;
  /// Blocks of an example.
  int64_t blocks;
  /// [depth, lanes], and one vector more: rows of it are copied whole vectors
  /// at a time, in ascending order.
  Value columns;
  /// The rows of one channel that a block reads.
  PaddedPlane plane;

  void inTiles(LoopBuilder &l, int64_t count, int64_t most,
               llvm::function_ref<void(LoopBuilder &, Value, int64_t)> body);
  VectorType vectorOf(int64_t width) {
    return VectorType::get({width}, element);
  }
  int64_t sumWidth(int64_t most);
  int64_t sumRows(int64_t width);
  Value load(LoopBuilder &l, Value memref, Value at, int64_t width, Value mask);

  void allocate(LoopBuilder &l);
  void fillColumns(LoopBuilder &l, Value input, Value example, Value block);
  Value outputsOf(LoopBuilder &l, Value block);
  void fillTransposed(LoopBuilder &l, Value grad, Value example, Value block,
                      Value count, Value transposed, int64_t rowSize);
  void addProducts(LoopBuilder &l, Value transposed, int64_t rowSize,
                   Value output, int64_t width, Value mask, Value count,
                   Value result, Value base);
};
} // namespace

//===----------------------------------------------------------------------===//
// Loops and vectors
//===----------------------------------------------------------------------===//

/// Runs `body` with the first of at most `most` of `count` rows and how many
/// they are: about equally many each time.
void ConvolutionEmitter::inTiles(
    LoopBuilder &l, int64_t count, int64_t most,
    llvm::function_ref<void(LoopBuilder &, Value, int64_t)> body) {
  int64_t each = llvm::divideCeil(count, llvm::divideCeil(count, most));
  int64_t rest = count % each;
  l.loop(l.index(0), l.index(count - rest), each,
         [&](LoopBuilder &l, Value at) { body(l, at, each); });
  if (rest)
    body(l, l.index(count - rest), rest);
}

/// Rows of sums of `width` elements that three quarters of the registers hold.
int64_t ConvolutionEmitter::sumRows(int64_t width) {
  int64_t bytes = width * nn::getElementBytes(element);
  return std::max<int64_t>(function.registerBytes * 3 / 4 / bytes, 1);
}

/// The width of sums, at most `most`: each vector that is loaded is multiplied into enough
/// rows.
int64_t ConvolutionEmitter::sumWidth(int64_t most) {
  constexpr int64_t enough = 6, least = 8;
  while (most > least && sumRows(most) < enough)
    most /= 2;
  return most;
}

Value ConvolutionEmitter::load(LoopBuilder &l, Value memref, Value at,
                               int64_t width, Value mask) {
  VectorType type = vectorOf(width);
  if (!mask)
    return vector::LoadOp::create(l.b, loc, type, memref, ValueRange(at));
  Value zero = nn::splatConstant(l.b, loc, type, 0.0);
  return vector::MaskedLoadOp::create(l.b, loc, type, memref, ValueRange(at),
                                      mask, zero);
}

static void store(LoopBuilder &l, Value vector, Value memref, Value at,
                  Value mask) {
  if (mask)
    vector::MaskedStoreOp::create(l.b, l.loc, memref, ValueRange(at), mask,
                                  vector);
  else
    vector::StoreOp::create(l.b, l.loc, vector, memref, ValueRange(at));
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

void ConvolutionEmitter::allocate(LoopBuilder &l) {
  columns = function.allocateScratch(l, element, c.depth() * lanes + kLanes);
  plane.allocate(l, function);
}

void ConvolutionEmitter::fillColumns(LoopBuilder &l, Value input, Value example,
                                     Value block) {
  Value zero = l.index(0), firstRow = l.mul(block, c.blockRows * c.stride[0]);
  int64_t width = std::min<int64_t>(kLanes, llvm::PowerOf2Ceil(c.output[1]));
  l.loop(zero, l.index(c.channels), 1, [&](LoopBuilder &l, Value channel) {
    plane.fill(l, input, l.add(l.mul(example, c.channels), channel), firstRow);
    l.loop(zero, l.index(c.window[0]), 1, [&](LoopBuilder &l, Value i) {
      l.loop(zero, l.index(c.window[1]), 1, [&](LoopBuilder &l, Value j) {
        Value row = l.add(l.mul(channel, c.window[0]), i);
        row = l.add(l.mul(row, c.window[1]), j);
        Value shift = plane.placeOf(l, l.mul(j, c.dilation[1]));
        Value from =
            l.add(l.mul(i, c.dilation[0] * plane.rowElements()), shift);
        Value to = l.mul(row, lanes);
        l.loop(zero, l.index(c.blockRows), 1, [&](LoopBuilder &l, Value p) {
          Value source =
              l.add(from, l.mul(p, c.stride[0] * plane.rowElements()));
          Value target = l.add(to, l.mul(p, c.output[1]));
          for (int64_t q = 0; q < c.output[1]; q += width)
            store(l,
                  load(l, plane.getMemref(), l.add(source, l.index(q)), width,
                       Value()),
                  columns, l.add(target, l.index(q)), Value());
        });
      });
    });
  });
}

/// The number of outputs in `block`.
Value ConvolutionEmitter::outputsOf(LoopBuilder &l, Value block) {
  if (c.output[0] % c.blockRows == 0)
    return l.index(c.blockRows * c.output[1]);
  Value rest = arith::SubIOp::create(l.b, loc, l.index(c.output[0]),
                                     l.mul(block, c.blockRows));
  return l.mul(l.min(rest, l.index(c.blockRows)), c.output[1]);
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

int64_t ConvolutionEmitter::emitForward(Value input, const Weight &weight,
                                        Value result) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  Value example = l.div(function.tile, blocks);
  Value block = l.mod(function.tile, blocks);
  allocate(l);
  fillColumns(l, input, example, block);
  Value count = outputsOf(l, block);
  int64_t plane = c.output[0] * c.output[1];
  bool whole =
      c.blockRows * c.output[1] == lanes && c.output[0] % c.blockRows == 0;
  Value base = l.add(l.mul(example, c.outputs * plane),
                     l.mul(block, c.blockRows * c.output[1]));
  int64_t width = sumWidth(kLanes);
  l.loop(l.index(0), l.index(lanes), width, [&](LoopBuilder &l, Value lane) {
    Value mask;
    if (!whole)
      mask = l.maskBelow(arith::SubIOp::create(l.b, loc, count, lane), width);
    auto tile = [&](LoopBuilder &l, Value output, int64_t rows) {
      SmallVector<Value> sums(
          rows, nn::splatConstant(l.b, loc, vectorOf(width), 0.0));
      Value first = l.mul(output, weight.outputStride);
      auto addTap = [&](LoopBuilder &l, Value channel, Value tap,
                        ValueRange sums) {
        Value row = l.add(l.mul(channel, c.taps()), tap);
        Value right =
            load(l, columns, l.add(l.mul(row, lanes), lane), width, Value());
        if (weight.reversed)
          tap = arith::SubIOp::create(l.b, loc, l.index(c.taps() - 1), tap);
        Value at =
            l.add(l.add(first, l.mul(channel, weight.channelStride)), tap);
        SmallVector<Value> next;
        for (int64_t i = 0; i < rows; ++i) {
          Value left = l.loadScalar(weight.memref,
                                    l.add(at, l.index(i * weight.outputStride)),
                                    element);
          next.push_back(math::FmaOp::create(l.b, loc, l.splat(left, width),
                                             right, sums[i]));
        }
        return next;
      };
      sums = l.loop(l.index(0), l.index(c.channels), 1, sums,
                    [&](LoopBuilder &l, Value channel, ValueRange sums) {
                      return l.loop(
                          l.index(0), l.index(c.taps()), 1, sums,
                          [&](LoopBuilder &l, Value tap, ValueRange sums) {
                            return addTap(l, channel, tap, sums);
                          });
                    });
      Value at = l.add(l.add(base, lane), l.mul(output, plane));
      for (int64_t i = 0; i < rows; ++i)
        store(l, sums[i], result, l.add(at, l.index(i * plane)), mask);
    };
    inTiles(l, c.outputs, sumRows(width), tile);
  });
  func::ReturnOp::create(b, loc);
  return c.batch * blocks;
}

//===----------------------------------------------------------------------===//
// Gradient of the weight
//===----------------------------------------------------------------------===//

/// transposed[output, o] = grad[example, o, output of block], 0 past the end.
void ConvolutionEmitter::fillTransposed(LoopBuilder &l, Value grad,
                                        Value example, Value block, Value count,
                                        Value transposed, int64_t rowSize) {
  int64_t plane = c.output[0] * c.output[1];
  Value base = l.add(l.mul(example, c.outputs * plane),
                     l.mul(block, c.blockRows * c.output[1]));
  bool whole =
      c.blockRows * c.output[1] == lanes && c.output[0] % c.blockRows == 0;
  const int64_t side = function.transposedSize(element);
  auto tile = [&](LoopBuilder &l, Value first, int64_t rows) {
    l.loop(l.index(0), l.index(lanes), side, [&](LoopBuilder &l, Value lane) {
      Value mask;
      if (!whole)
        mask = l.maskBelow(arith::SubIOp::create(l.b, loc, count, lane), side);
      Value at = l.add(l.add(base, lane), l.mul(first, plane));
      Value zero = nn::splatConstant(l.b, loc, vectorOf(side), 0.0);
      SmallVector<Value> vectors(side, zero);
      for (int64_t i = 0; i < rows; ++i)
        vectors[i] = load(l, grad, l.add(at, l.index(i * plane)), side, mask);
      transpose(l, vectors);
      Value to = l.add(l.mul(lane, rowSize), first);
      for (int64_t i = 0; i < side; ++i)
        store(l, vectors[i], transposed, l.add(to, l.index(i * rowSize)),
              Value());
    });
  };
  int64_t rest = c.outputs % side;
  l.loop(l.index(0), l.index(c.outputs - rest), side,
         [&](LoopBuilder &l, Value first) { tile(l, first, side); });
  if (rest)
    tile(l, l.index(c.outputs - rest), rest);
}

/// result[row, output ...] += the sum over outputs of a block of columns[row]
/// transposed[., output ...], for `width` outputs, those in `mask`.
void ConvolutionEmitter::addProducts(LoopBuilder &l, Value transposed,
                                     int64_t rowSize, Value output,
                                     int64_t width, Value mask, Value count,
                                     Value result, Value base) {
  auto tile = [&](LoopBuilder &l, Value row, int64_t rows) {
    Value at = l.add(l.add(base, l.mul(row, c.outputs)), output);
    SmallVector<Value> sums;
    for (int64_t i = 0; i < rows; ++i)
      sums.push_back(
          load(l, result, l.add(at, l.index(i * c.outputs)), width, mask));
    Value first = l.mul(row, lanes);
    sums = l.loop(
        l.index(0), count, 1, sums,
        [&](LoopBuilder &l, Value lane, ValueRange sums) {
          Value right = load(l, transposed, l.add(l.mul(lane, rowSize), output),
                             width, Value());
          SmallVector<Value> next;
          for (int64_t i = 0; i < rows; ++i) {
            Value left = l.loadScalar(
                columns, l.add(l.add(first, lane), l.index(i * lanes)),
                element);
            next.push_back(math::FmaOp::create(l.b, loc, l.splat(left, width),
                                               right, sums[i]));
          }
          return next;
        });
    for (int64_t i = 0; i < rows; ++i)
      store(l, sums[i], result, l.add(at, l.index(i * c.outputs)), mask);
  };
  inTiles(l, c.depth(), sumRows(width), tile);
}

int64_t ConvolutionEmitter::emitWeightParts(Value input, Value grad,
                                            Value result, int64_t examples) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  int64_t width = sumWidth(c.outputs <= kLanes / 2 ? kLanes / 2 : kLanes);
  int64_t rowSize = llvm::alignTo(c.outputs, width);
  allocate(l);
  Value transposed = function.allocateScratch(l, element, lanes * rowSize);
  Value zero = l.index(0), part = function.tile;
  Value base = l.mul(part, c.depth() * c.outputs);
  l.loop(zero, l.index(c.depth() * c.outputs), 1, [&](LoopBuilder &l, Value i) {
    l.storeScalar(nn::splatConstant(l.b, loc, element, 0.0), result,
                  l.add(base, i), element);
  });
  Value begin = l.mul(part, examples);
  Value end = l.min(l.add(begin, l.index(examples)), l.index(c.batch));
  l.loop(begin, end, 1, [&](LoopBuilder &l, Value example) {
    l.loop(zero, l.index(blocks), 1, [&](LoopBuilder &l, Value block) {
      Value count = outputsOf(l, block);
      fillColumns(l, input, example, block);
      fillTransposed(l, grad, example, block, count, transposed, rowSize);
      int64_t rest = c.outputs % width;
      l.loop(zero, l.index(c.outputs - rest), width,
             [&](LoopBuilder &l, Value output) {
               addProducts(l, transposed, rowSize, output, width, Value(),
                           count, result, base);
             });
      if (rest)
        addProducts(l, transposed, rowSize, l.index(c.outputs - rest), width,
                    l.maskBelow(l.index(rest), width), count, result, base);
    });
  });
  func::ReturnOp::create(b, loc);
  return llvm::divideCeil(c.batch, examples);
}

FailureOr<int64_t> trainc::emitConvolution(KernelFunction &function,
                                           Operation *op,
                                           const Convolution &shape) {
  auto in = [&](Value value) { return function.inputs.lookup(value); };
  Value out = function.outputs.lookup(op->getResult(0)).front();
  Type element = nn::getTensorType(op->getResult(0)).getElementType();
  ConvolutionEmitter emitter(function, shape, op->getLoc(), element);
  int64_t taps = shape.taps();
  if (auto conv = dyn_cast<nn::Conv2dOp>(op))
    return emitter.emitForward(
        in(conv.getInput()),
        {in(conv.getWeight()), shape.channels * taps, taps, /*reversed=*/false},
        out);
  if (auto grad = dyn_cast<nn::Conv2dInputGradOp>(op))
    return emitter.emitForward(
        in(grad.getGrad()),
        {in(grad.getWeight()), taps, shape.outputs * taps, /*reversed=*/true},
        out);
  auto parts = cast<nn::Conv2dWeightPartsOp>(op);
  return emitter.emitWeightParts(in(parts.getInput()), in(parts.getGrad()), out,
                                 parts.getExamples());
}
