//===- winograd_convolution.cpp - Convolutions by fewer products ----------===//

#include "cpu/winograd_convolution.h"
#include "cpu/convolution_plan.h"
#include "cpu/rows.h"

using namespace trainc;

/// Places of a transformed tile, and taps of a window.
constexpr int64_t places = 16, taps = 9;
/// A place and the next are to stand in other sets of the first level cache, and so are a
/// tile and the next.
constexpr int64_t page = 1024, apart = 16; // elements

struct trainc::WinogradConvolution {
  const ConvolutionPlan *of;
  Windows h, w;              // of the planes that are seen
  int64_t top, left;         // what tile (0, 0) sees first
  bool reversed;             // the last tap sees it
  int64_t tileRows;          // of an example
  int64_t tiles;             // of a row
  int64_t blockRows, blocks; // of tiles of all examples
  int64_t blocksOfJob, jobsOfPart;
  int64_t partRows, parts; // of C
  int64_t partChannels;    // that are summed, or of the weight
  int64_t subRows;         // of C that are multiplied at once
  int64_t columns, lanes;  // of a panel, of a vector
  int64_t ldTiles, tilesPlace, ldSums, sumsPlace, ldGrads, gradsPlace;
  uint64_t ofWeight, ofTiles, ofSums, ofPixels, ofGrads, ofWide, scratch;

  int64_t weightPlace() const { return partRows * of->channels + apart; }
};

