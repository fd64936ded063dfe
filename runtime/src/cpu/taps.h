//===- taps.h - Sums over the taps of a window ------------------*- C++ -*-===//
//
// Types for all; the loops for kernels.cpp alone, which is compiled per processor level.
// Vectors have the same lanes at every level, and so results the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_TAPS_H
#define TRAINC_CPU_TAPS_H

#include "cpu/columns.h"

namespace trainc {

/// A plane, widened: to[r pitch + c] is element (r h.stride + h.first, c w.stride + w.first),
/// or 0 outside; r and c count up to the outputs of h and w.
struct PlaneCopy {
  Windows h, w;
  int64_t ld, pitch; // from row to row of the plane, and of the copy
  const void *from;
  void *to;
};

/// Elements [offset + i] of a widened plane, for each of `count` offsets. i counts up to
/// `elements`, rounded up to tapElements, which may be read.
struct Taps {
  int64_t count, elements;
  const int64_t *offsets;
  const void *plane;
};

/// How far taps may reach for a copy of a plane with its padding to be worth it: columns
/// are copies of what they see alone.
constexpr int64_t farthestTap = 1 << 12;

/// Elements that are computed at once.
constexpr int64_t tapElements = 64;
/// Lanes of sums that are added at the end.
constexpr int64_t tapLanes = 16;

} // namespace trainc

#ifdef TRAINC_LEVEL

namespace {

using trainc::PlaneCopy;
using trainc::tapElements;
using trainc::tapLanes;
using trainc::Taps;

template <typename From, typename To, To (*Widen)(From)>
void copyPlane(const PlaneCopy &x) {
  auto *from = static_cast<const From *>(x.from);
  auto *to = static_cast<To *>(x.to);
  for (int64_t r = 0; r < x.h.outputs; ++r, to += x.pitch) {
    int64_t y = r * x.h.stride + x.h.first;
    const From *row = from + y * x.ld;
    bool inside = y >= 0 && y < x.h.size;
    int64_t c = 0;
    for (; c < x.w.outputs && (!inside || c * x.w.stride + x.w.first < 0); ++c)
      to[c] = 0;
    if (!inside)
      continue;
    row += x.w.first;
    int64_t end = x.w.size - x.w.first;
    end = end <= 0 ? 0 : (end + x.w.stride - 1) / x.w.stride;
    end = end < x.w.outputs ? end : x.w.outputs;
    if (x.w.stride == 1)
      for (; c < end; ++c)
        to[c] = Widen(row[c]);
    else
      for (; c < end; ++c)
        to[c] = Widen(row[c * x.w.stride]);
    for (; c < x.w.outputs; ++c)
      to[c] = 0;
  }
}

#if TRAINC_FUSES
template <typename T> struct TapLoops {
  typedef T Vector
      __attribute__((vector_size(tapLanes * sizeof(T)), aligned(sizeof(T))));
  static constexpr int64_t vectors = tapElements / tapLanes;

  static Vector load(const T *from) {
    return *reinterpret_cast<const Vector *>(from);
  }

  /// to[i] = sum over the taps of weights[t] plane[offsets[t] + i], in their order.
  static void sums(const Taps &x, const void *weights, void *to) {
    auto *plane = static_cast<const T *>(x.plane);
    auto *weight = static_cast<const T *>(weights);
    for (int64_t i = 0; i < x.elements; i += tapElements) {
      Vector sums[vectors] = {};
      for (int64_t t = 0; t < x.count; ++t) {
        const T *from = plane + x.offsets[t] + i;
        Vector w = weight[t] - Vector{};
#pragma clang loop unroll(full)
        for (int64_t k = 0; k < vectors; ++k)
          sums[k] =
              __builtin_elementwise_fma(w, load(from + k * tapLanes), sums[k]);
      }
#pragma clang loop unroll(full)
      for (int64_t k = 0; k < vectors; ++k)
        *reinterpret_cast<Vector *>(static_cast<T *>(to) + i + k * tapLanes) =
            sums[k];
    }
  }

  template <int64_t Count>
  static void dot(const T *plane, const int64_t *offsets, int64_t elements,
                  const T *factor, T *sums) {
    Vector sum[Count];
    for (int64_t t = 0; t < Count; ++t)
      sum[t] = load(sums + t * tapLanes);
    for (int64_t i = 0; i < elements; i += tapLanes) {
      Vector x = load(factor + i);
#pragma clang loop unroll(full)
      for (int64_t t = 0; t < Count; ++t)
        sum[t] =
            __builtin_elementwise_fma(x, load(plane + offsets[t] + i), sum[t]);
    }
    for (int64_t t = 0; t < Count; ++t)
      *reinterpret_cast<Vector *>(sums + t * tapLanes) = sum[t];
  }

  /// sums[t, lane] += sum over i with i % tapLanes = lane of factor[i] plane[offsets[t] + i].
  static void dots(const Taps &x, const void *factor, void *sums) {
    auto *plane = static_cast<const T *>(x.plane);
    auto *f = static_cast<const T *>(factor);
    auto *s = static_cast<T *>(sums);
    int64_t t = 0;
    for (; t + 8 <= x.count; t += 8)
      dot<8>(plane, x.offsets + t, x.elements, f, s + t * tapLanes);
    for (; t + 4 <= x.count; t += 4)
      dot<4>(plane, x.offsets + t, x.elements, f, s + t * tapLanes);
    for (; t < x.count; ++t)
      dot<1>(plane, x.offsets + t, x.elements, f, s + t * tapLanes);
  }
};
#endif

} // namespace

#endif // TRAINC_LEVEL

#endif // TRAINC_CPU_TAPS_H
