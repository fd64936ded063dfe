//===- kernels.cpp - The runtime's own loops, per processor level ---------===//
//
// Compiled several times, with TRAINC_LEVEL 2, 3 or 4 and
// -march=x86-64-v<level>. Everything here is local to the file: an inline
// function shared with the other files could be linked in the version of the
// wrong level.
//
//===----------------------------------------------------------------------===//

#include "cpu/kernels.h"
#include "cpu/gelu.h"
#include "cpu/halves.h"
#include "cpu/sgemm.h"
#include "cpu/sums.h"

namespace {

template <float (*Widen)(uint16_t)>
void widenRows(int64_t rows, int64_t columns, const uint16_t *from, int64_t ld,
               float *to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[i * columns + j] = Widen(from[i * ld + j]);
}

template <float (*Widen)(uint16_t), uint16_t (*Narrow)(float)>
void narrowRows(int64_t rows, int64_t columns, const float *from,
                const uint16_t *bias, uint16_t *to, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i) {
    if (bias)
      for (int64_t j = 0; j < columns; ++j)
        to[i * ld + j] = Narrow(from[i * columns + j] + Widen(bias[j]));
    else
      for (int64_t j = 0; j < columns; ++j)
        to[i * ld + j] = Narrow(from[i * columns + j]);
  }
}

template <typename T>
void addBias(int64_t rows, int64_t columns, const T *bias, T *c, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * ld + j] += bias[j];
}

template <typename T, auto Widen, auto Narrow>
void geluRows(int64_t rows, int64_t columns, T *c, T *aux, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i, c += ld) {
    for (int64_t j = 0; aux && j < columns; ++j)
      aux[i * ld + j] = c[j];
    for (int64_t j = 0; j < columns; ++j)
      c[j] = Narrow(gelu(static_cast<float>(Widen(c[j]))));
  }
}

template <typename T, auto Widen, auto Narrow>
void geluGradRows(int64_t rows, int64_t columns, T *c, T *aux, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i, c += ld, aux += ld)
    for (int64_t j = 0; j < columns; ++j)
      c[j] = Narrow(Widen(c[j]) * geluSlope(static_cast<float>(Widen(aux[j]))));
}

void geluAndSlopeRows(int64_t rows, int64_t columns, float *c, float *aux,
                      int64_t ld) {
  for (int64_t i = 0; i < rows; ++i, c += ld, aux += ld)
    for (int64_t j = 0; j < columns; ++j) {
      float x = c[j], t = geluTanh(x);
      aux[j] = geluSlope(x, t);
      c[j] = gelu(x, t);
    }
}

void multiplyRows(int64_t rows, int64_t columns, float *c, float *aux,
                  int64_t ld) {
  for (int64_t i = 0; i < rows; ++i, c += ld, aux += ld)
    for (int64_t j = 0; j < columns; ++j)
      c[j] *= aux[j];
}

} // namespace

#define TRAINC_PASTE(a, b) a##b
#define TRAINC_TABLE(level) TRAINC_PASTE(kernelsV, level)

namespace trainc {
extern const Kernels TRAINC_TABLE(TRAINC_LEVEL);
const Kernels TRAINC_TABLE(TRAINC_LEVEL) = {
    TRAINC_LEVEL == 4   ? "x86-64-v4"
    : TRAINC_LEVEL == 3 ? "x86-64-v3"
                        : "x86-64-v2",
    widenRows<widenBf16>,
    widenRows<widenF16>,
    narrowRows<widenBf16, narrowBf16>,
    narrowRows<widenF16, narrowF16>,
    addBias<float>,
    addBias<double>,
    geluRows<float, same<float>, same<float>>,
    geluRows<uint16_t, widenBf16, narrowBf16>,
    geluRows<uint16_t, widenF16, narrowF16>,
    geluGradRows<float, same<float>, same<float>>,
    geluGradRows<uint16_t, widenBf16, narrowBf16>,
    geluGradRows<uint16_t, widenF16, narrowF16>,
    geluAndSlopeRows,
    multiplyRows,
    sum<float, float, same, same>,
    sum<double, double, same, same>,
    sum<uint16_t, float, widenBf16, narrowBf16>,
    sum<uint16_t, float, widenF16, narrowF16>,
    streamBytes,
    ColumnCopy<uint16_t, uint16_t, same>::run,
    ColumnCopy<uint32_t, uint32_t, same>::run,
    ColumnCopy<uint64_t, uint64_t, same>::run,
    ColumnCopy<uint16_t, float, widenBf16>::run,
    ColumnCopy<uint16_t, float, widenF16>::run,
    copyPlane<float, float, same>,
    copyPlane<double, double, same>,
    copyPlane<uint16_t, float, widenBf16>,
    copyPlane<uint16_t, float, widenF16>,
#if TRAINC_LEVEL >= 3
    TapLoops<float>::sums,
    TapLoops<double>::sums,
    TapLoops<float>::dots,
    TapLoops<double>::dots,
#else
    nullptr,
    nullptr,
    nullptr,
    nullptr,
#endif
#if TRAINC_LEVEL == 4
    Sgemm<16, 12, 384>::run,
    Sgemm<16, 12, 384>::scratchBytes,
#elif TRAINC_LEVEL == 3
    Sgemm<8, 6, 256>::run,
    Sgemm<8, 6, 256>::scratchBytes,
#else
    nullptr,
    0,
#endif
};
} // namespace trainc
