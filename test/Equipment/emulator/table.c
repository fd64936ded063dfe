//===- table.c - The table that images call through -----------------------===//
//
// In C, where the names of libm are not overloaded.
//
//===----------------------------------------------------------------------===//
#include "calls.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/// What TRAINC_EMULATOR_ULPS says when the library is loaded.
static uint32_t ulps;
__attribute__((constructor)) static void readUlps(void) {
  const char *text = getenv("TRAINC_EMULATOR_ULPS");
  ulps = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

/// Another number, up to `ulps` units away: always the same one for a number.
static float disturb(float value) {
  if (!ulps || !isnormal(value))
    return value;
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  uint32_t hash = bits * 2654435761u;
  bits += (hash >> 8) % (2 * ulps + 1) - ulps;
  float other;
  memcpy(&other, &bits, sizeof(other));
  return isnormal(other) ? other : value;
}

static float rsqrtf(float x) { return (float)(1 / sqrt((double)x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

// Functions that are approximations on GPUs and that kernels use.
#define APPROXIMATE(name)                                                      \
  static float near_##name(float x) { return disturb(name(x)); }
#define APPROXIMATE2(name)                                                     \
  static float near_##name(float x, float y) { return disturb(name(x, y)); }
APPROXIMATE(cosf)
APPROXIMATE(erff)
APPROXIMATE(expf)
APPROXIMATE(exp2f)
APPROXIMATE(expm1f)
APPROXIMATE(logf)
APPROXIMATE(log1pf)
APPROXIMATE(log2f)
APPROXIMATE(rsqrtf)
APPROXIMATE(sinf)
APPROXIMATE(tanhf)
APPROXIMATE2(powf)
#define cosf near_cosf
#define erff near_erff
#define expf near_expf
#define exp2f near_exp2f
#define expm1f near_expm1f
#define logf near_logf
#define log1pf near_log1pf
#define log2f near_log2f
#define rsqrtf near_rsqrtf
#define sinf near_sinf
#define tanhf near_tanhf
#define powf near_powf

const void *const trainc_emu_table[] = {
#define TRAINC_EMU_FUNCTION(name, signature) (const void *)&trainc_emu_##name,
#include "trainc/Target/GPU/emulator_abi.def"
#define TRAINC_EMU_MATH(name, signature) (const void *)&name,
#include "trainc/Target/GPU/emulator_abi.def"
};
