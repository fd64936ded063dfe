//===- products.cpp - Products of matrices on a GPU -----------------------===//

#include "cuda/products.h"
#include "core/artifact.h"
#include "cuda/cublaslt.h"
#include <initializer_list>

using namespace trainc;
using namespace trainc::cuda;

struct trainc::cuda::Product {
  trainc_gemm_detail detail; // without tiles
  uint32_t alignment = 0, choice = 0;
  bool empty = false; // nothing to compute
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr; // ours
  cublasLtMatmulAlgo_t algorithm = {};
  // What the library computes: the detail, or its product alone with the kernels for
  // the rest, as far as it is needed.
  trainc_gemm_detail called;
  CUfunction epilogue = nullptr, columnSums = nullptr;
};

struct trainc::cuda::Products {
  const Device *device = nullptr;
  const CublasLt *library = nullptr;
  cublasLtHandle_t handle = nullptr;
  CUmodule module = nullptr; // has the kernels for epilogues; may be null
  uint64_t workspace = 0;
  Array<Product *> products;
  Text notice;
};

//===----------------------------------------------------------------------===//
// The library on a device
//===----------------------------------------------------------------------===//

/// As NVIDIA recommends in the documentation of cublasSetWorkspace().
static uint64_t recommendedWorkspace(int major) {
  constexpr uint64_t mebibyte = 1 << 20;
  if (major < 9)
    return 4 * mebibyte;
  return (major < 12 ? 32 : 12) * mebibyte;
}

trainc_status trainc::cuda::openProducts(const Device &device, CUmodule module,
                                         Products **out_products) {
  *out_products = nullptr;
  const CublasLt *library;
  TRAINC_TRY(openCublasLt(&library));
  Current current(device);
  TRAINC_TRY(current.status());
  cublasLtHandle_t handle = nullptr;
  TRAINC_LT(*library, cublasLtCreate, &handle);
  auto *products = create<Products>();
  products->device = &device;
  products->library = library;
  products->handle = handle;
  products->module = module;
  products->workspace = recommendedWorkspace(device.major);
  *out_products = products;
  return TRAINC_OK;
}

static void destroyDescriptors(const CublasLt &library, Product &product) {
  for (cublasLtMatrixLayout_t *layout : {&product.a, &product.b, &product.c}) {
    if (*layout)
      library.cublasLtMatrixLayoutDestroy(*layout);
    *layout = nullptr;
  }
  if (product.operation)
    library.cublasLtMatmulDescDestroy(product.operation);
  product.operation = nullptr;
}

static void destroyProduct(const CublasLt &library, Product *product) {
  destroyDescriptors(library, *product);
  destroy(product);
}

void trainc::cuda::closeProducts(Products *products) {
  if (!products)
    return;
  Current current(*products->device);
  for (Product *product : products->products)
    destroyProduct(*products->library, product);
  products->library->cublasLtDestroy(products->handle);
  destroy(products);
}

const char *trainc::cuda::noticeOf(const Products &products) {
  return products.notice.size() ? products.notice.c_str() : nullptr;
}

uint64_t trainc::cuda::workspaceBytes(const Products &products) {
  return products.workspace;
}

