//===- PoolKernel.cpp - Pooling of planes ---------------------------------===//
//
// A workgroup has some planes, one after the other. Of a plane with its padding in scratch,
// vectors of neighboring outputs go over their windows together. A gradient adds what each
// output gives where that belongs, the last output first: an element of the plane then sums
// up what it gets in the order of its place in their windows, as the definition does.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "Common/GenericKernel.h"
#include "PaddedPlane.h"
#include "trainc/Dialect/NN/Window.h"
#include <limits>

using namespace mlir;
using namespace trainc;

/// Elements that a workgroup has at least, if there are so many; and a plane at most.
static constexpr int64_t kPooledElements = 1 << 13, kPlaneElements = 1 << 20;

namespace {
struct PoolEmitter {
  KernelFunction &function;
  Location loc;
  Type element, compute;
  nn::Window window;
  RankedTensorType input, output; // types of the planes

  PoolEmitter(KernelFunction &function, Operation *op, const nn::Window &window,
              RankedTensorType input, RankedTensorType output)
      : function(function), loc(op->getLoc()), element(input.getElementType()),
        compute(nn::getComputeType(element)), window(window), input(input),
        output(output) {}

  int64_t emitMax(nn::MaxPool2dOp op);
  int64_t emitMaxGrad(nn::MaxPool2dGradOp op);
  int64_t emitMean(nn::AvgPool2dOp op);
  int64_t emitMeanGrad(nn::AvgPool2dGradOp op);

private:
  int64_t height() const { return input.getDimSize(2); }
  int64_t width() const { return input.getDimSize(3); }
  int64_t outHeight() const { return output.getDimSize(2); }
  int64_t outWidth() const { return output.getDimSize(3); }

  PaddedPlane paddedPlane(double padding);
  int64_t inPlanes(function_ref<void(LoopBuilder &)> allocate,
                   LoopBuilder::Body body);
  void inVectors(
      LoopBuilder &l,
      function_ref<void(LoopBuilder &, Value p, Value q, Value mask)> body);
  void inOutputsReversed(
      LoopBuilder &l,
      function_ref<void(LoopBuilder &, Value p, Value q, Value output)> body);
  SmallVector<Value>
  overWindow(LoopBuilder &l, ValueRange initial,
             function_ref<SmallVector<Value>(LoopBuilder &, Value i, Value j,
                                             ValueRange)>
                 body);
  Value resultOf(Value value) {
    auto it = function.outputs.find(value);
    return it == function.outputs.end() ? Value() : it->second.front();
  }
  Value countInside(LoopBuilder &l, int64_t d, Value first, int64_t size);
  Value divisor(LoopBuilder &l, Value p, Value q, bool includePadding,
                bool vector);
  void addAt(LoopBuilder &l, Value sums, Value at, Value value);
  void clear(LoopBuilder &l, Value sums, int64_t elements);
  void copyOut(LoopBuilder &l, Value sums, int64_t first, int64_t pitch,
               Value result, Value plane);
};
} // namespace

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

PaddedPlane PoolEmitter::paddedPlane(double padding) {
  return PaddedPlane(loc, element, {height(), width()}, window.low, window.high,
                     window.stride[1],
                     (outHeight() - 1) * window.stride[0] + window.size[0],
                     padding);
}

/// Runs `body` with each plane of the tile; returns the number of tiles.
int64_t PoolEmitter::inPlanes(function_ref<void(LoopBuilder &)> allocate,
                              LoopBuilder::Body body) {
  int64_t planes = input.getDimSize(0) * input.getDimSize(1);
  int64_t each = llvm::divideCeil(kPooledElements, height() * width());
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  allocate(l);
  Value begin = l.mul(function.tile, each);
  Value end = l.min(l.add(begin, l.index(each)), l.index(planes));
  l.loop(begin, end, 1, body);
  func::ReturnOp::create(b, loc);
  return llvm::divideCeil(planes, each);
}

