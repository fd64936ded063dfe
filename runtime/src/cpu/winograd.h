//===- winograd.h - Winograd's convolution, one thread ----------*- C++ -*-===//
//
// For kernels.cpp alone, which is compiled per processor level.
//
// F(2 x 2, 3 x 3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
// CVPR 2016: a tile of 2 x 2 outputs y of a window of 3 x 3 weights g over 4 x 4 elements d is
//   y = A^T ((G g G^T) * (B^T d B)) A, * by elements, and summed over channels,
//   A^T = 1 1  1  0   G =  1    0   0    B^T = 1  0 -1  0
//         0 1 -1 -1       1/2  1/2 1/2         0  1  1  0
//                         1/2 -1/2 1/2         0 -1  1  0
//                          0    0   1          0  1  0 -1
// The gradient of g is G^T ((A dy A^T) * (B^T d B)) G, summed over tiles. Each of the 16 places
// of a transformed tile is a matrix; the products are those of 16 matrices.
//
// Pixels and transformed tiles have channels side by side, as many as a vector has lanes.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_WINOGRAD_H
#define TRAINC_CPU_WINOGRAD_H

#include "cpu/vector_gemm.h"

namespace {

using trainc::WinogradGradients;
using trainc::WinogradProduct;
using trainc::WinogradTiles;
using trainc::WinogradWeights;

template <int Lanes, int Rows, bool PacksA> struct Winograd {
  typedef VectorGemm<float, Lanes, Rows, PacksA> Gemm;
  typedef typename Gemm::Vector Vector;
  static constexpr int Columns = Gemm::Columns;

  static Vector load(const float *from) { return Gemm::load(from); }
  static void store(Vector value, float *to) { Gemm::store(value, to); }

  //===--------------------------------------------------------------------===//
  // Transforms
  //===--------------------------------------------------------------------===//

  /// B^T of four.
  static void input(const Vector in[4], Vector out[4]) {
    out[0] = in[0] - in[2];
    out[1] = in[1] + in[2];
    out[2] = in[2] - in[1];
    out[3] = in[1] - in[3];
  }
  /// A^T of four.
  static void output(const Vector in[4], Vector out[2]) {
    out[0] = in[0] + in[1] + in[2];
    out[1] = in[1] - in[2] - in[3];
  }
  /// A of two.
  static void gradient(const Vector in[2], Vector out[4]) {
    out[0] = in[0];
    out[1] = in[0] + in[1];
    out[2] = in[0] - in[1];
    out[3] = -in[1];
  }
  /// G of three.
  static void weight(const Vector in[3], Vector out[4]) {
    Vector half = (in[0] + in[2]) * 0.5f, middle = in[1] * 0.5f;
    out[0] = in[0];
    out[1] = half + middle;
    out[2] = half - middle;
    out[3] = in[2];
  }
  /// G^T of four.
  static void weightGradient(const Vector in[4], Vector out[3]) {
    Vector sum = (in[1] + in[2]) * 0.5f;
    out[0] = in[0] + sum;
    out[1] = (in[1] - in[2]) * 0.5f;
    out[2] = sum + in[3];
  }

  template <int From, int To, void (*Each)(const Vector *, Vector *)>
  static void both(const Vector (*in)[From], Vector (*out)[To]) {
    Vector down[From][To]; // by columns
#pragma clang loop unroll(full)
    for (int j = 0; j < From; ++j) {
      Vector column[From];
#pragma clang loop unroll(full)
      for (int i = 0; i < From; ++i)
        column[i] = in[i][j];
      Each(column, down[j]);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < To; ++i) {
      Vector row[From];
#pragma clang loop unroll(full)
      for (int j = 0; j < From; ++j)
        row[j] = down[j][i];
      Each(row, out[i]);
    }
  }

  /// Size x Size pixels from (y, x) on; what is outside is 0.
  template <int Size>
  static void seen(const WinogradTiles &x, int64_t row, int64_t column,
                   Vector (*to)[Size]) {
    if (row >= 0 && column >= 0 && row + Size <= x.height &&
        column + Size <= x.width) {
      const float *from = x.pixels + (row * x.width + column) * Lanes;
#pragma clang loop unroll(full)
      for (int i = 0; i < Size; ++i)
#pragma clang loop unroll(full)
        for (int j = 0; j < Size; ++j)
          to[i][j] = load(from + (i * x.width + j) * Lanes);
      return;
    }
    for (int i = 0; i < Size; ++i)
      for (int j = 0; j < Size; ++j) {
        int64_t r = row + i, c = column + j;
        bool inside = r >= 0 && c >= 0 && r < x.height && c < x.width;
        to[i][j] =
            inside ? load(x.pixels + (r * x.width + c) * Lanes) : Vector{};
      }
  }

  template <int From, void (*Each)(const Vector *, Vector *)>
  static void spread(const WinogradTiles &x) {
    float *to = x.transformed;
    for (int64_t r = 0; r < x.rows; ++r)
      for (int64_t t = 0; t < x.tiles; ++t, to += x.ld) {
        Vector in[From][From], out[4][4];
        seen<From>(x, 2 * r + x.top, 2 * t + x.left, in);
        both<From, 4, Each>(in, out);
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; ++i)
          store(out[i / 4][i % 4], to + i * x.place);
      }
  }
  /// B^T d B; A dy A^T.
  static void inputs(const WinogradTiles &x) { spread<4, input>(x); }
  static void gradients(const WinogradTiles &x) { spread<2, gradient>(x); }