/// As "12x7x3 (m x n x k), f32 of bf16, A transposed, with gelu".
static void describe(const trainc_gemm_detail &g, Text &text) {
  auto number = [](int64_t value) { return static_cast<long long>(value); };
  auto name = [](uint32_t dtype) {
    const char *known = trainc_dtype_name(dtype);
    return known ? known : "?";
  };
  static const char *const epilogues[] = {"", ", gelu", ", gradient of gelu"};
  static const char *const gradients[] = {"", ", bias gradient of A",
                                          ", bias gradient of B",
                                          ", bias gradient of C"};
  text.format("%lldx%lldx%lld (m x n x k), %s of %s and %s", number(g.m),
              number(g.n), number(g.k), name(g.c_type), name(g.a_type),
              name(g.b_type));
  if (g.batch != 1)
    text.format(", batch %lld", number(g.batch));
  text.format("%s%s%s%s", g.transpose_a ? ", A transposed" : "",
              g.transpose_b ? ", B transposed" : "",
              g.accumulate ? ", accumulating" : "", g.has_bias ? ", bias" : "");
  text.format("%s%s%s", g.epilogue < 3 ? epilogues[g.epilogue] : ", ?",
              g.has_aux ? ", auxiliary matrix" : "",
              g.bias_gradient < 4 ? gradients[g.bias_gradient] : ", ?");
  text.format(", rows at %lld, %lld, %lld", number(g.lda), number(g.ldb),
              number(g.ldc));
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

static cudaDataType_t typeOf(uint32_t dtype) {
  switch (dtype) {
  case TRAINC_F64:
    return CUDA_R_64F;
  case TRAINC_BF16:
    return CUDA_R_16BF;
  case TRAINC_F16:
    return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

/// The largest power of two that divides both.
static uint32_t commonAlignment(uint32_t alignment, uint64_t bytes) {
  while (bytes % alignment)
    alignment /= 2;
  return alignment;
}

uint32_t trainc::cuda::productAlignment(const trainc_command &command) {
  uint32_t alignment = 256;
  for (uint32_t i = 0; i < command.num_operands; ++i)
    alignment = commonAlignment(alignment, command.operands[i].offset);
  return alignment;
}

static cublasLtEpilogue_t epilogueOf(const trainc_gemm_detail &g) {
  switch (g.epilogue) {
  case TRAINC_EPILOGUE_GELU:
    if (g.has_aux)
      return g.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                        : CUBLASLT_EPILOGUE_GELU_AUX;
    return g.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  case TRAINC_EPILOGUE_GELU_GRAD:
    return g.bias_gradient ? CUBLASLT_EPILOGUE_DGELU_BGRAD
                           : CUBLASLT_EPILOGUE_DGELU;
  }
  // Our A is cuBLASLt's B.
  if (g.bias_gradient)
    return g.bias_gradient == TRAINC_BIAS_GRADIENT_A ? CUBLASLT_EPILOGUE_BGRADB
                                                     : CUBLASLT_EPILOGUE_BGRADA;
  return g.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static trainc_status setPointer(const CublasLt &library, const Product &product,
                                cublasLtMatmulDescAttributes_t attribute,
                                CUdeviceptr address) {
  auto *pointer = reinterpret_cast<void *>(static_cast<uintptr_t>(address));
  TRAINC_LT(library, cublasLtMatmulDescSetAttribute, product.operation,
            attribute, &pointer, sizeof(pointer));
  return TRAINC_OK;
}

/// Tells the operation where its vector and its auxiliary matrix are.
static trainc_status setPointers(const CublasLt &library,
                                 const Product &product, CUdeviceptr vector,
                                 CUdeviceptr auxiliary) {
  const trainc_gemm_detail &g = product.called;
  if (g.has_bias || g.bias_gradient)
    TRAINC_TRY(setPointer(library, product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                          vector));
  if (g.has_aux)
    TRAINC_TRY(setPointer(library, product,
                          CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                          auxiliary));
  return TRAINC_OK;
}

static trainc_status describeOperation(const CublasLt &library,
                                       Product &product, uint32_t alignment) {
  const trainc_gemm_detail &g = product.called;
  bool wide = g.c_type == TRAINC_F64;
  cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  if (g.back_end == TRAINC_BACK_END_CUBLASLT_TF32 && g.a_type == TRAINC_F32)
    compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  TRAINC_LT(library, cublasLtMatmulDescCreate, &product.operation, compute,
            wide ? CUDA_R_64F : CUDA_R_32F);
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    TRAINC_LT(library, cublasLtMatmulDescSetAttribute, product.operation,
              attribute, &value, sizeof(value));
    return TRAINC_OK;
  };
  TRAINC_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA,
                 g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  TRAINC_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB,
                 g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  TRAINC_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogueOf(g)));
  if (g.has_aux)
    TRAINC_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.ldc));
  // The choice of an algorithm looks at the alignment of these addresses.
  return setPointers(library, product, alignment, alignment);
}

