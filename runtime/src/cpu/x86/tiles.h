//===- tiles.h - The shape of tile registers --------------------*- C++ -*-===//
#ifndef TRAINC_CPU_X86_TILES_H
#define TRAINC_CPU_X86_TILES_H

#include <stdint.h>

namespace trainc {

/// All eight of 16 rows of 64 bytes, as _tile_loadconfig takes it.
struct WholeTiles {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

} // namespace trainc

#endif // TRAINC_CPU_X86_TILES_H
