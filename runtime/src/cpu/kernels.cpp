//===- kernels.cpp - The runtime's own loops, per processor level ---------===//
//
// Compiled once per level (level.h), by -march. Everything here is local to the file: an
// inline function shared with the other files could be linked in the version of the
// wrong level.
//
//===----------------------------------------------------------------------===//

#include "cpu/level.h"

#include "cpu/kernels.h"

#include "cpu/gelu.h"
#include "cpu/halves.h"
#include "cpu/sums.h"
#include "cpu/vector_gemm.h"
#include "cpu/window_gemm.h"
#include "cpu/winograd.h"

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

#if TRAINC_VECTOR_BYTES == 64
constexpr int lanes = 16, rows = 12, rowsOfDoubles = 8;
constexpr bool packsA = false;
#elif TRAINC_VECTOR_BYTES == 32
constexpr int lanes = 8, rows = 6, rowsOfDoubles = 4;
constexpr bool packsA = false;
#else // of two registers each, as there are 32
constexpr int lanes = 8, rows = 6, rowsOfDoubles = 4;
constexpr bool packsA = true;
#endif
typedef VectorGemm<float, lanes, rows, packsA> Gemm32;
typedef VectorGemm<double, lanes / 2, rowsOfDoubles, packsA> Gemm64;
typedef VectorGemm<float, lanes, rows, packsA, uint16_t, widenBf16> GemmBf16;
typedef VectorGemm<float, lanes, rows, packsA, uint16_t, widenF16> GemmF16;
typedef WindowGemm<lanes, rows, packsA> Windows32;
typedef Winograd<lanes, rows, packsA> Winograd32;

namespace trainc {
extern const Kernels TRAINC_TABLE;
const Kernels TRAINC_TABLE = {
    TRAINC_LEVEL,
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
#if TRAINC_FUSES
    TapLoops<float>::sums,
    TapLoops<double>::sums,
    TapLoops<float>::dots,
    TapLoops<double>::dots,
    Gemm32::run,
    Gemm64::run,
    GemmBf16::run,
    GemmF16::run,
    Gemm32::scratchBytes,
    Gemm64::scratchBytes,
    Windows32::run,
    Windows32::pack<float, same<float>>,
    Windows32::pack<uint16_t, widenBf16>,
    Windows32::pack<uint16_t, widenF16>,
    Windows32::sum,
    Windows32::packGradients,
    Windows32::transposeRows,
    Windows32::rows,
    Winograd32::inputs,
    Winograd32::outputs,
    Winograd32::gradients,
    Winograd32::weights,
    Winograd32::weightGradients,
    Winograd32::multiply,
    lanes,
#endif
};
} // namespace trainc