/// A matrix of rows x columns as it is stored, row major.
static trainc_status describeMatrix(const CublasLt &library,
                                    cublasLtMatrixLayout_t *out_layout,
                                    uint32_t dtype, int64_t rows,
                                    int64_t columns, int64_t rowStride,
                                    int64_t count, int64_t stride) {
  TRAINC_LT(library, cublasLtMatrixLayoutCreate, out_layout, typeOf(dtype),
            static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
            rowStride);
  if (count == 1)
    return TRAINC_OK;
  auto batch = static_cast<int32_t>(count);
  TRAINC_LT(library, cublasLtMatrixLayoutSetAttribute, *out_layout,
            CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
  TRAINC_LT(library, cublasLtMatrixLayoutSetAttribute, *out_layout,
            CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
            sizeof(stride));
  return TRAINC_OK;
}

static trainc_status describeMatrices(const CublasLt &library,
                                      Product &product) {
  const trainc_gemm_detail &g = product.detail;
  TRAINC_TRY(
      describeMatrix(library, &product.a, g.a_type, g.transpose_a ? g.k : g.m,
                     g.transpose_a ? g.m : g.k, g.lda, g.batch, g.stride_a));
  TRAINC_TRY(
      describeMatrix(library, &product.b, g.b_type, g.transpose_b ? g.n : g.k,
                     g.transpose_b ? g.k : g.n, g.ldb, g.batch, g.stride_b));
  return describeMatrix(library, &product.c, g.c_type, g.m, g.n, g.ldc, g.batch,
                        g.stride_c);
}

static trainc_status setPreferences(const Products &products,
                                    cublasLtMatmulPreference_t preference,
                                    uint32_t alignment) {
  const CublasLt &library = *products.library;
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    TRAINC_LT(library, cublasLtMatmulPreferenceSetAttribute, preference,
              attribute, &value, sizeof(value));
    return TRAINC_OK;
  };
  TRAINC_TRY(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, products.workspace));
  // Parts of k are not added up in C's type.
  TRAINC_TRY(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    TRAINC_TRY(set(attribute, alignment));
  return TRAINC_OK;
}

/// Sets the algorithm, or says what the library answers.
static trainc_status chooseAlgorithm(const Products &products, Product &product,
                                     cublasLtMatmulPreference_t preference) {
  const CublasLt &library = *products.library;
  // Some cannot be used.
  constexpr int most = 16;
  cublasLtMatmulHeuristicResult_t results[most] = {};
  int found = 0, wanted = 4 + static_cast<int>(product.choice);
  uint32_t before = product.choice;
  cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(
      products.handle, product.operation, product.b, product.a, product.c,
      product.c, preference, wanted < most ? wanted : most, results, &found);
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS &&
        results[i].workspaceSize <= products.workspace && before-- == 0) {
      product.algorithm = results[i].algo;
      return TRAINC_OK;
    }
  if (status == CUBLAS_STATUS_SUCCESS)
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  return failCall(library, "cublasLtMatmulAlgoGetHeuristic", status);
}

static trainc_status prepare(const Products &products, Product &product) {
  const CublasLt &library = *products.library;
  uint32_t alignment = product.alignment;
  TRAINC_TRY(describeOperation(library, product, alignment));
  TRAINC_TRY(describeMatrices(library, product));
  cublasLtMatmulPreference_t preference;
  TRAINC_LT(library, cublasLtMatmulPreferenceCreate, &preference);
  trainc_status status = setPreferences(products, preference, alignment);
  if (status == TRAINC_OK)
    status = chooseAlgorithm(products, product, preference);
  library.cublasLtMatmulPreferenceDestroy(preference);
  return status;
}

/// Blocks of `threads` threads for so many elements or columns; 0 if a grid cannot have
/// them.
static uint32_t blocksFor(int64_t count, int64_t threads) {
  int64_t blocks = (count + threads - 1) / threads;
  return blocks <= INT32_MAX ? static_cast<uint32_t>(blocks) : 0;
}

/// Rows of C that one launch of the epilogue takes: of all matrices of a batch where they
/// are at equal distances.
static int64_t epilogueRows(const trainc_gemm_detail &g) {
  return g.stride_c == g.m * g.ldc ? g.batch * g.m : g.m;
}

/// As in the names of kernels: "bf16".
static const char *textOf(uint32_t dtype) {
  switch (dtype) {
  case TRAINC_F64:
    return "f64";
  case TRAINC_BF16:
    return "bf16";
  case TRAINC_F16:
    return "f16";
  }
  return "f32";
}

