// The cuBLASLt of tests refuses what the library does not do, or would do wrongly.
//
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so %t

#include "cuda/cublaslt.h"
#include "device.h"
#include <math.h>

namespace {
/// What describes D = A B, of 8 x 16 and 16 x 24 f32, and what computes it.
struct Problem {
  const CublasLt &lt;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t results[2] = {};

  explicit Problem(const CublasLt &lt) : lt(lt) {
    OK(lt.cublasLtCreate(&handle));
    OK(lt.cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(lt.cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 8, 16, 8));
    OK(lt.cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 16, 24, 16));
    OK(lt.cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 8, 24, 8));
    OK(lt.cublasLtMatmulPreferenceCreate(&preference));
  }
  ~Problem() {
    OK(lt.cublasLtMatmulPreferenceDestroy(preference));
    for (cublasLtMatrixLayout_t layout : {a, b, d})
      OK(lt.cublasLtMatrixLayoutDestroy(layout));
    OK(lt.cublasLtMatmulDescDestroy(operation));
    OK(lt.cublasLtDestroy(handle));
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    OK(lt.cublasLtMatmulDescSetAttribute(operation, attribute, &value,
                                         sizeof(value)));
  }
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value) {
    OK(lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                               sizeof(value)));
  }
  cublasStatus_t choose() {
    int found = 0;
    return lt.cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, d, d,
                                             preference, 2, results, &found);
  }
  cublasStatus_t multiply(CUdeviceptr memory, CUdeviceptr workspace,
                          size_t workspaceBytes, CUstream stream,
                          cublasLtMatrixLayout_t other = nullptr) {
    float one = 1, zero = 0;
    auto at = [](CUdeviceptr address) {
      return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
    };
    return lt.cublasLtMatmul(handle, operation, &one, at(memory), a,
                             at(memory + 512), b, &zero, at(memory + 2048),
                             other ? other : d, at(memory + 2048),
                             other ? other : d, &results[1].algo, at(workspace),
                             workspaceBytes, stream);
  }
};
} // namespace