/// Runs `body` with the row and the first column of vectors of outputs, and which of these
/// there are (null: all).
void PoolEmitter::inVectors(
    LoopBuilder &l,
    function_ref<void(LoopBuilder &, Value p, Value q, Value mask)> body) {
  int64_t whole = outWidth() / kLanes * kLanes;
  l.loop(l.index(0), l.index(outHeight()), 1, [&](LoopBuilder &l, Value p) {
    l.loop(l.index(0), l.index(whole), kLanes,
           [&](LoopBuilder &l, Value q) { body(l, p, q, Value()); });
    if (whole == outWidth())
      return;
    Value mask = l.maskBelow(l.index(outWidth() - whole));
    body(l, p, l.index(whole), mask);
  });
}

/// Runs `body` with each output of a plane, the last one first.
void PoolEmitter::inOutputsReversed(
    LoopBuilder &l,
    function_ref<void(LoopBuilder &, Value p, Value q, Value output)> body) {
  int64_t columns = outWidth();
  l.loop(l.index(0), l.index(outHeight()), 1, [&](LoopBuilder &l, Value y) {
    Value p = arith::SubIOp::create(l.b, loc, l.index(outHeight() - 1), y);
    l.loop(l.index(0), l.index(columns), 1, [&](LoopBuilder &l, Value x) {
      Value q = arith::SubIOp::create(l.b, loc, l.index(columns - 1), x);
      body(l, p, q, l.add(l.mul(p, columns), q));
    });
  });
}

SmallVector<Value>
PoolEmitter::overWindow(LoopBuilder &l, ValueRange initial,
                        function_ref<SmallVector<Value>(LoopBuilder &, Value i,
                                                        Value j, ValueRange)>
                            body) {
  return l.loop(l.index(0), l.index(window.size[0]), 1, initial,
                [&](LoopBuilder &l, Value i, ValueRange values) {
                  return l.loop(
                      l.index(0), l.index(window.size[1]), 1, values,
                      [&](LoopBuilder &l, Value j, ValueRange values) {
                        return body(l, i, j, values);
                      });
                });
}

//===----------------------------------------------------------------------===//
// Maximum
//===----------------------------------------------------------------------===//

/// The numbers first, first + stride, ... as a vector of i32.
static Value countBy(LoopBuilder &l, Value first, int64_t stride) {
  auto type = VectorType::get({kLanes}, l.b.getI32Type());
  SmallVector<int32_t> steps;
  for (int64_t i = 0; i < kLanes; ++i)
    steps.push_back(static_cast<int32_t>(i * stride));
  Value ramp = arith::ConstantOp::create(
      l.b, l.loc, DenseIntElementsAttr::get(type, steps));
  Value base = arith::IndexCastOp::create(l.b, l.loc, l.b.getI32Type(), first);
  return arith::AddIOp::create(l.b, l.loc, l.splat(base), ramp);
}

