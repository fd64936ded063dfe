//===- window_convolution.cpp - Convolutions by windows of planes ---------===//

#include "cpu/window_convolution.h"
#include "cpu/convolution_plan.h"
#include "cpu/rows.h"

using namespace trainc;

namespace {
/// A phase, and where what its taps see begins in the plan's offsets.
struct View {
  Phase phase;
  size_t offsets;
};

/// A copy of a plane's rows and columns with a remainder by the strides.
struct Copy {
  int64_t row, column; // the remainders
};
} // namespace

struct trainc::WindowConvolution {
  const ConvolutionPlan *of; // whose convolution it is
  int64_t resultSize;        // bytes of an element
  Windows h, w;              // of the planes that are seen; the taps are open
  Array<View> views;
  Array<int64_t> offsets; // of each step k of its pieces, in the copies
  Array<Copy> copies;
  // Rows that a block sees before its own, and in all beside them.
  int64_t top, halo;
  int64_t lead, pitch, copyElements; // zeros before a copy, its row, all of it
  int64_t blockRows, rowBlocks, blocks;  // of all examples
  int64_t blocksOfTile, partRows, parts; // of the rows of C
  int64_t ldc;
  bool packsAll; // the weight of a phase at once
  uint64_t ofPlanes, ofGradients, ofC, ofTransposed, ofRow, scratch;

  int64_t channelElements() const {
    return static_cast<int64_t>(copies.size()) * copyElements;
  }
  int64_t panelRows() const {
    int64_t each = kernels().windowRows;
    return (partRows + each - 1) / each * each;
  }
  int64_t tilesOfPart() const {
    return (blocks + blocksOfTile - 1) / blocksOfTile;
  }
};

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// place = quotient stride + remainder, with 0 <= remainder.
static int64_t quotientOf(int64_t place, int64_t stride, int64_t &remainder) {
  remainder = (place % stride + stride) % stride;
  return (place - remainder) / stride;
}

namespace {
/// Where tap `tap` of windows sees output 0, in rows or columns of a copy.
struct Reach {
  int64_t quotient, remainder;
  Reach(const Windows &x, int64_t tap) {
    quotient = quotientOf(x.first + tap * x.step, x.stride, remainder);
  }
};
} // namespace

/// The copies that taps see, how far these reach, and so the pitch.
static void layOut(WindowConvolution &plan, const Array<Phase> &phases) {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  for (const Phase &phase : phases)
    for (int64_t i = 0; i < phase.h.taps; ++i)
      for (int64_t j = 0; j < phase.w.taps; ++j) {
        Reach y(phase.h, i), x(phase.w, j);
        top = least(top, y.quotient), bottom = most(bottom, y.quotient);
        left = least(left, x.quotient), right = most(right, x.quotient);
        bool known = false;
        for (const Copy &copy : plan.copies)
          known |= copy.row == y.remainder && copy.column == x.remainder;
        if (!known)
          plan.copies.push({y.remainder, x.remainder});
      }
  plan.top = top;
  plan.halo = bottom - top;
  plan.lead = -left;
  int64_t seen = piecesOf(plan.w.size, plan.w.stride);
  plan.pitch = most(seen - left, plan.w.outputs + right);
}

static void addView(WindowConvolution &plan, const Phase &phase) {
  plan.views.push({phase, plan.offsets.size()});
  for (int64_t c = 0; c < plan.of->pieceChannels; ++c)
    for (int64_t i = 0; i < phase.h.taps; ++i)
      for (int64_t j = 0; j < phase.w.taps; ++j) {
        Reach y(phase.h, i), x(phase.w, j);
        int64_t copy = 0;
        while (plan.copies[static_cast<size_t>(copy)].row != y.remainder ||
               plan.copies[static_cast<size_t>(copy)].column != x.remainder)
          ++copy;
        plan.offsets.push(c * plan.channelElements() +
                          copy * plan.copyElements + plan.lead +
                          (y.quotient - plan.top) * plan.pitch + x.quotient);
      }
}

