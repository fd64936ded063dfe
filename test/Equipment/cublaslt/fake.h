//===- fake.h - The state of the cuBLASLt of tests --------------*- C++ -*-===//
#ifndef TRAINC_EMULATOR_CUBLASLT_FAKE_H
#define TRAINC_EMULATOR_CUBLASLT_FAKE_H

#include "core/containers.h"
#include "cuda/cublaslt.h"
#include "trainc/fake_cublaslt.h"
#include "trainc/fake_cuda.h"

#define TRAINC_LT_FUNCTION(name, result, parameters)                           \
  extern "C" TRAINC_EMU_EXPORT result name parameters;
namespace trainc::cuda {
#include "cuda/cublaslt.def"

/// A column-major matrix, or several at equal distances.
struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, stride; // the stride between columns
  int32_t count;
  int64_t distance;
};

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transposeA, transposeB;
  cublasLtEpilogue_t epilogue;
  uint64_t vector; // bias or bias gradient
  uint64_t auxiliary;
  int64_t auxiliaryStride;
};

struct cublasLtContext {
  uint32_t arch;
};
struct cublasLtMatrixLayoutOpaque_t : Layout {};
struct cublasLtMatmulDescOpaque_t : Operation {};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace;
  uint32_t reductions;
  uint32_t alignment[4]; // A, B, C, D
};

/// A product, all of it.
struct Matmul {
  Operation operation;
  Layout a, b, c;
  double alpha, beta;
  uint64_t addressA, addressB, addressC;
  uint64_t workspace, workspaceBytes;
  uint64_t usedBytes; // of the workspace

  bool hasEpilogue(unsigned bits) const {
    return (operation.epilogue & bits) != 0;
  }
};

/// Bits of cublasLtEpilogue_t.
constexpr unsigned withBias = 4;
constexpr unsigned withBiasGradient = 16;
constexpr unsigned withGelu = 32;
constexpr unsigned withGeluGrad = 64;
constexpr unsigned withAuxiliary = 128;
constexpr unsigned withGradientA = 256;
constexpr unsigned withGradientB = 512;

extern trainc_fake_cublaslt_counts counts;

/// Sets what cublasLtGetStatusString says of the status, which it returns.
__attribute__((format(printf, 2, 3))) cublasStatus_t
refuse(cublasStatus_t status, const char *format, ...);

int64_t sizeOf(cudaDataType_t type);

/// Elements of the bias, or of its gradient.
int64_t vectorElements(const Matmul &matmul);

/// Refuses what is not in the documented tables. Addresses are not looked at.
cublasStatus_t checkProblem(const Operation &operation, const Layout &a,
                            const Layout &b, const Layout &c, const Layout &d);

/// Computes the product; `data` is a Matmul. For trainc_fake_cuda_call.
int compute(void *data, char *report, uint64_t reportBytes);

} // namespace trainc::cuda

/// Returns from the function if `status` is a failure.
#define CHECK(status)                                                          \
  do {                                                                         \
    if (cublasStatus_t checked = (status); checked != CUBLAS_STATUS_SUCCESS)   \
      return checked;                                                          \
  } while (false)
/// Refuses what is not so.
#define NEED(condition, status, ...)                                           \
  do {                                                                         \
    if (!(condition))                                                          \
      return refuse(status, __VA_ARGS__);                                      \
  } while (false)

#endif // TRAINC_EMULATOR_CUBLASLT_FAKE_H
