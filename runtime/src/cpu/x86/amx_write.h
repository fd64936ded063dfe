//===- amx_write.h - What becomes of AMX's sums -----------------*- C++ -*-===//
//
// For amx.cpp alone.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_AMX_WRITE_H
#define TRAINC_CPU_AMX_WRITE_H

#include "cpu/gelu.h"
#include "cpu/halves.h"
#include "cpu/x86/amx_pack.h"
#include "trainc/step_abi.h"

namespace {
/// A rectangle of a matrix of f32, or bf16 if `brain`.
struct Rectangle {
  void *data;
  int64_t ld;
  bool brain;

  Rectangle at(int64_t row, int64_t column) const {
    int64_t offset = (row * ld + column) * (brain ? 2 : 4);
    return {data ? static_cast<char *>(data) + offset : nullptr, ld, brain};
  }
  float *floats() const { return static_cast<float *>(data); }
  uint16_t *halves() const { return static_cast<uint16_t *>(data); }

  float load(int64_t i) const {
    return brain ? widenBf16(halves()[i]) : floats()[i];
  }
  void store(float value, int64_t i) const {
    if (brain)
      halves()[i] = narrowBf16(value);
    else
      floats()[i] = value;
  }
  Floats loadVector(int64_t i) const {
    if (!brain)
      return reinterpret_cast<const Floats &>(floats()[i]);
    auto x = reinterpret_cast<const Halves &>(halves()[i]);
    Words bits = __builtin_convertvector(x, Words) << 16;
    return reinterpret_cast<Floats &>(bits);
  }
  void storeVector(Floats value, int64_t i) const {
    if (!brain) {
      reinterpret_cast<Floats &>(floats()[i]) = value;
      return;
    }
    reinterpret_cast<Halves &>(halves()[i]) =
        __builtin_convertvector(narrow(value), Halves);
  }

  /// What memory holds of a value.
  float rounded(float value) const {
    return brain ? widenBf16(narrowBf16(value)) : value;
  }
  Floats rounded(Floats value) const {
    Words bits = brain ? narrow(value) << 16 : reinterpret_cast<Words &>(value);
    return reinterpret_cast<Floats &>(bits);
  }

private:
  /// As narrowBf16.
  static Words narrow(Floats value) {
    Words bits = reinterpret_cast<Words &>(value);
    Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return value == value ? rounded : (bits >> 16) | 0x40u;
  }
};

/// `to` = sums (+ `before`) (+ `to`) (+ `bias`), in this order; where there is
/// no data, nothing is added. Then the epilogue, of what memory would hold.
struct Target {
  Rectangle to, before, bias, aux;
  int64_t height, width;
  bool accumulate;
  uint32_t epilogue;
};

/// Writes 32 x 32 sums, as four tiles.
class Writer {
public:
  /// Prefetches `next` meanwhile, of as many rows.
  void begin(const Target &target, const float *sums, const Rectangle &next) {
    finish();
    x = target;
    this->sums = sums;
    this->next = next;
    row = 0;
  }

  bool pending() const { return row < x.height; }

  /// How many slices 32 x 32 sums take.
  static int64_t slices(uint32_t epilogue) { return side / rowsOf(epilogue); }

  /// Some rows.
  void slice() { upTo(least(row + rowsOf(x.epilogue), x.height)); }

  /// All that is left, without the cost of slices.
  void finish() {
    if (pending())
      upTo(x.height);
  }

private:
  void upTo(int64_t end) {
    if (x.width < side)
      writeEdge(end);
    else if (!x.to.brain && !x.bias.data && !x.epilogue)
      writeFloats(end);
    else
      write(end);
  }

  /// Of a slice.
  static int64_t rowsOf(uint32_t epilogue) {
    return !epilogue || epilogue == TRAINC_EPILOGUE_MULTIPLY ? 4 : 1;
  }

  const float *sumsOf(int64_t row) const {
    return sums + row / half * 2 * tileFloats + row % half * half;
  }

