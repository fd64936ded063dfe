//===- ConvolutionGradKernel.cpp - Gradients of weights, on a GPU ---------===//
#include "ConvolutionBlock.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::convolution;

/// Blocks that fill the largest GPUs, and the fewest pixels worth one.
static constexpr int64_t kBlocksWanted = 512, kLeastPixels = 512;

/// The gradient as it is, or, if `examples` is given, by parts of so many each (see
/// nn.conv2d_weight_parts).
int64_t ConvolutionEmitter::emitWeights(ThreadBuilder &t,
                                        const Windows &windows, Value grad,
                                        Value result,
                                        std::optional<int64_t> examples) {
  int64_t plane = c.output[0] * c.output[1], total = c.batch * plane;
  int64_t depth = c.channels * c.taps(), outputs = c.outputs;
  int64_t columnBlocks = llvm::divideCeil(outputs, sizes.tile);
  int64_t rowBlocks = llvm::divideCeil(depth, sizes.rows);
  int64_t places = c.groups * rowBlocks * columnBlocks, pixelsOfRun;
  if (examples) {
    pixelsOfRun = *examples * plane;
  } else {
    int64_t runs = std::clamp<int64_t>(kBlocksWanted / places, 1,
                                       llvm::divideCeil(total, kLeastPixels));
    pixelsOfRun = llvm::alignTo(llvm::divideCeil(total, runs), sizes.width);
  }
  int64_t runs = llvm::divideCeil(total, pixelsOfRun);
  Value run = t.div(function.tile, places);
  Value place = t.mod(function.tile, places);
  Value firstColumn = t.mul(t.mod(place, columnBlocks), sizes.tile);
  Value firstRow =
      t.mul(t.mod(t.div(place, columnBlocks), rowBlocks), sizes.rows);
  Value group = t.div(place, columnBlocks * rowBlocks);

  Tables tables = makeTables(t, windows, llvm::alignTo(depth, sizes.rows));
  SmallVector<WindowElement> elements;
  forVectors(t, sizes.rows, [&](Value row, Value, int64_t) {
    elements.push_back(lookUpElement(t, tables, t.add(firstRow, row)));
  });
  Value begin = t.mul(run, pixelsOfRun);
  Value end = t.min(t.add(begin, t.index(pixelsOfRun)), t.index(total));
  // Pixels of a vector are in one plane.
  bool isWhole = plane % lanes == 0;
  auto load = [&](ThreadBuilder &t, Value first) {
    first = t.add(first, t.mul(t.mod(t.thread(), ofRow), lanes));
    SmallVector<Pixel> pixels;
    SmallVector<Value> isPixel, grads; // places in the first plane of grad
    for (int64_t k = 0; k < lanes; ++k) {
      Value number = t.add(first, t.index(k));
      isPixel.push_back(isWhole && k > 0 ? isPixel[0] : t.less(number, end));
      number = t.min(number, t.index(total - 1));
      Value example = t.div(number, plane), within = t.mod(number, plane);
      pixels.push_back(locate(t, windows, example, group,
                              t.div(within, c.output[1]),
                              t.mod(within, c.output[1])));
      Value planes = t.add(t.mul(example, c.groups), group);
      grads.push_back(t.add(t.mul(planes, outputs * plane), within));
    }
    SmallVector<Value> loaded;
    for (const WindowElement &at : elements) {
      SmallVector<Value> scalars;
      for (int64_t k = 0; k < lanes; ++k)
        scalars.push_back(gather(t, windows, pixels[k], at, isPixel[k]));
      loaded.push_back(pack(t, scalars));
    }
    forVectors(t, sizes.tile, [&](Value row, Value, int64_t) {
      Value column = t.add(firstColumn, row);
      Value isColumn = t.less(column, t.index(outputs));
      Value offset = t.mul(column, plane);
      if (isWhole) {
        loaded.push_back(loadVectorWhere(t, grad, t.add(grads[0], offset),
                                         both(t, isPixel[0], isColumn)));
        return;
      }
      SmallVector<Value> scalars;
      for (int64_t k = 0; k < lanes; ++k)
        scalars.push_back(loadWhere(t, grad, t.add(grads[k], offset),
                                    both(t, isPixel[k], isColumn)));
      loaded.push_back(pack(t, scalars));
    });
    return loaded;
  };
  auto store = [&](ThreadBuilder &t, ValueRange loaded) {
    forVectors(t, sizes.rows, [&](Value row, Value at, int64_t round) {
      storeShared(t, loaded[round], own, row, at);
    });
    loaded = loaded.drop_front(elements.size());
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
  Fragment sums = multiplyTiles(t, begin, end, load, store);

  // Element `row` of a window and output `column` of the group, in the weight.
  auto offsetOf = [&](LoopBuilder &l, Value row, Value column) {
    return l.add(l.mul(l.add(l.mul(group, outputs), column), depth), row);
  };
  bool isDirect = examples || runs == 1;
  Value parts;
  if (!isDirect)
    parts = t.shareAmongBlocks(function, products.compute,
                               runs * c.groups * outputs * depth);
  for (size_t i = 0; i < sums.size(); ++i) {
    Value row = t.add(t.add(firstRow, products.row), t.index(i / 2 % 2 * 8));
    Value column =
        t.add(t.add(firstColumn, products.column), t.index(i / 4 * 8 + i % 2));
    Value isThere =
        both(t, t.less(row, t.index(depth)), t.less(column, t.index(outputs)));
    t.when(isThere, [&](ThreadBuilder &t) {
      if (examples)
        t.storeScalar(
            sums[i], result,
            t.add(t.mul(t.add(t.mul(run, depth), row), outputs), column),
            element);
      else if (isDirect)
        t.storeScalar(sums[i], result, offsetOf(t, row, column), element);
      else
        t.storeScalar(sums[i], parts,
                      t.add(t.mul(run, c.groups * outputs * depth),
                            offsetOf(t, row, column)),
                      products.compute);
    });
  }
  if (isDirect)
    return places * runs;
  t.whenLast(function, place, runs, [&](ThreadBuilder &t) {
    t.loop(t.thread(), t.index(sizes.rows * sizes.tile), t.threads,
           [&](LoopBuilder &l, Value i) {
             ThreadBuilder t(l.b, loc, sizes.threads());
             Value row = t.add(firstRow, t.mod(i, sizes.rows));
             Value column = t.add(firstColumn, t.div(i, sizes.rows));
             Value isThere = both(t, t.less(row, t.index(depth)),
                                  t.less(column, t.index(outputs)));
             t.when(isThere, [&](ThreadBuilder &t) {
               Value at = offsetOf(t, row, column);
               Value zero = t.identity(nn::ReduceKind::sum, products.compute);
               Value sum =
                   t.loop(t.index(0), t.index(runs), 1, zero,
                          [&](LoopBuilder &l, Value run, ValueRange carried) {
                            Value from = l.add(
                                l.mul(run, c.groups * outputs * depth), at);
                            Value part = memref::LoadOp::create(
                                l.b, loc, parts, ValueRange(from));
                            return SmallVector<Value>{l.combine(
                                nn::ReduceKind::sum, carried.front(), part)};
                          })
                       .front();
               t.storeScalar(sum, result, at, element);
             });
           });
  });
  return places * runs;
}