static int64_t aligned(int64_t size, int64_t each) {
  return piecesOf(size, each) * each;
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

static bool isWorthIt(const ConvolutionPlan &plan) {
  constexpr int64_t fewest = 32; // rows of C, and channels, for the transforms
  const Phase &phase = plan.phases[0];
  auto fits = [](const Windows &x) {
    return x.taps == 3 && x.stride == 1 && (x.step == 1 || x.step == -1);
  };
  auto tiles = [](const Windows &x) { return piecesOf(x.outputs, 2); };
  return plan.d.back_end == TRAINC_BACK_END_VECTOR &&
         plan.d.type != TRAINC_F64 && plan.phases.size() == 1 &&
         fits(phase.h) && fits(phase.w) && phase.h.step == phase.w.step &&
         plan.channels >= fewest && plan.rowsOfC >= fewest &&
         // Tiles of odd sizes are partly outside.
         3 * places * tiles(phase.h) * tiles(phase.w) <=
             2 * taps * phase.h.outputs * phase.w.outputs;
}

/// Rows of tiles of a block of `channels` channels, in a second level cache of 1 MB.
static int64_t chooseRows(const WinogradConvolution &plan, int64_t channels) {
  constexpr int64_t elements = 1 << 18, fewest = 24, wanted = 96; // tiles
  int64_t fits = most(elements / places / channels, fewest);
  return most(least(wanted, fits) / plan.tiles, 1);
}

/// Each part of the rows of C transforms all tiles, each job of blocks the weight.
static void cutOutputs(WinogradConvolution &plan) {
  const ConvolutionPlan &of = *plan.of;
  int64_t all = plan.tileRows * of.d.batch, jobs = piecesOf(of.tiles, 2);
  plan.partChannels = of.channels;
  plan.blockRows = chooseRows(plan, of.channels);
  plan.blocks = piecesOf(all, plan.blockRows);
  constexpr int64_t kept = 1 << 22; // elements of a transformed weight
  int64_t best = 1;
  double lowest = 0;
  for (int64_t parts = 1; parts == 1 || parts <= of.rowsOfC / plan.columns;
       ++parts) {
    if (places * of.channels * piecesOf(of.rowsOfC, parts) > kept &&
        of.rowsOfC / parts > plan.columns)
      continue;
    int64_t ofBlocks = least(plan.blocks, piecesOf(jobs, parts));
    double idle = double(piecesOf(parts * ofBlocks, jobs) * jobs) /
                  double(parts * ofBlocks);
    // Cycles of a channel, as measured: products, transforms of the weight and of tiles.
    auto tiles = double(all * plan.tiles), rows = double(of.rowsOfC);
    double cost = places * rows * tiles / double(plan.lanes) * idle +
                  6 * double(ofBlocks) * rows + 4 * double(parts) * tiles;
    if (lowest == 0 || cost < lowest) {
      lowest = cost;
      best = parts;
    }
  }
  plan.partRows = aligned(piecesOf(of.rowsOfC, best), plan.columns);
  plan.parts = piecesOf(of.rowsOfC, plan.partRows);
  int64_t ofBlocks = least(plan.blocks, piecesOf(jobs, plan.parts));
  // More jobs where the weight is nothing beside the tiles.
  ofBlocks = most(ofBlocks, least(plan.blocks / 8, 4 * jobs));
  plan.blocksOfJob = piecesOf(plan.blocks, ofBlocks);
  plan.jobsOfPart = piecesOf(plan.blocks, plan.blocksOfJob);
}

/// Parts of rows and channels whose sums stay in the cache, and enough of them.
static void cutWeight(WinogradConvolution &plan) {
  constexpr int64_t largest = 128, smallest = 32;
  const ConvolutionPlan &of = *plan.of;
  int64_t jobs = piecesOf(of.tiles, 2);
  int64_t rows = piecesOf(of.rowsOfC, largest);
  int64_t channels = piecesOf(of.channels, largest);
  while (rows * channels < jobs) {
    int64_t row = of.rowsOfC / (rows + 1),
            channel = of.channels / (channels + 1);
    if (row < smallest && channel < smallest)
      break;
    ++(row >= channel ? rows : channels);
  }
  plan.partRows = aligned(piecesOf(of.rowsOfC, rows), plan.columns);
  plan.parts = piecesOf(of.rowsOfC, plan.partRows);
  plan.partChannels = aligned(piecesOf(of.channels, channels), plan.lanes);
  plan.jobsOfPart = piecesOf(of.channels, plan.partChannels);
  plan.blockRows = chooseRows(plan, largest); // by shapes alone
  plan.blocks = piecesOf(plan.tileRows * of.d.batch, plan.blockRows);
}

static void placeScratch(WinogradConvolution &plan) {
  const ConvolutionPlan &of = *plan.of;
  uint64_t used = 0;
  auto place = [&](int64_t elements) {
    uint64_t begin = used;
    used += alignUp(static_cast<uint64_t>(elements) * sizeof(float), 64);
    return begin;
  };
  auto spread = [](int64_t elements) {
    return aligned(elements, page) + apart;
  };
  int64_t count = plan.blockRows * plan.tiles;
  int64_t pixels =
      (2 * plan.blockRows + 2) * most(plan.w.size, plan.w.outputs) * plan.lanes;
  plan.ldTiles = aligned(plan.partChannels, plan.lanes) + apart;
  plan.tilesPlace = spread(count * plan.ldTiles);
  plan.ofTiles = place(places * plan.tilesPlace);
  plan.ofPixels = place(pixels);
  if (of.ofWeight) {
    plan.ldGrads = plan.partRows + apart;
    plan.gradsPlace = spread(count * plan.ldGrads);
    plan.ofGrads = place(places * plan.gradsPlace);
    plan.ldSums = plan.partRows + apart;
    plan.sumsPlace =
        spread(aligned(plan.partChannels, plan.lanes) * plan.ldSums);
    plan.ofSums = place(places * plan.sumsPlace);
    plan.ofWide =
        place(most(of.widens ? pixels : 0,
                   plan.partChannels * taps * (plan.ldSums + plan.partRows)));
  } else {
    plan.ofWeight = place(places * plan.weightPlace());
    plan.ldSums = plan.subRows + apart;
    plan.sumsPlace = spread(count * plan.ldSums);
    plan.ofSums = place(places * plan.sumsPlace);
    plan.ofWide =
        place(most(of.widens ? pixels : 0,
                   2 * plan.columns * most(of.channels, plan.columns) * taps));
  }
  plan.scratch = used;
}

WinogradConvolution *
trainc::createWinogradConvolution(const ConvolutionPlan &of) {
  if (!isWorthIt(of))
    return nullptr;
  auto *plan = create<WinogradConvolution>();
  const Phase &phase = of.phases[0];
  plan->of = &of;
  plan->h = phase.h;
  plan->w = phase.w;
  plan->reversed = phase.h.step < 0;
  plan->top = phase.h.first + (plan->reversed ? 2 * phase.h.step : 0);
  plan->left = phase.w.first + (plan->reversed ? 2 * phase.w.step : 0);
  plan->tileRows = piecesOf(phase.h.outputs, 2);
  plan->tiles = piecesOf(phase.w.outputs, 2);
  plan->lanes = kernels().winogradLanes;
  plan->columns = 2 * plan->lanes;
  if (of.ofWeight)
    cutWeight(*plan);
  else
    cutOutputs(*plan);
  constexpr int64_t rows = 64; // of C at once: their sums stay in the cache
  plan->subRows = least(plan->partRows, rows);
  placeScratch(*plan);
  return plan;
}

void trainc::destroyWinogradConvolution(WinogradConvolution *plan) {
  destroy(plan);
}

int64_t trainc::winogradConvolutionTileCount(const WinogradConvolution *plan) {
  return plan->of->d.groups * plan->parts * plan->jobsOfPart;
}

uint64_t trainc::winogradConvolutionScratch(const WinogradConvolution *plan) {
  return plan->scratch;
}

//===----------------------------------------------------------------------===//
// Jobs
//===----------------------------------------------------------------------===//

namespace {
/// Rows of tiles of one example.
struct Segment {
  int64_t example, row, rows, first; // the first of its tiles in the block
};

struct Job {
  const WinogradConvolution &plan;
  const char *image, *factor;
  char *result, *scratch;
  const ConvolutionPlan &of = *plan.of;
  const trainc_convolution_detail &d = of.d;
  const Kernels &table = kernels();
  int64_t group = 0, firstRow = 0, numRows = 0;

  void run(int64_t index);

private:
  float *at(uint64_t place) const {
    return reinterpret_cast<float *>(scratch + place);
  }
  template <typename Body> void forEachSegment(int64_t block, Body body) const;
  int64_t tilesOfBlock(int64_t block) const {
    int64_t all = plan.tileRows * d.batch;
    return least(plan.blockRows, all - block * plan.blockRows) * plan.tiles;
  }
  const float *widened(const char *from, int64_t rows, int64_t columns,
                       int64_t &ld) const;
  void copyPixels(const char *planes, int64_t count, int64_t elements,
                  int64_t first, int64_t number) const;
  void transformTiles(int64_t block, int64_t channel, int64_t channels) const;
  void transformGradients(int64_t block) const;
  void transformWeight() const;
  void transformPanel(int64_t row, int64_t rows, float *to) const;
  void computeOutputs(int64_t block) const;
  void scatter(int64_t block, int64_t row, int64_t rows) const;
  void computeWeight(int64_t channel, int64_t channels) const;
};
} // namespace

template <typename Body>
void Job::forEachSegment(int64_t block, Body body) const {
  int64_t begin = block * plan.blockRows, all = plan.tileRows * d.batch;
  int64_t end = least(begin + plan.blockRows, all);
  for (int64_t at = begin; at < end;) {
    int64_t row = at % plan.tileRows;
    int64_t rows = least(plan.tileRows - row, end - at);
    body(Segment{at / plan.tileRows, row, rows, (at - begin) * plan.tiles});
    at += rows;
  }
}

/// A matrix of operands in f32: where it is, or in scratch.
const float *Job::widened(const char *from, int64_t rows, int64_t columns,
                          int64_t &ld) const {
  if (!of.widens)
    return reinterpret_cast<const float *>(from);
  widenRows(d.type, rows, columns, from, ld, at(plan.ofWide));
  ld = columns;
  return at(plan.ofWide);
}

/// Pixels [first, first + number) of `count` planes.
void Job::copyPixels(const char *planes, int64_t count, int64_t elements,
                     int64_t first, int64_t number) const {
  int64_t ld = elements;
  const float *from =
      widened(planes + first * of.storedSize, count, number, ld);
  float *to = at(plan.ofPixels);
  if (count < plan.lanes)
    memset(to, 0, static_cast<size_t>(number * plan.lanes) * sizeof(float));
  table.transposeF32(count, number, from, ld, to, plan.lanes);
}

/// What the tiles of a block see of channels.
void Job::transformTiles(int64_t block, int64_t channel,
                         int64_t channels) const {
  int64_t elements = plan.h.size * plan.w.size;
  forEachSegment(block, [&](const Segment &s) {
    int64_t top = 2 * s.row + plan.top;
    int64_t begin = least(most(top, 0), plan.h.size);
    int64_t end = most(least(top + 2 * s.rows + 2, plan.h.size), begin);
    int64_t first = (s.example * d.groups + group) * of.channels + channel;
    for (int64_t c = 0; c < channels; c += plan.lanes) {
      copyPixels(image + (first + c) * elements * of.storedSize,
                 least(plan.lanes, channels - c), elements, begin * plan.w.size,
                 (end - begin) * plan.w.size);
      table.winogradInputs({end - begin, plan.w.size, top - begin, plan.left,
                            s.rows, plan.tiles, plan.tilesPlace, plan.ldTiles,
                            at(plan.ofPixels),
                            at(plan.ofTiles) + s.first * plan.ldTiles + c});
    }
  });
}

/// The gradients of the job's rows of C at the outputs of a block.
void Job::transformGradients(int64_t block) const {
  int64_t elements = d.out_h * d.out_w;
  forEachSegment(block, [&](const Segment &s) {
    int64_t begin = 2 * s.row, end = least(begin + 2 * s.rows, d.out_h);
    int64_t first = (s.example * d.groups + group) * d.outputs + firstRow;
    for (int64_t r = 0; r < numRows; r += plan.lanes) {
      copyPixels(factor + (first + r) * elements * of.storedSize,
                 least(plan.lanes, numRows - r), elements, begin * d.out_w,
                 (end - begin) * d.out_w);
      table.winogradGradients({end - begin, d.out_w, 0, 0, s.rows, plan.tiles,
                               plan.gradsPlace, plan.ldGrads, at(plan.ofPixels),
                               at(plan.ofGrads) + s.first * plan.ldGrads + r});
    }
  });
}

/// A panel of rows of C, for all channels that are summed.
void Job::transformPanel(int64_t row, int64_t rows, float *to) const {
  int64_t ofOutput = d.channels * taps;
  const char *from = factor + group * d.outputs * ofOutput * of.storedSize;
  float *packed =
      at(plan.ofWide) + plan.columns * most(of.channels, plan.columns) * taps;
  if (!of.ofInput) {
    int64_t ld = ofOutput;
    const float *matrix =
        widened(from + row * ofOutput * of.storedSize, rows, ofOutput, ld);
    table.transposeF32(rows, ofOutput, matrix, ld, packed, plan.columns);
  } else {
    for (int64_t o = 0; o < d.outputs; ++o) {
      // Whole vectors, of which the next output's window replaces what is not this one's.
      int64_t width = o + 1 < d.outputs ? aligned(taps, plan.lanes) : taps;
      int64_t ld = rows * taps;
      const float *matrix = widened(
          from + (o * ofOutput + row * taps) * of.storedSize, 1, ld, ld);
      table.transposeF32(rows, width, matrix, taps,
                         packed + o * taps * plan.columns, plan.columns);
    }
  }
  table.winogradWeights(
      {plan.reversed, of.channels, plan.weightPlace(), packed, to});
}

void Job::transformWeight() const {
  for (int64_t row = 0; row < numRows; row += plan.columns)
    transformPanel(firstRow + row, least(plan.columns, numRows - row),
                   at(plan.ofWeight) + row * of.channels);
}

/// All outputs of a block, some rows of C at a time.
void Job::computeOutputs(int64_t block) const {
  transformTiles(block, 0, of.channels);
  for (int64_t row = 0; row < numRows; row += plan.subRows) {
    int64_t rows = least(plan.subRows, numRows - row);
    for (int64_t i = 0; i < places; ++i)
      table.winogradMultiply(
          {false, false, tilesOfBlock(block), rows, of.channels, plan.ldTiles,
           of.channels * plan.columns, plan.ldSums,
           at(plan.ofTiles) + i * plan.tilesPlace,
           at(plan.ofWeight) + i * plan.weightPlace() + row * of.channels,
           at(plan.ofSums) + i * plan.sumsPlace});
    scatter(block, row, rows);
  }
}

void Job::scatter(int64_t block, int64_t row, int64_t rows) const {
  auto size = static_cast<int64_t>(trainc_dtype_size(d.result_type));
  int64_t height = plan.h.outputs, width = plan.w.outputs;
  forEachSegment(block, [&](const Segment &s) {
    int64_t seen = least(2 * s.rows, height - 2 * s.row), pixels = seen * width;
    int64_t first =
        (s.example * d.groups + group) * of.rowsOfC + firstRow + row;
    for (int64_t r = 0; r < rows; r += plan.lanes) {
      table.winogradOutputs({seen, width, 0, 0, s.rows, plan.tiles,
                             plan.sumsPlace, plan.ldSums, at(plan.ofPixels),
                             at(plan.ofSums) + s.first * plan.ldSums + r});
      int64_t count = least(plan.lanes, rows - r);
      char *to =
          result + ((first + r) * height * width + 2 * s.row * width) * size;
      storeTransposed(d.result_type, pixels, count, at(plan.ofPixels),
                      plan.lanes, at(plan.ofWide), to, height * width);
    }
  });
}

/// The gradient of the job's rows of the weight, at some channels.
void Job::computeWeight(int64_t channel, int64_t channels) const {
  auto *sums = at(plan.ofSums);
  for (int64_t block = 0; block < plan.blocks; ++block) {
    transformTiles(block, channel, channels);
    transformGradients(block);
    for (int64_t i = 0; i < places; ++i)
      table.winogradMultiply(
          {true, block > 0, channels, numRows, tilesOfBlock(block),
           plan.ldTiles, plan.ldGrads, plan.ldSums,
           at(plan.ofTiles) + i * plan.tilesPlace,
           at(plan.ofGrads) + i * plan.gradsPlace, sums + i * plan.sumsPlace});
  }
  int64_t depth = channels * taps, ld = d.channels * taps;
  float *wide = at(plan.ofWide);
  table.winogradWeightGradients({channels, numRows, plan.sumsPlace, plan.ldSums,
                                 plan.ldSums, sums, wide});
  auto size = static_cast<int64_t>(trainc_dtype_size(d.result_type));
  char *to =
      result + ((group * d.outputs + firstRow) * ld + channel * taps) * size;
  float *rows = wide + depth * plan.ldSums;
  if (!d.accumulate)
    return storeTransposed(d.result_type, depth, numRows, wide, plan.ldSums,
                           rows, to, ld);
  table.transposeF32(depth, numRows, wide, plan.ldSums, rows, depth);
  for (int64_t i = 0; i < numRows; ++i) {
    const void *sources[] = {to + i * ld * size, rows + i * depth};
    table.sumF32(sources, 2, to + i * ld * size, depth);
  }
}

void Job::run(int64_t index) {
  int64_t part = index % plan.parts;
  index /= plan.parts;
  group = index % d.groups;
  index /= d.groups;
  firstRow = part * plan.partRows;
  numRows = least(plan.partRows, of.rowsOfC - firstRow);
  if (of.ofWeight) {
    int64_t channel = index * plan.partChannels;
    return computeWeight(channel,
                         least(plan.partChannels, of.channels - channel));
  }
  transformWeight();
  int64_t begin = index * plan.blocksOfJob;
  int64_t end = least(begin + plan.blocksOfJob, plan.blocks);
  for (int64_t block = begin; block < end; ++block)
    computeOutputs(block);
}

void trainc::runWinogradConvolutionTile(const WinogradConvolution *plan,
                                        void *const *args, int64_t index,
                                        void *scratch) {
  int image = plan->of->ofInput ? 1 : 0;
  Job job = {*plan, static_cast<const char *>(args[image]),
             static_cast<const char *>(args[1 - image]),
             static_cast<char *>(args[2]), static_cast<char *>(scratch)};
  job.run(index);
}
