//===- gemm_tile.cpp - Computing a tile of a GEMM -------------------------===//

#include "cpu/amx.h"
#include "cpu/gemm_plan.h"
#include "cpu/kernels.h"
#include "cpu/rows.h"

using namespace trainc;

namespace {
/// What one tile multiplies, in elements.
struct Tile {
  int64_t m, n, k, ldc;
  const char *a, *b;
  char *c;
  const char *bias;
  char *aux;
  bool edgeM, edgeN, accumulate;
};
} // namespace

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// C = A' B' (+ C) in f32; every leading dimension is of the stored matrix.
static void multiply(const GemmPlan &plan, int64_t m, int64_t n, int64_t k,
                     const float *a, int64_t lda, const float *b, int64_t ldb,
                     float *c, int64_t ldc, bool accumulate, void *scratch) {
  const trainc_gemm_detail &d = plan.detail;
  bool left = d.transpose_a != 0, right = d.transpose_b != 0;
  if (!plan.blas) {
    kernels().multiplyF32({left, right, accumulate, m, n, k, lda, ldb, ldc, a,
                           b, c, nullptr, scratch, nullptr, nullptr});
    return;
  }
  auto whole = [](int64_t size) { return static_cast<int>(size); };
  plan.blas->sgemm(BLAS_ROW_MAJOR, left ? BLAS_TRANSPOSE : BLAS_NO_TRANSPOSE,
                   right ? BLAS_TRANSPOSE : BLAS_NO_TRANSPOSE, whole(m),
                   whole(n), whole(k), 1.0f, a, whole(lda), b, whole(ldb),
                   accumulate ? 1.0f : 0.0f, c, whole(ldc));
}

/// Whether the product of a tile lacks the bias, which its epilogue then adds: C is
/// read once less.
static bool leavesBias(const GemmPlan &plan) {
  return plan.detail.epilogue &&
         (plan.method == SINGLE || plan.method == SINGLE_ONEDNN);
}

static bool runSingle(const GemmPlan &plan, const Tile &tile) {
  const trainc_gemm_detail &d = plan.detail;
  auto *a = reinterpret_cast<const float *>(tile.a);
  auto *b = reinterpret_cast<const float *>(tile.b);
  auto *c = reinterpret_cast<float *>(tile.c);
  if (plan.method == SINGLE)
    multiply(plan, tile.m, tile.n, d.k, a, d.lda, b, d.ldb, c, d.ldc,
             d.accumulate != 0, nullptr);
  else if (!runOneDnnSgemm(d.transpose_a != 0, d.transpose_b != 0, tile.m,
                           tile.n, d.k, a, d.lda, b, d.ldb, d.accumulate != 0,
                           c, d.ldc))
    return false;
  if (tile.bias && !leavesBias(plan))
    kernels().addBiasF32(tile.m, tile.n,
                         reinterpret_cast<const float *>(tile.bias), c, d.ldc);
  return true;
}

static void runAmx(const GemmPlan &plan, const Tile &tile, void *scratch) {
  const trainc_gemm_detail &d = plan.detail;
  amxMultiply({d.a_type, d.c_type, d.epilogue, d.transpose_a != 0,
               d.transpose_b != 0, tile.accumulate, tile.m, tile.n, tile.k,
               d.lda, d.ldb, tile.ldc, tile.a, tile.b, tile.c, tile.bias,
               tile.aux, scratch});
}

static void runDouble(const GemmPlan &plan, const Tile &tile) {
  const trainc_gemm_detail &d = plan.detail;
  auto *c = reinterpret_cast<double *>(tile.c);
  plan.blas->dgemm(
      BLAS_ROW_MAJOR, d.transpose_a ? BLAS_TRANSPOSE : BLAS_NO_TRANSPOSE,
      d.transpose_b ? BLAS_TRANSPOSE : BLAS_NO_TRANSPOSE,
      static_cast<int>(tile.m), static_cast<int>(tile.n), static_cast<int>(d.k),
      1.0, reinterpret_cast<const double *>(tile.a), static_cast<int>(d.lda),
      reinterpret_cast<const double *>(tile.b), static_cast<int>(d.ldb),
      d.accumulate ? 1.0 : 0.0, c, static_cast<int>(d.ldc));
  if (tile.bias)
    kernels().addBiasF64(tile.m, tile.n,
                         reinterpret_cast<const double *>(tile.bias), c, d.ldc);
}

