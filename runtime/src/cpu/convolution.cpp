//===- convolution.cpp - Convolutions as sums of GEMMs --------------------===//

#include "cpu/convolution_plan.h"
#include "cpu/kernels.h"
#include "cpu/openblas.h"

using namespace trainc;

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
trainc_gemm_detail trainc::productOf(const trainc_convolution_detail &d) {
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

static void addPhase(ConvolutionPlan &plan, Phase phase) {
  phase.places = plan.places.size();
  for (int64_t i = 0; i < phase.h.taps; ++i)
    for (int64_t j = 0; j < phase.w.taps; ++j)
      plan.places.push((phase.tapH + i * phase.tapStepH) * plan.d.window_w +
                       phase.tapW + j * phase.tapStepW);
  plan.phases.push(phase);
}

static void addPhases(ConvolutionPlan &plan) {
  const trainc_convolution_detail &d = plan.d;
  if (!plan.ofInput) {
    addPhase(plan, {forward(d.out_h, d.window_h, d.height, d.stride_h,
                            d.dilation_h, d.low_h),
                    forward(d.out_w, d.window_w, d.width, d.stride_w,
                            d.dilation_w, d.low_w),
                    0, 0, 0, 0, 1, 1, 0});
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
      addPhase(plan, phase);
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

/// Cuts the convolution.
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
  plan.cachedChannels = even(plan.channels, most);
  if (plan.ofWeight) { // pieces of channels are tiles, too
    int64_t wanted = piecesOf(plan.d.groups * plan.channels, plan.tiles);
    int64_t least = piecesOf(width, plan.taps);
    wanted = wanted < least ? least : wanted;
    most = most < wanted ? most : wanted;
  }
  plan.pieceChannels = even(plan.channels, most);
  plan.pieces = piecesOf(plan.channels, plan.pieceChannels);
  int64_t others =
      plan.d.groups *
      (plan.ofWeight ? plan.pieces : plan.rowBlocks * plan.exampleBlocks);
  int64_t parts = piecesOf(plan.tiles, others);
  // Half of that rather than that threads have nothing to do.
  int64_t mostParts = plan.rowsOfC / rows;
  if (others * mostParts < plan.tiles / 2)
    mostParts = plan.rowsOfC / (rows / 2);
  parts = parts < mostParts ? parts : mostParts;
  auto part =
      static_cast<uint64_t>(piecesOf(plan.rowsOfC, parts < 1 ? 1 : parts));
  plan.partRows = static_cast<int64_t>(parts > 1 ? alignUp(part, 16) : part);
  plan.parts = piecesOf(plan.rowsOfC, plan.partRows);

  plan.packsWeight =
      plan.d.back_end == TRAINC_BACK_END_VECTOR && plan.d.type != TRAINC_F64 &&
      (plan.ofInput || (plan.widens && !plan.ofWeight)) && !plan.isInPlace();
  plan.ldC = plan.ldColumns;
  if (plan.packsWeight) {
    plan.ldC = static_cast<int64_t>(
        alignUp(static_cast<uint64_t>(plan.ldColumns), windowColumns));
    for (int64_t i = 0; i < plan.pieceChannels * plan.taps; ++i)
      plan.offsets.push(i * plan.ldColumns);
  }
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
    place(depth, plan.ldColumns, plan.size,
          columnsSlack + windowColumns * plan.size);
  plan.ofA = used;
  if (plan.copiesWeight())
    place(plan.partRows, depth, plan.size);
  if (plan.packsWeight)
    place(plan.partRows + kernels().windowRows, depth, plan.size);
  if (plan.copiesGrad())
    place(plan.partRows, plan.ldColumns, plan.size);
  int64_t widthOfC = plan.ofWeight ? depth : plan.ldC;
  plan.ofC = used;
  if (plan.ofWeight ? plan.d.result_type != plan.wide : !plan.isDirect())
    place(plan.partRows, widthOfC, plan.wideSize);
  plan.ofRow = place(1, widthOfC, plan.size);
  plan.ofGemm = plan.scratch = used;
}

static trainc_status planProducts(ConvolutionPlan &plan, unsigned threads) {
  for (int64_t i = 0, count = convolutionTileCount(&plan); i < count; ++i)
    TRAINC_TRY(planConvolutionTile(plan, i));
  for (const GemmPlan *product : plan.products)
    if (usesOpenBlas(product)) { // of each, threads run tiles at once
      const OpenBlas *blas;
      return loadOpenBlas(threads, &blas);
    }
  return TRAINC_OK;
}

trainc_status trainc::createConvolutionPlan(const trainc_convolution_detail &d,
                                            unsigned threads,
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
  plan->tiles =
      d.back_end == TRAINC_BACK_END_VECTOR ? 2 * int64_t(threads) : d.tiles;
  addPhases(*plan);
  if (d.back_end == TRAINC_BACK_END_VECTOR && !kernels().multiplyF32) {
    destroyConvolutionPlan(plan);
    return fail(TRAINC_UNSUPPORTED, "a convolution is compiled for AVX2, "
                                    "which this CPU does not have");
  }
  if (isDepthwise(d))
    plan->depthwise = createDepthwise(d, plan->phases);
  if (plan->depthwise) {
    plan->scratch = depthwiseScratch(plan->depthwise);
    *out_plan = plan;
    return TRAINC_OK;
  }
  cut(*plan);
  plan->winograd = createWinogradConvolution(*plan);
  if (plan->winograd) {
    plan->scratch = winogradConvolutionScratch(plan->winograd);
    *out_plan = plan;
    return TRAINC_OK;
  }
  if (!plan->isInPlace())
    plan->windows = createWindowConvolution(*plan);
  if (plan->windows) {
    plan->scratch = windowConvolutionScratch(plan->windows);
    *out_plan = plan;
    return TRAINC_OK;
  }
  placeScratch(*plan);
  trainc_status status = planProducts(*plan, threads);
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
  destroyWindowConvolution(plan->windows);
  destroyWinogradConvolution(plan->winograd);
  destroy(plan);
}

const trainc_convolution_detail &
trainc::convolutionDetail(const ConvolutionPlan *plan) {
  return plan->d;
}

int64_t trainc::convolutionTileCount(const ConvolutionPlan *plan) {
  if (plan->depthwise)
    return depthwiseTileCount(plan->depthwise);
  if (plan->winograd)
    return winogradConvolutionTileCount(plan->winograd);
  if (plan->windows)
    return windowConvolutionTileCount(plan->windows);
  return plan->d.groups * plan->parts *
         (plan->ofWeight ? plan->pieces
                         : plan->rowBlocks * plan->exampleBlocks);
}

uint64_t trainc::convolutionScratch(const ConvolutionPlan *plan) {
  return plan->scratch;
}
