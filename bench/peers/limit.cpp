// What this machine can do at most, for the ratios: memory traffic of an
// optimizer update, f32 and bf16 arithmetic. usage: limit [memory]; one JSON line per
// kernel and thread count. `memory` runs only the memory kernels, on all
// threads: memory speed changes with the neighbours of a shared machine, so it
// is run before and after each peer.
//        limit serve KERNEL...; on all threads, N runs of each kernel for each
//        line N of standard input, answered by the list of their milliseconds,
//        or with several kernels by {KERNEL: list}. KERNEL is the "limit" of a
//        line that the first form prints, or `registers`: all peaks of
//        arithmetic that this processor has.
#include <cblas.h>
#include <immintrin.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

extern "C" char *openblas_get_corename();
extern "C" void openblas_set_num_threads(int);

namespace {

double seconds(const std::function<void()> &body) {
  auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

double bestSeconds(int repeats, const std::function<void()> &body) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i)
    best = std::min(best, seconds(body));
  return best;
}

struct Free {
  void operator()(float *p) const { std::free(p); }
};
using Buffer = std::unique_ptr<float[], Free>;

/// n floats in huge pages where there are any, first touched by the threads that will use
/// them.
Buffer allocate(size_t n) {
  size_t bytes = (n * 4 + (1 << 21) - 1) >> 21 << 21;
  Buffer b(static_cast<float *>(std::aligned_alloc(1 << 21, bytes)));
  madvise(b.get(), bytes, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < n; ++i)
    b[i] = 0;
  return b;
}

/// 4 reads, 3 writes: the traffic of AdamW on (p, g, m, v), with one addition
/// in place of its arithmetic.
void update4R3W(float *__restrict p, const float *__restrict g,
                float *__restrict m, float *__restrict v, size_t n) {
#pragma omp parallel for simd schedule(static)
  for (size_t i = 0; i < n; ++i) {
    p[i] += g[i];
    m[i] += g[i];
    v[i] += g[i];
  }
}

