//===- depthwise.cpp - Convolutions of one channel to one output ----------===//

#include "cpu/depthwise.h"
#include "cpu/rows.h"

using namespace trainc;

namespace {
/// A phase of the result: where its taps are in the planes and in the weight.
struct Part {
  int64_t rows, columns; // outputs
  int64_t y, x;
  int64_t elements; // of the planes, from the first output to the last
  size_t firstTap;
  int64_t taps;
};
} // namespace

struct trainc::Depthwise {
  trainc_convolution_detail d;
  uint32_t wide; // the type of sums
  int64_t size, wideSize, resultSize;
  // The planes that are seen: elements of one as it is, and its copies.
  int64_t planeSize;
  Array<PlaneCopy> copies; // their geometry
  int64_t pitch, copyElements;
  Array<Part> parts;
  Array<int64_t> offsets; // by tap of a part, in the copies
  Array<int64_t> taps;    // of the weight
  int64_t window, mostElements, planesOfTile;

  bool ofInput() const { return d.kind == TRAINC_CONVOLUTION_INPUT_GRADIENT; }
  bool ofWeight() const { return d.kind == TRAINC_CONVOLUTION_WEIGHT_GRADIENT; }
  /// Planes of the result, or of the weight.
  int64_t planes() const { return ofWeight() ? d.groups : d.batch * d.groups; }
};

