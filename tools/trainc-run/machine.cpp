//===- machine.cpp - What a machine computes and moves at most ------------===//

#include "machine.h"
#include "cpu/features.h"
#include "support.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <thread>
#include <unistd.h>

#ifdef __x86_64__
#include "cpu/x86/tiles.h"
#include <immintrin.h>
#endif

namespace trainc::run {

//===----------------------------------------------------------------------===//
// Arithmetic in registers
//===----------------------------------------------------------------------===//

namespace {
/// Computes `flops` in a loop that repeats `rounds` times.
struct Arithmetic {
  void (*run)(int64_t rounds);
  double flops; // of a round
};
} // namespace

/// Keeps what it is given from being left out.
template <typename T> static inline void keep(T &value) {
  asm volatile("" : "+m"(value));
}

/// Independent chains of multiply-adds, by the instructions of its caller.
template <typename T, int Lanes, int Chains, bool Fuses = true>
[[gnu::always_inline]] static inline void multiplyAdd(int64_t rounds) {
  typedef T Vector __attribute__((vector_size(sizeof(T) * Lanes)));
  T one = 1, tiny = T(1e-9);
  keep(one);
  keep(tiny);
  Vector x = one - Vector{}, y = tiny - Vector{}, sums[Chains] = {};
  for (int64_t round = 0; round < rounds; ++round)
#pragma clang loop unroll(full)
    for (int i = 0; i < Chains; ++i)
      if constexpr (Fuses)
        sums[i] = __builtin_elementwise_fma(sums[i], x, y);
      else
        sums[i] = sums[i] * x + y;
  for (Vector &sum : sums)
    keep(sum);
}

#ifdef __x86_64__
#define TRAINC_FOR(features) __attribute__((target(features)))
#else
#define TRAINC_FOR(features)
#endif

template <typename T> static constexpr int lanesOf(int bytes) {
  return bytes / int(sizeof(T));
}

template <typename T> static Arithmetic multiplyAdds() {
#ifdef __x86_64__
  if (hasFeature("avx512f"))
    return {[](int64_t rounds) TRAINC_FOR("avx512f") {
              multiplyAdd<T, lanesOf<T>(64), 16>(rounds);
            },
            2.0 * lanesOf<T>(64) * 16};
  if (hasFeature("avx2") && hasFeature("fma"))
    return {[](int64_t rounds) TRAINC_FOR("avx2,fma") {
              multiplyAdd<T, lanesOf<T>(32), 12>(rounds);
            },
            2.0 * lanesOf<T>(32) * 12};
  return {[](int64_t rounds) {
            multiplyAdd<T, lanesOf<T>(16), 12, /*Fuses=*/false>(rounds);
          },
          2.0 * lanesOf<T>(16) * 12};
#else
  return {[](int64_t rounds) { multiplyAdd<T, lanesOf<T>(16), 24>(rounds); },
          2.0 * lanesOf<T>(16) * 24};
#endif
}

#ifdef __x86_64__
TRAINC_FOR("avx512f,avx512bf16") static void multiplyPairs(int64_t rounds) {
  constexpr int chains = 16;
  __m512 sums[chains] = {};
  __m512 bits = _mm512_castsi512_ps(_mm512_set1_epi16(0x3F80)); // 1
  keep(bits);
  auto ones = reinterpret_cast<__m512bh>(bits);
  for (int64_t round = 0; round < rounds; ++round)
#pragma clang loop unroll(full)
    for (__m512 &sum : sums)
      sum = _mm512_dpbf16_ps(sum, ones, ones);
  for (__m512 &sum : sums)
    keep(sum);
}

/// Products of tiles in registers, in four sums. The numbers vary: of equal ones a processor
/// switches fewer wires, and runs faster than any product can.
TRAINC_FOR("amx-tile,amx-bf16") static void multiplyTiles(int64_t rounds) {
  alignas(64) uint16_t numbers[4][16 * 32];
  uint32_t random = 1;
  for (auto &tile : numbers)
    for (uint16_t &number : tile) { // from 1 to 2, or -1 to -2
      random = random * 1664525 + 1013904223;
      number = static_cast<uint16_t>(0x3F80 | (random >> 16 & 0x807F));
    }
  WholeTiles shape;
  _tile_loadconfig(&shape);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, numbers[0], 64);
  _tile_loadd(5, numbers[1], 64);
  _tile_loadd(6, numbers[2], 64);
  _tile_loadd(7, numbers[3], 64);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}
#endif

