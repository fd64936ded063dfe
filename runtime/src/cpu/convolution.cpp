//===- convolution.cpp - Convolutions as sums of GEMMs --------------------===//

#include "cpu/convolution.h"
#include "cpu/depthwise.h"
#include "cpu/gemm.h"
#include "cpu/rows.h"

using namespace trainc;

namespace {
/// Outputs that are computed together: rows of one example, or whole examples.
struct Block {
  int64_t example, examples, row, rows;
};
} // namespace

struct trainc::ConvolutionPlan {
  trainc_convolution_detail d;
  Depthwise *depthwise = nullptr; // who computes it instead
  bool ofWeight, ofInput;         // which gradient, if one
  uint32_t wide;                  // the type of sums
  bool widens;                    // operands to f32, with their copies
  int64_t size, wideSize;         // bytes of an element: as multiplied, of sums
  int64_t storedSize;             // and of an operand
  int64_t rowsOfC;                // of a group
  int64_t channels;          // of a group of the planes whose windows are seen
  int64_t planes, planeSize; // of those planes: per example, elements
  int64_t taps;              // of the weight
  Array<Phase> phases;
  // Blocks of outputs, parts of the rows of C, and pieces of the channels.
  int64_t blockRows, rowBlocks, blockExamples, exampleBlocks, outputsOfBlock;
  int64_t partRows, parts, pieceChannels, pieces;
  int64_t ldColumns; // from one row of columns, or of a block of C, to the next
  // Where in the scratch what stands, in bytes.
  uint64_t ofA, ofC, ofRow, ofGemm, scratch;
  Array<GemmPlan *> products;

  /// A block of C is C itself, and its columns are the planes themselves.
  bool isDirect() const {
    return d.result_type == wide && blockExamples == 1 && phases.size() == 1;
  }
  bool isInPlace() const;
  /// Factors stand in scratch in the order in which they are multiplied.
  bool copiesWeight() const {
    return !ofWeight && (widens || (ofInput && taps > 1));
  }
  bool copiesGrad() const { return ofWeight && (widens || blockExamples > 1); }
};

//===----------------------------------------------------------------------===//
// Details
//===----------------------------------------------------------------------===//

static bool multiplied(int64_t a, int64_t b, int64_t &out) {
  return !__builtin_mul_overflow(a, b, &out);
}

/// Elements of the input, the weight and the output; false if they are too many.
static bool count(const trainc_convolution_detail &d, int64_t elements[3]) {
  int64_t examples;
  return multiplied(d.batch, d.groups, examples) &&
         multiplied(examples, d.channels, elements[0]) &&
         multiplied(elements[0], d.height, elements[0]) &&
         multiplied(elements[0], d.width, elements[0]) &&
         multiplied(d.groups, d.outputs, elements[1]) &&
         multiplied(elements[1], d.channels, elements[1]) &&
         multiplied(elements[1], d.window_h, elements[1]) &&
         multiplied(elements[1], d.window_w, elements[1]) &&
         multiplied(examples, d.outputs, elements[2]) &&
         multiplied(elements[2], d.out_h, elements[2]) &&
         multiplied(elements[2], d.out_w, elements[2]);
}

static uint32_t wideOf(uint32_t dtype) {
  return dtype == TRAINC_F64 ? TRAINC_F64 : TRAINC_F32;
}

/// Whether operands are widened: the back end multiplies f32 alone.
static bool widensOperands(const trainc_convolution_detail &d) {
  return d.back_end == TRAINC_BACK_END_VECTOR &&
         (d.type == TRAINC_BF16 || d.type == TRAINC_F16);
}

/// A GEMM of the convolution, without its sizes.
static trainc_gemm_detail productOf(const trainc_convolution_detail &d) {
  trainc_gemm_detail g = {};
  g.a_type = g.b_type = widensOperands(d) ? uint32_t(TRAINC_F32) : d.type;
  g.c_type = wideOf(d.type);
  g.back_end = d.back_end;
  g.batch = 1;
  return g;
}