int main() {
  Device *device;
  OK(openDevice(0, &device));
  const CublasLt *lt;
  OK(openCublasLt(&lt));
  cublasLtHandle_t none;
  CHECK(lt->cublasLtCreate(&none) == CUBLAS_STATUS_NOT_INITIALIZED);
  CUstream stream;
  CUdeviceptr memory, workspace;
  OK(createStream(*device, &stream));
  OK(allocate(*device, 8192, &memory));
  OK(allocate(*device, 4096, &workspace));
  {
    Current current(*device);
    OK(current.status());
    Problem p(*lt);
    auto refused = [&](cublasStatus_t status, cublasStatus_t expected,
                       const char *text) {
      const char *report = lt->cublasLtGetStatusString(status);
      if (status != expected || !strstr(report, text)) {
        printf("%u, not %u: %s, not %s\n", status, expected, report, text);
        exit(1);
      }
    };
    constexpr auto invalid = CUBLAS_STATUS_INVALID_VALUE;
    constexpr auto unsupported = CUBLAS_STATUS_NOT_SUPPORTED;
    auto multiply = [&](size_t bytes = 4096,
                        cublasLtMatrixLayout_t other = nullptr) {
      return p.multiply(memory, workspace, bytes, stream, other);
    };

    // Attributes of other sizes, unknown ones, handles that are gone.
    uint16_t small = 1;
    refused(lt->cublasLtMatmulDescSetAttribute(
                p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &small, 2),
            invalid, "an attribute of 4 bytes is set by 2");
    refused(
        lt->cublasLtMatrixLayoutSetAttribute(
            p.a, static_cast<cublasLtMatrixLayoutAttribute_t>(9), &small, 2),
        invalid, "attribute 9 of a layout");
    cublasLtMatrixLayout_t gone;
    OK(lt->cublasLtMatrixLayoutCreate(&gone, CUDA_R_32F, 8, 8, 8));
    OK(lt->cublasLtMatrixLayoutDestroy(gone));
    refused(lt->cublasLtMatrixLayoutDestroy(gone), invalid,
            "a handle that is not there");

    // Shapes and types.
    std::swap(p.a, p.b);
    refused(p.choose(), invalid, "the shapes of A, B and D do not fit");
    std::swap(p.a, p.b);
    int32_t batch = 2;
    OK(lt->cublasLtMatrixLayoutSetAttribute(
        p.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)));
    refused(p.choose(), invalid, "batches of 2, 1 and 1");
    batch = 1;
    OK(lt->cublasLtMatrixLayoutSetAttribute(
        p.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)));
    cublasLtMatrixLayout_t half;
    OK(lt->cublasLtMatrixLayoutCreate(&half, CUDA_R_16BF, 8, 24, 8));
    std::swap(p.d, half);
    refused(p.choose(), unsupported, "the types 0, 0 and 14");
    std::swap(p.d, half);
    OK(lt->cublasLtMatrixLayoutDestroy(half));

    // Epilogues.
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, 3u);
    refused(p.choose(), invalid, "the epilogue 3");
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
    refused(p.choose(), unsupported, "BGRADB of a B that is not transposed");
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
    refused(p.choose(), invalid, "must be a multiple of 8");
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(12));
    refused(p.choose(), invalid, "the leading dimension 12");
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(8));
    OK(p.choose());
    refused(multiply(), invalid, "an epilogue without its auxiliary matrix");
    // It would be written over D.
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory + 2048);
    refused(multiply(), invalid, "a result overlaps something else");
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    OK(p.choose());
    refused(multiply(), invalid, "an epilogue without its vector");
    p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUdeviceptr(16));
    OK(p.choose());
    p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory + 4096 + 4);
    refused(multiply(), invalid, "the bias or its gradient at");

    // Algorithms for something else.
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    refused(multiply(), invalid, "an algorithm that was not chosen for this");
    OK(p.choose());
    CHECK(p.results[0].state != CUBLAS_STATUS_SUCCESS);
    refused(p.multiply(memory + 16, workspace, 4096, stream), invalid,
            "A at 0x");
    for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      p.prefer(attribute, 16);
    OK(p.choose());
    refused(p.multiply(memory + 8, workspace, 4096, stream), invalid,
            "A at 0x");
    cublasLtMatrixLayout_t wide;
    OK(lt->cublasLtMatrixLayoutCreate(&wide, CUDA_R_32F, 8, 24, 16));
    refused(multiply(4096, wide), invalid,
            "an algorithm that was not chosen for this");
    OK(lt->cublasLtMatrixLayoutDestroy(wide));

    // Workspaces.
    uint64_t most = 4096;
    OK(lt->cublasLtMatmulPreferenceSetAttribute(
        p.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
        sizeof(most)));
    OK(p.choose());
    CHECK(p.results[1].workspaceSize == 4096);
    refused(multiply(2048), invalid,
            "a workspace of 2048 bytes for an algorithm that needs 4096");
    refused(p.multiply(memory, workspace + 128, 3968, stream), invalid,
            "a workspace of 3968 bytes");
    refused(p.multiply(memory, memory + 4096, 4097, stream),
            CUBLAS_STATUS_EXECUTION_FAILED, "are not of one allocation");
    refused(p.multiply(memory, memory, 4096, stream), invalid,
            "a result overlaps something else");
    refused(p.multiply(memory, workspace, 4096, nullptr),
            CUBLAS_STATUS_EXECUTION_FAILED, "the default stream");
    CHECK(counts().pending == 0 && counts().calls == 0);

    // The workspace is not what it was.
    OK(device->driver->cuMemsetD8Async(workspace, 0, 4096, stream));
    OK(device->driver->cuMemsetD8Async(memory, 0, 8192, stream));
    OK(multiply());
  }
  CHECK(counts().calls == 0);
  OK(waitFor(*device, stream, 10, "a product"));
  CHECK(counts().calls == 1);
  std::vector<float> left(1024);
  OK(download(*device, left.data(), workspace, 4096));
  for (float value : left)
    CHECK(isnan(value));
  release(*device, memory);
  release(*device, workspace);
  destroyStream(*device, stream);
  closeDevice(device);
}
