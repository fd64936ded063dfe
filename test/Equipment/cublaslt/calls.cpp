//===- calls.cpp - The functions of the cuBLASLt of tests -----------------===//

#include "fake.h"
#include <pthread.h>

using namespace trainc;
using namespace trainc::cuda;

trainc_fake_cublaslt_counts trainc::cuda::counts;
static thread_local char report[1000];

cublasStatus_t trainc::cuda::refuse(cublasStatus_t status, const char *format,
                                    ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report, sizeof(report), format, arguments);
  va_end(arguments);
  return status;
}

//===----------------------------------------------------------------------===//
// Objects
//===----------------------------------------------------------------------===//

namespace {
/// Objects of a kind that were made and not destroyed.
template <typename T> class Live {
public:
  explicit Live(uint64_t &count) : count(count) {}

  T *make() {
    pthread_mutex_lock(&mutex);
    auto *object = static_cast<T *>(calloc(1, sizeof(T)));
    objects.push(object);
    ++count;
    pthread_mutex_unlock(&mutex);
    return object;
  }
  bool has(const T *object) {
    pthread_mutex_lock(&mutex);
    bool found = false;
    for (const T *live : objects)
      found = found || live == object;
    pthread_mutex_unlock(&mutex);
    return found;
  }
  cublasStatus_t drop(T *object) {
    NEED(has(object), CUBLAS_STATUS_INVALID_VALUE,
         "a handle that is not there is destroyed");
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < objects.size(); ++i)
      if (objects[i] == object) {
        objects[i] = objects[objects.size() - 1];
        objects.resize(objects.size() - 1);
        break;
      }
    --count;
    pthread_mutex_unlock(&mutex);
    free(object);
    return CUBLAS_STATUS_SUCCESS;
  }

private:
  Array<T *> objects;
  uint64_t &count;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};
} // namespace

static Live<cublasLtContext> handles(counts.handles);
static Live<cublasLtMatrixLayoutOpaque_t> layouts(counts.layouts);
static Live<cublasLtMatmulDescOpaque_t> operations(counts.operations);
static Live<cublasLtMatmulPreferenceOpaque_t> preferences(counts.preferences);

/// Is this what the environment asks to fail?
static bool fails(const char *what) {
  const char *chosen = getenv("TRAINC_FAKE_CUBLASLT_FAIL");
  return chosen && !strcmp(chosen, what);
}

/// Is this epilogue refused by the environment: by its name in lower case, or by "all"?
static bool isRefused(cublasLtEpilogue_t epilogue) {
  const char *text = getenv("TRAINC_FAKE_CUBLASLT_REFUSE");
  const char *name = nullptr;
#define TRAINC_LT_VALUE(type, known, value)                                    \
  if (std::is_same_v<type, cublasLtEpilogue_t> && epilogue == value)           \
    name = #known;
#include "cuda/cublaslt.def"
  if (!name || epilogue == CUBLASLT_EPILOGUE_DEFAULT)
    return false;
  name += sizeof("CUBLASLT_EPILOGUE");
  while (text && *text) {
    size_t length = strcspn(text, ",");
    if ((length == 3 && !strncmp(text, "all", 3)) ||
        (length == strlen(name) && !strncasecmp(text, name, length)))
      return true;
    text += length + (text[length] == ',');
  }
  return false;
}

template <typename T>
static cublasStatus_t setValue(T &to, const void *value, size_t bytes) {
  NEED(value && bytes == sizeof(T), CUBLAS_STATUS_INVALID_VALUE,
       "an attribute of %zu bytes is set by %zu", sizeof(T), bytes);
  memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t trainc::cuda::cublasLtCreate(cublasLtHandle_t *handle) {
  uint32_t arch = trainc_fake_cuda_current_arch();
  NEED(arch && !fails("create"), CUBLAS_STATUS_NOT_INITIALIZED,
       "the thread has no context");
  *handle = handles.make();
  (*handle)->arch = arch;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t trainc::cuda::cublasLtDestroy(cublasLtHandle_t handle) {
  return handles.drop(handle);
}

size_t trainc::cuda::cublasLtGetVersion() { return 130000; }

const char *trainc::cuda::cublasLtGetStatusName(cublasStatus_t status) {
#define TRAINC_LT_VALUE(type, name, value)                                     \
  if (std::is_same_v<type, cublasStatus_t> && status == value)                 \
    return #name;
#include "cuda/cublaslt.def"
  return "an unknown status";
}

const char *trainc::cuda::cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : report;
}

cublasStatus_t
trainc::cuda::cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                         cudaDataType_t type, uint64_t rows,
                                         uint64_t columns, int64_t stride) {
  *layout = layouts.make();
  static_cast<Layout &>(**layout) = {type,
                                     static_cast<int64_t>(rows),
                                     static_cast<int64_t>(columns),
                                     stride,
                                     1,
                                     0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
trainc::cuda::cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return layouts.drop(layout);
}

cublasStatus_t trainc::cuda::cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
    const void *value, size_t bytes) {
  NEED(layouts.has(layout), CUBLAS_STATUS_INVALID_VALUE, "not a layout");
  switch (static_cast<unsigned>(attribute)) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
    return setValue(layout->count, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
    return setValue(layout->distance, value, bytes);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %u of a layout",
                static_cast<unsigned>(attribute));
}

