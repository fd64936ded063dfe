//===- convolution_tile.cpp - Computing a tile of a convolution -----------===//

#include "cpu/convolution_plan.h"
#include "cpu/rows.h"

using namespace trainc;

namespace {
/// Outputs that are computed together: rows of one example, or whole examples.
struct Block {
  int64_t example, examples, row, rows;
};

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
  void copyTaps(const Phase &phase, const char *from, char *to) const;
  void multiply(trainc_gemm_detail product, const char *a, const char *b,
                char *c);
  void multiplyPacked(const Phase &phase, const Block &block, int64_t channel,
                      int64_t channels, const trainc_gemm_detail &product,
                      char *c);
  void scatter(const Phase &phase, const Block &block);
};
} // namespace

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
  widenRows(d.type, 1, count, from, count, reinterpret_cast<float *>(to));
}

/// A phase's taps of the window of the weight at `from`.
void Tile::copyTaps(const Phase &phase, const char *from, char *to) const {
  constexpr size_t nine = 9 * sizeof(float); // the most common one, at once
  if (phase.taps() == plan.taps) {
    if (plan.taps * plan.size == nine)
      memcpy(to, from, nine);
    else
      copyFactor(from, plan.taps, to);
    return;
  }
  const int64_t *places = plan.places.data() + phase.places;
  for (int64_t i = 0; i < phase.taps(); ++i, to += plan.size)
    if (plan.size == sizeof(float))
      memcpy(to, from + places[i] * plan.size, sizeof(float));
    else
      copyFactor(from + places[i] * plan.size, 1, to);
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
  char *room = scratch + plan.ofA;
  // Some rows at a time: of those an output's elements stand together.
  constexpr int64_t together = 16;
  int64_t each = phase.taps() * size; // bytes of a channel
  for (int64_t first = 0; first < numRows; first += together)
    for (int64_t k = 0; k < channels; ++k)
      for (int64_t row = first; row < numRows && row < first + together; ++row)
        copyTaps(phase, at(channel + k, firstRow + row),
                 room + row * product.lda * size + k * each);
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

void trainc::packWeight(const ConvolutionPlan &plan, const Phase &phase,
                        const char *weight, int64_t group, int64_t firstRow,
                        int64_t rows, int64_t channel, int64_t channels,
                        float *to) {
  const trainc_convolution_detail &d = plan.d;
  int64_t output = d.channels * plan.taps; // elements from one to the next
  WindowFactor packed = {rows,
                         channels,
                         phase.taps(),
                         plan.ofInput ? plan.taps : output,
                         plan.ofInput ? output : plan.taps,
                         plan.places.data() + phase.places,
                         nullptr,
                         to};
  packed.from = weight + (group * d.outputs * output + firstRow * packed.row +
                          channel * packed.channel) *
                             plan.storedSize;
  const Kernels &table = kernels();
  (d.type == TRAINC_F32    ? table.packWindowsF32
   : d.type == TRAINC_BF16 ? table.packWindowsBf16
                           : table.packWindowsF16)(packed);
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

/// The product by our own loops, of which nothing is planned.
void Tile::multiplyPacked(const Phase &phase, const Block &block,
                          int64_t channel, int64_t channels,
                          const trainc_gemm_detail &product, char *c) {
  if (planned)
    return;
  int64_t ld;
  const char *columns = fillColumns(phase, block, channel, channels, ld);
  auto *a = reinterpret_cast<float *>(scratch + plan.ofA);
  packWeight(plan, phase, factor, group, firstRow, numRows, channel, channels,
             a);
  kernels().multiplyWindows(
      {product.accumulate != 0, numRows, product.n, product.k, product.ldc, a,
       product.k * kernels().windowRows,
       reinterpret_cast<const float *>(columns), plan.offsets.data(),
       reinterpret_cast<float *>(c)});
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
  for (int64_t i = 0; i < numRows; ++i, c += plan.ldC * plan.wideSize) {
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
  product.ldc = direct ? plane : plan.ldC;
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
    if (plan.packsWeight) {
      multiplyPacked(phase, block, channel, channels, product, c);
    } else {
      const char *a = weightOf(phase, channel, channels, product);
      const char *b = fillColumns(phase, block, channel, channels, product.ldb);
      multiply(product, a, b, c);
    }
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

trainc_status trainc::planConvolutionTile(ConvolutionPlan &plan,
                                          int64_t index) {
  Tile tile = {plan, &plan, nullptr, nullptr, nullptr, nullptr};
  tile.run(index);
  return tile.status;
}

bool trainc::runConvolutionTile(const ConvolutionPlan *plan, void *const *args,
                                int64_t index, void *scratch) {
  if (plan->depthwise) {
    runDepthwiseTile(plan->depthwise, args, index, scratch);
    return true;
  }
  if (plan->winograd) {
    runWinogradConvolutionTile(plan->winograd, args, index, scratch);
    return true;
  }
  if (plan->windows) {
    runWindowConvolutionTile(plan->windows, args, index, scratch);
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
