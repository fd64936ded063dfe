//===- calls.cpp - What images call, but for meetings of threads ----------===//
#include "calls.h"
#include "machine.h"
#include <math.h>

using namespace trainc::emu;

//===----------------------------------------------------------------------===//
// Memory and special registers
//===----------------------------------------------------------------------===//

/// An access by an instruction, which reports name.
static void accessAt(const void *address, uint64_t bytes, uint32_t flags,
                     uint32_t site) {
  if (flags >> 8 == TRAINC_EMU_LOCAL)
    return;
  machine->site = site;
  access(reinterpret_cast<uintptr_t>(address), bytes, flags);
  machine->site = 0;
}

void trainc_emu_access(void *address, uint64_t bytes, uint32_t flags,
                       uint32_t site) {
  accessAt(address, bytes, flags, site);
}

void trainc_emu_copy(void *to, const void *from, uint64_t bytes,
                     uint32_t toFlags, uint32_t fromFlags, uint32_t site) {
  accessAt(from, bytes, fromFlags, site);
  accessAt(to, bytes, toFlags, site);
  memmove(to, from, bytes);
}

void trainc_emu_fill(void *to, uint32_t byte, uint64_t bytes, uint32_t flags,
                     uint32_t site) {
  accessAt(to, bytes, flags, site);
  memset(to, static_cast<int>(byte), bytes);
}

void trainc_emu_fence(void) { fence(); }

void *trainc_emu_shared(uint64_t offset) { return machine->shared + offset; }

uint32_t trainc_emu_special(uint32_t number) {
  const trainc_emu &device = *machine;
  const Launch &launch = device.launch;
  uint32_t index = device.current->index, lane = index % kWarp;
  switch (number) {
  case TRAINC_EMU_SPECIAL_TID_X:
    return index % launch.block[0];
  case TRAINC_EMU_SPECIAL_TID_Y:
    return index / launch.block[0] % launch.block[1];
  case TRAINC_EMU_SPECIAL_TID_Z:
    return index / launch.block[0] / launch.block[1];
  case TRAINC_EMU_SPECIAL_NTID_X:
  case TRAINC_EMU_SPECIAL_NTID_Y:
  case TRAINC_EMU_SPECIAL_NTID_Z:
    return launch.block[number - TRAINC_EMU_SPECIAL_NTID_X];
  case TRAINC_EMU_SPECIAL_CTAID_X:
  case TRAINC_EMU_SPECIAL_CTAID_Y:
  case TRAINC_EMU_SPECIAL_CTAID_Z:
    return launch.blockIndex[number - TRAINC_EMU_SPECIAL_CTAID_X];
  case TRAINC_EMU_SPECIAL_NCTAID_X:
  case TRAINC_EMU_SPECIAL_NCTAID_Y:
  case TRAINC_EMU_SPECIAL_NCTAID_Z:
    return launch.grid[number - TRAINC_EMU_SPECIAL_NCTAID_X];
  case TRAINC_EMU_SPECIAL_LANEID:
    return lane;
  case TRAINC_EMU_SPECIAL_WARPID:
    return index / kWarp;
  case TRAINC_EMU_SPECIAL_NWARPID:
    return launch.warps;
  case TRAINC_EMU_SPECIAL_WARPSIZE:
    return kWarp;
  case TRAINC_EMU_SPECIAL_LANEMASK_EQ:
    return 1u << lane;
  case TRAINC_EMU_SPECIAL_LANEMASK_LE:
    return ((1u << lane) - 1) | 1u << lane;
  case TRAINC_EMU_SPECIAL_LANEMASK_LT:
    return (1u << lane) - 1;
  case TRAINC_EMU_SPECIAL_LANEMASK_GE:
    return ~((1u << lane) - 1);
  case TRAINC_EMU_SPECIAL_LANEMASK_GT:
    return ~((1u << lane) - 1) & ~(1u << lane);
  case TRAINC_EMU_SPECIAL_DYNAMIC_SHARED:
    return launch.dynamicBytes;
  default:
    abort(); // the compiler knows no other
  }
}

//===----------------------------------------------------------------------===//
// Conversions that x86-64 may lack
//===----------------------------------------------------------------------===//

static uint32_t bitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// A float whose rounding to fewer bits is that of the double: the last bit is odd
/// where bits were lost.
static float roundToOdd(double value) {
  float rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) == value || __builtin_isnan(value))
    return rounded;
  // Towards zero, then odd.
  uint32_t bits = bitsOf(rounded);
  if (fabs(static_cast<double>(rounded)) > fabs(value))
    --bits;
  bits |= 1;
  memcpy(&rounded, &bits, sizeof(rounded));
  return rounded;
}

uint32_t trainc_emu_narrow_bf16(float value) {
  uint32_t bits = bitsOf(value);
  if (__builtin_isnan(value))
    return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

uint32_t trainc_emu_narrow_bf16_f64(double value) {
  return trainc_emu_narrow_bf16(roundToOdd(value));
}

uint32_t trainc_emu_narrow_f16(float value) {
  uint32_t bits = bitsOf(value), sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7e00 | (magnitude >> 13 & 0x1ff);
  if (magnitude >= 0x477ff000) // rounds to 2^16 or more
    return sign | 0x7c00;
  if (magnitude < 0x38800000) { // smaller than 2^-14: a multiple of 2^-24
    float scaled = fabsf(value) * 0x1p24f;
    return sign | static_cast<uint32_t>(rintf(scaled));
  }
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return sign | ((magnitude >> 13) - (112u << 10));
}

uint32_t trainc_emu_narrow_f16_f64(double value) {
  return trainc_emu_narrow_f16(roundToOdd(value));
}

float trainc_emu_widen_f16(uint32_t bits) {
  uint32_t sign = (bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  uint32_t wide;
  if (magnitude < 0x400) {
    float value = static_cast<float>(magnitude) * 0x1p-24f;
    wide = bitsOf(value) | sign;
  } else {
    wide = sign | (magnitude << 13) +
                      (magnitude >= 0x7c00 ? 0x70000000u : 0x38000000u);
  }
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}