  /// A^T m A.
  static void outputs(const WinogradTiles &x) {
    const float *from = x.transformed;
    for (int64_t r = 0; r < x.rows; ++r)
      for (int64_t t = 0; t < x.tiles; ++t, from += x.ld) {
        Vector in[4][4], out[2][2];
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; ++i)
          in[i / 4][i % 4] = load(from + i * x.place);
        both<4, 2, output>(in, out);
        float *to = x.pixels + (2 * r * x.width + 2 * t) * Lanes;
        for (int i = 0; i < 2 && 2 * r + i < x.height; ++i)
          for (int j = 0; j < 2 && 2 * t + j < x.width; ++j)
            store(out[i][j], to + (i * x.width + j) * Lanes);
      }
  }

  /// G g G^T.
  static void weights(const WinogradWeights &x) {
    for (int64_t w = 0; w < x.count; ++w)
      for (int64_t o = 0; o < Columns; o += Lanes) {
        Vector in[3][3], out[4][4];
#pragma clang loop unroll(full)
        for (int i = 0; i < 9; ++i)
          in[i / 3][i % 3] =
              load(x.from + (w * 9 + (x.reversed ? 8 - i : i)) * Columns + o);
        both<3, 4, weight>(in, out);
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; ++i)
          store(out[i / 4][i % 4], x.to + i * x.place + w * Columns + o);
      }
  }

  /// G^T u G.
  static void weightGradients(const WinogradGradients &x) {
    for (int64_t c = 0; c < x.channels; ++c)
      for (int64_t o = 0; o < x.outputs; o += Lanes) {
        Vector in[4][4], out[3][3];
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; ++i)
          in[i / 4][i % 4] = load(x.from + i * x.place + c * x.ld + o);
        both<4, 3, weightGradient>(in, out);
#pragma clang loop unroll(full)
        for (int i = 0; i < 9; ++i)
          store(out[i / 3][i % 3], x.to + (9 * c + i) * x.ldTo + o);
      }
  }

  //===--------------------------------------------------------------------===//
  // Products
  //===--------------------------------------------------------------------===//

  /// Of rows of A that are columns where it stands.
  template <int Count, int Vectors>
  static void sumTile(int64_t depth, const float *a, int64_t lda,
                      const float *b, int64_t ldb, float *c, int64_t ldc,
                      bool accumulate) {
    Vector sums[Count][Vectors] = {};
    for (int64_t p = 0; p < depth; ++p, a += lda, b += ldb) {
      Vector left = load(b), right = Vectors > 1 ? load(b + Lanes) : left;
#pragma clang loop unroll(full)
      for (int i = 0; i < Count; ++i) {
        Vector x = a[i] - Vector{};
        sums[i][0] = __builtin_elementwise_fma(x, left, sums[i][0]);
        if constexpr (Vectors > 1)
          sums[i][1] = __builtin_elementwise_fma(x, right, sums[i][1]);
      }
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < Count; ++i)
      for (int j = 0; j < Vectors; ++j) {
        float *at = c + i * ldc + j * Lanes;
        store(accumulate ? sums[i][j] + load(at) : sums[i][j], at);
      }
  }

  template <int Count, int Vectors>
  static void tile(int64_t depth, const float *a, int64_t lda, const float *b,
                   int64_t, float *c, int64_t ldc, bool accumulate) {
    Gemm::template tile<Count, false, Vectors>(depth, a, lda, b, c, ldc,
                                               accumulate, nullptr, {});
  }

  using Tile = void (*)(int64_t, const float *, int64_t, const float *, int64_t,
                        float *, int64_t, bool);
  template <int... I>
  static Tile tileOf(bool transposed, int64_t count, int64_t columns,
                     trainc::Sequence<I...>) {
    static constexpr Tile tiles[] = {tile<I + 1, 2>...};
    static constexpr Tile narrow[] = {tile<I + 1, 1>...};
    static constexpr Tile sums[] = {sumTile<I + 1, 2>...};
    static constexpr Tile narrowSums[] = {sumTile<I + 1, 1>...};
    bool wide = columns > Lanes;
    return (transposed ? wide ? sums : narrowSums
            : wide     ? tiles
                       : narrow)[count - 1];
  }

  static void multiply(const WinogradProduct &x) {
    int64_t tilesOfRows = (x.m + Rows - 1) / Rows;
    int64_t depth = x.transposed ? x.k : Gemm::depthOf(x.k);
    for (int64_t j = 0; j < x.n; j += Columns)
      for (int64_t p = 0; p < x.k; p += depth)
        for (int64_t t = 0; t < tilesOfRows; ++t) {
          int64_t i = t * x.m / tilesOfRows;
          int64_t count = (t + 1) * x.m / tilesOfRows - i;
          const float *a = x.a + (x.transposed ? i : i * x.lda + p);
          const float *b =
              x.b + (x.transposed ? j : j / Columns * x.ldb + p * Columns);
          tileOf(x.transposed, count, x.n - j, Indices<Rows>())(
              Gemm::least(x.k - p, depth), a, x.lda, b, x.ldb,
              x.c + i * x.ldc + j, x.ldc, x.accumulate || p > 0);
        }
  }
};

} // namespace

#endif // TRAINC_CPU_WINOGRAD_H
