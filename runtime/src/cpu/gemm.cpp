//===- gemm.cpp - Products of matrices, cut into tiles --------------------===//

#include "cpu/gemm.h"
#include "cpu/amx.h"
#include "cpu/kernels.h"
#include "cpu/onednn.h"
#include "cpu/openblas.h"

using namespace trainc;

namespace {
/// How a back end computes a product of given types.
enum Method : uint8_t {
  AMX,
  OWN,           // VECTOR
  SINGLE,        // OpenBLAS, f32
  SINGLE_ONEDNN, // f32
  DOUBLE,        // OpenBLAS, f64
  WIDEN,         // OpenBLAS, bf16 and f16 as f32
  ONEDNN         // bf16
};

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

struct trainc::GemmPlan {
  trainc_gemm_detail detail;
  Method method;
  const OpenBlas *blas;
  int64_t tileM, tileN, tilesM, tilesN;
  bool unequalM, unequalN; // tiles, see beginOf
  int64_t split; // of k: what comes after it is a partial product; 0: none
  Matmul *matmuls[2][2]; // by edge in m and n
  uint64_t scratch;
};

/// Panels are widened this deep at a time.
static constexpr int64_t widenDepth = 512;

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

static int64_t tilesOf(int64_t size, int64_t tile) {
  return size / tile + (size % tile != 0);
}

int64_t trainc::gemmTileCount(const trainc_gemm_detail &d) {
  int64_t count = tilesOf(d.m, d.tile_m);
  if (__builtin_mul_overflow(count, tilesOf(d.n, d.tile_n), &count) ||
      __builtin_mul_overflow(count, d.batch, &count))
    return INT64_MAX;
  return count;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// What a product is cut by: the time that a tile of m x n takes per multiply-add,
/// with what it packs, and the units of m and n.
struct Cut {
  double (*cost)(double m, double n);
  int64_t unitM, unitN;
};

/// What it costs more to cut columns of C than its rows. A thread that has some
/// rows in every product finds them in its cache, if they fit there; of A'
/// transposed the rows are no rows of the product before.
static double costOfColumns(const trainc_gemm_detail &d) {
  constexpr double cached = 1 << 21, cost = 1.1;
  double rows = static_cast<double>(d.m) * static_cast<double>(d.k + d.n) *
                static_cast<double>(trainc_dtype_size(d.c_type));
  return !d.transpose_a && rows <= cached ? cost : 1;
}

/// Cuts each product into `tiles` tiles where that costs least; returns the
/// cost.
static double cut(GemmPlan &plan, int64_t tiles, const Cut &by) {
  const trainc_gemm_detail &d = plan.detail;
  double lowest = 0;
  for (int64_t splitM = 1; splitM <= tiles; ++splitM) {
    if (tiles % splitM)
      continue;
    auto piece = [](int64_t size, int64_t pieces, int64_t unit) {
      int64_t share = tilesOf(tilesOf(size, pieces), unit) * unit;
      return least(share, size);
    };
    int64_t splitN = tiles / splitM;
    int64_t m = piece(d.m, splitM, by.unitM);
    int64_t n = piece(d.n, splitN, by.unitN);
    double cost = by.cost(static_cast<double>(m), static_cast<double>(n));
    // All wait for the largest tile.
    cost *= static_cast<double>(m * splitM) * static_cast<double>(n * splitN);
    cost *= splitN > 1 ? costOfColumns(d) : 1;
    if (lowest == 0 || cost < lowest) {
      lowest = cost;
      plan.tileM = m;
      plan.tileN = n;
    }
  }
  return lowest;
}

// Cores differ in speed when others use them, too. So each thread's share of a
// product is cut into a half, a quarter and two eighths: who is done takes what
// is left of another's share from its end.
static constexpr int64_t piecesOfShare = 4, unitsOfShare = 8;

/// Where unequal tile `index` of `tiles` begins in `size`.
static int64_t beginOf(int64_t size, int64_t tiles, int64_t index) {
  constexpr int64_t begins[piecesOfShare] = {0, 4, 6, 7}, align = 16;
  int64_t units = tiles / piecesOfShare * unitsOfShare;
  int64_t unit =
      index / piecesOfShare * unitsOfShare + begins[index % piecesOfShare];
  return index == tiles ? size : size * unit / units / align * align;
}

/// Cuts a product of our own for `threads`: its bits do not depend on that.
static void cutOwn(GemmPlan &plan, unsigned threads) {
  const trainc_gemm_detail &d = plan.detail;
  int64_t batch = d.batch;
  double macs = static_cast<double>(d.m) * static_cast<double>(d.n) *
                static_cast<double>(d.k) * static_cast<double>(batch);
  constexpr int64_t least = 64; // rows or columns of the smallest tile
  int64_t units = unitsOfShare * int64_t(threads);
  if (batch == 1 && threads > 1) {
    // Rows first: a thread has them in its cache from the product before.
    plan.unequalM = d.m / units >= least;
    plan.unequalN = !plan.unequalM && d.n / units >= least;
    if (plan.unequalM || plan.unequalN)
      return;
  }
  // Two for each thread, if they are large.
  int64_t tiles = threads;
  tiles *= macs / static_cast<double>(tiles) > 3e8 ? 2 : 1;
  if (threads > 1)
    cut(plan, tilesOf(tiles, batch),
        {[](double m, double n) {
           return 1 + 29 / n + 12 / (m < 480 ? m : 480);
         },
         12, 32});
}

static trainc_status createMatmuls(GemmPlan &plan) {
  const trainc_gemm_detail &d = plan.detail;
  int64_t sizesM[2] = {least(d.tile_m, d.m),
                       d.m > d.tile_m ? d.m % d.tile_m : 0};
  int64_t sizesN[2] = {least(d.tile_n, d.n),
                       d.n > d.tile_n ? d.n % d.tile_n : 0};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      if (!sizesM[i] || !sizesN[j])
        continue;
      MatmulShape shape = {d.a_type,
                           d.b_type,
                           d.c_type,
                           d.transpose_a != 0,
                           d.transpose_b != 0,
                           d.accumulate != 0,
                           d.has_bias != 0,
                           sizesM[i],
                           sizesN[j],
                           d.k,
                           d.lda,
                           d.ldb,
                           d.ldc};
      TRAINC_TRY(createMatmul(shape, &plan.matmuls[i][j]));
      uint64_t scratch = matmulScratch(plan.matmuls[i][j]);
      plan.scratch = plan.scratch > scratch ? plan.scratch : scratch;
    }
  return TRAINC_OK;
}

/// Floats of the three widened pieces, each on its own cache lines.
static uint64_t pieceFloats(int64_t rows, int64_t columns) {
  return alignUp(static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns),
                 16);
}

