//===- ConvolutionKernel.cpp - Convolutions by tiles, on a GPU ------------===//
#include "Common/SegmentEmitter.h"
#include "ConvolutionBlock.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::convolution;

/// Rows of a block, and most columns.
static constexpr int64_t kRows = 64, kColumns = 64;
/// Most elements, and bytes, that a row has of a tile.
static constexpr int64_t kRowElements = 32, kRowBytes = 128;
/// Coordinates are below it; what is as far before a plane is in none.
static constexpr int64_t kFar = 1 << 30;

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

TileSizes ConvolutionEmitter::choose(Type element, int64_t columns) {
  TileSizes sizes(element);
  sizes.rows = kRows;
  sizes.tile =
      std::clamp<int64_t>(llvm::PowerOf2Ceil(columns), kWarpRows, kColumns);
  sizes.width = std::min(kRowElements, kRowBytes / sizes.storedBytes);
  return sizes;
}

ConvolutionEmitter::ConvolutionEmitter(KernelFunction &function,
                                       ThreadBuilder &t, const Shape &c,
                                       Type element, int64_t columns)
    : function(function), loc(t.loc), c(c), element(element),
      sizes(choose(element, columns)),
      products(t, sizes, element, /*accumulates=*/false),
      lanes(16 / sizes.storedBytes), ofRow(sizes.width / lanes) {
  own = t.shared(element, sizes.rows * sizes.stride());
  tile = t.shared(element, sizes.tile * sizes.stride());
}

/// A vector of 32-bit numbers beside the code.
static Value makeTable(LoopBuilder &l, ArrayRef<int64_t> numbers) {
  SmallVector<int32_t> narrow(numbers.begin(), numbers.end());
  auto type = RankedTensorType::get({static_cast<int64_t>(narrow.size())},
                                    l.b.getI32Type());
  return getGlobal(l, DenseElementsAttr::get(type, ArrayRef(narrow)));
}

/// Tables of `count` elements; those behind the last one are in no plane.
Tables ConvolutionEmitter::makeTables(LoopBuilder &l, const Windows &windows,
                                      int64_t count) {
  SmallVector<int64_t> rows(count, -kFar), columns(count, 0), offsets(count, 0);
  for (int64_t d = 0; d < windows.channels * c.taps(); ++d) {
    int64_t tap = d % c.taps();
    rows[d] = tap / c.window[1] * windows.tapStep[0] + windows.shift[0];
    columns[d] = tap % c.window[1] * windows.tapStep[1] + windows.shift[1];
    offsets[d] = d / c.taps() * windows.plane();
    if (windows.divisor == Pair{1, 1})
      offsets[d] += rows[d] * windows.size[1] + columns[d];
  }
  return {makeTable(l, rows), makeTable(l, columns), table(l, offsets)};
}

WindowElement ConvolutionEmitter::lookUpElement(LoopBuilder &l,
                                                const Tables &tables,
                                                Value at) {
  auto load = [&](Value table) {
    return memref::LoadOp::create(l.b, loc, table, ValueRange(at));
  };
  return {load(tables.rows), load(tables.columns),
          lookUp(l, tables.offsets, at)};
}

Pixel ConvolutionEmitter::locate(LoopBuilder &l, const Windows &windows,
                                 Value example, Value group, Value row,
                                 Value column) {
  Value y = l.mul(row, windows.step[0]), x = l.mul(column, windows.step[1]);
  Value place = l.add(l.mul(example, c.groups), group);
  place = l.mul(place, windows.channels * windows.plane());
  if (windows.divisor == Pair{1, 1})
    place = l.add(place, l.add(l.mul(y, windows.size[1]), x));
  return {toI32(l, y), toI32(l, x), place};
}

/// The element that a window sees, 0 outside of the plane and where `where` (null:
/// always) does not hold.
Value ConvolutionEmitter::gather(LoopBuilder &l, const Windows &windows,
                                 const Pixel &pixel, const WindowElement &at,
                                 Value where) {
  Value coordinates[] = {addI32(l, pixel.row, at.row),
                         addI32(l, pixel.column, at.column)};
  Value place = l.add(pixel.place, at.offset);
  auto check = [&](arith::CmpIPredicate predicate, Value x, int64_t bound) {
    Value limit = arith::ConstantIntOp::create(l.b, loc, bound, 32);
    Value holds = arith::CmpIOp::create(l.b, loc, predicate, x, limit);
    where = where ? both(l, where, holds) : holds;
  };
  for (auto [d, x] : llvm::enumerate(coordinates)) {
    if (windows.divisor[d] != 1) {
      Value divisor =
          arith::ConstantIntOp::create(l.b, loc, windows.divisor[d], 32);
      check(arith::CmpIPredicate::sge, x, 0);
      check(arith::CmpIPredicate::eq,
            arith::RemUIOp::create(l.b, loc, x, divisor), 0);
      x = arith::DivUIOp::create(l.b, loc, x, divisor);
    }
    // What is before the plane is a large number.
    check(arith::CmpIPredicate::ult, x, windows.size[d]);
  }
  if (windows.divisor != Pair{1, 1})
    place =
        l.add(place, l.add(l.mul(toIndex(l, coordinates[0]), windows.size[1]),
                           toIndex(l, coordinates[1])));
  return loadWhere(l, windows.memref, place, where);
}

