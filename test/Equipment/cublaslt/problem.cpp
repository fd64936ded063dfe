//===- problem.cpp - What cuBLASLt computes, by its documentation ---------===//

#include "fake.h"

using namespace trainc;
using namespace trainc::cuda;

int64_t trainc::cuda::sizeOf(cudaDataType_t type) {
  switch (static_cast<unsigned>(type)) {
  case CUDA_R_64F:
    return 8;
  case CUDA_R_32F:
    return 4;
  }
  return 2;
}

int64_t trainc::cuda::vectorElements(const Matmul &matmul) {
  return matmul.hasEpilogue(withGradientB) ? matmul.c.columns : matmul.c.rows;
}

/// The rows of the table of types that the runtime may use.
static bool isInTable(const Operation &operation, cudaDataType_t a,
                      cudaDataType_t b, cudaDataType_t c) {
  if (a != b)
    return false;
  bool halves = a == CUDA_R_16BF || a == CUDA_R_16F;
  switch (static_cast<unsigned>(operation.compute)) {
  case CUBLAS_COMPUTE_32F:
    return operation.scale == CUDA_R_32F &&
           ((halves && (c == a || c == CUDA_R_32F)) ||
            (a == CUDA_R_32F && c == CUDA_R_32F));
  case CUBLAS_COMPUTE_32F_FAST_TF32:
    return operation.scale == CUDA_R_32F && a == CUDA_R_32F && c == CUDA_R_32F;
  case CUBLAS_COMPUTE_64F:
    return operation.scale == CUDA_R_64F && a == CUDA_R_64F && c == CUDA_R_64F;
  }
  return false;
}

static cublasStatus_t checkLayout(const char *name, const Layout &layout) {
  auto number = [](int64_t value) { return static_cast<long long>(value); };
  NEED(layout.rows > 0 && layout.columns > 0 && layout.rows <= INT32_MAX &&
           layout.columns <= INT32_MAX,
       CUBLAS_STATUS_INVALID_VALUE, "%s has %lld rows and %lld columns", name,
       number(layout.rows), number(layout.columns));
  NEED(layout.stride >= layout.rows && layout.stride <= INT32_MAX,
       CUBLAS_STATUS_INVALID_VALUE,
       "%s has %lld rows and the leading dimension %lld", name,
       number(layout.rows), number(layout.stride));
  NEED(layout.count > 0 && layout.distance >= 0, CUBLAS_STATUS_INVALID_VALUE,
       "%s has a batch of %d at distances of %lld", name, layout.count,
       number(layout.distance));
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t checkEpilogue(const Operation &operation,
                                    const Layout &d) {
  bool known = false;
#define TRAINC_LT_VALUE(type, name, value)                                     \
  if (std::is_same_v<type, cublasLtEpilogue_t> && operation.epilogue == value) \
    known = true;
#include "cuda/cublaslt.def"
  NEED(known, CUBLAS_STATUS_INVALID_VALUE, "the epilogue %u",
       static_cast<unsigned>(operation.epilogue));
  if (operation.epilogue & withAuxiliary)
    NEED(operation.auxiliaryStride >= d.rows &&
             operation.auxiliaryStride % 8 == 0,
         CUBLAS_STATUS_INVALID_VALUE,
         "%lld rows and the leading dimension %lld of the auxiliary matrix, "
         "which must be a multiple of 8",
         static_cast<long long>(d.rows),
         static_cast<long long>(operation.auxiliaryStride));
  NEED(!(operation.epilogue & withGradientA) ||
           operation.transposeA == CUBLAS_OP_N,
       CUBLAS_STATUS_NOT_SUPPORTED, "BGRADA of a transposed A");
  NEED(!(operation.epilogue & withGradientB) ||
           operation.transposeB == CUBLAS_OP_T,
       CUBLAS_STATUS_NOT_SUPPORTED, "BGRADB of a B that is not transposed");
  bool batched = d.count > 1;
  NEED(!batched || operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
           operation.epilogue == CUBLASLT_EPILOGUE_BIAS,
       CUBLAS_STATUS_NOT_SUPPORTED,
       "a batch with the epilogue %u, whose results have no distance",
       static_cast<unsigned>(operation.epilogue));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t trainc::cuda::checkProblem(const Operation &operation,
                                          const Layout &a, const Layout &b,
                                          const Layout &c, const Layout &d) {
  CHECK(checkLayout("A", a));
  CHECK(checkLayout("B", b));
  CHECK(checkLayout("D", d));
  NEED(memcmp(&c, &d, sizeof(c)) == 0, CUBLAS_STATUS_INVALID_VALUE,
       "C and D differ");
  bool transposeA = operation.transposeA == CUBLAS_OP_T;
  bool transposeB = operation.transposeB == CUBLAS_OP_T;
  int64_t k = transposeA ? a.rows : a.columns;
  NEED((transposeA ? a.columns : a.rows) == d.rows &&
           (transposeB ? b.rows : b.columns) == d.columns &&
           (transposeB ? b.columns : b.rows) == k,
       CUBLAS_STATUS_INVALID_VALUE, "the shapes of A, B and D do not fit");
  NEED(a.count == d.count && b.count == d.count, CUBLAS_STATUS_INVALID_VALUE,
       "batches of %d, %d and %d", a.count, b.count, d.count);
  NEED(isInTable(operation, a.type, b.type, d.type),
       CUBLAS_STATUS_NOT_SUPPORTED,
       "compute type %u, scale type %u and the types %u, %u and %u",
       static_cast<unsigned>(operation.compute),
       static_cast<unsigned>(operation.scale), static_cast<unsigned>(a.type),
       static_cast<unsigned>(b.type), static_cast<unsigned>(d.type));
  return checkEpilogue(operation, d);
}