static bool areSingle(const trainc_gemm_detail &d) {
  return d.a_type == TRAINC_F32 && d.b_type == TRAINC_F32 &&
         d.c_type == TRAINC_F32;
}

static bool areBrain(const trainc_gemm_detail &d) {
  return d.a_type == TRAINC_BF16 && d.b_type == TRAINC_BF16 &&
         (d.c_type == TRAINC_BF16 || d.c_type == TRAINC_F32);
}

/// Why its back end is not for such a product; null if it is.
static const char *refuseBackEnd(const trainc_gemm_detail &d) {
  switch (d.back_end) {
  case TRAINC_BACK_END_OPENBLAS:
    break;
  case TRAINC_BACK_END_ONEDNN:
  case TRAINC_BACK_END_AMX:
    if (d.k == 0 || !(areSingle(d) || areBrain(d)))
      return "its back end multiplies f32, and bf16 to bf16 or f32, alone";
    break;
  case TRAINC_BACK_END_VECTOR:
    if (!areSingle(d))
      return "its back end multiplies f32 alone";
    break;
  case TRAINC_BACK_END_CUBLASLT:
  case TRAINC_BACK_END_CUBLASLT_TF32:
    return "it is one for GPUs";
  default:
    return "it has an unknown back end";
  }
  if (!d.split_k)
    return nullptr;
  if (d.back_end != TRAINC_BACK_END_AMX || d.split_k < 0 || d.split_k >= d.k ||
      d.batch != 1 || !d.transpose_a || d.transpose_b || d.has_bias ||
      d.has_aux || d.epilogue || d.c_type != TRAINC_F32)
    return "its sums are cut, and it is none that AMX cuts";
  return nullptr;
}

const char *trainc::refuseProduct(const trainc_gemm_detail &d) {
  if (d.bias_gradient)
    return "it is one for GPUs";
  if (const char *reason = refuseBackEnd(d))
    return reason;
  if (d.epilogue > TRAINC_EPILOGUE_MULTIPLY)
    return "it has an unknown epilogue";
  if (!d.epilogue)
    return d.has_aux ? "it has an auxiliary matrix and no epilogue" : nullptr;
  if (d.accumulate || d.batch != 1)
    return "it has an epilogue, and is a batch or accumulates";
  if (d.c_type == TRAINC_F64)
    return "it has an epilogue in f64";
  if (d.epilogue == TRAINC_EPILOGUE_GELU_GRAD && (!d.has_aux || d.has_bias))
    return "it has the slope of gelu, and a bias or no auxiliary matrix";
  bool multiplies = d.epilogue == TRAINC_EPILOGUE_MULTIPLY;
  if (!multiplies && d.epilogue != TRAINC_EPILOGUE_GELU_AND_SLOPE)
    return nullptr;
  if (!d.has_aux || d.c_type != TRAINC_F32)
    return "it keeps or reads a slope, and is not f32 or has no auxiliary "
           "matrix";
  return multiplies && d.has_bias ? "it is multiplied, and has a bias"
                                  : nullptr;
}