Value ConvolutionEmitter::loadWhere(LoopBuilder &l, Value memref, Value at,
                                    Value where) {
  at = select(l, where, at, l.index(0));
  Value value = memref::LoadOp::create(l.b, loc, memref, ValueRange(at));
  return select(l, where, value, nn::splatConstant(l.b, loc, element, 0.0));
}

Value ConvolutionEmitter::loadVectorWhere(LoopBuilder &l, Value memref,
                                          Value at, Value where) {
  auto type = VectorType::get({lanes}, element);
  at = select(l, where, at, l.index(0));
  auto value = vector::LoadOp::create(l.b, loc, type, memref, ValueRange(at));
  value.setAlignment(16);
  return select(l, where, value, nn::splatConstant(l.b, loc, type, 0.0));
}

void ConvolutionEmitter::storeShared(LoopBuilder &l, Value vector, Value memref,
                                     Value row, Value column) {
  Value at = l.add(l.mul(row, sizes.stride()), column);
  vector::StoreOp::create(l.b, loc, vector, memref, ValueRange(at))
      .setAlignment(16);
}

void ConvolutionEmitter::forVectors(
    ThreadBuilder &t, int64_t rows,
    function_ref<void(Value row, Value at, int64_t round)> body) {
  Value at = t.mul(t.mod(t.thread(), ofRow), lanes);
  for (int64_t round = 0; round * t.threads < rows * ofRow; ++round)
    body(t.add(t.div(t.thread(), ofRow), t.index(round * t.threads / ofRow)),
         at, round);
}

Fragment ConvolutionEmitter::multiplyTiles(
    ThreadBuilder &t, Value begin, Value end,
    function_ref<SmallVector<Value>(ThreadBuilder &, Value)> load,
    function_ref<void(ThreadBuilder &, ValueRange)> store) {
  Fragment initial = load(t, begin);
  size_t count = initial.size();
  initial.append(products.zeros(t, sizes.tile));
  Fragment results = t.loop(
      begin, end, sizes.width, initial,
      [&](LoopBuilder &l, Value at, ValueRange carried) {
        ThreadBuilder t(l.b, loc, sizes.threads());
        t.barrier(); // all have done with the tiles before
        store(t, carried.take_front(count));
        t.barrier();
        Fragment next = load(t, t.add(at, t.index(sizes.width)));
        next.append(products.multiply(t, own, tile, carried.drop_front(count)));
        return next;
      });
  return Fragment(ArrayRef(results).drop_front(count));
}

//===----------------------------------------------------------------------===//
// Results by pixel
//===----------------------------------------------------------------------===//