bool trainc::isDepthwise(const trainc_convolution_detail &d) {
  return d.back_end == TRAINC_BACK_END_VECTOR && d.channels == 1 &&
         d.outputs == 1 && d.groups > 1;
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

static void addPart(Depthwise &plan, const Phase &phase) {
  Part part = {phase.h.outputs,
               phase.w.outputs,
               phase.y,
               phase.x,
               (phase.h.outputs - 1) * plan.pitch + phase.w.outputs,
               plan.taps.size(),
               phase.taps()};
  for (int64_t i = 0; i < phase.h.taps; ++i)
    for (int64_t j = 0; j < phase.w.taps; ++j)
      plan.taps.push((phase.tapH + i * phase.tapStepH) * plan.d.window_w +
                     phase.tapW + j * phase.tapStepW);
  plan.parts.push(part);
  if (part.elements > plan.mostElements)
    plan.mostElements = part.elements;
}

static void seeUpTo(int64_t last, int64_t size, int64_t &seen) {
  int64_t end = last + 1 < size ? last + 1 : size;
  seen = end > seen ? end : seen;
}

/// A copy of the plane for each remainder by the strides that a tap has: output (p, q) sees,
/// through tap (i, j), row p + i dilation / stride of the one with the remainder. What no tap
/// sees is zero there, as zeros between gradients are multiplied with it.
static void copyByRemainder(Depthwise &plan, const Phase &phase) {
  const trainc_convolution_detail &d = plan.d;
  int64_t rows = d.out_h + (d.window_h - 1) * d.dilation_h / d.stride_h;
  plan.pitch = d.out_w + (d.window_w - 1) * d.dilation_w / d.stride_w;
  plan.copyElements = rows * plan.pitch + tapElements;
  Array<int64_t> remainders; // of the copies
  for (int64_t i = 0; i < d.window_h; ++i)
    for (int64_t j = 0; j < d.window_w; ++j) {
      int64_t y = i * d.dilation_h, x = j * d.dilation_w;
      int64_t remainder = y % d.stride_h * d.stride_w + x % d.stride_w;
      size_t copy = 0;
      while (copy < remainders.size() && remainders[copy] != remainder)
        ++copy;
      if (copy == remainders.size()) {
        remainders.push(remainder);
        plan.copies.push(
            {{rows, 1, 0, d.stride_h, y % d.stride_h - d.low_h, 0},
             {plan.pitch, 1, 0, d.stride_w, x % d.stride_w - d.low_w, 0},
             d.width,
             plan.pitch,
             nullptr,
             nullptr});
      }
      PlaneCopy &seen = plan.copies[copy];
      seeUpTo((d.out_h - 1) * d.stride_h + y - d.low_h, d.height, seen.h.size);
      seeUpTo((d.out_w - 1) * d.stride_w + x - d.low_w, d.width, seen.w.size);
      plan.offsets.push(static_cast<int64_t>(copy) * plan.copyElements +
                        y / d.stride_h * plan.pitch + x / d.stride_w);
    }
  addPart(plan, phase);
}

/// The least and the largest place that the windows of phases see, along one dimension.
static void extend(const Windows &x, int64_t &least, int64_t &most) {
  int64_t first = x.first, last = x.first + (x.taps - 1) * x.step;
  if (last < first) {
    int64_t other = first;
    first = last;
    last = other;
  }
  last += x.outputs - 1;
  least = first < least ? first : least;
  most = last > most ? last : most;
}

/// One copy, with all that the phases of an input's gradient see.
static void copyForPhases(Depthwise &plan, const Array<Phase> &phases) {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  for (const Phase &phase : phases)
    if (phase.taps()) {
      extend(phase.h, top, bottom);
      extend(phase.w, left, right);
    }
  int64_t rows = bottom - top + 1;
  plan.pitch = right - left + 1;
  plan.copyElements = rows * plan.pitch + tapElements;
  plan.copies.push({{rows, 1, plan.d.out_h, 1, top, 0},
                    {plan.pitch, 1, plan.d.out_w, 1, left, 0},
                    plan.d.out_w,
                    plan.pitch,
                    nullptr,
                    nullptr});
  for (const Phase &phase : phases) {
    for (int64_t i = 0; i < phase.h.taps; ++i)
      for (int64_t j = 0; j < phase.w.taps; ++j)
        plan.offsets.push((phase.h.first + i * phase.h.step - top) *
                              plan.pitch +
                          phase.w.first + j * phase.w.step - left);
    addPart(plan, phase);
  }
}

/// Whether the taps of each copy see its rows, or columns, from the first on without a gap. In
/// gradients of weights zeros are multiplied with what stands between.
static bool seesWithoutGap(int64_t outputs, int64_t window, int64_t stride,
                           int64_t dilation) {
  for (int64_t remainder = 0; remainder < stride; ++remainder) {
    int64_t seen = 0; // so many
    for (int64_t i = 0; i < window; ++i) {
      if (i * dilation % stride != remainder)
        continue;
      int64_t first = i * dilation / stride;
      if (first > seen)
        return false;
      seen = first + outputs;
    }
  }
  return true;
}

static bool isNear(const trainc_convolution_detail &d) {
  return (d.window_h - 1) * d.dilation_h <= farthestTap &&
         (d.window_w - 1) * d.dilation_w <= farthestTap;
}

Depthwise *trainc::createDepthwise(const trainc_convolution_detail &d,
                                   const Array<Phase> &phases) {
  bool ofWeight = d.kind == TRAINC_CONVOLUTION_WEIGHT_GRADIENT;
  if (!isNear(d) ||
      (ofWeight &&
       !(seesWithoutGap(d.out_h, d.window_h, d.stride_h, d.dilation_h) &&
         seesWithoutGap(d.out_w, d.window_w, d.stride_w, d.dilation_w))))
    return nullptr;
  auto *plan = create<Depthwise>();
  plan->d = d;
  plan->wide = d.type == TRAINC_F64 ? TRAINC_F64 : TRAINC_F32;
  plan->size = static_cast<int64_t>(trainc_dtype_size(d.type));
  plan->wideSize = static_cast<int64_t>(trainc_dtype_size(plan->wide));
  plan->resultSize = static_cast<int64_t>(trainc_dtype_size(d.result_type));
  plan->planeSize = plan->ofInput() ? d.out_h * d.out_w : d.height * d.width;
  plan->window = d.window_h * d.window_w;
  if (plan->ofInput())
    copyForPhases(*plan, phases);
  else
    copyByRemainder(*plan, phases[0]);
  // Multiply-adds of a tile that are worth its call.
  constexpr int64_t work = 1 << 18;
  int64_t each =
      plan->mostElements * plan->window * (plan->ofWeight() ? d.batch : 1);
  plan->planesOfTile = each < work ? work / (each + 1) + 1 : 1;
  return plan;
}

void trainc::destroyDepthwise(Depthwise *plan) { destroy(plan); }

int64_t trainc::depthwiseTileCount(const Depthwise *plan) {
  return (plan->planes() + plan->planesOfTile - 1) / plan->planesOfTile;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

namespace {
/// What a tile has in its scratch.
struct Room {
  const Depthwise &plan;
  char *copies, *weight, *chosen, *outputs, *sums, *row;
  uint64_t bytes = 0;

  Room(const Depthwise &plan, void *scratch) : plan(plan) {
    auto place = [&](int64_t elements) {
      char *begin = static_cast<char *>(scratch) + bytes;
      bytes += alignUp(static_cast<uint64_t>(elements * plan.wideSize), 64);
      return begin;
    };
    auto count = static_cast<int64_t>(plan.copies.size());
    copies = place(count * plan.copyElements);
    weight = place(plan.window);
    chosen = place(plan.window);
    outputs = place(plan.mostElements + plan.pitch + tapElements);
    sums = place(plan.window * tapLanes);
    row = place(plan.pitch > plan.window ? plan.pitch : plan.window);
  }

  void widen(PlaneCopy copy, const char *from, char *to) const;
  void widenRow(const char *from, int64_t count, char *to) const;
  void copyPlanes(const char *plane) const;
};
} // namespace

uint64_t trainc::depthwiseScratch(const Depthwise *plan) {
  return Room(*plan, nullptr).bytes;
}

void Room::widen(PlaneCopy copy, const char *from, char *to) const {
  const Kernels &table = kernels();
  copy.from = from;
  copy.to = to;
  (plan.d.type == TRAINC_F32    ? table.planeF32
   : plan.d.type == TRAINC_F64  ? table.planeF64
   : plan.d.type == TRAINC_BF16 ? table.planeBf16
                                : table.planeF16)(copy);
}

void Room::widenRow(const char *from, int64_t count, char *to) const {
  widen({{1, 1, 1, 1, 0, 0},
         {count, 1, count, 1, 0, 0},
         count,
         count,
         nullptr,
         nullptr},
        from, to);
}

void Room::copyPlanes(const char *plane) const {
  char *to = copies;
  for (const PlaneCopy &copy : plan.copies) {
    widen(copy, plane, to);
    int64_t slack = tapElements * plan.wideSize;
    to += plan.copyElements * plan.wideSize;
    memset(to - slack, 0, static_cast<size_t>(slack));
  }
}

/// One plane of the output, or of the gradient of the input.
static void computePlane(const Room &room, int64_t plane, void *const *args) {
  const Depthwise &plan = room.plan;
  const trainc_convolution_detail &d = plan.d;
  bool ofInput = plan.ofInput();
  auto *planes = static_cast<const char *>(args[ofInput ? 1 : 0]);
  auto *weight = static_cast<const char *>(args[ofInput ? 0 : 1]);
  room.copyPlanes(planes + plane * plan.planeSize * plan.size);
  room.widenRow(weight + plane % d.groups * plan.window * plan.size,
                plan.window, room.weight);
  int64_t strideH = ofInput ? d.stride_h : 1;
  int64_t strideW = ofInput ? d.stride_w : 1;
  int64_t height = ofInput ? d.height : d.out_h;
  int64_t width = ofInput ? d.width : d.out_w;
  auto *result =
      static_cast<char *>(args[2]) + plane * height * width * plan.resultSize;
  for (const Part &part : plan.parts) {
    for (int64_t t = 0; t < part.taps; ++t)
      memcpy(room.chosen + t * plan.wideSize,
             room.weight + plan.taps[part.firstTap + static_cast<size_t>(t)] *
                               plan.wideSize,
             static_cast<size_t>(plan.wideSize));
    Taps taps = {part.taps, part.elements, plan.offsets.data() + part.firstTap,
                 room.copies};
    (plan.wide == TRAINC_F64 ? kernels().tapSumsF64 : kernels().tapSumsF32)(
        taps, room.chosen, room.outputs);
    for (int64_t p = 0; p < part.rows; ++p) {
      const char *row =
          narrowed(d.result_type, room.outputs + p * plan.pitch * plan.wideSize,
                   part.columns, room.row);
      int64_t y = part.y + p * strideH;
      copyApart(d.result_type, row, part.columns, strideW,
                result + (y * width + part.x) * plan.resultSize);
    }
  }
}

template <typename T>
static void addLanes(const Depthwise &plan, char *lanes, char *sums) {
  for (int64_t t = 0; t < plan.window; ++t) {
    T *lane = reinterpret_cast<T *>(lanes) + t * tapLanes;
    for (int64_t step = tapLanes / 2; step; step /= 2)
      for (int64_t i = 0; i < step; ++i)
        lane[i] += lane[i + step];
    reinterpret_cast<T *>(sums)[t] = lane[0];
  }
}

template <typename T>
static void addTo(const char *sums, int64_t count, char *to) {
  for (int64_t i = 0; i < count; ++i)
    reinterpret_cast<T *>(to)[i] += reinterpret_cast<const T *>(sums)[i];
}

/// The gradient of the weight of a group.
static void computeWeight(const Room &room, int64_t group, void *const *args) {
  const Depthwise &plan = room.plan;
  const trainc_convolution_detail &d = plan.d;
  bool isDouble = plan.wide == TRAINC_F64;
  const Part &part = plan.parts[0];
  int64_t output = d.out_h * d.out_w;
  // With zeros between rows, and behind the last one.
  const PlaneCopy grads = {{d.out_h, 1, d.out_h, 1, 0, 0},
                           {plan.pitch, 1, d.out_w, 1, 0, 0},
                           d.out_w,
                           plan.pitch,
                           nullptr,
                           nullptr};
  memset(room.sums, 0,
         static_cast<size_t>(plan.window * tapLanes * plan.wideSize));
  for (int64_t n = 0; n < d.batch; ++n) {
    int64_t plane = n * d.groups + group;
    room.copyPlanes(static_cast<const char *>(args[0]) +
                    plane * plan.planeSize * plan.size);
    const char *grad =
        static_cast<const char *>(args[1]) + plane * output * plan.size;
    room.widen(grads, grad, room.outputs);
    memset(room.outputs + part.elements * plan.wideSize, 0,
           static_cast<size_t>(tapElements * plan.wideSize));
    Taps taps = {plan.window, part.elements, plan.offsets.data(), room.copies};
    (isDouble ? kernels().tapDotsF64 : kernels().tapDotsF32)(taps, room.outputs,
                                                             room.sums);
  }
  (isDouble ? addLanes<double> : addLanes<float>)(plan, room.sums, room.weight);
  char *result =
      static_cast<char *>(args[2]) + group * plan.window * plan.resultSize;
  if (d.accumulate)
    (isDouble ? addTo<double> : addTo<float>)(room.weight, plan.window, result);
  else
    copyApart(d.result_type,
              narrowed(d.result_type, room.weight, plan.window, room.row),
              plan.window, 1, result);
}

void trainc::runDepthwiseTile(const Depthwise *plan, void *const *args,
                              int64_t tile, void *scratch) {
  const Room room(*plan, scratch);
  int64_t begin = tile * plan->planesOfTile, end = begin + plan->planesOfTile;
  end = end < plan->planes() ? end : plan->planes();
  for (int64_t plane = begin; plane < end; ++plane)
    plan->ofWeight() ? computeWeight(room, plane, args)
                     : computePlane(room, plane, args);
}