/// Cuts a product of AMX for `threads`: its bits do not depend on that.
static void cutAmx(GemmPlan &plan, unsigned threads) {
  const Cut by = {amxCost, 32, 32};
  if (plan.split) {
    cut(plan, tilesOf(threads, 2), by);
    return;
  }
  if (threads == 1)
    return;
  int64_t batch = plan.detail.batch;
  double whole = cut(plan, tilesOf(threads, batch), by);
  // Two for each thread, if that costs little: no thread waits long then.
  constexpr double little = 1.01;
  GemmPlan finer = plan;
  if (cut(finer, tilesOf(2 * int64_t(threads), batch), by) < little * whole)
    plan = finer;
}

static trainc_status planOpenBlas(GemmPlan &plan, unsigned threads) {
  const trainc_gemm_detail &d = plan.detail;
  bool doubles = d.a_type == TRAINC_F64 || d.b_type == TRAINC_F64 ||
                 d.c_type == TRAINC_F64;
  if (doubles && (d.a_type != d.b_type || d.a_type != d.c_type))
    return fail(TRAINC_UNSUPPORTED,
                "a product of f64 with another type is not supported");
  TRAINC_TRY(loadOpenBlas(threads, &plan.blas));
  plan.method = doubles ? DOUBLE : areSingle(d) ? SINGLE : WIDEN;
  if (plan.method == WIDEN)
    plan.scratch = sizeof(float) * (pieceFloats(plan.tileM, widenDepth) +
                                    pieceFloats(plan.tileN, widenDepth) +
                                    pieceFloats(plan.tileM, plan.tileN));
  return TRAINC_OK;
}

/// Plans a product by the back end that the compiler chose. Without oneDNN it is
/// OpenBLAS's, which appendOneDnn says.
static trainc_status choose(const trainc_gemm_detail &d, unsigned threads,
                            GemmPlan &plan) {
  plan.detail = d;
  plan.tileM = d.m ? least(d.tile_m, d.m) : 1;
  plan.tileN = d.n ? least(d.tile_n, d.n) : 1;
  switch (d.back_end) {
  case TRAINC_BACK_END_AMX:
    if (!haveAmx())
      return fail(TRAINC_UNSUPPORTED,
                  "a product is compiled for AMX (amx-bf16, amx-tile), which "
                  "this CPU or its operating system does not have");
    plan.method = AMX;
    plan.scratch = amxScratch(d.c_type, d.k);
    plan.split = d.split_k;
    cutAmx(plan, threads);
    return TRAINC_OK;
  case TRAINC_BACK_END_VECTOR:
    if (!kernels().multiply)
      return fail(TRAINC_UNSUPPORTED, "a product is compiled for AVX2, which "
                                      "this CPU does not have");
    plan.method = OWN;
    plan.scratch = kernels().multiplyScratch;
    if (gemmTileCount(d) > d.batch) // else it is too small
      cutOwn(plan, threads);
    return TRAINC_OK;
  case TRAINC_BACK_END_ONEDNN:
    if (!haveOneDnn())
      return planOpenBlas(plan, threads);
    plan.method = areSingle(d) ? SINGLE_ONEDNN : ONEDNN;
    return plan.method == ONEDNN ? createMatmuls(plan) : TRAINC_OK;
  default:
    return planOpenBlas(plan, threads);
  }
}

trainc_status trainc::createGemmPlan(const trainc_gemm_detail &detail,
                                     unsigned threads, GemmPlan **out_plan) {
  auto *plan = create<GemmPlan>();
  trainc_status status = choose(detail, threads, *plan);
  int64_t unequal = piecesOfShare * int64_t(threads);
  plan->tilesM = plan->unequalM ? unequal : tilesOf(detail.m, plan->tileM);
  plan->tilesN = plan->unequalN ? unequal : tilesOf(detail.n, plan->tileN);
  if (status != TRAINC_OK)
    destroyGemmPlan(plan);
  else
    *out_plan = plan;
  return status;
}

void trainc::destroyGemmPlan(GemmPlan *plan) {
  if (!plan)
    return;
  for (auto &row : plan->matmuls)
    for (Matmul *matmul : row)
      destroyMatmul(matmul);
  destroy(plan);
}

