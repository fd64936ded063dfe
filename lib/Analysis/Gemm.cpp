//===- Gemm.cpp - Which back end computes a GEMM, in which tiles ----------===//
#include "trainc/Analysis/Gemm.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// A tile of C, in elements.
struct Tile {
  int64_t m, n;
};

struct Planner {
  Planner(GemmOp gemm, const GemmTarget &target);

  GemmOp gemm;
  const GemmTarget &target;
  int64_t m, n, k, batch;
  double multiplyAdds;
  bool isF32, isBF16; // bf16 to bf16 or f32
  bool isNarrow;      // factors of bf16 or f16
  bool resultIsF32;

  GemmPlanAttr plan();

private:
  GemmPlanAttr by(BackEnd backEnd, Tile tile, int64_t splitK = 0);
  Tile tileByShape();
  Tile tileForCores(int64_t tiles);
  int64_t splitOfK();
  bool prefersVector();
  bool prefersOneDnn(Tile tile);
  /// Nothing but A' B', or C + A' B'.
  bool isPlain() {
    return !gemm.getBias() && gemm.getEpilogue() == Epilogue::none;
  }
};
} // namespace

Planner::Planner(GemmOp gemm, const GemmTarget &target)
    : gemm(gemm), target(target), m(gemm.getM()), n(gemm.getN()),
      k(gemm.getK()), batch(gemm.getBatch()),
      multiplyAdds(double(m) * n * k * batch) {
  auto elementOf = [](Value value) {
    return cast<ShapedType>(value.getType()).getElementType();
  };
  Type a = elementOf(gemm.getLhs()), b = elementOf(gemm.getRhs()),
       c = elementOf(gemm.getMain());
  resultIsF32 = c.isF32();
  isF32 = a.isF32() && b.isF32() && c.isF32();
  isNarrow = a == b && (a.isBF16() || a.isF16());
  isBF16 = a.isBF16() && b.isBF16() && (c.isBF16() || c.isF32());
}

/// The time that a one-thread call of a library takes per multiply-add, with what it
/// packs.
static double costOf(Tile tile) { return 1 + 37.0 / tile.m + 60.0 / tile.n; }

/// The size of each of `parts` tiles of `size` rows or columns, whole vectors of 16.
static int64_t partOf(int64_t size, int64_t parts) {
  return std::min(int64_t(llvm::alignTo(llvm::divideCeil(size, parts), 16)),
                  size);
}

/// Tiles from the shape alone. More tiles let more threads work and balance them; smaller
/// ones pack more per multiply-add.
Tile Planner::tileByShape() {
  constexpr double smallGemm = 5e5;   // multiply-adds: one tile
  constexpr double largeTile = 2.5e8; // of a tile that is large enough
  constexpr double allowedLoss = 1.08;
  double work = double(m) * n * k;
  Tile tile{m, n};
  if (work < smallGemm || batch >= 16)
    return tile;
  int64_t most = std::clamp<int64_t>(work / largeTile, 2, 32);
  double reference = 0;
  for (int64_t tiles = 2; tiles <= most; tiles *= 2) {
    Tile best{0, 0};
    for (int64_t splitM = 1; splitM <= tiles; splitM *= 2) {
      Tile next{partOf(m, splitM), partOf(n, tiles / splitM)};
      if (best.m == 0 || costOf(next) < costOf(best))
        best = next;
    }
    if (reference == 0)
      reference = costOf(best);
    if (costOf(best) > allowedLoss * reference)
      break;
    tile = best;
  }
  return tile;
}

/// What it costs more to cut columns of C than its rows. A thread that has some rows in
/// every GEMM finds them in its cache, if they fit there; of A' transposed the rows are no
/// rows of the GEMM before.
static double costOfColumns(GemmOp gemm) {
  constexpr double cached = 1 << 21, cost = 1.1;
  auto type = cast<ShapedType>(gemm.getMain().getType());
  double rows = double(gemm.getM()) * (gemm.getK() + gemm.getN()) *
                nn::getElementBytes(type.getElementType());
  return !gemm.getTransposeLhs() && rows <= cached ? cost : 1;
}

/// Each GEMM of the batch in `tiles` tiles, where that costs least.
Tile Planner::tileForCores(int64_t tiles) {
  Tile best{m, n};
  double lowest = 0;
  for (int64_t splitM = 1; splitM <= tiles; ++splitM) {
    if (tiles % splitM)
      continue;
    int64_t splitN = tiles / splitM;
    Tile tile{partOf(m, splitM), partOf(n, splitN)};
    // All wait for the largest tile.
    double cost =
        costOf(tile) * double(tile.m * splitM) * double(tile.n * splitN);
    cost *= splitN > 1 ? costOfColumns(gemm) : 1;
    if (lowest == 0 || cost < lowest) {
      lowest = cost;
      best = tile;
    }
  }
  return best;
}

/// Where AMX cuts k in two; 0: nowhere. Of the gradient of a small weight each thread then
/// multiplies the rows that it has in its cache from the GEMMs before, and packs them
/// alone: it takes half the time, with the sum.
int64_t Planner::splitOfK() {
  constexpr int64_t largest = 1 << 16, shortest = 128, step = 32;
  bool isSmall = m * n <= largest && 2 * m * n <= k * (m + n);
  if (!isSmall || k < shortest || !gemm.getTransposeLhs() ||
      gemm.getTransposeRhs() || !isPlain() || batch != 1 || !resultIsF32)
    return 0;
  return llvm::alignTo(llvm::divideCeil(k, 2), step);
}

