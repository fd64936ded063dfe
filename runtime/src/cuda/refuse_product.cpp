//===- refuse_product.cpp - Which products cuBLASLt computes --------------===//

#include "cuda/products.h"

using namespace trainc;

static bool hasProperTypes(const trainc_gemm_detail &g) {
  if (g.a_type != g.b_type)
    return false;
  switch (g.a_type) {
  case TRAINC_F32:
  case TRAINC_F64:
    return g.c_type == g.a_type;
  case TRAINC_BF16:
  case TRAINC_F16:
    return g.c_type == g.a_type || g.c_type == TRAINC_F32;
  }
  return false;
}

static const char *refuseEpilogue(const trainc_gemm_detail &g) {
  bool gelu = g.epilogue == TRAINC_EPILOGUE_GELU;
  bool geluGrad = g.epilogue == TRAINC_EPILOGUE_GELU_GRAD;
  if (g.epilogue && !gelu && !geluGrad)
    return "it has an unknown epilogue";
  if ((g.epilogue || g.bias_gradient) && (g.batch != 1 || g.accumulate))
    return "it has an epilogue or a bias gradient, and is a batch or "
           "accumulates";
  if (g.epilogue && g.c_type == TRAINC_F64)
    return "it has an epilogue in f64";
  if (geluGrad ? !g.has_aux : g.has_aux && !gelu)
    return "its epilogue and its auxiliary matrix do not belong together";
  if (g.has_aux && g.ldc % 8)
    return "it has an auxiliary matrix with rows of no multiple of 8 elements";
  if (g.has_bias && (geluGrad || g.bias_gradient))
    return "it has a bias, and the gradient of gelu or of a bias";
  return nullptr;
}

static const char *refuseBiasGradient(const trainc_gemm_detail &g) {
  switch (g.bias_gradient) {
  case TRAINC_BIAS_GRADIENT_NONE:
    return nullptr;
  case TRAINC_BIAS_GRADIENT_A:
    if (!g.transpose_a)
      return "it has a bias gradient of A, which is not transposed";
    break;
  case TRAINC_BIAS_GRADIENT_B:
    if (g.transpose_b)
      return "it has a bias gradient of B, which is transposed";
    break;
  case TRAINC_BIAS_GRADIENT_C:
    return g.epilogue == TRAINC_EPILOGUE_GELU_GRAD
               ? nullptr
               : "it has a bias gradient of C without the gradient of gelu";
  default:
    return "it has an unknown bias gradient";
  }
  return g.epilogue ? "it has an epilogue and a bias gradient of A or B"
                    : nullptr;
}

const char *trainc::cuda::refuseProduct(const trainc_gemm_detail &g) {
  if (!hasProperTypes(g))
    return "its types are none that cuBLASLt multiplies";
  if (g.back_end != TRAINC_BACK_END_CUBLASLT &&
      g.back_end != TRAINC_BACK_END_CUBLASLT_TF32)
    return "its back end is none of GPUs";
  if (g.split_k)
    return "its sums are cut";
  if (g.k == 0)
    return "its sums are of nothing";
  if (g.batch > 1 && g.stride_c == 0)
    return "results of its batch overlap";
  if (g.batch > INT32_MAX)
    return "its batch is too large";
  if (const char *reason = refuseEpilogue(g))
    return reason;
  return refuseBiasGradient(g);
}