/// By instructions on bf16, if there are any.
static Arithmetic multiplyBrains() {
#ifdef __x86_64__
  if (hasFeature("amx-bf16") && hasFeature("amx-tile"))
    return {multiplyTiles, 4 * 2.0 * 16 * 16 * 32};
  if (hasFeature("avx512bf16"))
    return {multiplyPairs, 16 * 2.0 * 32};
#endif
  return {};
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

static double processorSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

/// What the slowest thread takes of its processor: not when others have it.
static double secondsOf(const std::function<void(unsigned thread)> &work,
                        unsigned threads) {
  std::atomic<unsigned> ready = 0;
  std::vector<double> seconds(threads);
  std::vector<std::thread> others;
  auto meet = [&](unsigned thread) {
    ++ready;
    while (ready < threads)
      std::this_thread::yield();
    double begin = processorSeconds();
    work(thread);
    seconds[thread] = processorSeconds() - begin;
  };
  for (unsigned i = 1; i < threads; ++i)
    others.emplace_back(meet, i);
  meet(0);
  for (std::thread &other : others)
    other.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

/// The most of `amount` per second in some tries, each of which repeats the work so often
/// that the shortest takes milliseconds.
static double rateOf(double amount, unsigned threads,
                     const std::function<void(unsigned, int64_t)> &work) {
  constexpr double least = 4e-3;
  constexpr int tries = 5;
  for (int64_t repeats = 1;; repeats *= 4) {
    double shortest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < tries; ++i)
      shortest = std::min(
          shortest,
          secondsOf([&](unsigned thread) { work(thread, repeats); }, threads));
    if (shortest >= least)
      return amount * double(repeats) * threads / shortest;
  }
}

static double flopsOf(Arithmetic arithmetic, unsigned threads) {
  return arithmetic.run
             ? rateOf(arithmetic.flops, threads,
                      [&](unsigned, int64_t rounds) { arithmetic.run(rounds); })
             : 0;
}

/// Of copies inside of a working set of `bytes` for each thread.
static double bandwidthOf(uint64_t bytes, unsigned threads) {
  std::vector<std::vector<char>> buffers(threads);
  for (auto &buffer : buffers)
    buffer.assign(bytes, 1);
  size_t half = bytes / 2;
  return rateOf(double(bytes), threads, [&](unsigned thread, int64_t repeats) {
    char *data = buffers[thread].data();
    for (int64_t i = 0; i < repeats; ++i) {
      std::memcpy(data, data + half, half);
      keep(*data);
    }
  });
}

//===----------------------------------------------------------------------===//
// The machine
//===----------------------------------------------------------------------===//

Machine::Machine(unsigned threads) : threads(threads) {
  constexpr double pieces = 6; // products of bf16 that make one of f32
  f64 = flopsOf(multiplyAdds<double>(), threads);
  f32 = flopsOf(multiplyAdds<float>(), threads);
  bf16 = std::max(f32, flopsOf(multiplyBrains(), threads));
  splitF32 = std::max(f32, bf16 / pieces);

  struct {
    const char *name;
    int size;
    bool shared; // by the threads
  } caches[] = {{"L1", _SC_LEVEL1_DCACHE_SIZE, false},
                {"L2", _SC_LEVEL2_CACHE_SIZE, false},
                {"L3", _SC_LEVEL3_CACHE_SIZE, true}};
  uint64_t last = 0;
  for (auto [name, size, shared] : caches) {
    long found = sysconf(size);
    if (found <= 0) // the system does not say
      continue;
    auto bytes = static_cast<uint64_t>(found);
    last = shared ? bytes : bytes * threads;
    levels.push_back({name, last, bandwidthOf(last / threads / 2, threads)});
  }
  constexpr uint64_t leastOfMemory = 64 << 20;
  levels.push_back(
      {"memory", 0,
       bandwidthOf(std::max(2 * last, leastOfMemory) / threads, threads)});
}

const Machine::Level &Machine::levelOf(uint64_t bytes) const {
  for (const Level &level : levels)
    if (bytes <= level.holds)
      return level;
  return levels.back();
}

std::string Machine::describe() const {
  std::string text = format("%u threads: f32 %.0f GF/s, bf16 %.0f GF/s",
                            threads, 1e-9 * f32, 1e-9 * bf16);
  if (splitF32 > f32)
    text += format(", f32 by bf16 %.0f GF/s", 1e-9 * splitF32);
  for (const Level &level : levels)
    text += format(", %s %.0f GB/s", level.name, 1e-9 * level.bandwidth);
  return text;
}

} // namespace trainc::run
