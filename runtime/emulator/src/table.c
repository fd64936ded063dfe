//===- table.c - The table that images call through -----------------------===//
//
// In C, where the names of libm are not overloaded.
//
//===----------------------------------------------------------------------===//
#include "calls.h"
#include <math.h>

static float rsqrtf(float x) { return (float)(1 / sqrt((double)x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

const void *const trainc_emu_table[] = {
#define TRAINC_EMU_FUNCTION(name, signature) (const void *)&trainc_emu_##name,
#include "trainc/emulator_abi.def"
#define TRAINC_EMU_MATH(name, signature) (const void *)&name,
#include "trainc/emulator_abi.def"
};