uint64_t trainc::gemmScratch(const GemmPlan *plan) { return plan->scratch; }

int64_t trainc::gemmTileCount(const GemmPlan *plan) {
  return plan->tilesM * plan->tilesN * plan->detail.batch *
         (plan->split ? 2 : 1);
}

uint64_t trainc::gemmPartialBytes(const GemmPlan *plan) {
  if (!plan->split)
    return 0;
  auto floats = static_cast<uint64_t>(plan->detail.m * plan->detail.n);
  return alignUp(floats * sizeof(float), 64);
}

/// Rows of a piece of a partial product: about 4096 numbers.
static int64_t rowsOfPiece(const trainc_gemm_detail &d) {
  return d.n ? tilesOf(4096, d.n) : 1;
}

int64_t trainc::gemmPartialPieces(const GemmPlan *plan) {
  const trainc_gemm_detail &d = plan->detail;
  return plan->split ? tilesOf(d.m, rowsOfPiece(d)) : 0;
}

void trainc::addGemmPartial(const GemmPlan *plan, void *const *args,
                            const void *partial, int64_t piece) {
  const trainc_gemm_detail &d = plan->detail;
  int64_t begin = piece * rowsOfPiece(d);
  int64_t end = least(begin + rowsOfPiece(d), d.m);
  for (int64_t i = begin; i < end; ++i) {
    float *c = static_cast<float *>(args[2]) + i * d.ldc;
    const void *sources[] = {c, static_cast<const float *>(partial) + i * d.n};
    kernels().sumF32(sources, 2, c, d.n);
  }
}

const trainc_gemm_detail &trainc::gemmDetail(const GemmPlan *plan) {
  return plan->detail;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// C = A' B' (+ C) in f32; every leading dimension is of the stored matrix.
static void multiply(const GemmPlan &plan, int64_t m, int64_t n, int64_t k,
                     const float *a, int64_t lda, const float *b, int64_t ldb,
                     float *c, int64_t ldc, bool accumulate) {
  const trainc_gemm_detail &d = plan.detail;
  auto whole = [](int64_t size) { return static_cast<int>(size); };
  plan.blas->sgemm(BLAS_ROW_MAJOR,
                   d.transpose_a ? BLAS_TRANSPOSE : BLAS_NO_TRANSPOSE,
                   d.transpose_b ? BLAS_TRANSPOSE : BLAS_NO_TRANSPOSE, whole(m),
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
             d.accumulate != 0);
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
    multiply(plan, tile.m, tile.n, depth, a, lda, b, ldb, c, ldc, accumulate);
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

/// Our own product, with its epilogue.
static void runOwn(const GemmPlan &plan, const Tile &tile, void *scratch) {
  const trainc_gemm_detail &d = plan.detail;
  struct Context {
    const GemmPlan &plan;
    const Tile &tile;
  } context = {plan, tile};
  auto finishPart = [](void *argument, int64_t i, int64_t rows, int64_t j,
                       int64_t columns) {
    auto &context = *static_cast<Context *>(argument);
    Tile part = context.tile;
    int64_t offset = (i * context.plan.detail.ldc + j) * int64_t(sizeof(float));
    part.m = rows;
    part.n = columns;
    part.c += offset;
    part.aux += part.aux ? offset : 0;
    finish(context.plan, part);
  };
  kernels().multiply({d.transpose_a != 0, d.transpose_b != 0, d.accumulate != 0,
                      tile.m, tile.n, d.k, d.lda, d.ldb, d.ldc,
                      reinterpret_cast<const float *>(tile.a),
                      reinterpret_cast<const float *>(tile.b),
                      reinterpret_cast<float *>(tile.c),
                      reinterpret_cast<const float *>(tile.bias), scratch,
                      d.epilogue ? +finishPart : nullptr, &context});
}

/// The product of a tile, of some methods with its epilogue; false if a library
/// failed.
static bool runProduct(const GemmPlan &plan, const Tile &tile, void *scratch) {
  switch (plan.method) {
  case AMX:
    runAmx(plan, tile, scratch);
    return true;
  case OWN:
    runOwn(plan, tile, scratch);
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
    i = beginOf(d.m, plan->tilesM, tileM);
    endM = beginOf(d.m, plan->tilesM, tileM + 1);
  }
  if (plan->unequalN) {
    j = beginOf(d.n, plan->tilesN, tileN);
    endN = beginOf(d.n, plan->tilesN, tileN + 1);
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
  if (d.epilogue && plan->method != AMX && plan->method != OWN)
    finish(*plan, tile);
  return true;
}