/// The kernel of the image, which it may lack.
static trainc_status findEpilogue(const Products &products, const Text &name,
                                  CUfunction *out_function) {
  CUresult result = products.module
                        ? products.device->driver->cuModuleGetFunction(
                              out_function, products.module, name.c_str())
                        : CUDA_ERROR_NOT_FOUND;
  if (result == CUDA_ERROR_NOT_FOUND)
    return fail(TRAINC_UNSUPPORTED, "the image has no kernel '%s'",
                name.c_str());
  return result == CUDA_SUCCESS ? TRAINC_OK
                                : failCall("cuModuleGetFunction", result);
}

/// Plans the product alone, and kernels for the rest.
static trainc_status prepareApart(const Products &products, Product &product) {
  const trainc_gemm_detail &g = product.detail;
  if (!blocksFor(epilogueRows(g) * g.n, 256))
    return fail(TRAINC_UNSUPPORTED, "it is too large");
  if (g.has_bias || g.epilogue) {
    Text name;
    name.format("trainc_epilogue_%s", textOf(g.c_type));
    TRAINC_TRY(findEpilogue(products, name, &product.epilogue));
  }
  if (g.bias_gradient) {
    Text name;
    bool sumsC = g.bias_gradient == TRAINC_BIAS_GRADIENT_C;
    name.format("trainc_column_sums_%s_%s", textOf(sumsC ? g.c_type : g.a_type),
                textOf(g.c_type));
    TRAINC_TRY(findEpilogue(products, name, &product.columnSums));
  }
  destroyDescriptors(*products.library, product);
  product.called.has_bias = product.called.has_aux = 0;
  product.called.epilogue = TRAINC_EPILOGUE_NONE;
  product.called.bias_gradient = TRAINC_BIAS_GRADIENT_NONE;
  return prepare(products, product);
}

/// Fails because of `reason`.
static trainc_status refuse(const Products &products, trainc_status status,
                            const trainc_gemm_detail &detail,
                            const char *reason) {
  Text text;
  describe(detail, text);
  const Device &device = *products.device;
  return fail(status,
              "CUDA device %d (%s, sm_%d%d, cuBLASLt %zu) cannot compute the "
              "product %s: %s",
              device.ordinal, device.name, device.major, device.minor,
              products.library->cublasLtGetVersion(), text.c_str(), reason);
}

/// The first product that is computed in parts.
static void noteApart(Products &products, const trainc_gemm_detail &detail) {
  if (products.notice.size())
    return;
  Text text;
  describe(detail, text);
  products.notice.format(
      "cuBLASLt %zu has no algorithm for the product %s: what follows such "
      "products is computed by kernels of the artifact",
      products.library->cublasLtGetVersion(), text.c_str());
}