const char *trainc::refuseConvolution(const trainc_convolution_detail &d) {
  constexpr int64_t most = INT32_MAX; // what GEMMs count with
  if (d.kind > TRAINC_CONVOLUTION_WEIGHT_GRADIENT)
    return "it is of an unknown kind";
  if (d.type > TRAINC_F16 || d.result_type > TRAINC_F16 ||
      (d.result_type != d.type && d.result_type != wideOf(d.type)))
    return "its result is neither of the operands' type nor f32";
  if (d.accumulate && (d.kind != TRAINC_CONVOLUTION_WEIGHT_GRADIENT ||
                       d.result_type != wideOf(d.type)))
    return "it accumulates, and is no gradient of a weight in f32 or f64";
  const int64_t sizes[] = {d.batch,      d.groups,    d.channels, d.outputs,
                           d.height,     d.width,     d.out_h,    d.out_w,
                           d.window_h,   d.window_w,  d.stride_h, d.stride_w,
                           d.dilation_h, d.dilation_w};
  for (int64_t size : sizes)
    if (size < 1 || size > most)
      return "a size is below 1 or above 2^31 - 1";
  if (d.low_h < 0 || d.low_w < 0 || d.low_h > most || d.low_w > most)
    return "its padding is below 0 or above 2^31 - 1";
  if (d.tiles < 1)
    return "it has no tiles";
  int64_t elements[3];
  if (!count(d, elements))
    return "it has too many elements";
  for (int64_t each : elements)
    if (each > INT64_MAX / 16)
      return "it has too many elements";
  int64_t plane = d.out_h * d.out_w, weight = d.channels * d.window_h;
  if (plane > most || d.height * d.width > most || weight > most ||
      weight * d.window_w > most)
    return "a plane or an output's weight has more than 2^31 - 1 elements";
  if (isDepthwise(d))
    return nullptr;
  trainc_gemm_detail g = productOf(d);
  g.m = g.n = g.k = 1;
  return refuseProduct(g);
}