int64_t PoolEmitter::emitMax(nn::MaxPool2dOp op) {
  Value from = function.inputs.lookup(op.getInput());
  Value result = resultOf(op.getResult()), argmax = resultOf(op.getArgmax());
  double lowest = -std::numeric_limits<double>::infinity();
  PaddedPlane padded = paddedPlane(lowest);
  auto values = VectorType::get({kLanes}, compute);
  int64_t outputs = outHeight() * outWidth();
  auto subtract = [&](LoopBuilder &l, Value x, int64_t y) -> Value {
    return y ? arith::SubIOp::create(l.b, loc, x, l.index(y)).getResult() : x;
  };
  auto body = [&](LoopBuilder &l, Value plane) {
    padded.fill(l, from, plane, l.index(0));
    inVectors(l, [&](LoopBuilder &l, Value p, Value q, Value mask) {
      // Where the window begins, in the plane: it may be before that.
      Value top = subtract(l, l.mul(p, window.stride[0]), window.low[0]);
      Value left =
          countBy(l, subtract(l, l.mul(q, window.stride[1]), window.low[1]),
                  window.stride[1]);
      auto placeOf = [&](LoopBuilder &l, Value row, Value columns) -> Value {
        Value base = arith::IndexCastOp::create(l.b, loc, l.b.getI32Type(),
                                                l.mul(row, width()));
        return arith::AddIOp::create(l.b, loc, l.splat(base), columns);
      };
      // Nothing is greater than -infinity where the first element is that.
      Value none = nn::splatConstant(l.b, loc, left.getType(), 0.0);
      Value first =
          placeOf(l, arith::MaxSIOp::create(l.b, loc, top, l.index(0)),
                  arith::MaxSIOp::create(l.b, loc, left, none));
      Value initial = nn::splatConstant(l.b, loc, values, lowest);
      SmallVector<Value> best = overWindow(
          l, {initial, first},
          [&](LoopBuilder &l, Value i, Value j,
              ValueRange best) -> SmallVector<Value> {
            Value row = l.add(l.mul(p, window.stride[0]), i);
            Value at = l.add(l.mul(row, padded.rowElements()),
                             l.add(padded.placeOf(l, j), q));
            Value next = l.loadVector(padded.getMemref(), at, compute, Value());
            using P = arith::CmpFPredicate;
            Value isNumber =
                arith::CmpFOp::create(l.b, loc, P::ORD, best[0], best[0]);
            Value isGreater =
                arith::CmpFOp::create(l.b, loc, P::UGT, next, best[0]);
            Value wins = arith::AndIOp::create(l.b, loc, isNumber, isGreater);
            Value shift =
                arith::IndexCastOp::create(l.b, loc, l.b.getI32Type(), j);
            Value place =
                placeOf(l, l.add(top, i),
                        arith::AddIOp::create(l.b, loc, left, l.splat(shift)));
            return {arith::SelectOp::create(l.b, loc, wins, next, best[0]),
                    arith::SelectOp::create(l.b, loc, wins, place, best[1])};
          });
      Value to = l.add(l.mul(plane, outputs), l.add(l.mul(p, outWidth()), q));
      if (result)
        l.storeVector(best[0], result, to, element, mask);
      if (argmax)
        l.storeVector(best[1], argmax, to, l.b.getI32Type(), mask);
    });
  };
  return inPlanes([&](LoopBuilder &l) { padded.allocate(l, function); }, body);
}

void PoolEmitter::clear(LoopBuilder &l, Value sums, int64_t elements) {
  Value zeros =
      nn::splatConstant(l.b, loc, VectorType::get({kLanes}, compute), 0.0);
  l.loop(l.index(0), l.index(llvm::alignTo(elements, kLanes)), kLanes,
         [&](LoopBuilder &l, Value at) {
           l.storeVector(zeros, sums, at, compute, Value());
         });
}

void PoolEmitter::addAt(LoopBuilder &l, Value sums, Value at, Value value) {
  Value sum = l.loadScalar(sums, at, compute);
  l.storeScalar(arith::AddFOp::create(l.b, loc, sum, value), sums, at, compute);
}

/// Copies a plane of sums, whose rows are `pitch` apart from `first` on.
void PoolEmitter::copyOut(LoopBuilder &l, Value sums, int64_t first,
                          int64_t pitch, Value result, Value plane) {
  int64_t columns = width(), whole = columns / kLanes * kLanes;
  Value base = l.mul(plane, height() * columns);
  l.loop(l.index(0), l.index(height()), 1, [&](LoopBuilder &l, Value y) {
    Value from = l.add(l.mul(y, pitch), l.index(first));
    Value to = l.add(base, l.mul(y, columns));
    auto copy = [&](LoopBuilder &l, Value x, Value mask) {
      Value sum = l.loadVector(sums, l.add(from, x), compute, Value());
      l.storeVector(sum, result, l.add(to, x), element, mask);
    };
    l.loop(l.index(0), l.index(whole), kLanes,
           [&](LoopBuilder &l, Value x) { copy(l, x, Value()); });
    if (whole != columns)
      copy(l, l.index(whole), l.maskBelow(l.index(columns - whole)));
  });
}