/// An f32 view of a piece of a matrix: itself, or widened to `room`.
static const float *widened(uint32_t dtype, const char *data, int64_t rows,
                            int64_t columns, int64_t &ld, float *room) {
  if (dtype == TRAINC_F32)
    return reinterpret_cast<const float *>(data);
  auto *half = reinterpret_cast<const uint16_t *>(data);
  if (dtype == TRAINC_BF16)
    kernels().widenBf16(rows, columns, half, ld, room);
  else
    kernels().widenF16(rows, columns, half, ld, room);
  ld = columns;
  return room;
}

static void runWiden(const GemmPlan &plan, const Tile &tile, void *scratch) {
  const trainc_gemm_detail &d = plan.detail;
  int64_t sizeA = static_cast<int64_t>(trainc_dtype_size(d.a_type));
  int64_t sizeB = static_cast<int64_t>(trainc_dtype_size(d.b_type));
  auto *roomA = static_cast<float *>(scratch);
  float *roomB = roomA + pieceFloats(plan.tileM, widenDepth);
  float *roomC = roomB + pieceFloats(plan.tileN, widenDepth);
  float *roomToMultiply = roomC + pieceFloats(plan.tileM, plan.tileN);

  bool direct = d.c_type == TRAINC_F32;
  float *c = direct ? reinterpret_cast<float *>(tile.c) : roomC;
  int64_t ldc = direct ? d.ldc : tile.n;
  if (!direct && d.accumulate) {
    int64_t ld = d.ldc;
    widened(d.c_type, tile.c, tile.m, tile.n, ld, roomC);
  }
  bool accumulate = d.accumulate != 0;
  int64_t p = 0;
  do { // once for k = 0: C must be written
    int64_t depth = least(widenDepth, d.k - p);
    int64_t lda = d.lda, ldb = d.ldb;
    const char *fromA = tile.a + p * (d.transpose_a ? d.lda : 1) * sizeA;
    const char *fromB = tile.b + p * (d.transpose_b ? 1 : d.ldb) * sizeB;
    const float *a = widened(d.a_type, fromA, d.transpose_a ? depth : tile.m,
                             d.transpose_a ? tile.m : depth, lda, roomA);
    const float *b = widened(d.b_type, fromB, d.transpose_b ? tile.n : depth,
                             d.transpose_b ? depth : tile.n, ldb, roomB);
    multiply(plan, tile.m, tile.n, depth, a, lda, b, ldb, c, ldc, accumulate,
             roomToMultiply);
    accumulate = true;
    p += depth;
  } while (p < d.k);

  if (direct && tile.bias)
    kernels().addBiasF32(tile.m, tile.n,
                         reinterpret_cast<const float *>(tile.bias), c, ldc);
  auto *half = reinterpret_cast<uint16_t *>(tile.c);
  auto *bias = reinterpret_cast<const uint16_t *>(tile.bias);
  if (d.c_type == TRAINC_BF16)
    kernels().narrowBf16(tile.m, tile.n, c, bias, half, d.ldc);
  else if (d.c_type == TRAINC_F16)
    kernels().narrowF16(tile.m, tile.n, c, bias, half, d.ldc);
}