/// Planes of `size`, `outputs` for each group: sums over what `windows` see, times
/// the weight, whose first two dimensions change places if it is transposed.
int64_t ConvolutionEmitter::emitPixels(ThreadBuilder &t, const Windows &windows,
                                       Value weight, bool isTransposed,
                                       int64_t outputs, Pair size,
                                       Value result) {
  int64_t plane = size[0] * size[1], total = c.batch * plane, taps = c.taps();
  int64_t depth = windows.channels * taps;
  int64_t columnBlocks = llvm::divideCeil(outputs, sizes.tile);
  int64_t pixelBlocks = llvm::divideCeil(total, sizes.rows);
  // Blocks that see the same pixels are neighbours.
  Value place = function.tile;
  Value firstColumn = t.mul(t.mod(place, columnBlocks), sizes.tile);
  place = t.div(place, columnBlocks);
  Value firstPixel = t.mul(t.mod(place, pixelBlocks), sizes.rows);
  Value group = t.div(place, pixelBlocks);

  int64_t padded = llvm::alignTo(depth, sizes.width) + sizes.width;
  Tables tables = makeTables(t, windows, padded);
  Value weights; // offsets by element of a window
  if (isTransposed) {
    SmallVector<int64_t> offsets(padded, 0);
    for (int64_t d = 0; d < depth; ++d)
      offsets[d] = d / taps * outputs * taps + d % taps;
    weights = table(t, offsets);
  }

  // A thread has one pixel, and elements next to each other of its window.
  int64_t share = sizes.width / (t.threads / sizes.rows);
  Value row = t.mod(t.thread(), sizes.rows);
  Value ownFirst = t.mul(t.div(t.thread(), sizes.rows), share);
  Value number = t.min(t.add(firstPixel, row), t.index(total - 1));
  Value within = t.mod(number, plane);
  Pixel pixel = locate(t, windows, t.div(number, plane), group,
                       t.div(within, size[1]), t.mod(within, size[1]));

  auto load = [&](ThreadBuilder &t, Value first) {
    SmallVector<Value> loaded;
    for (int64_t i = 0; i < share; i += lanes) {
      SmallVector<Value> scalars;
      for (int64_t k = 0; k < lanes; ++k) {
        Value at = t.add(t.add(first, ownFirst), t.index(i + k));
        scalars.push_back(gather(t, windows, pixel,
                                 lookUpElement(t, tables, at),
                                 /*where=*/Value()));
      }
      loaded.push_back(pack(t, scalars));
    }
    forVectors(t, sizes.tile, [&](Value row, Value at, int64_t round) {
      at = t.add(first, at);
      Value column = t.add(firstColumn, row);
      Value isColumn = t.less(column, t.index(outputs));
      // Where its elements of windows begin.
      Value base =
          isTransposed
              ? t.add(t.mul(group, depth * outputs), t.mul(column, taps))
              : t.mul(t.add(t.mul(group, outputs), column), depth);
      if (!isTransposed && depth % lanes == 0) {
        loaded.push_back(
            loadVectorWhere(t, weight, t.add(base, at),
                            both(t, isColumn, t.less(at, t.index(depth)))));
        return;
      }
      SmallVector<Value> scalars;
      for (int64_t k = 0; k < lanes; ++k) {
        Value d = t.add(at, t.index(k));
        Value offset = isTransposed ? lookUp(t, weights, d) : d;
        scalars.push_back(
            loadWhere(t, weight, t.add(base, offset),
                      both(t, isColumn, t.less(d, t.index(depth)))));
      }
      loaded.push_back(pack(t, scalars));
    });
    return loaded;
  };
  auto store = [&](ThreadBuilder &t, ValueRange loaded) {
    for (int64_t i = 0; i < share; i += lanes)
      storeShared(t, loaded[i / lanes], own, row, t.add(ownFirst, t.index(i)));
    loaded = loaded.drop_front(share / lanes);
    forVectors(t, sizes.tile, [&](Value row, Value at, int64_t round) {
      auto storeRow = [&](ThreadBuilder &t) {
        storeShared(t, loaded[round], tile, row, at);
      };
      if (sizes.tile * ofRow >= t.threads)
        storeRow(t);
      else
        t.when(t.less(row, t.index(sizes.tile)), storeRow);
    });
  };
  Fragment sums = multiplyTiles(t, t.index(0), t.index(depth), load, store);

  for (int64_t half : {0, 1}) {
    Value number = t.add(firstPixel, t.add(products.row, t.index(half * 8)));
    t.when(t.less(number, t.index(total)), [&](ThreadBuilder &t) {
      Value at = t.add(t.mul(t.div(number, plane), c.groups), group);
      at = t.add(t.mul(at, outputs * plane), t.mod(number, plane));
      for (int64_t i = 0; i < sizes.tile / 4; ++i) {
        Value column = t.add(t.add(firstColumn, products.column),
                             t.index(i / 2 * 8 + i % 2));
        auto store = [&](ThreadBuilder &t) {
          t.storeScalar(sums[i / 2 * 4 + half * 2 + i % 2], result,
                        t.add(at, t.mul(column, plane)), element);
        };
        if (outputs % sizes.tile == 0)
          store(t);
        else
          t.when(t.less(column, t.index(outputs)), store);
      }
    });
  }
  return c.groups * pixelBlocks * columnBlocks;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// The convolution from `input` to `output`, of which `op` is one or a gradient.
template <typename Op>
static Shape shapeOf(Op op, Value input, Value output, ArrayRef<int64_t> window,
                     int64_t groups) {
  auto from = nn::getTensorType(input), to = nn::getTensorType(output);
  auto pair = [](std::optional<ArrayRef<int64_t>> numbers, int64_t missing,
                 size_t first, size_t second) {
    return numbers ? Pair{(*numbers)[first], (*numbers)[second]}
                   : Pair{missing, missing};
  };
  return {from.getDimSize(0),
          groups,
          from.getDimSize(1) / groups,
          to.getDimSize(1) / groups,
          {from.getDimSize(2), from.getDimSize(3)},
          {to.getDimSize(2), to.getDimSize(3)},
          {window[0], window[1]},
          pair(op.getStrides(), 1, 0, 1),
          pair(op.getPadding(), 0, 0, 2),
          pair(op.getDilations(), 1, 0, 1)};
}

/// Whether all coordinates are below kFar.
static bool isInReach(const Shape &c) {
  for (int64_t d : {0, 1})
    if (std::max({c.input[d], c.output[d], c.stride[d], c.low[d], c.window[d],
                  c.dilation[d]}) >= kFar / 4 ||
        c.output[d] * c.stride[d] + c.window[d] * c.dilation[d] >= kFar / 2)
      return false;
  return true;
}

/// What the windows of `c` see of its input.
static Windows windowsOf(const Shape &c, Value input) {
  return {input,    c.channels, c.input,
          c.stride, c.dilation, {-c.low[0], -c.low[1]},
          {1, 1}};
}

/// Of an element of the input: the outputs whose windows see it.
static Windows windowsOfInput(const Shape &c, Value grad) {
  return {grad,  c.outputs, c.output, {1, 1}, {-c.dilation[0], -c.dilation[1]},
          c.low, c.stride};
}

std::optional<int64_t> trainc::emitConvolutionOnGPU(KernelFunction &function,
                                                    Operation *op) {
  if (!isa<nn::Conv2dOp, nn::Conv2dInputGradOp, nn::Conv2dWeightGradOp,
           nn::Conv2dWeightPartsOp>(op))
    return std::nullopt;
  auto in = [&](Value value) { return function.inputs.lookup(value); };
  Value result = op->getResult(0),
        out = function.outputs.lookup(result).front();
  Type element = nn::getTensorType(result).getElementType();
  auto emit =
      [&](const Shape &c, int64_t columns,
          function_ref<int64_t(ConvolutionEmitter &, ThreadBuilder &)> body)
      -> std::optional<int64_t> {
    if (!isInReach(c))
      return std::nullopt;
    OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
    int64_t threads = ConvolutionEmitter::choose(element, columns).threads();
    ThreadBuilder t(b, op->getLoc(), threads);
    t.setLaunch(function);
    ConvolutionEmitter emitter(function, t, c, element, columns);
    int64_t blocks = body(emitter, t);
    func::ReturnOp::create(b, op->getLoc());
    return blocks;
  };
  auto windowOf = [](Value weight) {
    return nn::getTensorType(weight).getShape().take_back(2);
  };
  if (auto conv = dyn_cast<nn::Conv2dOp>(op)) {
    if (conv.getBias())
      return std::nullopt;
    Shape c = shapeOf(conv, conv.getInput(), result, windowOf(conv.getWeight()),
                      conv.getGroups());
    return emit(c, c.outputs, [&](ConvolutionEmitter &e, ThreadBuilder &t) {
      return e.emitPixels(t, windowsOf(c, in(conv.getInput())),
                          in(conv.getWeight()), /*isTransposed=*/false,
                          c.outputs, c.output, out);
    });
  }
  if (auto grad = dyn_cast<nn::Conv2dInputGradOp>(op)) {
    Shape c = shapeOf(grad, result, grad.getGrad(), windowOf(grad.getWeight()),
                      grad.getGroups());
    return emit(c, c.channels, [&](ConvolutionEmitter &e, ThreadBuilder &t) {
      return e.emitPixels(t, windowsOfInput(c, in(grad.getGrad())),
                          in(grad.getWeight()), /*isTransposed=*/true,
                          c.channels, c.input, out);
    });
  }
  if (auto grad = dyn_cast<nn::Conv2dWeightGradOp>(op)) {
    Shape c = shapeOf(grad, grad.getInput(), grad.getGrad(), windowOf(result),
                      grad.getGroups());
    return emit(c, c.outputs, [&](ConvolutionEmitter &e, ThreadBuilder &t) {
      return e.emitWeights(t, windowsOf(c, in(grad.getInput())),
                           in(grad.getGrad()), out, std::nullopt);
    });
  }
  auto parts = cast<nn::Conv2dWeightPartsOp>(op);
  Shape c = shapeOf(parts, parts.getInput(), parts.getGrad(), parts.getWindow(),
                    /*groups=*/1);
  return emit(c, c.outputs, [&](ConvolutionEmitter &e, ThreadBuilder &t) {
    return e.emitWeights(t, windowsOf(c, in(parts.getInput())),
                         in(parts.getGrad()), out, parts.getExamples());
  });
}