trainc_status trainc::cuda::planProduct(Products &products,
                                        const trainc_gemm_detail &detail,
                                        const Product **out_product,
                                        uint32_t alignment, uint32_t choice) {
  *out_product = nullptr;
  trainc_gemm_detail wanted = detail;
  wanted.tile_m = wanted.tile_n = 0;
  for (const Product *product : products.products)
    if (product->alignment == alignment && product->choice == choice &&
        memcmp(&product->detail, &wanted, sizeof(wanted)) == 0) {
      *out_product = product;
      return TRAINC_OK;
    }
  if (const char *reason = refuseProduct(wanted))
    return refuse(products, TRAINC_UNSUPPORTED, wanted, reason);
  auto *product = create<Product>();
  product->detail = product->called = wanted;
  product->alignment = alignment;
  product->choice = choice;
  product->empty = wanted.m == 0 || wanted.n == 0 || wanted.batch == 0;
  if (!product->empty) {
    Current current(*products.device);
    trainc_status status = current.status();
    if (status == TRAINC_OK)
      status = prepare(products, *product);
    bool apart = status == TRAINC_UNSUPPORTED && choice == 0 &&
                 (wanted.has_bias || wanted.epilogue || wanted.bias_gradient);
    Text reason;
    if (apart) {
      reason.append(trainc_last_error());
      status = prepareApart(products, *product);
      reason.append("; apart: ");
    }
    if (status != TRAINC_OK) {
      destroyProduct(*products.library, product);
      reason.append(trainc_last_error());
      return refuse(products, status, wanted, reason.c_str());
    }
    if (apart)
      noteApart(products, wanted);
  }
  products.products.push(product);
  *out_product = product;
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

/// What follows a product that is computed alone: the epilogue, then sums.
static trainc_status launchEpilogue(const Products &products,
                                    const Product &product,
                                    const CUdeviceptr *arguments,
                                    CUdeviceptr vector, CUdeviceptr auxiliary,
                                    CUstream stream) {
  const trainc_gemm_detail &g = product.detail;
  const Driver &driver = *products.device->driver;
  if (product.epilogue) {
    bool gelu = g.epilogue == TRAINC_EPILOGUE_GELU;
    bool slope = g.epilogue == TRAINC_EPILOGUE_GELU_GRAD;
    CUdeviceptr c = arguments[2], bias = g.has_bias ? vector : 0;
    int64_t m = epilogueRows(g), n = g.n, ldc = g.ldc;
    int32_t how = (g.has_bias ? 1 : 0) | (gelu && g.has_aux ? 2 : 0) |
                  (gelu ? 4 : 0) | (slope ? 8 : 0);
    void *parameters[] = {&c, &bias, &auxiliary, &m, &n, &ldc, &how};
    auto distance =
        static_cast<uint64_t>(g.stride_c) * trainc_dtype_size(g.c_type);
    for (int64_t rows = 0; rows < g.batch * g.m; rows += m, c += distance)
      TRAINC_CU(driver, cuLaunchKernel, product.epilogue, blocksFor(m * n, 256),
                1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
  }
  if (product.columnSums) {
    bool ofA = g.bias_gradient == TRAINC_BIAS_GRADIENT_A;
    bool ofB = g.bias_gradient == TRAINC_BIAS_GRADIENT_B;
    CUdeviceptr matrix = arguments[ofA ? 0 : ofB ? 1 : 2];
    int64_t rows = ofA || ofB ? g.k : g.m, columns = ofA ? g.m : g.n;
    int64_t stride = ofA ? g.lda : ofB ? g.ldb : g.ldc;
    void *parameters[] = {&matrix, &vector, &rows, &columns, &stride};
    TRAINC_CU(driver, cuLaunchKernel, product.columnSums,
              blocksFor(columns, 32), 1, 1, 1024, 1, 1, 0, stream, parameters,
              nullptr);
  }
  return TRAINC_OK;
}

trainc_status trainc::cuda::runProduct(Products &products,
                                       const Product &product,
                                       const CUdeviceptr *arguments,
                                       CUdeviceptr workspace, CUstream stream) {
  const trainc_gemm_detail &g = product.detail;
  if (product.empty)
    return TRAINC_OK;
  uint32_t count = gemmOperandCount(g);
  for (uint32_t i = 0; i < count; ++i)
    if (arguments[i] % product.alignment) {
      Text reason;
      reason.format("operand %u is at 0x%llx, but was planned for multiples of "
                    "%u bytes",
                    i, static_cast<unsigned long long>(arguments[i]),
                    product.alignment);
      return refuse(products, TRAINC_INVALID_ARGUMENT, g, reason.c_str());
    }
  const CublasLt &library = *products.library;
  Current current(*products.device);
  TRAINC_TRY(current.status());
  CUdeviceptr vector = 0, auxiliary = 0;
  uint32_t next = 3;
  if (g.has_bias)
    vector = arguments[next++];
  if (g.has_aux)
    auxiliary = arguments[next++];
  if (g.bias_gradient)
    vector = arguments[next++];
  TRAINC_TRY(setPointers(library, product, vector, auxiliary));

  const float one = 1, beta = g.accumulate ? 1 : 0;
  const double wideOne = 1, wideBeta = beta;
  bool wide = g.c_type == TRAINC_F64;
  auto at = [](CUdeviceptr address) {
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
  };
  void *a = at(arguments[0]), *b = at(arguments[1]), *c = at(arguments[2]);
  cublasStatus_t status = library.cublasLtMatmul(
      products.handle, product.operation,
      wide ? static_cast<const void *>(&wideOne) : &one, b, product.b, a,
      product.a, wide ? static_cast<const void *>(&wideBeta) : &beta, c,
      product.c, c, product.c, &product.algorithm, at(workspace),
      products.workspace, stream);
  if (status != CUBLAS_STATUS_SUCCESS) {
    trainc_status result = failCall(library, "cublasLtMatmul", status);
    Text reason;
    reason.append(trainc_last_error());
    return refuse(products, result, g, reason.c_str());
  }
  return launchEpilogue(products, product, arguments, vector, auxiliary,
                        stream);
}
