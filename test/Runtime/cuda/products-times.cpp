// The products of a GPT-2's step, each timed on the device: with its epilogue by the library's first answer, without, with rows
// at multiples of 64 elements, and by each of the library's first 8 answers, also so. Prints a table; equal runs give equal bits.
//
// usage: products-times [TOKENS WIDTH VOCABULARY RUNS]
//
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so LD_LIBRARY_PATH=%runtime_lib %t 16 8 13 2 | FileCheck %s
// CHECK: | product | m x n x k | with its epilogue: ms, TF/s | without | rows at multiples of 64 | choices 1 to 8: ms | without, rows at multiples of 64 |
// CHECK: | qkv | 16 x 24 x 8 |
// CHECK: | head dW | 13 x 8 x 16 |
// CHECK: | large | 16 x 13 x 8 |
// CHECK: equal bits

#include "products.h"

namespace {
struct Timed {
  const char *name;
  trainc_gemm_detail detail;
};

struct Times {
  CUevent begin, end;
};
} // namespace

/// Milliseconds of a run, or a negative number if there is no such choice.
static double timeProduct(Bench &bench, Times &times,
                          const trainc_gemm_detail &g, uint32_t choice,
                          int runs, const Operands &operands) {
  const Product *product;
  if (planProduct(*bench.products, g, &product, 256, choice) != TRAINC_OK)
    return -1;
  const Driver &cu = *bench.device->driver;
  Current current(*bench.device);
  OK(current.status());
  bench.enqueue(product, operands);
  OK(cu.cuEventRecord(times.begin, bench.stream));
  for (int i = 0; i < runs; ++i)
    bench.enqueue(product, operands);
  OK(cu.cuEventRecord(times.end, bench.stream));
  OK(waitFor(*bench.device, bench.stream, 120, "products"));
  float milliseconds = 0;
  OK(cu.cuEventElapsedTime(&milliseconds, times.begin, times.end));
  return static_cast<double>(milliseconds) / runs;
}

static trainc_gemm_detail plain(trainc_gemm_detail g) {
  g.epilogue = g.has_aux = g.has_bias = g.bias_gradient = 0;
  return g;
}

static trainc_gemm_detail padded(trainc_gemm_detail g) {
  for (int64_t *stride : {&g.lda, &g.ldb, &g.ldc})
    *stride = (*stride + 63) / 64 * 64;
  return g;
}

static void show(const trainc_gemm_detail &g, double ms) {
  if (ms < 0) {
    printf("- | ");
    return;
  }
  double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                 static_cast<double>(g.k);
  printf("%.4f, %.1f | ", ms, ms > 0 ? flops / ms / 1e9 : 0);
}

/// Of a step in bf16; gradients of weights are f32.
static std::vector<Timed> productsOf(int64_t tokens, int64_t width,
                                     int64_t vocabulary) {
  std::vector<Timed> all;
  uint32_t half = TRAINC_BF16;
  auto layer = [&](const char *forward, const char *input, const char *weight,
                   int64_t from, int64_t to, bool gelu, bool slope) {
    trainc_gemm_detail g = dense(half, half, tokens, to, from);
    g.has_bias = 1;
    if (gelu) {
      g.epilogue = TRAINC_EPILOGUE_GELU;
      g.has_aux = 1;
    }
    all.push_back({forward, g});
    g = dense(half, half, tokens, from, to, false, true);
    if (slope) {
      g.epilogue = TRAINC_EPILOGUE_GELU_GRAD;
      g.has_aux = 1;
      g.bias_gradient = TRAINC_BIAS_GRADIENT_C;
    }
    all.push_back({input, g});
    g = dense(half, TRAINC_F32, from, to, tokens, true);
    g.bias_gradient = TRAINC_BIAS_GRADIENT_B;
    all.push_back({weight, g});
  };
  layer("qkv", "qkv dX", "qkv dW", width, 3 * width, false, false);
  layer("projection", "projection dX", "projection dW", width, width, false,
        false);
  layer("up", "up dX", "up dW", width, 4 * width, true, false);
  layer("down", "down dX", "down dW", 4 * width, width, false, true);
  all.push_back(
      {"head", dense(half, half, tokens, vocabulary, width, false, true)});
  all.push_back({"head dX", dense(half, half, tokens, width, vocabulary)});
  all.push_back(
      {"head dW", dense(half, TRAINC_F32, vocabulary, width, tokens, true)});
  return all;
}