/// The epilogue of a tile that stands in C.
static void finish(const GemmPlan &plan, const Tile &tile) {
  const trainc_gemm_detail &d = plan.detail;
  const Kernels &table = kernels();
  bool slope = d.epilogue == TRAINC_EPILOGUE_GELU_GRAD;
  if (d.c_type == TRAINC_F32) {
    auto run = d.epilogue == TRAINC_EPILOGUE_MULTIPLY ? table.multiplyByF32
               : d.epilogue == TRAINC_EPILOGUE_GELU_AND_SLOPE
                   ? table.geluAndSlopeF32
               : slope ? table.geluGradF32
                       : table.geluF32;
    auto *c = reinterpret_cast<float *>(tile.c);
    auto *aux = reinterpret_cast<float *>(tile.aux);
    auto *bias =
        leavesBias(plan) ? reinterpret_cast<const float *>(tile.bias) : nullptr;
    for (int64_t i = 0; i < tile.m; ++i, c += d.ldc) {
      if (bias)
        table.addBiasF32(1, tile.n, bias, c, d.ldc);
      run(1, tile.n, c, aux, d.ldc);
      aux += aux ? d.ldc : 0;
    }
    return;
  }
  auto *c = reinterpret_cast<uint16_t *>(tile.c);
  auto *aux = reinterpret_cast<uint16_t *>(tile.aux);
  if (d.c_type == TRAINC_BF16)
    (slope ? table.geluGradBf16 : table.geluBf16)(tile.m, tile.n, c, aux,
                                                  d.ldc);
  else
    (slope ? table.geluGradF16 : table.geluF16)(tile.m, tile.n, c, aux, d.ldc);
}

/// Our own product of a tile.
template <typename T, typename Stored = T>
static Product<T, Stored> ownProduct(const GemmPlan &plan, const Tile &tile,
                                     void *scratch) {
  const trainc_gemm_detail &d = plan.detail;
  return {d.transpose_a != 0,
          d.transpose_b != 0,
          d.accumulate != 0,
          tile.m,
          tile.n,
          d.k,
          d.lda,
          d.ldb,
          d.ldc,
          reinterpret_cast<const Stored *>(tile.a),
          reinterpret_cast<const Stored *>(tile.b),
          reinterpret_cast<T *>(tile.c),
          reinterpret_cast<const T *>(tile.bias),
          scratch,
          nullptr,
          nullptr};
}

/// Rounds the sums of a part of a narrow C.
static void narrow(const GemmPlan &plan, const Tile &part, float *sums) {
  const trainc_gemm_detail &d = plan.detail;
  const Kernels &table = kernels();
  auto run = d.c_type == TRAINC_BF16 ? table.narrowBf16 : table.narrowF16;
  auto *c = reinterpret_cast<uint16_t *>(part.c);
  auto *bias = reinterpret_cast<const uint16_t *>(part.bias);
  for (int64_t i = 0; i < part.m; ++i, sums += sumPitch, c += d.ldc) {
    if (part.accumulate) {
      float before[NarrowProduct::windowColumns];
      widenRows(d.c_type, 1, part.n, reinterpret_cast<char *>(c), d.ldc,
                before);
      table.addBiasF32(1, part.n, before, sums, sumPitch);
    }
    run(1, part.n, sums, bias, c, d.ldc);
  }
}

/// The product of a tile with its epilogue, if any. Of a narrow C each part is rounded
/// while its sums are in the cache.
static void runOwn(const GemmPlan &plan, const Tile &tile, void *scratch) {
  struct Context {
    const GemmPlan &plan;
    const Tile &tile;
    float *sums; // null: C is f32
  } context = {plan, tile, nullptr};
  auto finishPart = [](void *argument, int64_t i, int64_t rows, int64_t j,
                       int64_t columns) {
    auto &context = *static_cast<Context *>(argument);
    const trainc_gemm_detail &d = context.plan.detail;
    auto size = static_cast<int64_t>(trainc_dtype_size(d.c_type));
    int64_t offset = (i * d.ldc + j) * size;
    Tile part = context.tile;
    part.m = rows;
    part.n = columns;
    part.c += offset;
    part.bias += part.bias ? j * size : 0;
    part.aux += part.aux ? offset : 0;
    if (context.sums)
      narrow(context.plan, part, context.sums);
    if (d.epilogue)
      finish(context.plan, part);
  };
  auto run = [&](auto product, auto multiply) {
    if (context.sums || plan.detail.epilogue) {
      product.finish = finishPart;
      product.context = &context;
    }
    multiply(product);
  };
  if (plan.method == OWN)
    return run(ownProduct<float>(plan, tile, scratch), kernels().multiplyF32);
  auto product = ownProduct<float, uint16_t>(plan, tile, scratch);
  if (plan.detail.c_type != TRAINC_F32) {
    context.sums = reinterpret_cast<float *>(static_cast<char *>(scratch) +
                                             kernels().multiplyScratchF32);
    product.window = true;
    product.c = context.sums;
    product.ldc = sumPitch;
    product.bias = nullptr;
    product.accumulate = false;
  }
  run(product, plan.detail.a_type == TRAINC_BF16 ? kernels().multiplyBf16
                                                 : kernels().multiplyF16);
}

