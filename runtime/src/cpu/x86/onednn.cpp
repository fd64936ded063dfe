//===- onednn.cpp - oneDNN's matmul, opened at run time -------------------===//

#include "cpu/onednn.h"
#include "cpu/features.h"
#include <atomic>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

using namespace trainc;

// The functions used, all of the interface of oneDNN 2.
#define TRAINC_DNNL_FUNCTIONS(X)                                               \
  X(version)                                                                   \
  X(set_max_cpu_isa)                                                           \
  X(sgemm)                                                                     \
  X(engine_create)                                                             \
  X(stream_create)                                                             \
  X(stream_destroy)                                                            \
  X(memory_create)                                                             \
  X(memory_destroy)                                                            \
  X(memory_desc_init_by_strides)                                               \
  X(memory_desc_get_size)                                                      \
  X(matmul_desc_init)                                                          \
  X(post_ops_create)                                                           \
  X(post_ops_append_sum)                                                       \
  X(post_ops_destroy)                                                          \
  X(primitive_attr_create)                                                     \
  X(primitive_attr_set_post_ops)                                               \
  X(primitive_attr_set_scratchpad_mode)                                        \
  X(primitive_attr_destroy)                                                    \
  X(primitive_desc_create)                                                     \
  X(primitive_desc_query_md)                                                   \
  X(primitive_desc_destroy)                                                    \
  X(primitive_create)                                                          \
  X(primitive_execute)                                                         \
  X(primitive_destroy)

namespace {
struct OneDnn {
#define X(name) decltype(&dnnl_##name) name;
  TRAINC_DNNL_FUNCTIONS(X)
#undef X
  void (*setThreads)(int);
  int (*getThreads)();
  dnnl_engine_t engine;
};

/// oneDNN asks OpenMP how many threads it may use, when it generates code and
/// when it runs it. While alive, the answer in this thread is one.
class OneThread {
public:
  explicit OneThread(const OneDnn &dnn) : dnn(dnn), saved(dnn.getThreads()) {
    if (saved != 1)
      dnn.setThreads(1);
  }
  ~OneThread() {
    if (saved != 1)
      dnn.setThreads(saved);
  }
  OneThread(const OneThread &) = delete;
  OneThread &operator=(const OneThread &) = delete;

private:
  const OneDnn &dnn;
  int saved;
};
} // namespace

class trainc::Matmul {
public:
  dnnl_primitive_t primitive = nullptr;
  dnnl_memory_desc_t a = {}, b = {}, c = {}, bias = {}, scratch = {};
  uint64_t scratchBytes = 0;
};

static pthread_once_t loadOnce = PTHREAD_ONCE_INIT;
static OneDnn dnn;
static bool available;
static std::atomic<bool> described; // `description` is final
static char description[64] = "";

static void find() {
  snprintf(description, sizeof(description),
           "no oneDNN: OpenBLAS in its place");
  void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return;
  bool complete = true;
  auto get = [&](auto &function, const char *name) {
    using Function = std::remove_reference_t<decltype(function)>;
    function = reinterpret_cast<Function>(dlsym(library, name));
    complete = complete && function;
  };
#define X(name) get(dnn.name, "dnnl_" #name);
  TRAINC_DNNL_FUNCTIONS(X)
#undef X
  // Its OpenMP library's, found through its dependencies.
  get(dnn.setThreads, "omp_set_num_threads");
  get(dnn.getThreads, "omp_get_max_threads");
  if (!complete || dnn.version()->major != DNNL_VERSION_MAJOR) {
    snprintf(description, sizeof(description),
             "oneDNN of another interface: OpenBLAS in its place");
    return;
  }
  // Before its first use the environment's limit gives way to this one: bits depend on neither.
  (void)dnn.set_max_cpu_isa(heldToAvx2() ? dnnl_cpu_isa_avx2
                                         : dnnl_cpu_isa_all);
  available = dnn.engine_create(&dnn.engine, dnnl_cpu, 0) == dnnl_success;
  snprintf(description, sizeof(description), "oneDNN %d.%d.%d",
           dnn.version()->major, dnn.version()->minor, dnn.version()->patch);
}

static void load() {
  find();
  described.store(true, std::memory_order_release);
}

bool trainc::haveOneDnn() {
  pthread_once(&loadOnce, load);
  return available;
}

bool trainc::runOneDnnSgemm(bool transposeA, bool transposeB, int64_t m,
                            int64_t n, int64_t k, const float *a, int64_t lda,
                            const float *b, int64_t ldb, bool accumulate,
                            float *c, int64_t ldc) {
  OneThread one(dnn);
  return dnn.sgemm(transposeA ? 'T' : 'N', transposeB ? 'T' : 'N', m, n, k,
                   1.0f, a, lda, b, ldb, accumulate ? 1.0f : 0.0f, c,
                   ldc) == dnnl_success;
}

void trainc::appendOneDnn(Text &text) {
  text.append(described.load(std::memory_order_acquire) ? description
                                                        : "oneDNN not loaded");
}