/// Whether our own vector code is the fastest: on AVX2, and of bf16 and f16, which it widens as
/// it packs, from about 64 x 64 x 64 on; on AVX-512 where B is transposed, up to about
/// 512 x 512 x 256, and where A is, as for gradients of weights, from about 512 x 512 x 512 on,
/// where a vector is one operation.
bool Planner::prefersVector() {
  constexpr double smallest = 1 << 18, smallestTransposed = 1 << 27;
  constexpr double smallestRows = 1 << 16, largestRows = 1 << 26;
  if (!(isF32 || isNarrow) || !target.vector)
    return false;
  if (isNarrow || !target.avx512)
    return multiplyAdds >= smallest;
  if (gemm.getTransposeRhs())
    return !gemm.getTransposeLhs() && multiplyAdds >= smallestRows &&
           multiplyAdds < largestRows;
  return !target.doublePumped && gemm.getTransposeLhs() && isPlain() &&
         multiplyAdds >= smallestTransposed;
}

/// Whether oneDNN multiplies f32 faster than OpenBLAS: on AVX-512 it reaches 155 to 173
/// GF/s where OpenBLAS 0.3.21 reaches 110 to 155, from about 64 x 64 x 128 on; below, its
/// calls cost more.
bool Planner::prefersOneDnn(Tile tile) {
  constexpr double smallest = 1 << 19;
  return isF32 && target.avx512 && double(tile.m) * tile.n * k >= smallest;
}

GemmPlanAttr Planner::by(BackEnd backEnd, Tile tile, int64_t splitK) {
  // What is empty has a tile, too.
  return GemmPlanAttr::get(gemm.getContext(), backEnd,
                           std::max<int64_t>(tile.m, 1),
                           std::max<int64_t>(tile.n, 1), splitK);
}

GemmPlanAttr Planner::plan() {
  if (target.gpu)
    return by(target.tf32 && isF32 ? BackEnd::CUBLASLT_TF32 : BackEnd::CUBLASLT,
              {m, n});
  Tile tile = tileByShape();
  if (target.own)
    return by(BackEnd::VECTOR, tile);
  // Below, packing and unused parts of the registers cost more than they save.
  constexpr double smallestAmx = 1 << 20;
  if (target.amx && k > 0 && ((isF32 && target.splitF32) || isBF16) &&
      multiplyAdds >= smallestAmx)
    return by(BackEnd::AMX, tile, splitOfK());
  if (isBF16 && k > 0 && target.bf16)
    return by(BackEnd::ONEDNN, tile);
  if (prefersVector())
    return by(BackEnd::VECTOR, tile);
  if (!prefersOneDnn(tile))
    return by(BackEnd::OPENBLAS, tile);
  // Fewer tiles, if there are fewer CPUs.
  int64_t cores = llvm::divideCeil(target.cores, batch);
  int64_t tiles = llvm::divideCeil(m, tile.m) * llvm::divideCeil(n, tile.n);
  return by(BackEnd::ONEDNN, cores < tiles ? tileForCores(cores) : tile);
}

GemmPlanAttr trainc::planGemm(GemmOp gemm, const GemmTarget &target) {
  return Planner(gemm, target).plan();
}

/// Whether our own product of f32 is the faster one on AVX-512, too: of gradients, for which
/// it packs the weight as it is stored, and of large planes, whose windows it multiplies where
/// they stand (runtime/src/cpu/convolution.h). Windows of one element are planes as they are.
static bool prefersOwn(ConvolutionOp convolution) {
  constexpr int64_t large = 256;
  ArrayRef<int64_t> strides = convolution.getStrides();
  ArrayRef<int64_t> weight = convolution.getWeightType().getShape();
  ArrayRef<int64_t> output = convolution.getOutputType().getShape();
  switch (convolution.getKind()) {
  case ConvolutionKind::weight_gradient:
    return true;
  case ConvolutionKind::input_gradient:
    return weight[2] * weight[3] * strides[0] * strides[1] > 1;
  case ConvolutionKind::forward:
    return weight[2] * weight[3] * strides[0] * strides[1] > 1 &&
           output[2] * output[3] >= large;
  }
  llvm_unreachable("unknown kind");
}

static BackEnd backEndOf(ConvolutionOp convolution, const GemmTarget &target) {
  Type type = cast<ShapedType>(convolution.getLhs().getType()).getElementType();
  ShapedType weight = convolution.getWeightType();
  int64_t groups = convolution.getGroups();
  bool depthwise =
      groups > 1 && weight.getDimSize(0) == groups && weight.getDimSize(1) == 1;
  if (target.own || (depthwise && target.vector))
    return BackEnd::VECTOR;
  if (target.amx && (type.isBF16() || (type.isF32() && target.splitF32)))
    return BackEnd::AMX;
  if ((type.isBF16() && target.bf16) ||
      (type.isF32() && target.avx512 && !prefersOwn(convolution)))
    return BackEnd::ONEDNN;
  // Narrow types are widened with the columns.
  return !type.isF64() && target.vector ? BackEnd::VECTOR : BackEnd::OPENBLAS;
}

ConvolutionPlanAttr trainc::planConvolution(ConvolutionOp convolution,
                                            const GemmTarget &target) {
  // Two for each CPU: none waits long for the others.
  return ConvolutionPlanAttr::get(convolution.getContext(),
                                  backEndOf(convolution, target),
                                  2 * target.cores);
}