/// Outputs of `rows` rows of a block, with what lies between them.
static int64_t columnsOf(const WindowConvolution &plan, int64_t rows) {
  return (rows - 1) * plan.pitch + plan.w.outputs;
}

/// Elements of the copies of a channel that a block of `rows` rows sees.
static int64_t seenOfChannel(const WindowConvolution &plan, int64_t rows) {
  return static_cast<int64_t>(plan.copies.size()) * (rows + plan.halo) *
         plan.pitch;
}

/// Of copies that stay in a second level cache of 1 MB, beside what they are multiplied with.
constexpr int64_t seenAtOnce = 1 << 17;

/// Rows of a block, by how much of the vectors is used: of the largest blocks that are as good.
static int64_t chooseRows(const WindowConvolution &plan) {
  // Outputs of a block, and of all rows of C.
  constexpr int64_t outputs = 256, sums = 1 << 16;
  int64_t wanted = most(outputs, sums / plan.partRows);
  int64_t forAll =
      piecesOf(plan.h.outputs * plan.of->d.batch, 2 * plan.of->tiles);
  int64_t end = least(plan.h.outputs, most(forAll, 1)), best = 1;
  double lowest = 0;
  for (int64_t rows = 1; rows <= end; ++rows) {
    if (rows > 1 &&
        (columnsOf(plan, rows) > wanted ||
         plan.of->pieceChannels * seenOfChannel(plan, rows) > seenAtOnce))
      break;
    auto vectors = [&](int64_t count) {
      return count ? alignUp(static_cast<uint64_t>(columnsOf(plan, count)),
                             windowColumns / 2)
                   : 0;
    };
    int64_t whole = plan.h.outputs / rows, rest = plan.h.outputs % rows;
    // A block copies the rows around it, and calls.
    double cost = static_cast<double>(whole * vectors(rows) + vectors(rest)) *
                  (1 + 0.02 / static_cast<double>(rows));
    if (lowest == 0 || cost <= lowest) {
      lowest = cost;
      best = rows;
    }
  }
  return best;
}

static void cut(WindowConvolution &plan) {
  constexpr int64_t rows = 64;     // of C that are worth what a tile copies
  constexpr int64_t all = 1 << 18; // of a weight that is packed at once
  int64_t groups = plan.of->d.groups, tiles = plan.of->tiles;
  plan.partRows = plan.of->rowsOfC;
  plan.blockRows = chooseRows(plan);
  plan.rowBlocks = piecesOf(plan.h.outputs, plan.blockRows);
  plan.blocks = plan.rowBlocks * plan.of->d.batch;
  int64_t parts = piecesOf(2 * tiles, groups * plan.blocks);
  parts = least(parts, plan.of->rowsOfC / rows);
  auto part = static_cast<uint64_t>(piecesOf(plan.of->rowsOfC, most(parts, 1)));
  plan.partRows = static_cast<int64_t>(parts > 1 ? alignUp(part, 16) : part);
  plan.parts = piecesOf(plan.of->rowsOfC, plan.partRows);
  plan.blocksOfTile = most(1, groups * plan.parts * plan.blocks / (4 * tiles));
  plan.packsAll = plan.panelRows() * plan.of->channels * plan.of->taps <= all;
}

/// Lays out the scratch. It begins with the packed weight.
static void placeScratch(WindowConvolution &plan) {
  uint64_t used = 0;
  auto place = [&](int64_t elements) {
    uint64_t begin = used;
    used += alignUp(static_cast<uint64_t>(elements) * sizeof(float), 64);
    return begin;
  };
  int64_t channels = plan.packsAll ? plan.of->channels : plan.of->pieceChannels;
  int64_t depth = plan.of->pieceChannels * plan.of->taps;
  if (!plan.of->ofWeight)
    place(plan.panelRows() * channels * plan.of->taps + windowColumns);
  plan.ofPlanes = place(plan.of->pieceChannels * plan.channelElements());
  if (plan.of->ofWeight) {
    int64_t outputs = plan.blockRows * plan.w.outputs;
    plan.ofGradients = place(plan.ldc * (outputs + windowColumns / 2));
    int64_t widened = plan.partRows * outputs;
    plan.ofRow = place(plan.of->d.type == TRAINC_F32 ? 0 : widened);
    plan.ofC = place(depth * plan.ldc);
    plan.ofTransposed =
        place(plan.of->d.result_type == TRAINC_F32 ? 0 : plan.partRows * depth);
  } else {
    plan.ofC = place(plan.partRows * plan.ldc);
    plan.ofRow = place(plan.ldc);
  }
  plan.scratch = used;
}

