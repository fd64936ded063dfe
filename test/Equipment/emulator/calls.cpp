//===- calls.cpp - What images call, but for meetings of threads ----------===//
#include "calls.h"
#include "machine.h"

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
