// Products of matrices on a device against sums in f64, row by row as step_abi.h has
// them.
#ifndef TRAINC_TEST_CUDA_PRODUCTS_H
#define TRAINC_TEST_CUDA_PRODUCTS_H

#include "cpu/halves.h"
#include "cuda/products.h"
#include "device.h"
#include <algorithm>
#include <math.h>
#include <string.h>

inline double readNumber(uint32_t dtype, const char *from, int64_t i) {
  switch (dtype) {
  case TRAINC_F64:
    return reinterpret_cast<const double *>(from)[i];
  case TRAINC_BF16:
    return widenBf16(reinterpret_cast<const uint16_t *>(from)[i]);
  case TRAINC_F16:
    return widenF16(reinterpret_cast<const uint16_t *>(from)[i]);
  }
  return reinterpret_cast<const float *>(from)[i];
}

inline void writeNumber(uint32_t dtype, char *to, int64_t i, double value) {
  switch (dtype) {
  case TRAINC_F64:
    reinterpret_cast<double *>(to)[i] = value;
    return;
  case TRAINC_BF16:
    reinterpret_cast<uint16_t *>(to)[i] = narrowBf16(static_cast<float>(value));
    return;
  case TRAINC_F16:
    reinterpret_cast<uint16_t *>(to)[i] = narrowF16(static_cast<float>(value));
    return;
  }
  reinterpret_cast<float *>(to)[i] = static_cast<float>(value);
}

/// Multiples of 1/64 between -1 and 1: exact in every type.
inline double noise() {
  static uint64_t state = 88172645463325252ull;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<double>(static_cast<int64_t>(state % 129) - 64) / 64;
}

