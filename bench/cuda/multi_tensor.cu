// Clip and AdamW over many tensors in the way of NVIDIA's Apex (multi_tensor_apply): a launch takes a table of pointers by
// value, a block has one chunk of one tensor, and a thread has 4 elements at a time. A peer of ours, written for this
// comparison: the norm's factor is applied in the update, and the copy in bf16 is written by it, which spares two passes.
#include <cuda_bf16.h>

constexpr int chunkElements = 65536, maxBlocks = 320, threads = 512, ilp = 4;

template <int depth> constexpr int maxTensors = depth == 1 ? 110 : depth == 4 ? 36 : 30;

template <int depth> struct Table {
  void *addresses[depth][maxTensors<depth>];
  int sizes[maxTensors<depth>];
  int chunks[maxBlocks];
  unsigned char tensors[maxBlocks];
};

struct Rule {
  float rate, b1, b2, eps, decay, correction1, correction2, limit;
};

template <typename T> struct alignas(sizeof(T) * ilp) Vector {
  T of[ilp];
};

__device__ float sumOfBlock(float x) {
  __shared__ float sums[threads / 32];
  for (int offset = 16; offset; offset /= 2)
    x += __shfl_down_sync(~0u, x, offset);
  if (threadIdx.x % 32 == 0)
    sums[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x < threads / 32 ? sums[threadIdx.x] : 0;
  if (threadIdx.x < 32)
    for (int offset = 16; offset; offset /= 2)
      x += __shfl_down_sync(~0u, x, offset);
  return x;
}

/// Calls f(first element, count) for what this thread has of its block's chunk, `count` being ilp if all of it is there and
/// may be accessed at once.
template <typename Function> __device__ void forChunk(int chunk, int size, bool aligned, Function f) {
  int end = min(size, (chunk + 1) * chunkElements);
  for (int i = chunk * chunkElements + threadIdx.x * ilp; i < end; i += threads * ilp)
    f(i, min(ilp, end - i), aligned && end - i >= ilp);
}

template <typename T> __device__ Vector<T> load(const T *p, int count, bool whole) {
  if (whole)
    return *reinterpret_cast<const Vector<T> *>(p);
  Vector<T> x = {};
  for (int k = 0; k < count; ++k)
    x.of[k] = p[k];
  return x;
}

template <typename T> __device__ void store(T *p, const Vector<T> &x, int count, bool whole) {
  if (whole)
    *reinterpret_cast<Vector<T> *>(p) = x;
  else
    for (int k = 0; k < count; ++k)
      p[k] = x.of[k];
}

extern "C" __global__ void __launch_bounds__(threads) squares(Table<1> table, float *sums) {
  int tensor = table.tensors[blockIdx.x];
  auto *g = static_cast<const float *>(table.addresses[0][tensor]);
  float sum = 0;
  forChunk(table.chunks[blockIdx.x], table.sizes[tensor], reinterpret_cast<size_t>(g) % 16 == 0,
           [&](int i, int count, bool whole) {
             Vector<float> x = load(g + i, count, whole);
             for (int k = 0; k < ilp; ++k)
               sum += x.of[k] * x.of[k];
           });
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0)
    sums[blockIdx.x] += sum;
}

/// One block: the norm.
extern "C" __global__ void __launch_bounds__(threads) finish(const float *sums, float *norm) {
  float sum = sumOfBlock(threadIdx.x < maxBlocks ? sums[threadIdx.x] : 0);
  if (threadIdx.x == 0)
    *norm = sqrtf(sum);
}

template <int depth> __device__ void adamw(const Table<depth> &table, const float *norm, const Rule &r) {
  int tensor = table.tensors[blockIdx.x];
  auto *g = static_cast<const float *>(table.addresses[0][tensor]);
  auto *p = static_cast<float *>(table.addresses[1][tensor]);
  auto *m = static_cast<float *>(table.addresses[2][tensor]);
  auto *v = static_cast<float *>(table.addresses[3][tensor]);
  __nv_bfloat16 *copy = nullptr;
  if constexpr (depth == 5)
    copy = static_cast<__nv_bfloat16 *>(table.addresses[4][tensor]);
  size_t all = reinterpret_cast<size_t>(g) | reinterpret_cast<size_t>(p) | reinterpret_cast<size_t>(m) |
               reinterpret_cast<size_t>(v) | reinterpret_cast<size_t>(copy) * 2;
  float factor = fminf(1.0f, r.limit / *norm);
  forChunk(table.chunks[blockIdx.x], table.sizes[tensor], all % 16 == 0, [&](int i, int count, bool whole) {
    Vector<float> gs = load(g + i, count, whole), ps = load(p + i, count, whole);
    Vector<float> ms = load(m + i, count, whole), vs = load(v + i, count, whole);
    Vector<__nv_bfloat16> copies;
    for (int k = 0; k < ilp; ++k) {
      float x = gs.of[k] * factor;
      ms.of[k] = r.b1 * ms.of[k] + (1 - r.b1) * x;
      vs.of[k] = r.b2 * vs.of[k] + (1 - r.b2) * x * x;
      float step = ms.of[k] / r.correction1 / (sqrtf(vs.of[k] / r.correction2) + r.eps);
      ps.of[k] -= r.rate * (step + r.decay * ps.of[k]);
      copies.of[k] = __float2bfloat16(ps.of[k]);
    }
    store(p + i, ps, count, whole);
    store(m + i, ms, count, whole);
    store(v + i, vs, count, whole);
    if (copy)
      store(copy + i, copies, count, whole);
  });
}

extern "C" __global__ void __launch_bounds__(threads) adamw4(Table<4> table, const float *norm, Rule rule) {
  adamw(table, norm, rule);
}
extern "C" __global__ void __launch_bounds__(threads) adamw5(Table<5> table, const float *norm, Rule rule) {
  adamw(table, norm, rule);
}
