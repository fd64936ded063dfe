//===- gemm.cpp - Products of matrices, cut into tiles --------------------===//

#include "cpu/gemm.h"
#include "cpu/amx.h"
#include "cpu/gemm_plan.h"
#include "cpu/kernels.h"

using namespace trainc;

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
// product is cut into a half and two quarters: who is done takes what is left of
// another's share from its end. Each piece packs B, so that more cost more.
static constexpr int64_t piecesOfShare = 3, unitsOfShare = 4;

int64_t trainc::beginOfTile(int64_t size, int64_t tiles, int64_t index) {
  constexpr int64_t begins[piecesOfShare] = {0, 2, 3}, align = 16;
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
  constexpr int64_t least = 128; // rows or columns of the smallest tile
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

static bool areSingle(const trainc_gemm_detail &d) {
  return d.a_type == TRAINC_F32 && d.b_type == TRAINC_F32 &&
         d.c_type == TRAINC_F32;
}

static bool areBrain(const trainc_gemm_detail &d) {
  return d.a_type == TRAINC_BF16 && d.b_type == TRAINC_BF16 &&
         (d.c_type == TRAINC_BF16 || d.c_type == TRAINC_F32);
}

static bool areHalves(const trainc_gemm_detail &d) {
  return d.a_type == d.b_type && d.a_type != TRAINC_F32 &&
         (d.c_type == d.a_type || d.c_type == TRAINC_F32);
}

/// Why its back end is not for such a product; null if it is.
static const char *refuseBackEnd(const trainc_gemm_detail &d) {
  switch (d.back_end) {
  case TRAINC_BACK_END_OPENBLAS:
  case TRAINC_BACK_END_VECTOR:
    break;
  case TRAINC_BACK_END_ONEDNN:
  case TRAINC_BACK_END_AMX:
    if (d.k == 0 || !(areSingle(d) || areBrain(d)))
      return "its back end multiplies f32, and bf16 to bf16 or f32, alone";
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
    return "it has the derivative of gelu, and a bias or no auxiliary matrix";
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
  if (plan.detail.m == 0 || plan.detail.n == 0)
    return;
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

/// Whether a product is one of f64; fails if it is of another type, too.
static trainc_status checkDouble(const trainc_gemm_detail &d, bool &doubles) {
  doubles = d.a_type == TRAINC_F64 || d.b_type == TRAINC_F64 ||
            d.c_type == TRAINC_F64;
  if (doubles && (d.a_type != d.b_type || d.a_type != d.c_type))
    return fail(TRAINC_UNSUPPORTED,
                "a product of f64 with another type is not supported");
  return TRAINC_OK;
}

/// Bytes of the three widened pieces.
static uint64_t widenedBytes(const GemmPlan &plan) {
  return sizeof(float) * (pieceFloats(plan.tileM, widenDepth) +
                          pieceFloats(plan.tileN, widenDepth) +
                          pieceFloats(plan.tileM, plan.tileN));
}

static trainc_status planOpenBlas(GemmPlan &plan, unsigned threads) {
  const trainc_gemm_detail &d = plan.detail;
  bool doubles = false;
  TRAINC_TRY(checkDouble(d, doubles));
  TRAINC_TRY(loadOpenBlas(threads, &plan.blas));
  plan.method = doubles ? DOUBLE : areSingle(d) ? SINGLE : WIDEN;
  if (plan.method == WIDEN)
    plan.scratch = widenedBytes(plan);
  return TRAINC_OK;
}

static trainc_status planOwn(GemmPlan &plan, unsigned threads) {
  const trainc_gemm_detail &d = plan.detail;
  const Kernels &table = kernels();
  bool doubles = false;
  TRAINC_TRY(checkDouble(d, doubles));
  if (!table.multiplyF32)
    return fail(TRAINC_UNSUPPORTED, "a product is compiled for AVX2, which "
                                    "this CPU does not have");
  plan.method = doubles        ? OWN_DOUBLE
                : areSingle(d) ? OWN
                : areHalves(d) ? OWN_HALF
                               : WIDEN;
  plan.scratch = doubles ? table.multiplyScratchF64 : table.multiplyScratchF32;
  if (plan.method == WIDEN) {
    plan.scratch += widenedBytes(plan);
    return TRAINC_OK;
  }
  if (plan.method == OWN_HALF)
    plan.scratch += NarrowProduct::windowRows * sumPitch * sizeof(float);
  if (gemmTileCount(d) > d.batch) // else it is too small
    cutOwn(plan, threads);
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
    return planOwn(plan, threads);
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

bool trainc::usesOpenBlas(const GemmPlan *plan) { return plan->blas; }

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