static bool isWorthIt(const ConvolutionPlan &plan) {
  // Of smaller planes the outputs between rows are too many; they are blocks of examples.
  constexpr int64_t outputs = 256;
  const Phase &first = plan.phases[0]; // the largest
  return plan.d.back_end == TRAINC_BACK_END_VECTOR &&
         plan.d.type != TRAINC_F64 &&
         first.h.outputs * first.w.outputs >= outputs &&
         (!plan.ofWeight || plan.d.window_w == 3);
}

WindowConvolution *trainc::createWindowConvolution(const ConvolutionPlan &of) {
  if (!isWorthIt(of))
    return nullptr;
  auto *plan = create<WindowConvolution>();
  const trainc_convolution_detail &d = of.d;
  plan->of = &of;
  plan->resultSize = static_cast<int64_t>(trainc_dtype_size(d.result_type));
  plan->h = of.phases[0].h;
  plan->w = of.phases[0].w;
  layOut(*plan, of.phases);
  if (plan->halo > farthestTap || plan->pitch > 4 * farthestTap) {
    destroy(plan);
    return nullptr;
  }
  if (of.ofWeight) { // blocks are what is summed: as they are
    plan->blockRows = of.blockRows;
    plan->rowBlocks = of.rowBlocks;
    plan->blocks = of.rowBlocks * d.batch;
    plan->partRows = of.partRows;
    plan->parts = of.parts;
    plan->packsAll = false;
  } else {
    cut(*plan);
  }
  // Not by the threads: blocks of weights are summed in another order as columns.
  if (of.cachedChannels * seenOfChannel(*plan, plan->blockRows) >
      2 * seenAtOnce) {
    destroy(plan);
    return nullptr;
  }
  int64_t columns =
      of.ofWeight ? plan->partRows : columnsOf(*plan, plan->blockRows);
  plan->ldc = static_cast<int64_t>(
      alignUp(static_cast<uint64_t>(columns), windowColumns));
  plan->copyElements = static_cast<int64_t>(alignUp(
      static_cast<uint64_t>(plan->lead +
                            (plan->blockRows + plan->halo) * plan->pitch +
                            windowColumns),
      16));
  for (const Phase &phase : of.phases)
    addView(*plan, phase);
  placeScratch(*plan);
  return plan;
}

void trainc::destroyWindowConvolution(WindowConvolution *plan) {
  destroy(plan);
}

int64_t trainc::windowConvolutionTileCount(const WindowConvolution *plan) {
  return plan->of->d.groups * plan->parts *
         (plan->of->ofWeight ? plan->of->pieces : plan->tilesOfPart());
}