/// The product of a tile, of some methods with its epilogue; false if a library
/// failed.
static bool runProduct(const GemmPlan &plan, const Tile &tile, void *scratch) {
  switch (plan.method) {
  case AMX:
    runAmx(plan, tile, scratch);
    return true;
  case OWN:
  case OWN_HALF:
    runOwn(plan, tile, scratch);
    return true;
  case OWN_DOUBLE:
    kernels().multiplyF64(ownProduct<double>(plan, tile, scratch));
    return true;
  case SINGLE:
  case SINGLE_ONEDNN:
    return runSingle(plan, tile);
  case DOUBLE:
    runDouble(plan, tile);
    return true;
  case WIDEN:
    runWiden(plan, tile, scratch);
    return true;
  case ONEDNN:
    return runMatmul(plan.matmuls[tile.edgeM][tile.edgeN], tile.a, tile.b,
                     tile.c, tile.bias, scratch);
  }
  return false;
}

bool trainc::runGemmTile(const GemmPlan *plan, void *const *args, int64_t index,
                         void *scratch, void *partial) {
  const trainc_gemm_detail &d = plan->detail;
  // The second half of k comes after all of the first.
  int64_t half = plan->tilesM * plan->tilesN;
  bool isPartial = plan->split && index >= half;
  index -= isPartial ? half : 0;
  int64_t tileN = index % plan->tilesN;
  int64_t tileM = index / plan->tilesN % plan->tilesM;
  int64_t batch = index / plan->tilesN / plan->tilesM;
  int64_t i = tileM * plan->tileM, j = tileN * plan->tileN;
  int64_t endM = least(i + plan->tileM, d.m),
          endN = least(j + plan->tileN, d.n);
  if (plan->unequalM) {
    i = beginOfTile(d.m, plan->tilesM, tileM);
    endM = beginOfTile(d.m, plan->tilesM, tileM + 1);
  }
  if (plan->unequalN) {
    j = beginOfTile(d.n, plan->tilesN, tileN);
    endN = beginOfTile(d.n, plan->tilesN, tileN + 1);
  }
  auto at = [&](int operand, int64_t stride, int64_t element, uint32_t dtype) {
    element += batch * stride;
    return static_cast<char *>(args[operand]) +
           element * static_cast<int64_t>(trainc_dtype_size(dtype));
  };
  Tile tile;
  tile.m = endM - i;
  tile.n = endN - j;
  tile.a = at(0, d.stride_a, d.transpose_a ? i : i * d.lda, d.a_type);
  tile.b = at(1, d.stride_b, d.transpose_b ? j * d.ldb : j, d.b_type);
  tile.c = at(2, d.stride_c, i * d.ldc + j, d.c_type);
  tile.k = plan->split ? plan->split : d.k;
  tile.ldc = d.ldc;
  tile.accumulate = d.accumulate != 0;
  if (isPartial) {
    auto size = static_cast<int64_t>(trainc_dtype_size(d.a_type));
    tile.k = d.k - plan->split;
    tile.a += plan->split * d.lda * size;
    tile.b += plan->split * d.ldb * size;
    tile.c =
        reinterpret_cast<char *>(static_cast<float *>(partial) + i * d.n + j);
    tile.ldc = d.n;
    tile.accumulate = false;
  }
  tile.bias = d.has_bias ? at(3, 0, j, d.c_type) : nullptr;
  tile.aux = d.has_aux
                 ? at(d.has_bias ? 4 : 3, d.stride_c, i * d.ldc + j, d.c_type)
                 : nullptr;
  tile.edgeM = tile.m < plan->tileM;
  tile.edgeN = tile.n < plan->tileN;
  if (!runProduct(*plan, tile, scratch))
    return false;
  bool finishes =
      plan->method == AMX || plan->method == OWN || plan->method == OWN_HALF;
  if (d.epilogue && !finishes)
    finish(*plan, tile);
  return true;
}