/// More than 2^31 elements of C, all of them equal; the corners are compared.
static void testLarge(Bench &bench, int64_t tokens, int64_t width,
                      int64_t vocabulary) {
  trainc_gemm_detail g =
      dense(TRAINC_BF16, TRAINC_BF16, tokens, vocabulary, width, false, true);
  auto bytes = [](int64_t rows, int64_t columns) {
    return static_cast<uint64_t>(rows * columns) * 2;
  };
  const uint64_t sizes[] = {bytes(tokens, width), bytes(vocabulary, width),
                            bytes(tokens, vocabulary)};
  CUdeviceptr memory[3];
  Current current(*bench.device);
  OK(current.status());
  const Driver &cu = *bench.device->driver;
  for (int i = 0; i < 3; ++i) {
    OK(allocate(*bench.device, sizes[i], &memory[i]));
    OK(cu.cuMemsetD8Async(memory[i], i < 2 ? 0x3c : 0xff, sizes[i],
                          bench.stream));
  }
  OK(runProduct(*bench.products, *bench.plan(g), memory, bench.workspace,
                bench.stream));
  OK(waitFor(*bench.device, bench.stream, 120, "a large product"));
  uint16_t first, last;
  OK(download(*bench.device, &first, memory[2], 2));
  OK(download(*bench.device, &last, memory[2] + sizes[2] - 2, 2));
  double x = static_cast<double>(widenBf16(0x3c3c)),
         sum = static_cast<double>(width) * x * x;
  CHECK(first == last);
  CHECK(fabs(static_cast<double>(widenBf16(first)) - sum) <= sum / 128);
  for (CUdeviceptr address : memory)
    release(*bench.device, address);
  printf("| large | %lld x %lld x %lld | corners are equal |\n",
         static_cast<long long>(g.m), static_cast<long long>(g.n),
         static_cast<long long>(g.k));
}

/// A bias gradient and a product by the same plan, again and again.
static void testBits(Bench &bench, const trainc_gemm_detail &g, int runs) {
  Operands operands(*bench.device, g);
  const Product *product = bench.plan(g);
  std::vector<char> result, sums;
  for (int i = 0; i < runs; ++i) {
    bench.enqueue(product, operands);
    OK(waitFor(*bench.device, bench.stream, 120, "a product"));
    std::vector<char> again = operands.read(2);
    std::vector<char> sumsAgain = operands.read(operands.gradient);
    CHECK(i == 0 || (again == result && sumsAgain == sums));
    result = again;
    sums = sumsAgain;
  }
  printf("equal bits\n");
}

int main(int argc, char **argv) {
  auto number = [&](int i, int64_t usual) {
    return argc > i ? static_cast<int64_t>(atoll(argv[i])) : usual;
  };
  int64_t tokens = number(1, 8192), width = number(2, 768);
  int64_t vocabulary = number(3, 50257);
  int runs = static_cast<int>(number(4, 20));
  Bench bench;
  Times times = {};
  OK(createEvent(*bench.device, &times.begin));
  OK(createEvent(*bench.device, &times.end));
  {
    // With times, which those of the runtime do not have.
    Current current(*bench.device);
    OK(current.status());
    for (CUevent *event : {&times.begin, &times.end}) {
      bench.device->driver->cuEventDestroy(*event);
      OK(bench.device->driver->cuEventCreate(event, 0));
    }
  }
  printf(
      "| product | m x n x k | with its epilogue: ms, TF/s | without | rows "
      "at multiples of 64 | choices 1 to 8: ms | without, rows at multiples of "
      "64 |\n|---|---|---|---|---|---|---|\n");
  std::vector<Timed> all = productsOf(tokens, width, vocabulary);
  for (const Timed &one : all) {
    const trainc_gemm_detail &g = one.detail;
    printf("| %s | %lld x %lld x %lld | ", one.name,
           static_cast<long long>(g.m), static_cast<long long>(g.n),
           static_cast<long long>(g.k));
    Operands operands(*bench.device, padded(g)); // large enough for all
    auto time = [&](const trainc_gemm_detail &g, uint32_t choice) {
      return timeProduct(bench, times, g, choice, runs, operands);
    };
    show(g, time(g, 0));
    show(g, time(plain(g), 0));
    show(g, time(padded(g), 0));
    for (const trainc_gemm_detail &g :
         {one.detail, padded(plain(one.detail))}) {
      for (uint32_t choice = 0; choice < 8; ++choice) {
        double ms = time(g, choice);
        if (ms >= 0)
          printf("%s%.4f", choice ? ", " : "", ms);
      }
      printf(" | ");
    }
    printf("\n");
    fflush(stdout);
  }
  bool small = tokens < 1024;
  testLarge(bench, small ? tokens : 65536, small ? width : 64,
            small ? vocabulary : 50304);
  testBits(bench, all[2].detail, small ? 3 : 2000);
  destroyEvent(*bench.device, times.begin);
  destroyEvent(*bench.device, times.end);
}