cublasStatus_t
trainc::cuda::cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation,
                                       cublasComputeType_t compute,
                                       cudaDataType_t scale) {
  *operation = operations.make();
  (*operation)->compute = compute;
  (*operation)->scale = scale;
  (*operation)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
trainc::cuda::cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return operations.drop(operation);
}

cublasStatus_t trainc::cuda::cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
    const void *value, size_t bytes) {
  NEED(operations.has(operation), CUBLAS_STATUS_INVALID_VALUE,
       "not an operation");
  switch (static_cast<unsigned>(attribute)) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    return setValue(operation->transposeA, value, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return setValue(operation->transposeB, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return setValue(operation->epilogue, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return setValue(operation->vector, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    return setValue(operation->auxiliary, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    return setValue(operation->auxiliaryStride, value, bytes);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %u of an operation",
                static_cast<unsigned>(attribute));
}

cublasStatus_t trainc::cuda::cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t *preference) {
  *preference = preferences.make();
  **preference = {0, 7, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t trainc::cuda::cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  return preferences.drop(preference);
}

cublasStatus_t trainc::cuda::cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes) {
  NEED(preferences.has(preference), CUBLAS_STATUS_INVALID_VALUE,
       "not a preference");
  switch (static_cast<unsigned>(attribute)) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    return setValue(preference->workspace, value, bytes);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    return setValue(preference->reductions, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return setValue(
        preference
            ->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
        value, bytes);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %u of a preference",
                static_cast<unsigned>(attribute));
}

//===----------------------------------------------------------------------===//
// Algorithms
//===----------------------------------------------------------------------===//

namespace {
/// What is in a cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t problem; // a hash
  uint64_t workspace;
  uint32_t alignment[4];      // A, B, C, D
  uint32_t vector, auxiliary; // alignments
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
} // namespace

/// Of everything but addresses.
static uint64_t hashOf(const Operation &operation, const Layout &a,
                       const Layout &b, const Layout &d) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  auto add = [&](auto value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * UINT64_C(0x100000001b3);
  };
  add(operation.compute);
  add(operation.scale);
  add(operation.transposeA);
  add(operation.transposeB);
  add(operation.epilogue);
  add(operation.auxiliaryStride);
  const Layout *const all[] = {&a, &b, &d};
  for (const Layout *layout : all) {
    add(layout->type);
    add(layout->rows);
    add(layout->columns);
    add(layout->stride);
    add(layout->count);
    add(layout->distance);
  }
  return hash;
}

/// Of an address that stands for others of its alignment; at most 256.
static uint32_t alignmentOf(uint64_t address) {
  uint32_t alignment = 256;
  while (address % alignment)
    alignment /= 2;
  return alignment;
}

cublasStatus_t trainc::cuda::cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int count,
    cublasLtMatmulHeuristicResult_t *results, int *found) {
  *found = 0;
  NEED(handles.has(handle), CUBLAS_STATUS_NOT_INITIALIZED, "not a handle");
  NEED(operations.has(operation) && layouts.has(a) && layouts.has(b) &&
           layouts.has(c) && layouts.has(d) && preferences.has(preference) &&
           count > 0,
       CUBLAS_STATUS_INVALID_VALUE, "a descriptor that is not there");
  CHECK(checkProblem(*operation, *a, *b, *c, *d));
  NEED(!fails("heuristic"), CUBLAS_STATUS_NOT_SUPPORTED,
       "no algorithm for this operation");
  __atomic_fetch_add(&counts.heuristics, 1, __ATOMIC_RELAXED);
  if (fails("empty") || isRefused(operation->epilogue))
    return CUBLAS_STATUS_SUCCESS;
  const uint64_t most = 1 << 20;
  Algorithm algorithm = {};
  algorithm.problem = hashOf(*operation, *a, *b, *d);
  algorithm.workspace =
      preference->workspace < most ? preference->workspace : most;
  memcpy(algorithm.alignment, preference->alignment,
         sizeof(algorithm.alignment));
  algorithm.vector = alignmentOf(operation->vector);
  algorithm.auxiliary = alignmentOf(operation->auxiliary);
  // Behind one that cannot be used, as it may be.
  results[0] = {};
  results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  *found = 1;
  if (count > 1) {
    results[1] = {};
    memcpy(&results[1].algo, &algorithm, sizeof(algorithm));
    results[1].workspaceSize = algorithm.workspace;
    results[1].wavesCount = 1;
    *found = 2;
  }
  return CUBLAS_STATUS_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

static uint64_t bytesOf(const Layout &layout) {
  int64_t elements = (layout.count - 1) * layout.distance +
                     (layout.columns - 1) * layout.stride + layout.rows;
  return static_cast<uint64_t>(elements * sizeOf(layout.type));
}

static bool overlap(const trainc_fake_cuda_range &a,
                    const trainc_fake_cuda_range &b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

static cublasStatus_t checkAlignment(const char *what, uint64_t address,
                                     uint64_t alignment) {
  NEED(address % alignment == 0, CUBLAS_STATUS_INVALID_VALUE,
       "%s at 0x%llx for an algorithm with multiples of %llu bytes", what,
       static_cast<unsigned long long>(address),
       static_cast<unsigned long long>(alignment));
  return CUBLAS_STATUS_SUCCESS;
}

/// Checks the algorithm, and takes what it needs of the workspace.
static cublasStatus_t takeAlgorithm(Matmul &m,
                                    const cublasLtMatmulAlgo_t *given) {
  NEED(given, CUBLAS_STATUS_INVALID_VALUE, "no algorithm");
  Algorithm algorithm;
  memcpy(&algorithm, given, sizeof(algorithm));
  NEED(algorithm.problem == hashOf(m.operation, m.a, m.b, m.c),
       CUBLAS_STATUS_INVALID_VALUE,
       "an algorithm that was not chosen for this");
  NEED(m.workspaceBytes >= algorithm.workspace, CUBLAS_STATUS_INVALID_VALUE,
       "a workspace of %llu bytes for an algorithm that needs %llu",
       static_cast<unsigned long long>(m.workspaceBytes),
       static_cast<unsigned long long>(algorithm.workspace));
  m.usedBytes = algorithm.workspace;
  CHECK(checkAlignment("A", m.addressA, algorithm.alignment[0]));
  CHECK(checkAlignment("B", m.addressB, algorithm.alignment[1]));
  CHECK(checkAlignment("C", m.addressC, algorithm.alignment[2]));
  CHECK(checkAlignment("D", m.addressC, algorithm.alignment[3]));
  CHECK(checkAlignment("the workspace", m.workspace, 256));
  if (m.hasEpilogue(withBias | withBiasGradient | withGradientA |
                    withGradientB))
    CHECK(checkAlignment("the bias or its gradient", m.operation.vector,
                         algorithm.vector));
  if (m.hasEpilogue(withAuxiliary))
    CHECK(checkAlignment("the auxiliary matrix", m.operation.auxiliary,
                         algorithm.auxiliary));
  return CUBLAS_STATUS_SUCCESS;
}

namespace {
/// What a product touches.
class Ranges {
public:
  /// False: the address is null.
  bool add(uint64_t address, uint64_t bytes, bool written, bool dense = true) {
    if (!address)
      return false;
    ranges[count] = {address, bytes};
    writes[count] = written;
    denses[count++] = dense;
    return true;
  }
  /// Does a result overlap something? Of matrices that have gaps one cannot tell.
  bool clash() const {
    for (uint32_t i = 0; i < count; ++i)
      for (uint32_t j = 0; j < count; ++j)
        if (i != j && writes[i] && denses[i] && denses[j] &&
            overlap(ranges[i], ranges[j]))
          return true;
    return false;
  }
  trainc_fake_cuda_range ranges[6];
  uint32_t count = 0;

private:
  bool writes[6], denses[6];
};
} // namespace

static bool isDense(const Layout &layout) {
  return layout.stride == layout.rows &&
         (layout.count == 1 || layout.distance == layout.rows * layout.columns);
}

static cublasStatus_t findRanges(const Matmul &m, Ranges &ranges) {
  NEED(ranges.add(m.addressA, bytesOf(m.a), false, isDense(m.a)) &&
           ranges.add(m.addressB, bytesOf(m.b), false, isDense(m.b)) &&
           ranges.add(m.addressC, bytesOf(m.c), true, isDense(m.c)),
       CUBLAS_STATUS_INVALID_VALUE, "a matrix at 0");
  auto size = static_cast<uint64_t>(sizeOf(m.c.type));
  if (m.hasEpilogue(withBias | withBiasGradient | withGradientA |
                    withGradientB))
    NEED(ranges.add(m.operation.vector,
                    static_cast<uint64_t>(vectorElements(m)) * size,
                    !m.hasEpilogue(withBias)),
         CUBLAS_STATUS_INVALID_VALUE, "an epilogue without its vector");
  if (m.hasEpilogue(withAuxiliary)) {
    Layout layout = m.c;
    layout.stride = m.operation.auxiliaryStride;
    NEED(ranges.add(m.operation.auxiliary, bytesOf(layout),
                    m.hasEpilogue(withGelu), isDense(layout)),
         CUBLAS_STATUS_INVALID_VALUE,
         "an epilogue without its auxiliary matrix");
  }
  NEED(m.workspaceBytes == 0 || ranges.add(m.workspace, m.workspaceBytes, true),
       CUBLAS_STATUS_INVALID_VALUE, "a workspace at 0");
  NEED(!ranges.clash(), CUBLAS_STATUS_INVALID_VALUE,
       "a result overlaps something else");
  return CUBLAS_STATUS_SUCCESS;
}

static uint64_t addressOf(const void *pointer) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer));
}

