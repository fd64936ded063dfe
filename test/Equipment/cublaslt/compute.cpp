//===- compute.cpp - Products on the host ---------------------------------===//

#include "cpu/halves.h"
#include "fake.h"
#include <math.h>

using namespace trainc;
using namespace trainc::cuda;

namespace {
/// Elements of a type, read and written as T.
template <typename T> class Elements {
public:
  Elements(uint64_t address, cudaDataType_t type)
      : bytes(reinterpret_cast<char *>(static_cast<uintptr_t>(address))),
        type(type) {}

  T get(int64_t i) const {
    switch (static_cast<unsigned>(type)) {
    case CUDA_R_64F:
      return static_cast<T>(at<double>(i));
    case CUDA_R_16BF:
      return widenBf16(at<uint16_t>(i));
    case CUDA_R_16F:
      return widenF16(at<uint16_t>(i));
    }
    return at<float>(i);
  }
  void set(int64_t i, T value) {
    switch (static_cast<unsigned>(type)) {
    case CUDA_R_64F:
      at<double>(i) = value;
      return;
    case CUDA_R_16BF:
      at<uint16_t>(i) = narrowBf16(static_cast<float>(value));
      return;
    case CUDA_R_16F:
      at<uint16_t>(i) = narrowF16(static_cast<float>(value));
      return;
    }
    at<float>(i) = static_cast<float>(value);
  }

private:
  template <typename Stored> Stored &at(int64_t i) const {
    return reinterpret_cast<Stored *>(bytes)[i];
  }
  char *bytes;
  cudaDataType_t type;
};
} // namespace

static constexpr double geluSlope = 0.7978845608028653559; // sqrt(2 / pi)
static constexpr double geluCube = 0.044715;

template <typename T> static T gelu(T x) {
  T inner = T(geluSlope) * (x + T(geluCube) * x * x * x);
  return x / 2 * (1 + tanh(inner));
}

template <typename T> static T geluGrad(T x) {
  T t = tanh(T(geluSlope) * (x + T(geluCube) * x * x * x));
  T slope = T(geluSlope) * (1 + 3 * T(geluCube) * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * slope;
}

/// Rounded to TF32: 10 bits behind the point, to the nearest even.
static float roundToTF32(float value) {
  uint32_t bits = bitsOf(value);
  if ((bits & 0x7F800000) == 0x7F800000)
    return value;
  return floatOf((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFFu);
}

/// op(matrix) of a round, row major, `outer` x k of A' or of B' transposed.
template <typename T>
static void pack(Array<T> &to, uint64_t address, const Layout &layout,
                 bool kIsRows, int64_t outer, int64_t k, int32_t round) {
  Elements<T> from(address + static_cast<uint64_t>(round * layout.distance *
                                                   sizeOf(layout.type)),
                   layout.type);
  to.resize(static_cast<size_t>(outer * k));
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t p = 0; p < k; ++p)
      to[static_cast<size_t>(i * k + p)] =
          from.get(kIsRows ? p + i * layout.stride : i + p * layout.stride);
}

/// Sums of the rows of `rows` x k numbers.
template <typename T>
static void sumRows(const Array<T> &from, int64_t rows, int64_t k,
                    Elements<T> to) {
  for (int64_t i = 0; i < rows; ++i) {
    T sum = 0;
    for (int64_t p = 0; p < k; ++p)
      sum += from[static_cast<size_t>(i * k + p)];
    to.set(i, sum);
  }
}

template <typename T> static void multiply(const Matmul &m) {
  int64_t rows = m.c.rows, columns = m.c.columns;
  bool transposeA = m.operation.transposeA == CUBLAS_OP_T;
  bool transposeB = m.operation.transposeB == CUBLAS_OP_T;
  int64_t k = transposeA ? m.a.rows : m.a.columns;
  Elements<T> vector(m.operation.vector, m.c.type);
  Elements<T> auxiliary(m.operation.auxiliary, m.c.type);
  Array<T> a, b, column, sums;
  sums.resize(static_cast<size_t>(rows));
  for (int32_t round = 0; round < m.c.count; ++round) {
    pack(a, m.addressA, m.a, transposeA, rows, k, round);
    pack(b, m.addressB, m.b, !transposeB, columns, k, round);
    if (m.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
      for (T &factor : a)
        factor = roundToTF32(static_cast<float>(factor));
      for (T &factor : b)
        factor = roundToTF32(static_cast<float>(factor));
    }
    if (m.hasEpilogue(withGradientA))
      sumRows(a, rows, k, vector);
    if (m.hasEpilogue(withGradientB))
      sumRows(b, columns, k, vector);
    // A by rows of k, so that a column of C is a sum of vectors.
    Array<T> byK;
    byK.resize(a.size());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t p = 0; p < k; ++p)
        byK[static_cast<size_t>(p * rows + i)] =
            a[static_cast<size_t>(i * k + p)];
    Elements<T> c(m.addressC + static_cast<uint64_t>(round * m.c.distance *
                                                     sizeOf(m.c.type)),
                  m.c.type);
    for (int64_t j = 0; j < columns; ++j) {
      column.clear();
      column.resize(static_cast<size_t>(rows));
      T *to = column.data();
      for (int64_t p = 0; p < k; ++p) {
        const T *from = byK.data() + p * rows;
        T factor = b[static_cast<size_t>(j * k + p)];
        for (int64_t i = 0; i < rows; ++i)
          to[i] += from[i] * factor;
      }
      for (int64_t i = 0; i < rows; ++i) {
        int64_t at = i + j * m.c.stride;
        int64_t atAuxiliary = i + j * m.operation.auxiliaryStride;
        T x = T(m.alpha) * to[i];
        if (m.beta != 0)
          x += T(m.beta) * c.get(at);
        if (m.hasEpilogue(withBias))
          x += vector.get(i);
        if (m.hasEpilogue(withGelu)) {
          if (m.hasEpilogue(withAuxiliary))
            auxiliary.set(atAuxiliary, x);
          x = gelu(x);
        }
        if (m.hasEpilogue(withGeluGrad))
          x *= geluGrad(auxiliary.get(atAuxiliary));
        sums[static_cast<size_t>(i)] += x;
        c.set(at, x);
      }
    }
  }
  if (m.hasEpilogue(withBiasGradient))
    for (int64_t i = 0; i < rows; ++i)
      vector.set(i, sums[static_cast<size_t>(i)]);
}

int trainc::cuda::compute(void *data, char *, uint64_t) {
  const Matmul &matmul = *static_cast<const Matmul *>(data);
  memset(reinterpret_cast<void *>(static_cast<uintptr_t>(matmul.workspace)),
         0xff, matmul.usedBytes);
  if (matmul.c.type == CUDA_R_64F)
    multiply<double>(matmul);
  else
    multiply<float>(matmul);
  return TRAINC_FAKE_CUDA_DONE;
}