void trainc::convolutionBytes(const trainc_convolution_detail &d,
                              uint64_t out_bytes[3]) {
  static constexpr int operands[][3] = {{0, 1, 2}, {1, 2, 0}, {0, 2, 1}};
  int64_t elements[3];
  count(d, elements);
  for (int i = 0; i < 3; ++i)
    out_bytes[i] = static_cast<uint64_t>(elements[operands[d.kind][i]]) *
                   trainc_dtype_size(i == 2 ? d.result_type : d.type);
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

static int64_t piecesOf(int64_t size, int64_t each) {
  return size / each + (size % each != 0);
}

/// `size` in as few equal pieces of at most `most` as there can be.
static int64_t even(int64_t size, int64_t most) {
  return piecesOf(size, piecesOf(size, most < 1 ? 1 : most));
}

/// Along one dimension what output p sees of `size` elements: tap t is element p stride + t
/// dilation - low.
static Windows forward(int64_t outputs, int64_t taps, int64_t size,
                       int64_t stride, int64_t dilation, int64_t low) {
  return {outputs, taps, size, stride, -low, dilation};
}

/// And element y = stride p + phase of the input's gradient of `size` elements of the
/// output's: tap t is element (y + low - t dilation) / stride, where that is whole.
static Windows backward(int64_t inputs, int64_t taps, int64_t size,
                        int64_t stride, int64_t dilation, int64_t low,
                        int64_t phase, int64_t &firstTap, int64_t &tapStep) {
  int64_t a = stride, b = dilation; // the greatest common divisor
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  tapStep = stride / a;
  auto reach = [&](int64_t tap) { return phase + low - tap * dilation; };
  for (firstTap = 0; firstTap < taps && reach(firstTap) % stride;)
    ++firstTap;
  int64_t count = firstTap < taps ? (taps - 1 - firstTap) / tapStep + 1 : 0;
  int64_t outputs = phase < inputs ? piecesOf(inputs - phase, stride) : 0;
  return {outputs,
          count,
          size,
          1,
          count ? reach(firstTap) / stride : 0,
          -tapStep * dilation / stride};
}

static void addPhases(ConvolutionPlan &plan) {
  const trainc_convolution_detail &d = plan.d;
  if (!plan.ofInput) {
    plan.phases.push({forward(d.out_h, d.window_h, d.height, d.stride_h,
                              d.dilation_h, d.low_h),
                      forward(d.out_w, d.window_w, d.width, d.stride_w,
                              d.dilation_w, d.low_w),
                      0, 0, 0, 0, 1, 1});
    return;
  }
  for (int64_t y = 0; y < d.stride_h && y < d.height; ++y)
    for (int64_t x = 0; x < d.stride_w && x < d.width; ++x) {
      Phase phase = {};
      phase.h = backward(d.height, d.window_h, d.out_h, d.stride_h,
                         d.dilation_h, d.low_h, y, phase.tapH, phase.tapStepH);
      phase.w = backward(d.width, d.window_w, d.out_w, d.stride_w, d.dilation_w,
                         d.low_w, x, phase.tapW, phase.tapStepW);
      phase.y = y;
      phase.x = x;
      plan.phases.push(phase);
    }
}

/// Whether windows are single elements, one after the other.
bool ConvolutionPlan::isInPlace() const {
  const Phase &phase = phases[0];
  auto isWhole = [](const Windows &x) {
    return x.taps == 1 && x.stride == 1 && x.first == 0 && x.outputs == x.size;
  };
  return !widens && blockExamples == 1 && phases.size() == 1 &&
         isWhole(phase.h) && isWhole(phase.w);
}

/// Cuts the convolution, by its detail alone.
static void cut(ConvolutionPlan &plan) {
  // A GEMM's columns; elements of a block of columns, half of a second level cache of
  // 1 MB in f32; rows and columns of C that are worth what a tile copies.
  constexpr int64_t columns = 256, elements = 1 << 17, rows = 64, width = 128;
  const Phase &first = plan.phases[0]; // the largest
  int64_t plane = first.h.outputs * first.w.outputs, batch = plan.d.batch;
  bool small = plane < columns;
  plan.blockRows = small ? first.h.outputs
                         : even(first.h.outputs, columns / first.w.outputs);
  plan.rowBlocks = piecesOf(first.h.outputs, plan.blockRows);
  plan.blockExamples = small ? even(batch, piecesOf(columns, plane)) : 1;
  plan.exampleBlocks = piecesOf(batch, plan.blockExamples);
  plan.outputsOfBlock = plan.blockExamples * plan.blockRows * first.w.outputs;
  plan.ldColumns = static_cast<int64_t>(
      alignUp(static_cast<uint64_t>(plan.outputsOfBlock), 16));

  int64_t most = elements / plan.ldColumns / plan.taps;
  if (plan.isInPlace())
    most = plan.channels;
  if (plan.ofWeight) { // pieces of channels are tiles, too
    int64_t wanted = piecesOf(plan.d.groups * plan.channels, plan.d.tiles);
    int64_t least = piecesOf(width, plan.taps);
    wanted = wanted < least ? least : wanted;
    most = most < wanted ? most : wanted;
  }
  plan.pieceChannels = even(plan.channels, most);
  plan.pieces = piecesOf(plan.channels, plan.pieceChannels);
  int64_t others =
      plan.d.groups *
      (plan.ofWeight ? plan.pieces : plan.rowBlocks * plan.exampleBlocks);
  int64_t parts = piecesOf(plan.d.tiles, others);
  int64_t mostParts = plan.rowsOfC / rows;
  parts = parts < mostParts ? parts : mostParts;
  auto part =
      static_cast<uint64_t>(piecesOf(plan.rowsOfC, parts < 1 ? 1 : parts));
  plan.partRows = static_cast<int64_t>(parts > 1 ? alignUp(part, 16) : part);
  plan.parts = piecesOf(plan.rowsOfC, plan.partRows);
}

/// Lays out the scratch but for what GEMMs need.
static void placeScratch(ConvolutionPlan &plan) {
  uint64_t used = 0;
  auto place = [&](int64_t rows, int64_t columns, int64_t size,
                   int64_t slack = 0) {
    uint64_t begin = used;
    used += alignUp(static_cast<uint64_t>(rows * columns * size + slack), 64);
    return begin;
  };
  int64_t depth = plan.pieceChannels * plan.taps;
  if (!plan.isInPlace())
    place(depth, plan.ldColumns, plan.size, columnsSlack);
  plan.ofA = used;
  if (plan.copiesWeight())
    place(plan.partRows, depth, plan.size);
  if (plan.copiesGrad())
    place(plan.partRows, plan.ldColumns, plan.size);
  int64_t widthOfC = plan.ofWeight ? depth : plan.ldColumns;
  plan.ofC = used;
  if (plan.ofWeight ? plan.d.result_type != plan.wide : !plan.isDirect())
    place(plan.partRows, widthOfC, plan.wideSize);
  plan.ofRow = place(1, widthOfC, plan.size);
  plan.ofGemm = plan.scratch = used;
}

namespace {
/// Computes a tile, or, without operands, makes the plans of its GEMMs.
struct Tile {
  const ConvolutionPlan &plan;
  ConvolutionPlan *planned; // or null
  const char *image, *factor;
  char *result, *scratch;
  const trainc_convolution_detail &d = plan.d;
  trainc_status status = TRAINC_OK;
  bool failed = false;
  // Of the tile: its group, its rows of C.
  int64_t group = 0, firstRow = 0, numRows = 0;

  void run(int64_t index);

private:
  int64_t setRows(int64_t index);
  Block blockAt(int64_t index) const;
  void computeOutputs(const Phase &phase, const Block &block);
  void computeWeight(int64_t piece);
  const char *fillColumns(const Phase &phase, const Block &block,
                          int64_t channel, int64_t channels, int64_t &ld);
  const char *weightOf(const Phase &phase, int64_t channel, int64_t channels,
                       trainc_gemm_detail &product);
  const char *gradOf(const Block &block, int64_t outputs, int64_t &ld);
  void copyFactor(const char *from, int64_t count, char *to) const;
  void multiply(trainc_gemm_detail product, const char *a, const char *b,
                char *c);
  void scatter(const Phase &phase, const Block &block);
};
} // namespace

static trainc_status planProducts(ConvolutionPlan &plan) {
  Tile tile = {plan, &plan, nullptr, nullptr, nullptr, nullptr};
  for (int64_t i = 0, count = convolutionTileCount(&plan); i < count; ++i) {
    tile.run(i);
    TRAINC_TRY(tile.status);
  }
  return TRAINC_OK;
}

trainc_status trainc::createConvolutionPlan(const trainc_convolution_detail &d,
                                            ConvolutionPlan **out_plan) {
  auto *plan = create<ConvolutionPlan>();
  plan->d = d;
  plan->ofInput = d.kind == TRAINC_CONVOLUTION_INPUT_GRADIENT;
  plan->ofWeight = d.kind == TRAINC_CONVOLUTION_WEIGHT_GRADIENT;
  plan->wide = wideOf(d.type);
  plan->widens = widensOperands(d);
  plan->storedSize = static_cast<int64_t>(trainc_dtype_size(d.type));
  plan->size = static_cast<int64_t>(trainc_dtype_size(productOf(d).a_type));
  plan->wideSize = static_cast<int64_t>(trainc_dtype_size(plan->wide));
  plan->rowsOfC = plan->ofInput ? d.channels : d.outputs;
  plan->channels = plan->ofInput ? d.outputs : d.channels;
  plan->planes = d.groups * plan->channels;
  plan->planeSize = plan->ofInput ? d.out_h * d.out_w : d.height * d.width;
  plan->taps = d.window_h * d.window_w;
  addPhases(*plan);
  if (isDepthwise(d)) {
    if (!kernels().tapSumsF32) {
      destroyConvolutionPlan(plan);
      return fail(TRAINC_UNSUPPORTED, "a convolution is compiled for AVX2, "
                                      "which this CPU does not have");
    }
    plan->depthwise = createDepthwise(d, plan->phases);
    plan->scratch = depthwiseScratch(plan->depthwise);
    *out_plan = plan;
    return TRAINC_OK;
  }
  cut(*plan);
  placeScratch(*plan);
  trainc_status status = planProducts(*plan);
  if (status != TRAINC_OK)
    destroyConvolutionPlan(plan);
  else
    *out_plan = plan;
  return status;
}

void trainc::destroyConvolutionPlan(ConvolutionPlan *plan) {
  if (!plan)
    return;
  for (GemmPlan *product : plan->products)
    destroyGemmPlan(product);
  destroyDepthwise(plan->depthwise);
  destroy(plan);
}

const trainc_convolution_detail &
trainc::convolutionDetail(const ConvolutionPlan *plan) {
  return plan->d;
}

int64_t trainc::convolutionTileCount(const ConvolutionPlan *plan) {
  if (plan->depthwise)
    return depthwiseTileCount(plan->depthwise);
  return plan->d.groups * plan->parts *
         (plan->ofWeight ? plan->pieces
                         : plan->rowBlocks * plan->exampleBlocks);
}

uint64_t trainc::convolutionScratch(const ConvolutionPlan *plan) {
  return plan->scratch;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// Sets group and rows; returns what is left of the index.
int64_t Tile::setRows(int64_t index) {
  int64_t part = index % plan.parts;
  index /= plan.parts;
  group = index % d.groups;
  firstRow = part * plan.partRows;
  numRows = least(plan.partRows, plan.rowsOfC - firstRow);
  return index / d.groups;
}

Block Tile::blockAt(int64_t index) const {
  const Phase &first = plan.phases[0];
  int64_t row = index % plan.rowBlocks * plan.blockRows;
  int64_t example = index / plan.rowBlocks * plan.blockExamples;
  return {example, least(plan.blockExamples, d.batch - example), row,
          least(plan.blockRows, first.h.outputs - row)};
}

void Tile::run(int64_t index) {
  index = setRows(index);
  if (plan.ofWeight)
    return computeWeight(index);
  for (const Phase &phase : plan.phases) {
    Block block = blockAt(index);
    block.rows = least(block.rows, phase.h.outputs - block.row);
    if (block.rows > 0)
      computeOutputs(phase, block);
  }
}

/// The columns of a block through `channels` of the group's, a row for each tap.
const char *Tile::fillColumns(const Phase &phase, const Block &block,
                              int64_t channel, int64_t channels, int64_t &ld) {
  bool inPlace = plan.isInPlace();
  ld = inPlace ? plan.planeSize : plan.ldColumns;
  if (planned)
    return nullptr;
  int64_t plane = block.example * plan.planes + group * plan.channels + channel;
  const char *from = image + plane * plan.planeSize * plan.storedSize;
  if (inPlace)
    return from + block.row * phase.w.outputs * plan.size;
  Columns columns = {phase.h,
                     phase.w,
                     channels,
                     plan.planeSize,
                     block.row,
                     block.rows,
                     block.examples,
                     plan.planes * plan.planeSize,
                     from,
                     image,
                     image + d.batch * plan.planes * plan.planeSize *
                                 plan.storedSize,
                     ld,
                     scratch};
  const Kernels &table = kernels();
  (plan.widens ? d.type == TRAINC_BF16 ? table.columnsBf16 : table.columnsF16
   : plan.size == 2 ? table.columns2
   : plan.size == 4 ? table.columns4
                    : table.columns8)(columns);
  return scratch;
}

/// `count` elements of an operand as they are multiplied.
void Tile::copyFactor(const char *from, int64_t count, char *to) const {
  if (!plan.widens) {
    memcpy(to, from, static_cast<size_t>(count * plan.size));
    return;
  }
  auto widen = d.type == TRAINC_BF16 ? kernels().widenBf16 : kernels().widenF16;
  widen(1, count, reinterpret_cast<const uint16_t *>(from), count,
        reinterpret_cast<float *>(to));
}

/// The weight's taps of a phase, between the tile's rows and `channels`.
const char *Tile::weightOf(const Phase &phase, int64_t channel,
                           int64_t channels, trainc_gemm_detail &product) {
  int64_t outputsOfGroup = group * d.outputs, size = plan.size;
  auto at = [&](int64_t output, int64_t input) {
    return factor + ((outputsOfGroup + output) * d.channels + input) *
                        plan.taps * plan.storedSize;
  };
  bool copies = plan.copiesWeight();
  if (copies) {
    product.lda = channels * phase.taps();
  } else {
    product.lda = d.channels * plan.taps;
    product.transpose_a = plan.ofInput;
  }
  if (planned)
    return nullptr;
  if (!copies)
    return plan.ofInput ? at(channel, firstRow) : at(firstRow, channel);
  char *room = scratch + plan.ofA, *to = room;
  if (!plan.ofInput) {
    for (int64_t row = 0; row < numRows; ++row, to += product.lda * size)
      copyFactor(at(firstRow + row, channel), product.lda, to);
    return room;
  }
  for (int64_t row = 0; row < numRows; ++row)
    for (int64_t k = 0; k < channels; ++k) {
      const char *from = at(channel + k, firstRow + row);
      constexpr size_t nine = 9 * sizeof(float); // the most common one, at once
      if (!plan.widens && phase.taps() == plan.taps &&
          plan.taps * size == nine) {
        memcpy(to, from, nine);
        to += nine;
        continue;
      }
      if (phase.taps() == plan.taps) {
        copyFactor(from, plan.taps, to);
        to += plan.taps * size;
        continue;
      }
      for (int64_t i = 0; i < phase.h.taps; ++i)
        for (int64_t j = 0; j < phase.w.taps; ++j, to += size) {
          int64_t tap = (phase.tapH + i * phase.tapStepH) * d.window_w +
                        phase.tapW + j * phase.tapStepW;
          copyFactor(from + tap * plan.storedSize, 1, to);
        }
    }
  return room;
}

/// The gradients of the tile's rows at the outputs of a block.
const char *Tile::gradOf(const Block &block, int64_t outputs, int64_t &ld) {
  int64_t plane = d.out_h * d.out_w;
  auto at = [&](int64_t example, int64_t row) {
    int64_t output = (example * d.groups + group) * d.outputs + firstRow + row;
    return factor + (output * plane + block.row * d.out_w) * plan.storedSize;
  };
  bool copies = plan.copiesGrad();
  ld = copies ? plan.ldColumns : plane;
  if (planned)
    return nullptr;
  if (!copies)
    return at(block.example, 0);
  char *room = scratch + plan.ofA;
  int64_t each = outputs / block.examples;
  for (int64_t row = 0; row < numRows; ++row)
    for (int64_t e = 0; e < block.examples; ++e)
      copyFactor(at(block.example + e, row), each,
                 room + (row * ld + e * each) * plan.size);
  return room;
}

void Tile::multiply(trainc_gemm_detail product, const char *a, const char *b,
                    char *c) {
  product.tile_m = product.m;
  product.tile_n = product.n;
  for (const GemmPlan *known : plan.products) {
    if (memcmp(&gemmDetail(known), &product, sizeof(product)))
      continue;
    if (planned)
      return;
    void *args[] = {const_cast<char *>(a), const_cast<char *>(b), c};
    for (int64_t i = 0; i < gemmTileCount(known); ++i)
      failed |= !runGemmTile(known, args, i, scratch + plan.ofGemm, nullptr);
    return;
  }
  // Only here when the plan is made.
  GemmPlan *made = nullptr;
  if (status == TRAINC_OK)
    status = createGemmPlan(product, /*threads=*/1, &made);
  if (!made)
    return;
  planned->products.push(made);
  uint64_t needed = plan.ofGemm + gemmScratch(made);
  if (needed > planned->scratch)
    planned->scratch = needed;
}

/// Copies a block of C to where its outputs are.
void Tile::scatter(const Phase &phase, const Block &block) {
  int64_t strideH = plan.ofInput ? d.stride_h : 1;
  int64_t strideW = plan.ofInput ? d.stride_w : 1;
  int64_t height = plan.ofInput ? d.height : d.out_h;
  int64_t width = plan.ofInput ? d.width : d.out_w;
  auto size = static_cast<int64_t>(trainc_dtype_size(d.result_type));
  int64_t outputs = phase.w.outputs;
  const char *c = scratch + plan.ofC;
  for (int64_t i = 0; i < numRows; ++i, c += plan.ldColumns * plan.wideSize) {
    const char *row =
        narrowed(d.result_type, c, block.examples * block.rows * outputs,
                 scratch + plan.ofRow);
    for (int64_t e = 0; e < block.examples; ++e)
      for (int64_t p = 0; p < block.rows; ++p, row += outputs * size) {
        int64_t plane =
            ((block.example + e) * d.groups + group) * plan.rowsOfC + firstRow +
            i;
        int64_t y = phase.y + (block.row + p) * strideH;
        char *to = result + ((plane * height + y) * width + phase.x) * size;
        copyApart(d.result_type, row, outputs, strideW, to);
      }
  }
}

/// The tile's rows of a block of outputs, or of the gradient of the input.
void Tile::computeOutputs(const Phase &phase, const Block &block) {
  trainc_gemm_detail product = productOf(d);
  product.m = numRows;
  product.n = block.examples * block.rows * phase.w.outputs;
  bool direct = plan.isDirect();
  int64_t plane = plan.phases[0].h.outputs * plan.phases[0].w.outputs;
  product.ldc = direct ? plane : plan.ldColumns;
  char *c = planned ? nullptr : scratch + plan.ofC;
  if (direct && !planned) {
    int64_t first =
        (block.example * d.groups + group) * plan.rowsOfC + firstRow;
    c = result + (first * plane + block.row * phase.w.outputs) * plan.wideSize;
  }
  for (int64_t i = 0; !phase.taps() && !planned && i < numRows; ++i)
    memset(c + i * product.ldc * plan.wideSize, 0,
           static_cast<size_t>(product.n * plan.wideSize));
  for (int64_t piece = 0; phase.taps() && piece < plan.pieces; ++piece) {
    int64_t channel = piece * plan.pieceChannels;
    int64_t channels = least(plan.pieceChannels, plan.channels - channel);
    product.k = channels * phase.taps();
    const char *a = weightOf(phase, channel, channels, product);
    const char *b = fillColumns(phase, block, channel, channels, product.ldb);
    multiply(product, a, b, c);
    product.accumulate = 1;
  }
  if (!direct && !planned)
    scatter(phase, block);
}

/// The gradient of the tile's rows of the weight, at a piece of their channels.
void Tile::computeWeight(int64_t piece) {
  const Phase &phase = plan.phases[0];
  int64_t channel = piece * plan.pieceChannels;
  int64_t channels = least(plan.pieceChannels, plan.channels - channel);
  trainc_gemm_detail product = productOf(d);
  product.m = numRows;
  product.n = channels * plan.taps;
  product.transpose_b = 1;
  product.accumulate = d.accumulate;
  bool direct = d.result_type == plan.wide;
  int64_t ldResult = d.channels * plan.taps;
  product.ldc = direct ? ldResult : plan.pieceChannels * plan.taps;
  int64_t offset =
      (group * d.outputs + firstRow) * ldResult + channel * plan.taps;
  char *c = nullptr;
  if (!planned)
    c = direct ? result + offset * plan.wideSize : scratch + plan.ofC;
  int64_t blocks = plan.rowBlocks * plan.exampleBlocks;
  for (int64_t i = 0; i < blocks; ++i) {
    Block block = blockAt(i);
    product.k = block.examples * block.rows * phase.w.outputs;
    const char *b = fillColumns(phase, block, channel, channels, product.ldb);
    const char *a = gradOf(block, product.k, product.lda);
    multiply(product, a, b, c);
    product.accumulate = 1;
  }
  for (int64_t i = 0; !direct && !planned && i < numRows; ++i) {
    const char *row =
        narrowed(d.result_type, c + i * product.ldc * plan.wideSize, product.n,
                 scratch + plan.ofRow);
    copyApart(d.result_type, row, product.n, 1,
              result +
                  (offset + i * ldResult) *
                      static_cast<int64_t>(trainc_dtype_size(d.result_type)));
  }
}

bool trainc::runConvolutionTile(const ConvolutionPlan *plan, void *const *args,
                                int64_t index, void *scratch) {
  if (plan->depthwise) {
    runDepthwiseTile(plan->depthwise, args, index, scratch);
    return true;
  }
  // The planes whose windows are seen, and what they are multiplied with.
  int image = plan->ofInput ? 1 : 0;
  Tile tile = {*plan,
               nullptr,
               static_cast<const char *>(args[image]),
               static_cast<const char *>(args[1 - image]),
               static_cast<char *>(args[2]),
               static_cast<char *>(scratch)};
  tile.run(index);
  return !tile.failed;
}
