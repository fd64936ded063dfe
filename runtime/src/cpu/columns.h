//===- columns.h - Windows of planes as columns -----------------*- C++ -*-===//
//
// Types for all; the copies for kernels.cpp alone, which is compiled per processor level.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_COLUMNS_H
#define TRAINC_CPU_COLUMNS_H

#include <stdint.h>

namespace trainc {

/// Windows along one dimension of a plane: tap t of output y is element
/// y stride + first + t step, if that is in [0, size), else 0.
struct Windows {
  int64_t outputs, taps, size, stride, first, step;
};

/// Which columns to copy: of `channels` planes, `plane` elements apart, the rows of outputs
/// [begin, begin + rows) of `examples` examples, `example` elements apart.
struct Columns {
  Windows h, w;
  int64_t channels, plane, begin, rows, examples, example;
  const void *image;  // the first channel of the first example
  const void *memory; // what may be read, from here to `end`
  const void *end;
  /// Elements from row to row of the result: a row for each (channel, tap), and in it the
  /// outputs (example, row, column). What is behind them in a row is written, too, and a
  /// vector behind the last row.
  int64_t ld;
  void *to;
};

/// Bytes that copies may write behind the last row.
constexpr int64_t columnsSlack = 64;

} // namespace trainc

#ifdef TRAINC_LEVEL

namespace {

using trainc::Columns;
using trainc::Windows;

/// By whole vectors where that stays inside what may be read; rows are written in
/// ascending order, so that what is written behind one is written again. `Change` is same<T>,
/// or widens.
template <typename From, typename T, T (*Change)(From)> struct ColumnCopy {
  static constexpr int64_t bytes = TRAINC_VECTOR_BYTES;
  static_assert(bytes <= trainc::columnsSlack);
  static constexpr int64_t lanes = bytes / int64_t(sizeof(T));
  typedef T Vector __attribute__((vector_size(bytes), aligned(sizeof(T))));

  static int64_t clamp(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
  }

  static void copy(const From *from, const From *end, int64_t count, T *to) {
    int64_t i = 0;
    for (; i < count && end - from >= i + lanes; i += lanes)
#pragma clang loop unroll(full)
      for (int64_t k = 0; k < lanes; ++k)
        to[i + k] = Change(from[i + k]);
    for (; i < count; ++i)
      to[i] = Change(from[i]);
  }

  template <int64_t Stride>
  static void copyEvery(const From *from, int64_t count, T *to) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = Change(from[i * Stride]);
  }

  static void zero(int64_t count, T *to) {
    for (int64_t i = 0; i < count; i += lanes)
      *reinterpret_cast<Vector *>(to + i) = Vector{};
  }

  /// One row of outputs through one tap: `from` is the row of the input, of which
  /// outputs [first, last) see elements from first stride + shift on.
  static void row(const Columns &x, const From *from, int64_t shift,
                  int64_t first, int64_t last, T *to) {
    int64_t stride = x.w.stride;
    from += first * stride + shift;
    if (stride == 1)
      copy(from, static_cast<const From *>(x.end), last - first, to + first);
    else if (stride == 2)
      copyEvery<2>(from, last - first, to + first);
    else
      for (int64_t i = first; i < last; ++i, from += stride)
        to[i] = Change(*from);
    for (int64_t i = 0; i < first; ++i)
      to[i] = 0;
    for (int64_t i = last; i < x.w.outputs; ++i)
      to[i] = 0;
  }

  /// All rows of outputs of one example through a tap, where neighbors of one row or of two
  /// are neighbors in the plane: at once, and then zeros where windows reach out of it.
  /// Output p sees row p + `up`.
  static void rows(const Columns &x, const From *plane, int64_t up,
                   int64_t shift, int64_t first, int64_t last, T *to) {
    int64_t width = x.w.outputs, end = x.begin + x.rows;
    int64_t top = clamp(-up, x.begin, end);
    int64_t bottom = clamp(x.h.size - up, top, end);
    const From *from = plane + (top + up) * width + shift;
    int64_t count = (bottom - top) * width;
    T *row = to + (top - x.begin) * width;
    zero(row - to, to);
    // What is not of the plane at its ends is 0 in the end.
    int64_t before = static_cast<const From *>(x.memory) - from;
    before = clamp(before, 0, count);
    int64_t readable = static_cast<const From *>(x.end) - from;
    copy(from + before, static_cast<const From *>(x.end),
         (readable < count ? readable : count) - before, row + before);
    for (int64_t p = top; p < bottom; ++p, row += width) {
      for (int64_t i = 0; i < first; ++i)
        row[i] = 0;
      for (int64_t i = last; i < width; ++i)
        row[i] = 0;
    }
    zero((end - bottom) * width, row);
  }

  /// All rows of outputs through tap (i, j) of a channel of all examples.
  static void tap(const Columns &x, const From *plane, int64_t i, int64_t j,
                  T *to) {
    int64_t shift = x.w.first + j * x.w.step;
    // The first output that sees the plane, and the first behind those.
    auto reaching = [&](int64_t place) {
      int64_t distance = place - shift;
      return distance <= 0 ? 0 : (distance + x.w.stride - 1) / x.w.stride;
    };
    int64_t first = clamp(reaching(0), 0, x.w.outputs);
    int64_t last = clamp(reaching(x.w.size), first, x.w.outputs);
    if (x.h.stride == 1 && x.w.stride == 1 && x.w.outputs == x.w.size) {
      int64_t up = x.h.first + i * x.h.step;
      for (int64_t e = 0; e < x.examples; ++e, plane += x.example)
        rows(x, plane, up, shift, first, last, to + e * x.rows * x.w.outputs);
      return;
    }
    for (int64_t e = 0; e < x.examples; ++e, plane += x.example)
      for (int64_t p = x.begin; p < x.begin + x.rows; ++p, to += x.w.outputs) {
        int64_t y = p * x.h.stride + x.h.first + i * x.h.step;
        if (y >= 0 && y < x.h.size && first < last)
          row(x, plane + y * x.w.size, shift, first, last, to);
        else
          zero(x.w.outputs, to);
      }
  }

  static void run(const Columns &x) {
    auto *plane = static_cast<const From *>(x.image);
    T *to = static_cast<T *>(x.to);
    for (int64_t c = 0; c < x.channels; ++c, plane += x.plane)
      for (int64_t i = 0; i < x.h.taps; ++i)
        for (int64_t j = 0; j < x.w.taps; ++j, to += x.ld)
          tap(x, plane, i, j, to);
  }
};

} // namespace

#endif // TRAINC_LEVEL

#endif // TRAINC_CPU_COLUMNS_H