inline double gelu(double x) {
  return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double geluGrad(double x) {
  double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 +
         x / 2 * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/// A dense product of one type.
inline trainc_gemm_detail dense(uint32_t from, uint32_t to, int64_t m,
                                int64_t n, int64_t k, bool transposeA = false,
                                bool transposeB = false) {
  trainc_gemm_detail g = {};
  g.a_type = g.b_type = from;
  g.c_type = to;
  g.transpose_a = transposeA;
  g.transpose_b = transposeB;
  g.m = m;
  g.n = n;
  g.k = k;
  g.lda = transposeA ? m : k;
  g.ldb = transposeB ? k : n;
  g.ldc = n;
  g.batch = 1;
  g.back_end = TRAINC_BACK_END_CUBLASLT;
  g.tile_m = m;
  g.tile_n = n;
  return g;
}

/// The operands of a product, on the host and on the device.
struct Operands {
  Device &device;
  trainc_gemm_detail g;
  // A, B, C, and what the detail has beside them, each with what is beyond its end.
  std::vector<std::vector<char>> host;
  std::vector<uint32_t> types;
  std::vector<CUdeviceptr> memory, arguments;
  int bias = -1, aux = -1, gradient = -1;

  /// The device's matrices begin `offset` elements behind a multiple of 256 bytes.
  Operands(Device &device, const trainc_gemm_detail &g, int64_t offset = 0)
      : device(device), g(g) {
    add(g.a_type, extent(g.stride_a, g.transpose_a ? g.k : g.m, g.lda));
    add(g.b_type, extent(g.stride_b, g.transpose_b ? g.n : g.k, g.ldb));
    add(g.c_type, extent(g.stride_c, g.m, g.ldc));
    if (g.has_bias)
      bias = add(g.c_type, g.n);
    if (g.has_aux)
      aux = add(g.c_type, extent(g.stride_c, g.m, g.ldc));
    if (g.bias_gradient)
      gradient =
          add(g.c_type, g.bias_gradient == TRAINC_BIAS_GRADIENT_A ? g.m : g.n);
    for (size_t i = 0; i < host.size(); ++i) {
      CUdeviceptr address;
      OK(allocate(device, host[i].size() + 1024, &address));
      memory.push_back(address);
      arguments.push_back(address + static_cast<uint64_t>(offset) *
                                        trainc_dtype_size(types[i]));
    }
    fill();
  }
  ~Operands() {
    for (CUdeviceptr address : memory)
      release(device, address);
  }
  Operands(const Operands &) = delete;
  Operands &operator=(const Operands &) = delete;

  /// What is only written is not a number at first.
  void fill() {
    for (size_t i = 0; i < host.size(); ++i) {
      int which = static_cast<int>(i);
      bool result = (which == 2 && !g.accumulate) || which == gradient ||
                    (which == aux && g.epilogue == TRAINC_EPILOGUE_GELU);
      auto size = static_cast<int64_t>(trainc_dtype_size(types[i]));
      int64_t count = static_cast<int64_t>(host[i].size()) / size;
      // Large ones repeat what they begin with.
      int64_t some = std::min<int64_t>(count, 1 << 20);
      for (int64_t k = 0; k < some; ++k)
        writeNumber(types[i], host[i].data(), k,
                    result ? static_cast<double>(NAN) : noise());
      for (int64_t k = some; k < count; k += some)
        memcpy(host[i].data() + k * size, host[i].data(),
               static_cast<size_t>(std::min(some, count - k) * size));
      OK(upload(device, arguments[i], host[i].data(), host[i].size()));
    }
  }

  std::vector<char> read(int which) const {
    auto i = static_cast<size_t>(which);
    std::vector<char> bytes(host[i].size());
    OK(download(device, bytes.data(), arguments[i], bytes.size()));
    return bytes;
  }

private:
  int64_t extent(int64_t stride, int64_t rows, int64_t ld) const {
    return (g.batch - 1) * stride + rows * ld;
  }
  int add(uint32_t dtype, int64_t elements) {
    types.push_back(dtype);
    host.emplace_back(static_cast<size_t>(elements) * trainc_dtype_size(dtype));
    return static_cast<int>(host.size()) - 1;
  }
};

/// What the product should give, `runs` times from the operands on the host on.
class Reference {
public:
  Reference(const Operands &o, int runs = 1) : o(o), g(o.g) {
    results = o.host;
    for (int i = 0; i < runs; ++i)
      compute();
  }

  /// Compares all results, and the gaps between their rows.
  void check() {
    compare(2);
    if (o.gradient >= 0)
      compare(o.gradient);
    if (o.aux >= 0 && g.epilogue == TRAINC_EPILOGUE_GELU)
      compare(o.aux);
  }

private:
  double in(int which, int64_t i) const {
    auto at = static_cast<size_t>(which);
    return readNumber(o.types[at], o.host[at].data(), i);
  }
  void out(int which, int64_t i, double value) {
    auto at = static_cast<size_t>(which);
    writeNumber(o.types[at], results[at].data(), i, value);
  }
  double a(int64_t base, int64_t i, int64_t p) const {
    return in(0, base + (g.transpose_a ? p * g.lda + i : i * g.lda + p));
  }
  double b(int64_t base, int64_t p, int64_t j) const {
    return in(1, base + (g.transpose_b ? j * g.ldb + p : p * g.ldb + j));
  }
  void compute() {
    std::vector<double> sums(static_cast<size_t>(g.n));
    for (int64_t x = 0; x < g.batch; ++x)
      for (int64_t i = 0; i < g.m; ++i)
        for (int64_t j = 0; j < g.n; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < g.k; ++p)
            sum += a(x * g.stride_a, i, p) * b(x * g.stride_b, p, j);
          int64_t place = x * g.stride_c + i * g.ldc + j;
          if (g.accumulate)
            sum += readNumber(g.c_type, results[2].data(), place);
          if (g.has_bias)
            sum += in(o.bias, j);
          if (g.epilogue == TRAINC_EPILOGUE_GELU) {
            if (g.has_aux)
              out(o.aux, place, sum);
            sum = gelu(sum);
          }
          if (g.epilogue == TRAINC_EPILOGUE_GELU_GRAD)
            sum *= geluGrad(in(o.aux, place));
          sums[static_cast<size_t>(j)] += sum;
          out(2, place, sum);
        }
    switch (g.bias_gradient) {
    case TRAINC_BIAS_GRADIENT_A:
      for (int64_t i = 0; i < g.m; ++i) {
        double sum = 0;
        for (int64_t p = 0; p < g.k; ++p)
          sum += a(0, i, p);
        out(o.gradient, i, sum);
      }
      break;
    case TRAINC_BIAS_GRADIENT_B:
      for (int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < g.k; ++p)
          sum += b(0, p, j);
        out(o.gradient, j, sum);
      }
      break;
    case TRAINC_BIAS_GRADIENT_C:
      for (int64_t j = 0; j < g.n; ++j)
        out(o.gradient, j, sums[static_cast<size_t>(j)]);
      break;
    }
  }

  /// Sums of k numbers, or of m of those, each rounded on the way.
  double tolerance(int which) const {
    auto terms = static_cast<double>(
        which == o.gradient && g.bias_gradient == TRAINC_BIAS_GRADIENT_C
            ? g.k * g.m
            : g.k);
    double unit = g.c_type == TRAINC_F64                        ? 0x1p-53
                  : g.back_end == TRAINC_BACK_END_CUBLASLT_TF32 ? 0x1p-10
                                                                : 0x1p-24;
    // The library's gelu has fewer bits than f32.
    double exact = g.epilogue ? fmax(unit, 0x1p-18) : unit;
    double rounded = g.c_type == TRAINC_BF16  ? 0x1p-8
                     : g.c_type == TRAINC_F16 ? 0x1p-11
                                              : exact;
    return 4 * (terms * unit + rounded * sqrt(terms));
  }

  void compare(int which) {
    std::vector<char> bytes = o.read(which);
    const std::vector<char> &wanted = results[static_cast<size_t>(which)];
    uint32_t type = o.types[static_cast<size_t>(which)];
    auto size = static_cast<int64_t>(trainc_dtype_size(type));
    for (int64_t i = 0; i < static_cast<int64_t>(wanted.size()) / size; ++i) {
      double is = readNumber(type, bytes.data(), i);
      double should = readNumber(type, wanted.data(), i);
      if (isnan(should)
              ? isnan(is)
              : fabs(is - should) <= tolerance(which) * (1 + fabs(should) / 8))
        continue;
      printf("operand %d, element %lld: %.9g, not %.9g (m %lld n %lld k %lld, "
             "types %u %u, transposed %u %u, epilogue %u, gradient %u)\n",
             which, static_cast<long long>(i), is, should,
             static_cast<long long>(g.m), static_cast<long long>(g.n),
             static_cast<long long>(g.k), g.a_type, g.c_type, g.transpose_a,
             g.transpose_b, g.epilogue, g.bias_gradient);
      exit(1);
    }
  }

  const Operands &o;
  const trainc_gemm_detail &g;
  std::vector<std::vector<char>> results;
};