int64_t PoolEmitter::emitMaxGrad(nn::MaxPool2dGradOp op) {
  Value grad = function.inputs.lookup(op.getGrad());
  Value argmax = function.inputs.lookup(op.getArgmax());
  Value result = resultOf(op.getResult()), sums;
  int64_t elements = height() * width(), outputs = outHeight() * outWidth();
  Type index = nn::getTensorType(op.getArgmax()).getElementType();
  auto body = [&](LoopBuilder &l, Value plane) {
    clear(l, sums, elements);
    Value first = l.mul(plane, outputs);
    inOutputsReversed(l, [&](LoopBuilder &l, Value p, Value q, Value output) {
      Value from = l.add(first, output);
      Value at = l.loadScalar(argmax, from, index);
      at = arith::IndexCastOp::create(l.b, loc, l.b.getIndexType(), at);
      // An index before the plane, or before the window, is a large number here.
      auto isBelow = [&](Value x, int64_t size) -> Value {
        return arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::ult, x,
                                     l.index(size));
      };
      auto isInWindow = [&](int64_t d, Value place, Value output) -> Value {
        Value begin = l.mul(output, window.stride[d]);
        place = l.add(place, l.index(window.low[d]));
        return isBelow(arith::SubIOp::create(l.b, loc, place, begin),
                       window.size[d]);
      };
      Value inside = arith::AndIOp::create(
          l.b, loc, isBelow(at, elements),
          arith::AndIOp::create(l.b, loc, isInWindow(0, l.div(at, width()), p),
                                isInWindow(1, l.mod(at, width()), q)));
      auto branch = scf::IfOp::create(l.b, loc, inside, /*withElse=*/false);
      OpBuilder thenBuilder = branch.getThenBodyBuilder();
      LoopBuilder then{thenBuilder, loc};
      addAt(then, sums, at, then.loadScalar(grad, from, element));
    });
    copyOut(l, sums, 0, width(), result, plane);
  };
  return inPlanes(
      [&](LoopBuilder &l) {
        sums = function.allocateScratch(l, compute, elements + 2 * kLanes);
      },
      body);
}

//===----------------------------------------------------------------------===//
// Mean
//===----------------------------------------------------------------------===//

/// How many elements of windows that begin at the padded places `first` are no padding, along
/// dimension d.
Value PoolEmitter::countInside(LoopBuilder &l, int64_t d, Value first,
                               int64_t size) {
  auto constant = [&](int64_t value) -> Value {
    return nn::splatConstant(l.b, loc, first.getType(), double(value));
  };
  Value begin = arith::SubIOp::create(l.b, loc, first, constant(window.low[d]));
  Value end = arith::AddIOp::create(l.b, loc, begin, constant(window.size[d]));
  begin = arith::MaxSIOp::create(l.b, loc, begin, constant(0));
  end = arith::MinSIOp::create(l.b, loc, end, constant(size));
  return arith::SubIOp::create(l.b, loc, end, begin);
}

/// What sums of the windows of output (p, q), or of a vector from there on, are divided by.
Value PoolEmitter::divisor(LoopBuilder &l, Value p, Value q,
                           bool includePadding, bool vector) {
  Type type = vector ? Type(VectorType::get({kLanes}, compute)) : compute;
  if (includePadding || (!window.isPadded(0) && !window.isPadded(1)))
    return nn::splatConstant(l.b, loc, type,
                             double(window.size[0]) * double(window.size[1]));
  auto toI32 = [&](Value value) -> Value {
    return arith::IndexCastOp::create(l.b, loc, l.b.getI32Type(), value);
  };
  Value rows = countInside(l, 0, toI32(l.mul(p, window.stride[0])), height());
  Value left = l.mul(q, window.stride[1]);
  Value columns = countInside(
      l, 1, vector ? countBy(l, left, window.stride[1]) : toI32(left), width());
  if (vector)
    rows = l.splat(rows);
  Value count = arith::MulIOp::create(l.b, loc, rows, columns);
  return arith::SIToFPOp::create(l.b, loc, type, count);
}

