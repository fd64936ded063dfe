// The real library, without a GPU: it has every function that the runtime calls, takes
// the attributes that the runtime sets, of their sizes, and says that it has no device.
//
// REQUIRES: cublaslt
// RUN: %cxx -std=c++20 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%cublaslt %t | FileCheck %s

#include "cuda/cublaslt.h"
#include "cuda/products.h"
#include "device.h"

int main() {
  const CublasLt *lt;
  OK(openCublasLt(&lt));
  CHECK(lt->cublasLtGetVersion() >= 120000);
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t layout;
  cublasLtMatmulPreference_t preference;
  OK(lt->cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  OK(lt->cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 8, 16, 8));
  OK(lt->cublasLtMatmulPreferenceCreate(&preference));
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    OK(lt->cublasLtMatmulDescSetAttribute(operation, attribute, &value,
                                          sizeof(value)));
    CHECK(lt->cublasLtMatmulDescSetAttribute(operation, attribute, &value,
                                             sizeof(value) / 2) ==
          CUBLAS_STATUS_INVALID_VALUE);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU_BGRAD);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUdeviceptr(16));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, CUdeviceptr(16));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(8));
  auto shape = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    OK(lt->cublasLtMatrixLayoutSetAttribute(layout, attribute, &value,
                                            sizeof(value)));
  };
  shape(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(3));
  shape(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t(128));
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                    auto value) {
    OK(lt->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                                sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(32) << 20);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(16));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(16));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(16));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(16));
  OK(lt->cublasLtMatmulPreferenceDestroy(preference));
  OK(lt->cublasLtMatrixLayoutDestroy(layout));
  OK(lt->cublasLtMatmulDescDestroy(operation));

  // The devices of the driver of tests are not for it.
  Device *device;
  OK(openDevice(0, &device));
  Products *products;
  trainc_status status = openProducts(*device, nullptr, &products);
  // CHECK: TRAINC_DEVICE_FAILED, cublasLtCreate: {{.*}} (CUBLAS_STATUS_NOT_INITIALIZED)
  printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
  closeDevice(device);
}