#ifdef __AVX512BF16__
using Brain = __bf16;
Brain toBrain(float x) { return static_cast<__bf16>(x); }
#else // without an instruction the conversion is a call
using Brain = uint16_t;
Brain toBrain(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
#endif

/// 4 reads, 3 writes and a bf16 copy: the same with a persistent compute copy
/// of the parameters.
void update4R3WCopy(float *__restrict p, const float *__restrict g,
                    float *__restrict m, float *__restrict v,
                    Brain *__restrict c, size_t n) {
#pragma omp parallel for simd schedule(static) simdlen(32)
  for (size_t i = 0; i < n; ++i) {
    p[i] += g[i];
    m[i] += g[i];
    v[i] += g[i];
    c[i] = toBrain(p[i]);
  }
}

/// 1 read: the traffic of a gradient norm.
float sum(const float *a, size_t n) {
  float s = 0;
#pragma omp parallel for simd schedule(static) simdlen(8) reduction(+ : s)
  for (size_t i = 0; i < n; ++i)
    s += a[i];
  return s;
}

void copy(float *__restrict to, const float *__restrict from, size_t n) {
#pragma omp parallel for simd schedule(static)
  for (size_t i = 0; i < n; ++i)
    to[i] = from[i];
}

#ifdef __AVX512F__
using Vector = __m512;
constexpr int kChains = 16;
Vector broadcast(float x) { return _mm512_set1_ps(x); }
Vector multiplyAdd(Vector x, Vector p, Vector q) {
  return _mm512_fmadd_ps(x, p, q);
}
#else
using Vector = __m256;
constexpr int kChains = 12; // of 16 registers, two of which hold operands
Vector broadcast(float x) { return _mm256_set1_ps(x); }
Vector multiplyAdd(Vector x, Vector p, Vector q) {
  return _mm256_fmadd_ps(x, p, q);
}
#endif
constexpr int kLanes = sizeof(Vector) / sizeof(float), kRounds = 20'000'000;

/// kChains independent chains of `operation` in the registers of each thread: the
/// arithmetic peak.
template <typename Operand, typename Operation>
void runInRegisters(int threads, Operand a, Operand b, Operation operation) {
  [[maybe_unused]] volatile float sink = 0;
#pragma omp parallel num_threads(threads)
  {
    Vector x[kChains];
    for (int c = 0; c < kChains; ++c)
      x[c] = broadcast(float(c));
    for (int r = 0; r < kRounds; ++r)
      for (int c = 0; c < kChains; ++c)
        x[c] = operation(x[c], a, b);
    Vector total = x[0];
    for (int c = 1; c < kChains; ++c)
      total += x[c];
    float lanes = 0;
    for (int i = 0; i < kLanes; ++i)
      lanes += total[i];
    sink = lanes;
  }
}

#ifdef __AMX_BF16__
constexpr int kPanels = 8;     // of 32 rows of A and 32 columns of B, 32 deep
constexpr int kSums = 200'000; // of 32 x 32 numbers, over all panels
constexpr double kPanelFlops = 2.0 * 32 * 32 * 32;

/// What one thread multiplies: 2 tiles of A and 2 of B in each panel, in all
/// 32 KB, which the first level cache holds.
struct alignas(64) Panels {
  __bf16 tiles[kPanels][4][16 * 32];
};

/// Whether this process may use AMX: the kernel keeps the registers' state for
/// one that asks.
bool mayUseAmx() {
  constexpr long requestPermission = 0x1023, tileData = 18;
  return syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
}

/// Numbers that vary as those of a real product do: with equal ones a processor
/// switches fewer wires and runs faster than any product can.
std::shared_ptr<std::vector<Panels>> randomPanels(int threads) {
  auto panels = std::make_shared<std::vector<Panels>>(threads);
  std::minstd_rand random(1);
  std::normal_distribution<float> normal;
  for (Panels &p : *panels)
    for (auto &panel : p.tiles)
      for (auto &tile : panel)
        for (__bf16 &x : tile)
          x = static_cast<__bf16>(normal(random));
  return panels;
}

/// Products of bf16 tiles from the first level cache, with their sums in
/// registers.
void multiplyTiles(const std::vector<Panels> &panels) {
#pragma omp parallel num_threads(panels.size())
  {
    struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    const Panels &mine = panels[omp_get_thread_num()];
    _tile_loadconfig(&config);
    for (int r = 0; r < kSums; ++r) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (auto &panel : mine.tiles) {
        _tile_loadd(4, panel[0], 64);
        _tile_loadd(6, panel[2], 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panel[3], 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, panel[1], 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_release();
  }
}
#endif

/// One limit: `work` is what a run moves in bytes (a memory kernel) or computes
/// in FLOPs; `details` go into its line.
struct Kernel {
  std::string name, details;
  bool memory;
  int repeats;
  double work;
  std::function<void()> run;
};

constexpr size_t kParameters = 124439808; // of gpt2-124m

std::vector<Kernel> memoryKernels() {
  constexpr size_t n = kParameters;
  // Not all at one address modulo 4 KiB: a load would wait for a store that
  // only looks like one to its place.
  constexpr size_t stride = n + 208;
  std::shared_ptr<float[]> block = allocate(4 * stride + n / 2);
  auto array = [&](size_t i) {
    return std::shared_ptr<float[]>(block, block.get() + i * stride);
  };
  auto p = array(0), g = array(1), m = array(2), v = array(3), c = array(4);
  auto kernel = [](const char *name, double bytesPerParameter,
                   std::function<void()> run) {
    return Kernel{name,
                  "\"parameters\": " + std::to_string(n) + ", ",
                  true,
                  12,
                  bytesPerParameter * n,
                  std::move(run)};
  };
  return {
      kernel("update_4r3w", 28,
             [=] { update4R3W(p.get(), g.get(), m.get(), v.get(), n); }),
      kernel("update_4r3w_bf16_copy", 30,
             [=] {
               update4R3WCopy(p.get(), g.get(), m.get(), v.get(),
                              reinterpret_cast<Brain *>(c.get()), n);
             }),
      kernel("sum", 4,
             [=] { [[maybe_unused]] volatile float sink = sum(g.get(), n); }),
      kernel("copy", 8, [=] { copy(m.get(), g.get(), n); }),
  };
}

std::vector<Kernel> registerKernels(int threads) {
  volatile float
      one = 1,
      tiny = 1e-9f; // volatile: or the compiler would do the sums itself
  Vector a = broadcast(one), b = broadcast(tiny);
  double chains = double(kChains) * kRounds * threads;
  std::vector<Kernel> kernels;
  kernels.push_back({"fma_registers", "", false, 3, 2 * kLanes * chains, [=] {
                       runInRegisters(threads, a, b,
                                      [](Vector x, Vector p, Vector q) {
                                        return multiplyAdd(x, p, q);
                                      });
                     }});
#ifdef __AVX512BF16__
  __m512bh c = _mm512_cvtne2ps_pbh(a, a), d = _mm512_cvtne2ps_pbh(b, b);
  kernels.push_back({"bf16_registers", "", false, 3, 64 * chains, [=] {
                       runInRegisters(threads, c, d,
                                      [](__m512 x, __m512bh p, __m512bh q) {
                                        return _mm512_dpbf16_ps(x, p, q);
                                      });
                     }});
#endif
#ifdef __AMX_BF16__
  if (mayUseAmx())
    kernels.push_back(
        {"amx_registers", "", false, 3, kPanelFlops * kPanels * kSums * threads,
         [panels = randomPanels(threads)] { multiplyTiles(*panels); }});
#endif
  return kernels;
}

std::vector<Kernel> gemmKernels(int threads) {
  openblas_set_num_threads(threads);
  struct Shape {
    const char *name;
    int rows, columns, depth;
  };
  std::vector<Kernel> kernels;
  for (Shape s :
       {Shape{"square", 2048, 2048, 2048}, Shape{"gpt2_fc", 256, 3072, 768},
        Shape{"gpt2_lm_head", 256, 50257, 768},
        Shape{"char_fc", 2048, 1536, 384}}) {
    std::shared_ptr<float[]> a = allocate(size_t(s.rows) * s.depth),
                             b = allocate(size_t(s.depth) * s.columns),
                             r = allocate(size_t(s.rows) * s.columns);
    std::string details = "\"m\": " + std::to_string(s.rows) +
                          ", \"n\": " + std::to_string(s.columns) +
                          ", \"k\": " + std::to_string(s.depth) +
                          ", \"core\": \"" + openblas_get_corename() + "\", ";
    kernels.push_back({std::string("sgemm_") + s.name, details, false, 12,
                       2.0 * s.rows * s.columns * s.depth, [=] {
                         cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans,
                                     s.rows, s.columns, s.depth, 1, a.get(),
                                     s.depth, b.get(), s.columns, 0, r.get(),
                                     s.columns);
                       }});
  }
  return kernels;
}

void report(const std::vector<Kernel> &kernels, int threads) {
  for (const Kernel &k : kernels) {
    double best = bestSeconds(k.repeats, k.run);
    std::printf(
        "{\"limit\": \"%s\", \"threads\": %d, %s\"ms\": %.3f, \"%s\": %.1f}\n",
        k.name.c_str(), threads, k.details.c_str(), best * 1e3,
        k.memory ? "gb_per_s" : "gflops", k.work / best / 1e9);
    std::fflush(stdout);
  }
}

/// Returns once this process's threads have stopped spinning, so that whoever
/// is timed next has the cores.
void waitUntilQuiet() {
  for (int i = 0; i < 50; ++i) {
    std::clock_t used = std::clock();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (std::clock() - used < CLOCKS_PER_SEC / 1000)
      return;
  }
}

std::string timedRuns(const Kernel &kernel, int count) {
  std::string list = "[";
  for (int i = 0; i < count; ++i) {
    char ms[32];
    std::snprintf(ms, sizeof ms, "%s%.5f", i ? ", " : "",
                  seconds(kernel.run) * 1e3);
    list += ms;
  }
  return list + "]";
}

/// The kernels of these names; `registers` stands for a whole family. Empty if
/// one of them is not on this machine.
std::vector<Kernel> findKernels(std::vector<std::string> names, int threads) {
  std::vector<Kernel> kernels;
  auto take = [&](const std::string &name) {
    return std::erase(names, name) > 0;
  };
  if (take("registers"))
    kernels = registerKernels(threads);
  for (auto family :
       {registerKernels, gemmKernels, +[](int) { return memoryKernels(); }})
    if (!names.empty())
      for (Kernel &k : family(threads))
        if (take(k.name))
          kernels.push_back(std::move(k));
  return names.empty() ? std::move(kernels) : std::vector<Kernel>();
}

int serve(const std::vector<std::string> &names, int threads) {
  std::vector<Kernel> kernels = findKernels(names, threads);
  if (kernels.empty()) {
    std::fprintf(stderr, "limit: no such kernels on this machine\n");
    return 1;
  }
  std::string ready;
  for (const Kernel &k : kernels) {
    k.run();
    char work[32];
    std::snprintf(work, sizeof work, "\": %.9g", k.work);
    ready += (ready.empty() ? "\"" : ", \"") + k.name + work;
  }
  waitUntilQuiet();
  std::printf("{\"ready\": {\"limits\": {%s}, \"threads\": %d}}\n",
              ready.c_str(), threads);
  std::fflush(stdout);
  for (int n; std::cin >> n;) {
    std::string line;
    for (const Kernel &k : kernels)
      line += (line.empty() ? "" : ", ") +
              (kernels.size() > 1 ? "\"" + k.name + "\": " : "") +
              timedRuns(k, n);
    waitUntilQuiet();
    std::printf(kernels.size() > 1 ? "{%s}\n" : "%s\n", line.c_str());
    std::fflush(stdout);
  }
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const char *name : {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"})
    if (const char *value = std::getenv(name); value && *value) {
      std::fprintf(stderr, "limit: unset %s first: it slows OpenBLAS\n", name);
      return 1;
    }
  int maxThreads = omp_get_max_threads();
  if (arguments.size() > 1 && arguments[0] == "serve")
    return serve({arguments.begin() + 1, arguments.end()}, maxThreads);
  bool memoryOnly = arguments == std::vector<std::string>{"memory"};
  if (!memoryOnly && !arguments.empty()) {
    std::fprintf(stderr, "usage: limit [memory | serve KERNEL...]\n");
    return 1;
  }
  std::vector<int> threadCounts = {maxThreads};
  if (!memoryOnly && maxThreads > 1)
    threadCounts.push_back(1);
  {
    std::vector<Kernel> kernels = memoryKernels();
    for (int threads : threadCounts) {
      omp_set_num_threads(threads);
      report(kernels, threads);
    }
  }
  if (memoryOnly)
    return 0;
  for (int threads : threadCounts) {
    report(registerKernels(threads), threads);
    report(gemmKernels(threads), threads);
  }
}