cublasStatus_t trainc::cuda::cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,
    const void *a, cublasLtMatrixLayout_t aLayout, const void *b,
    cublasLtMatrixLayout_t bLayout, const void *beta, const void *c,
    cublasLtMatrixLayout_t cLayout, void *d, cublasLtMatrixLayout_t dLayout,
    const cublasLtMatmulAlgo_t *algorithm, void *workspace,
    size_t workspaceBytes, CUstream stream) {
  NEED(handles.has(handle), CUBLAS_STATUS_NOT_INITIALIZED, "not a handle");
  NEED(trainc_fake_cuda_current_arch() == handle->arch,
       CUBLAS_STATUS_NOT_INITIALIZED,
       "the thread has no context, or that of another device");
  NEED(operations.has(operation) && layouts.has(aLayout) &&
           layouts.has(bLayout) && layouts.has(cLayout) &&
           layouts.has(dLayout) && alpha && beta,
       CUBLAS_STATUS_INVALID_VALUE, "a descriptor that is not there");
  CHECK(checkProblem(*operation, *aLayout, *bLayout, *cLayout, *dLayout));
  NEED(c == d, CUBLAS_STATUS_INVALID_VALUE, "C and D at different places");
  NEED(!fails("matmul"), CUBLAS_STATUS_EXECUTION_FAILED, "a product fails");
  Matmul matmul = {};
  matmul.operation = *operation;
  matmul.a = *aLayout;
  matmul.b = *bLayout;
  matmul.c = *dLayout;
  bool wide = operation->scale == CUDA_R_64F;
  auto number = [&](const void *from) {
    return wide ? *static_cast<const double *>(from)
                : static_cast<double>(*static_cast<const float *>(from));
  };
  matmul.alpha = number(alpha);
  matmul.beta = number(beta);
  matmul.addressA = addressOf(a);
  matmul.addressB = addressOf(b);
  matmul.addressC = addressOf(d);
  matmul.workspace = addressOf(workspace);
  matmul.workspaceBytes = workspaceBytes;
  Ranges ranges;
  CHECK(findRanges(matmul, ranges));
  CHECK(takeAlgorithm(matmul, algorithm));
  trainc_fake_cuda_call call = {};
  call.name = "cublasLtMatmul";
  call.function = compute;
  call.data = &matmul;
  call.data_bytes = sizeof(matmul);
  call.ranges = ranges.ranges;
  call.num_ranges = ranges.count;
  NEED(trainc_fake_cuda_enqueue(stream, &call) == CUDA_SUCCESS,
       CUBLAS_STATUS_EXECUTION_FAILED, "%s", trainc_fake_cuda_report());
  __atomic_fetch_add(&counts.products, 1, __ATOMIC_RELAXED);
  return CUBLAS_STATUS_SUCCESS;
}

//===----------------------------------------------------------------------===//
// What tests ask
//===----------------------------------------------------------------------===//

void trainc_fake_cublaslt_get_counts(trainc_fake_cublaslt_counts *out_counts) {
  *out_counts = counts;
}
