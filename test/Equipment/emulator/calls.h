//===- calls.h - The functions that images call ---------------------------===//
//
// In the order of emulator_abi.def, which says what the parameters are.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_EMULATOR_CALLS_H
#define TRAINC_EMULATOR_CALLS_H

#include <stdint.h>

#pragma GCC visibility push(hidden)
#ifdef __cplusplus
extern "C" {
#endif
void trainc_emu_access(void *address, uint64_t bytes, uint32_t flags,
                       uint32_t site);
void trainc_emu_copy(void *to, const void *from, uint64_t bytes,
                     uint32_t toFlags, uint32_t fromFlags, uint32_t site);
void trainc_emu_fill(void *to, uint32_t byte, uint64_t bytes, uint32_t flags,
                     uint32_t site);
void trainc_emu_fence(void);
void *trainc_emu_shared(uint64_t offset);
uint32_t trainc_emu_special(uint32_t number);
void trainc_emu_barrier(void);
void trainc_emu_warp_sync(uint32_t mask);
uint64_t trainc_emu_shuffle(uint32_t mask, uint32_t value, uint32_t apart,
                            uint32_t clamp);
void trainc_emu_ldmatrix(const void *row, uint32_t matrices,
                         uint32_t transposed, uint32_t *out);
void trainc_emu_mma(uint32_t kind, uint32_t *words);
void trainc_emu_cp_async(void *to, const void *from, uint32_t bytes,
                         uint32_t read);
void trainc_emu_cp_async_commit(void);
void trainc_emu_cp_async_wait(uint32_t groups);

/// The table that images call through.
extern const void *const trainc_emu_table[];
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