/// A device, products on it, a stream and a workspace.
struct Bench {
  Device *device = nullptr;
  Products *products = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr workspace = 0;
  CUmodule module = nullptr; // null: there are no kernels for epilogues

  /// With the kernels of an image for the emulator, if there is one.
  explicit Bench(const char *path = nullptr) {
    OK(openDevice(0, &device));
    if (path) {
      std::string bytes = readFile(path);
      trainc_image images[] = {image(TRAINC_IMAGE_HOST, 0, bytes)};
      OK(loadImage(*device, images, 1, &module));
    }
    OK(openProducts(*device, module, &products));
    OK(createStream(*device, &stream));
    OK(allocate(*device, workspaceBytes(*products), &workspace));
  }
  ~Bench() {
    release(*device, workspace);
    destroyStream(*device, stream);
    closeProducts(products);
    unloadImage(*device, module);
    closeDevice(device);
  }
  Bench(const Bench &) = delete;
  Bench &operator=(const Bench &) = delete;

  const Product *plan(const trainc_gemm_detail &g, uint32_t alignment = 256) {
    const Product *product;
    OK(planProduct(*products, g, &product, alignment));
    return product;
  }
  void enqueue(const Product *product, const Operands &operands) {
    OK(runProduct(*products, *product, operands.arguments.data(), workspace,
                  stream));
  }
  /// One product, from its plan to its results.
  void check(const trainc_gemm_detail &g) {
    Operands operands(*device, g);
    enqueue(plan(g), operands);
    OK(waitFor(*device, stream, 60, "a product"));
    Reference(operands).check();
  }
};

struct Types {
  uint32_t from, to;
};
constexpr Types allTypes[] = {
    {TRAINC_F32, TRAINC_F32},  {TRAINC_F64, TRAINC_F64},
    {TRAINC_BF16, TRAINC_F32}, {TRAINC_BF16, TRAINC_BF16},
    {TRAINC_F16, TRAINC_F32},  {TRAINC_F16, TRAINC_F16}};

/// Transposes, odd sizes, gaps between rows; biases and sums.
inline void testShapes(Bench &bench) {
  const int64_t sizes[][3] = {
      {1, 1, 1}, {5, 7, 3}, {33, 17, 65}, {16, 24, 8}, {64, 48, 40}};
  for (Types types : allTypes)
    for (const auto &size : sizes)
      for (int variant = 0; variant < 32; ++variant) {
        trainc_gemm_detail g = dense(types.from, types.to, size[0], size[1],
                                     size[2], variant & 1, variant & 2);
        g.accumulate = (variant & 4) != 0;
        g.has_bias = (variant & 8) != 0;
        if (variant & 16) {
          g.lda += 3;
          g.ldb += 5;
          g.ldc += 9;
        }
        bench.check(g);
      }
}