static dnnl_data_type_t dataType(uint32_t dtype) {
  return dtype == TRAINC_F32    ? dnnl_f32
         : dtype == TRAINC_BF16 ? dnnl_bf16
         : dtype == TRAINC_F16  ? dnnl_f16
                                : dnnl_data_type_undef;
}

static bool describe(dnnl_memory_desc_t &to, uint32_t dtype, int64_t rows,
                     int64_t columns, int64_t ld, bool transpose) {
  dnnl_dims_t dims = {rows, columns}, strides = {ld, 1};
  if (transpose) {
    strides[0] = 1;
    strides[1] = ld;
  }
  return dnn.memory_desc_init_by_strides(&to, 2, dims, dataType(dtype),
                                         strides) == dnnl_success;
}

static bool build(const MatmulShape &s, Matmul &to) {
  OneThread one(dnn);
  dnnl_matmul_desc_t description;
  dnnl_post_ops_t postOps = nullptr;
  dnnl_primitive_attr_t attributes = nullptr;
  dnnl_primitive_desc_t kind = nullptr;
  bool valid =
      describe(to.a, s.aType, s.m, s.k, s.lda, s.transposeA) &&
      describe(to.b, s.bType, s.k, s.n, s.ldb, s.transposeB) &&
      describe(to.c, s.cType, s.m, s.n, s.ldc, false) &&
      (!s.bias || describe(to.bias, s.cType, 1, s.n, s.n, false)) &&
      dnn.matmul_desc_init(&description, &to.a, &to.b,
                           s.bias ? &to.bias : nullptr,
                           &to.c) == dnnl_success &&
      dnn.primitive_attr_create(&attributes) == dnnl_success &&
      dnn.primitive_attr_set_scratchpad_mode(
          attributes, dnnl_scratchpad_mode_user) == dnnl_success &&
      dnn.post_ops_create(&postOps) == dnnl_success &&
      (!s.accumulate ||
       dnn.post_ops_append_sum(postOps, 1.0f) == dnnl_success) &&
      dnn.primitive_attr_set_post_ops(attributes, postOps) == dnnl_success &&
      dnn.primitive_desc_create(&kind, &description, attributes, dnn.engine,
                                nullptr) == dnnl_success &&
      dnn.primitive_create(&to.primitive, kind) == dnnl_success;
  if (valid) {
    to.scratch =
        *dnn.primitive_desc_query_md(kind, dnnl_query_scratchpad_md, 0);
    to.scratchBytes = dnn.memory_desc_get_size(&to.scratch);
  }
  if (postOps)
    dnn.post_ops_destroy(postOps);
  if (attributes)
    dnn.primitive_attr_destroy(attributes);
  if (kind)
    dnn.primitive_desc_destroy(kind);
  return valid;
}

trainc_status trainc::createMatmul(const MatmulShape &s, Matmul **out_matmul) {
  auto *matmul = create<Matmul>();
  if (!build(s, *matmul)) {
    destroyMatmul(matmul);
    return fail(TRAINC_UNSUPPORTED,
                "oneDNN refuses a product of %lld x %lld x %lld",
                static_cast<long long>(s.m), static_cast<long long>(s.n),
                static_cast<long long>(s.k));
  }
  *out_matmul = matmul;
  return TRAINC_OK;
}

void trainc::destroyMatmul(Matmul *matmul) {
  if (matmul && matmul->primitive)
    dnn.primitive_destroy(matmul->primitive);
  destroy(matmul);
}

uint64_t trainc::matmulScratch(const Matmul *matmul) {
  return matmul->scratchBytes;
}

bool trainc::runMatmul(const Matmul *matmul, const void *a, const void *b,
                       void *c, const void *bias, void *scratch) {
  OneThread one(dnn);
  struct Argument {
    int number;
    const dnnl_memory_desc_t *description;
    const void *data;
  } arguments[] = {{DNNL_ARG_SRC, &matmul->a, a},
                   {DNNL_ARG_WEIGHTS, &matmul->b, b},
                   {DNNL_ARG_DST, &matmul->c, c},
                   {DNNL_ARG_BIAS, &matmul->bias, bias},
                   {DNNL_ARG_SCRATCHPAD, &matmul->scratch, scratch}};
  dnnl_exec_arg_t list[5];
  int count = 0;
  bool valid = true;
  for (const Argument &argument : arguments) {
    if ((argument.number == DNNL_ARG_BIAS && !bias) ||
        (argument.number == DNNL_ARG_SCRATCHPAD && !matmul->scratchBytes))
      continue;
    dnnl_memory_t memory = nullptr;
    valid = valid && dnn.memory_create(
                         &memory, argument.description, dnn.engine,
                         const_cast<void *>(argument.data)) == dnnl_success;
    if (memory)
      list[count++] = {argument.number, memory};
  }
  dnnl_stream_t stream = nullptr;
  valid = valid &&
          dnn.stream_create(&stream, dnn.engine, dnnl_stream_default_flags) ==
              dnnl_success &&
          dnn.primitive_execute(matmul->primitive, stream, count, list) ==
              dnnl_success;
  if (stream)
    dnn.stream_destroy(stream);
  while (count)
    dnn.memory_destroy(list[--count].memory);
  return valid;
}
