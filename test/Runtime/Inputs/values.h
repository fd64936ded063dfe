//===- values.h - Values of all float types, and what the CPU has -*- C -*-===//
#ifndef VALUES_H
#define VALUES_H

#include "handmade.h"

static uint64_t random_state = 88172645463325252ull;
static double random_value(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (double)(random_state >> 11) * 0x1p-53 * 2 - 1;
}

static size_t size_of(uint32_t dtype) { return trainc_dtype_size(dtype); }

static double get(uint32_t dtype, const char *data, int64_t i) {
  float value;
  double wide;
  uint16_t half;
  uint32_t bits;
  switch (dtype) {
  case TRAINC_F32:
    memcpy(&value, data + 4 * i, 4);
    return value;
  case TRAINC_F64:
    memcpy(&wide, data + 8 * i, 8);
    return wide;
  case TRAINC_BF16:
    memcpy(&half, data + 2 * i, 2);
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, 4);
    return value;
  default:
    memcpy(&half, data + 2 * i, 2);
    int exponent = half >> 10 & 31, fraction = half & 1023;
    wide =
        exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -wide : wide;
  }
}
/// Stores a value that is exact in every type: a multiple of 1/64 below 2.
static void put(uint32_t dtype, char *data, int64_t i, double value) {
  float narrow = (float)(value = rint(value * 64) / 64);
  uint32_t bits;
  uint16_t half;
  memcpy(&bits, &narrow, 4);
  switch (dtype) {
  case TRAINC_F32:
    memcpy(data + 4 * i, &narrow, 4);
    return;
  case TRAINC_F64:
    memcpy(data + 8 * i, &value, 8);
    return;
  case TRAINC_BF16:
    half = (uint16_t)(bits >> 16);
    break;
  default:
    half = (uint16_t)(narrow == 0 ? 0
                                  : (bits >> 16 & 0x8000) |
                                        (((bits >> 23 & 255) - 112) << 10) |
                                        (bits >> 13 & 1023));
  }
  memcpy(data + 2 * i, &half, 2);
}

/// Random values in all of an array.
static void fill(uint32_t dtype, char *data, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / size_of(dtype); ++i)
    put(dtype, data, (int64_t)i, random_value());
}

/// Whether the CPU has a feature beyond AVX-512, by its name in /proc/cpuinfo,
/// and may use it. In an emulator that file is of the machine around it.
static int has(const char *feature) {
#if defined(__x86_64__)
  static char text[1 << 14];
  if (!*text) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
  }
  return __builtin_cpu_supports("avx512bw") && !getenv("TRAINC_AVX2_ONLY") &&
         strstr(text, feature);
#else
  (void)feature;
  return 0;
#endif
}

#endif // VALUES_H