  /// The epilogue of one number or a vector of them.
  template <typename V, typename Keep, typename Kept>
  V finished(V sum, Keep keep, Kept kept) const {
    sum = x.to.rounded(sum);
    if (x.epilogue == TRAINC_EPILOGUE_MULTIPLY)
      return sum * kept();
    if (x.epilogue == TRAINC_EPILOGUE_GELU_GRAD)
      return sum * geluSlope(kept());
    if (x.epilogue == TRAINC_EPILOGUE_GELU_AND_SLOPE) {
      V t = geluTanh(sum);
      keep(geluSlope(sum, t));
      return gelu(sum, t);
    }
    if (x.aux.data)
      keep(sum);
    return gelu(sum);
  }

  void writeEdge(int64_t end) {
    for (; row < end; ++row) {
      Rectangle to = x.to.at(row, 0), before = x.before.at(row, 0);
      Rectangle aux = x.aux.at(row, 0);
      for (int64_t j = 0; j < x.width; ++j) {
        float sum = sumsOf(row)[j / half * tileFloats + j % half];
        sum = before.data ? before.load(j) + sum : sum;
        sum = x.accumulate ? to.load(j) + sum : sum;
        sum = x.bias.data ? sum + x.bias.load(j) : sum;
        if (x.epilogue)
          sum = finished(
              sum, [&](float y) { aux.store(y, j); },
              [&] { return aux.load(j); });
        to.store(sum, j);
      }
    }
  }

  void write(int64_t end) {
    for (; row < end; ++row) {
      Rectangle to = x.to.at(row, 0), before = x.before.at(row, 0);
      Rectangle aux = x.aux.at(row, 0);
      const char *ahead = static_cast<char *>(next.at(row, 0).data);
      prefetch(ahead);
      if (aux.data) // which has C's layout
        prefetch(static_cast<char *>(aux.data) +
                 (ahead - static_cast<char *>(to.data)));
      for (int64_t j = 0; j < side; j += half) {
        auto sum = reinterpret_cast<const Floats &>(
            sumsOf(row)[j / half * tileFloats]);
        if (before.data)
          sum = before.loadVector(j) + sum;
        if (x.accumulate)
          sum = to.loadVector(j) + sum;
        if (x.bias.data)
          sum += x.bias.loadVector(j);
        if (x.epilogue)
          sum = finished(
              sum, [&](Floats y) { aux.storeVector(y, j); },
              [&] { return aux.loadVector(j); });
        to.storeVector(sum, j);
      }
    }
  }

  /// As `write`, the common case.
  void writeFloats(int64_t end) {
    float *to = x.to.at(row, 0).floats(), *ahead = next.at(row, 0).floats();
    // Both where C is added to.
    const float *before = x.accumulate ? to : x.before.at(row, 0).floats();
    int64_t ldBefore = x.accumulate ? x.to.ld : x.before.ld;
    for (; row < end; ++row, to += x.to.ld, ahead += next.ld) {
      prefetch(ahead);
      const float *from = sumsOf(row);
      auto left = reinterpret_cast<const Floats &>(*from);
      auto right = reinterpret_cast<const Floats &>(from[tileFloats]);
      if (before) {
        left = reinterpret_cast<const Floats &>(*before) + left;
        right = reinterpret_cast<const Floats &>(before[half]) + right;
        before += ldBefore;
      }
      reinterpret_cast<Floats &>(*to) = left;
      reinterpret_cast<Floats &>(to[half]) = right;
    }
  }

  void prefetch(const void *line) const {
    __builtin_prefetch(line, 1, 1);
    if (!next.brain)
      __builtin_prefetch(static_cast<const char *>(line) + 64, 1, 1);
  }

  Target x = {};
  const float *sums;
  Rectangle next;
  int64_t row = 0;
};
} // namespace

#endif // TRAINC_CPU_AMX_WRITE_H