uint64_t trainc::windowConvolutionScratch(const WindowConvolution *plan) {
  return plan->scratch;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

namespace {
struct Tile {
  const WindowConvolution &plan;
  // The planes that are seen, and what they are multiplied with.
  const char *image, *factor;
  char *result, *scratch;
  const ConvolutionPlan &of = *plan.of;
  const trainc_convolution_detail &d = of.d;
  int64_t group = 0, firstRow = 0, numRows = 0;

  void run(int64_t index);

private:
  void pack(const View &view, int64_t channel, int64_t channels) {
    packWeight(of, view.phase, factor, group, firstRow, numRows, channel,
               channels, reinterpret_cast<float *>(scratch));
  }
  void copyPlanes(int64_t example, int64_t row, int64_t rows, int64_t channel,
                  int64_t channels);
  void compute(const View &view, int64_t example, int64_t row, int64_t rows);
  void scatter(const View &view, int64_t example, int64_t row, int64_t rows);
  void computeWeight(int64_t piece);
  void packGradients(int64_t example, int64_t row, int64_t outputs);
};
} // namespace

void Tile::run(int64_t index) {
  int64_t part = index % plan.parts;
  index /= plan.parts;
  group = index % d.groups;
  index /= d.groups;
  firstRow = part * plan.partRows;
  numRows = least(plan.partRows, of.rowsOfC - firstRow);
  if (of.ofWeight)
    return computeWeight(index);
  int64_t begin = index * plan.blocksOfTile;
  int64_t end = least(begin + plan.blocksOfTile, plan.blocks);
  for (const View &view : plan.views) {
    if (plan.packsAll && view.phase.taps())
      pack(view, 0, of.channels);
    for (int64_t i = begin; i < end; ++i) {
      int64_t row = i % plan.rowBlocks * plan.blockRows;
      int64_t rows = least(plan.blockRows, view.phase.h.outputs - row);
      if (rows > 0)
        compute(view, i / plan.rowBlocks, row, rows);
    }
  }
}

/// What a block of rows sees of `channels`.
void Tile::copyPlanes(int64_t example, int64_t row, int64_t rows,
                      int64_t channel, int64_t channels) {
  const Kernels &table = kernels();
  auto copyPlane = d.type == TRAINC_F32    ? table.planeF32
                   : d.type == TRAINC_BF16 ? table.planeBf16
                                           : table.planeF16;
  int64_t elements = plan.h.size * plan.w.size;
  int64_t first = (example * d.groups + group) * of.channels + channel;
  const char *plane = image + first * elements * of.storedSize;
  auto *to = reinterpret_cast<float *>(scratch + plan.ofPlanes);
  for (int64_t c = 0; c < channels; ++c, plane += elements * of.storedSize)
    for (const Copy &copy : plan.copies) {
      for (int64_t i = 0; i < plan.lead; ++i)
        to[i] = 0;
      copyPlane({{rows + plan.halo, 1, plan.h.size, plan.h.stride,
                  (row + plan.top) * plan.h.stride + copy.row, 0},
                 {plan.pitch, 1, plan.w.size, plan.w.stride, copy.column, 0},
                 plan.w.size,
                 plan.pitch,
                 plane,
                 to + plan.lead});
      to += plan.copyElements;
    }
}

void Tile::compute(const View &view, int64_t example, int64_t row,
                   int64_t rows) {
  int64_t taps = view.phase.taps();
  auto *c = reinterpret_cast<float *>(scratch + plan.ofC);
  if (!taps)
    memset(c, 0, static_cast<size_t>(numRows * plan.ldc) * sizeof(float));
  int64_t panel = kernels().windowRows * taps; // per channel
  for (int64_t piece = 0; taps && piece < of.pieces; ++piece) {
    int64_t channel = piece * of.pieceChannels;
    int64_t channels = least(of.pieceChannels, of.channels - channel);
    copyPlanes(example, row, rows, channel, channels);
    if (!plan.packsAll)
      pack(view, channel, channels);
    auto *a = reinterpret_cast<const float *>(scratch);
    kernels().multiplyWindows(
        {piece > 0, numRows, (rows - 1) * plan.pitch + view.phase.w.outputs,
         channels * taps, plan.ldc, a + (plan.packsAll ? channel * panel : 0),
         (plan.packsAll ? of.channels : channels) * panel,
         reinterpret_cast<const float *>(scratch + plan.ofPlanes),
         plan.offsets.data() + view.offsets, c});
  }
  scatter(view, example, row, rows);
}

/// Copies a block of C to where its outputs are.
void Tile::scatter(const View &view, int64_t example, int64_t row,
                   int64_t rows) {
  int64_t strideH = of.ofInput ? d.stride_h : 1;
  int64_t strideW = of.ofInput ? d.stride_w : 1;
  int64_t height = of.ofInput ? d.height : d.out_h;
  int64_t width = of.ofInput ? d.width : d.out_w;
  const char *c = scratch + plan.ofC;
  for (int64_t i = 0; i < numRows;
       ++i, c += plan.ldc * static_cast<int64_t>(sizeof(float))) {
    const char *from = narrowed(d.result_type, c,
                                (rows - 1) * plan.pitch + view.phase.w.outputs,
                                scratch + plan.ofRow);
    int64_t plane = (example * d.groups + group) * of.rowsOfC + firstRow + i;
    for (int64_t p = 0; p < rows; ++p, from += plan.pitch * plan.resultSize) {
      int64_t y = view.phase.y + (row + p) * strideH;
      char *to = result + ((plane * height + y) * width + view.phase.x) *
                              plan.resultSize;
      copyApart(d.result_type, from, view.phase.w.outputs, strideW, to);
    }
  }
}

/// The gradients of the tile's rows at `outputs` outputs, from row `row` on.
void Tile::packGradients(int64_t example, int64_t row, int64_t outputs) {
  const Kernels &table = kernels();
  int64_t plane = d.out_h * d.out_w;
  int64_t first = (example * d.groups + group) * d.outputs + firstRow;
  const char *from = factor + (first * plane + row * d.out_w) * of.storedSize;
  if (d.type != TRAINC_F32) {
    auto *room = reinterpret_cast<float *>(scratch + plan.ofRow);
    widenRows(d.type, numRows, outputs, from, plane, room);
    from = reinterpret_cast<const char *>(room);
    plane = outputs;
  }
  table.packGradients({numRows, outputs, plane,
                       reinterpret_cast<const float *>(from),
                       reinterpret_cast<float *>(scratch + plan.ofGradients)});
}

/// The gradient of the tile's rows of the weight, at a piece of their channels.
void Tile::computeWeight(int64_t piece) {
  const Kernels &table = kernels();
  int64_t channel = piece * of.pieceChannels;
  int64_t channels = least(of.pieceChannels, of.channels - channel);
  int64_t depth = channels * of.taps, ld = d.channels * of.taps;
  char *to =
      result + ((group * d.outputs + firstRow) * ld + channel * of.taps) *
                   plan.resultSize;
  auto *c = reinterpret_cast<float *>(scratch + plan.ofC);
  if (d.accumulate)
    table.transposeF32(numRows, depth, reinterpret_cast<float *>(to), ld, c,
                       plan.ldc);
  for (int64_t i = 0; i < plan.blocks; ++i) {
    int64_t example = i / plan.rowBlocks;
    int64_t row = i % plan.rowBlocks * plan.blockRows;
    int64_t rows = least(plan.blockRows, plan.h.outputs - row);
    copyPlanes(example, row, rows, channel, channels);
    packGradients(example, row, rows * plan.w.outputs);
    table.sumWindows(
        {d.accumulate || i > 0, channels * d.window_h, numRows, rows,
         plan.w.outputs, plan.pitch, plan.ldc,
         reinterpret_cast<const float *>(scratch + plan.ofPlanes),
         plan.offsets.data(),
         reinterpret_cast<const float *>(scratch + plan.ofGradients), c});
  }
  storeTransposed(d.result_type, depth, numRows, c, plan.ldc,
                  reinterpret_cast<float *>(scratch + plan.ofTransposed), to,
                  ld);
}

void trainc::runWindowConvolutionTile(const WindowConvolution *plan,
                                      void *const *args, int64_t index,
                                      void *scratch) {
  int image = plan->of->ofInput ? 1 : 0;
  Tile tile = {*plan, static_cast<const char *>(args[image]),
               static_cast<const char *>(args[1 - image]),
               static_cast<char *>(args[2]), static_cast<char *>(scratch)};
  tile.run(index);
}