/// Dense batches, one B for all, and heads that are columns of wider matrices, also of the
/// result's.
inline void testBatches(Bench &bench) {
  for (Types types : allTypes)
    for (int variant = 0; variant < 4; ++variant) {
      trainc_gemm_detail g = dense(types.from, types.to, 6, 8, 4, variant & 1);
      g.accumulate = (variant & 2) != 0;
      g.batch = 6;
      g.stride_a = 24;
      g.stride_b = 32;
      g.stride_c = 48;
      bench.check(g);
      g.stride_b = 0;
      g.has_bias = 1;
      bench.check(g);

      // 6 tokens, 3 heads of 4: rows of 12.
      trainc_gemm_detail heads =
          dense(types.from, types.to, 6, 6, 4, false, /*transposeB=*/true);
      heads.accumulate = (variant & 2) != 0;
      heads.lda = heads.ldb = 12;
      heads.batch = 3;
      heads.stride_a = heads.stride_b = 4;
      heads.stride_c = 36;
      bench.check(heads);
      heads = dense(types.from, types.to, 6, 4, 5, variant & 1);
      heads.accumulate = (variant & 2) != 0;
      heads.has_bias = 1;
      heads.ldc = 12;
      heads.batch = 3;
      heads.stride_a = 30;
      heads.stride_b = 20;
      heads.stride_c = 4;
      bench.check(heads);
    }
}

/// Each epilogue and each bias gradient, of all types that have it.
inline void testEpilogues(Bench &bench) {
  const int64_t sizes[][3] = {{5, 8, 3}, {32, 64, 24}, {17, 40, 33}};
  for (Types types : allTypes)
    for (const auto &size : sizes)
      for (int gap : {0, 8}) {
        auto product = [&](bool transposeA, bool transposeB) {
          trainc_gemm_detail g = dense(types.from, types.to, size[0], size[1],
                                       size[2], transposeA, transposeB);
          g.ldc += gap;
          return g;
        };
        for (int variant = 0; variant < 16; ++variant) {
          if (types.to == TRAINC_F64)
            break;
          trainc_gemm_detail g = product(variant & 1, variant & 2);
          g.epilogue = TRAINC_EPILOGUE_GELU;
          g.has_bias = (variant & 4) != 0;
          g.has_aux = (variant & 8) != 0;
          bench.check(g);
          g.epilogue = TRAINC_EPILOGUE_GELU_GRAD;
          g.has_bias = 0;
          g.has_aux = 1;
          g.bias_gradient =
              variant & 4 ? TRAINC_BIAS_GRADIENT_C : TRAINC_BIAS_GRADIENT_NONE;
          bench.check(g);
        }
        for (bool other : {false, true}) {
          trainc_gemm_detail g = product(true, other);
          g.bias_gradient = TRAINC_BIAS_GRADIENT_A;
          bench.check(g);
          g = product(other, false);
          g.bias_gradient = TRAINC_BIAS_GRADIENT_B;
          bench.check(g);
        }
      }
}

/// Products in a graph: the second reads what the first wrote, and sums go on from
/// replay to replay.
inline void testGraph(Bench &bench) {
  const Driver &cu = *bench.device->driver;
  trainc_gemm_detail g = dense(TRAINC_F32, TRAINC_F32, 24, 16, 32);
  g.has_bias = 1;
  trainc_gemm_detail next = dense(TRAINC_F32, TRAINC_F32, 24, 8, 16);
  next.accumulate = 1;
  Operands first(*bench.device, g), second(*bench.device, next);
  second.arguments[0] = first.arguments[2];
  const Product *one = bench.plan(g), *two = bench.plan(next);
  CUgraph graph;
  CUgraphExec executable;
  {
    Current current(*bench.device);
    OK(current.status());
    auto work = [&] {
      bench.enqueue(one, first);
      bench.enqueue(two, second);
    };
    work(); // what is loaded at the first call is not loaded in a capture
    OK(cu.cuStreamBeginCapture(bench.stream,
                               CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    work();
    OK(cu.cuStreamEndCapture(bench.stream, &graph));
    OK(cu.cuGraphInstantiate(&executable, graph, 0));
    OK(cu.cuGraphDestroy(graph));
    OK(cu.cuGraphLaunch(executable, bench.stream));
    OK(cu.cuGraphLaunch(executable, bench.stream));
  }
  OK(waitFor(*bench.device, bench.stream, 60, "two graphs"));
  {
    Current current(*bench.device);
    OK(cu.cuGraphExecDestroy(executable));
  }
  Reference(first).check();
  second.host[0] = first.read(2);
  Reference(second, 3).check();
}

#endif