int64_t PoolEmitter::emitMean(nn::AvgPool2dOp op) {
  Value from = function.inputs.lookup(op.getInput());
  Value result = resultOf(op.getResult());
  PaddedPlane padded = paddedPlane(0);
  auto body = [&](LoopBuilder &l, Value plane) {
    padded.fill(l, from, plane, l.index(0));
    inVectors(l, [&](LoopBuilder &l, Value p, Value q, Value mask) {
      Value initial =
          nn::splatConstant(l.b, loc, VectorType::get({kLanes}, compute), 0.0);
      Value sum = overWindow(
          l, initial,
          [&](LoopBuilder &l, Value i, Value j,
              ValueRange sums) -> SmallVector<Value> {
            Value row = l.add(l.mul(p, window.stride[0]), i);
            Value at = l.add(l.mul(row, padded.rowElements()),
                             l.add(padded.placeOf(l, j), q));
            Value next = l.loadVector(padded.getMemref(), at, compute, Value());
            return {arith::AddFOp::create(l.b, loc, sums[0], next)};
          })[0];
      Value mean = arith::DivFOp::create(
          l.b, loc, sum,
          divisor(l, p, q, op.getCountIncludePad(), /*vector=*/true));
      Value to = l.add(l.mul(plane, outHeight() * outWidth()),
                       l.add(l.mul(p, outWidth()), q));
      l.storeVector(mean, result, to, element, mask);
    });
  };
  return inPlanes([&](LoopBuilder &l) { padded.allocate(l, function); }, body);
}

int64_t PoolEmitter::emitMeanGrad(nn::AvgPool2dGradOp op) {
  Value grad = function.inputs.lookup(op.getGrad());
  Value result = resultOf(op.getResult()), sums;
  // The plane with its padding.
  int64_t pitch = width() + window.low[1] + window.high[1];
  int64_t elements = (height() + window.low[0] + window.high[0]) * pitch;
  auto body = [&](LoopBuilder &l, Value plane) {
    clear(l, sums, elements);
    Value first = l.mul(plane, outHeight() * outWidth());
    inOutputsReversed(l, [&](LoopBuilder &l, Value p, Value q, Value output) {
      Value value = arith::DivFOp::create(
          l.b, loc, l.loadScalar(grad, l.add(first, output), element),
          divisor(l, p, q, op.getCountIncludePad(), /*vector=*/false));
      Value corner =
          l.add(l.mul(p, window.stride[0] * pitch), l.mul(q, window.stride[1]));
      overWindow(l, {},
                 [&](LoopBuilder &l, Value i, Value j,
                     ValueRange) -> SmallVector<Value> {
                   addAt(l, sums, l.add(corner, l.add(l.mul(i, pitch), j)),
                         value);
                   return {};
                 });
    });
    copyOut(l, sums, window.low[0] * pitch + window.low[1], pitch, result,
            plane);
  };
  return inPlanes(
      [&](LoopBuilder &l) {
        sums = function.allocateScratch(l, compute, elements + 2 * kLanes);
      },
      body);
}

FailureOr<int64_t> trainc::emitPool(KernelFunction &function, Operation *op) {
  auto emit = [&](auto op, Value input, Value output,
                  auto emitter) -> FailureOr<int64_t> {
    RankedTensorType planes = nn::getTensorType(input);
    auto window =
        nn::makeWindow(op.getLoc(), "", op.getWindow(), op.getStrides(),
                       op.getWindow(), op.getPadding(), std::nullopt);
    if (failed(window))
      return failure();
    int64_t elements = planes.getDimSize(2) + window->low[0] + window->high[0];
    elements *= planes.getDimSize(3) + window->low[1] + window->high[1];
    if (elements > kPlaneElements)
      return emitGeneric(function);
    PoolEmitter pool(function, op, *window, planes, nn::getTensorType(output));
    return (pool.*emitter)(op);
  };
  if (auto max = dyn_cast<nn::MaxPool2dOp>(op))
    return emit(max, max.getInput(), max.getResult(), &PoolEmitter::emitMax);
  if (auto grad = dyn_cast<nn::MaxPool2dGradOp>(op))
    return emit(grad, grad.getResult(), grad.getGrad(),
                &PoolEmitter::emitMaxGrad);
  if (auto mean = dyn_cast<nn::AvgPool2dOp>(op))
    return emit(mean, mean.getInput(), mean.getResult(),
                &PoolEmitter::emitMean);
  auto grad = cast<nn::AvgPool2dGradOp>(op);
  return emit(grad, grad.getResult(), grad.getGrad(),
              &PoolEmitter::emitMeanGrad);
}
