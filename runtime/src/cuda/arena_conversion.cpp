//===- arena_conversion.cpp - Converting arenas of a GPU -------------------===//

#include "cuda/arena_conversion.h"
#include "core/access.h"
#include "core/convert.h"
#include "cuda/executor.h"

using namespace trainc;
using namespace trainc::cuda;

uint64_t trainc::cuda::bytesToConvert(uint64_t bytes) {
  // In whole numbers, rounded up.
  return ((bytes / 256 + 1) * 256 * 6 + 4) / 5;
}

static uint64_t heldBytes(const trainc_arena &arena) {
  return alignUp(arena.bytes, pageBytes());
}

//===----------------------------------------------------------------------===//
// Plan
//===----------------------------------------------------------------------===//

static bool grows(const State &now, const State &after, uint32_t arena) {
  return after.arenas[arena].bytes > now.arenas[arena].bytes;
}

trainc_status trainc::cuda::planConversion(const trainc_trainer *trainer,
                                           const State &after, uint64_t limit,
                                           ArenaPlan &plan) {
  const State &now = trainer->state;
  uint64_t left = 0;
  TRAINC_TRY(freeMemory(*trainer->gpu, &left));
  uint64_t held = trainer->account.held;
  for (uint64_t most : {limit, trainer->limit}) {
    if (most && held > most)
      return fail(TRAINC_OUT_OF_MEMORY,
                  "the conversion needs %llu bytes; memory_limit is %llu",
                  static_cast<unsigned long long>(held),
                  static_cast<unsigned long long>(most));
    if (most && left > most - held)
      left = most - held;
  }
  Array<ArenaMove> sorted;
  for (bool growing : {false, true})
    for (const ArenaMove &move : plan.moves)
      if (grows(now, after, move.arena) == growing)
        sorted.push(move);
  for (ArenaMove &move : sorted) {
    uint64_t before = heldBytes(now.arenas[move.arena]);
    uint64_t wanted = heldBytes(after.arenas[move.arena]);
    move.byHost = left < bytesToConvert(wanted);
    if (wanted > left + before)
      return fail(TRAINC_OUT_OF_MEMORY,
                  "the conversion needs %llu bytes for arena '%s' on the GPU, "
                  "where %llu are free, with the %llu that it has now",
                  static_cast<unsigned long long>(wanted),
                  now.arenas[move.arena].name,
                  static_cast<unsigned long long>(left + before),
                  static_cast<unsigned long long>(before));
    left = left + before - wanted;
  }
  plan.moves.swap(sorted);
  uint64_t most = 0;
  for (const ArenaMove &move : plan.moves)
    if (move.byHost && now.pages[move.arena].size() > most)
      most = now.pages[move.arena].size();
  if (most && !plan.host.allocate(most, plan.aside))
    return failAllocation(most, "an arena that is converted");
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

namespace {
/// The conversion of one arena.
struct Mover {
  trainc_trainer *trainer;
  State &after;
  uint32_t arena;
  const char *host; // the old arena's content, or null: it is on the device
  Array<char> from, to;

  trainc_status moveAll();
  trainc_status moveTensor(uint32_t index);
};
} // namespace

trainc_status Mover::moveTensor(uint32_t index) {
  const State &now = trainer->state;
  const trainc_tensor &had = now.tensors[index], &has = after.tensors[index];
  Range source = rangeIn(now, *trainer->d, trainer->ranks, index);
  Range target = rangeIn(after, *trainer->d, trainer->ranks, index);
  uint64_t fromSize = trainc_dtype_size(had.dtype);
  uint64_t toSize = trainc_dtype_size(has.dtype);
  uint64_t most = accessBytes / (fromSize > toSize ? fromSize : toSize);
  for (uint64_t first = 0; first < target.count;) {
    uint64_t rest = target.count - first, count = rest < most ? rest : most;
    uint64_t at = source.offset + first * fromSize;
    from.resize(count * fromSize);
    to.resize(count * toSize);
    if (!host)
      TRAINC_TRY(readMemory(*trainer->gpu, now.pages[arena].data() + at,
                            from.data(), from.size()));
    convert(had.dtype, host ? host + at : from.data(), has.dtype, to.data(),
            count);
    TRAINC_TRY(
        writeMemory(*trainer->gpu,
                    after.pages[arena].data() + target.offset + first * toSize,
                    to.data(), to.size()));
    first += count;
  }
  return TRAINC_OK;
}

trainc_status Mover::moveAll() {
  for (uint32_t i = 0; i < after.tensors.size(); ++i)
    if (after.tensors[i].arena == arena && !after.isCopy(after.tensors[i]))
      TRAINC_TRY(moveTensor(i));
  return TRAINC_OK;
}

/// The old arena's content is on the host while the new one is made.
static trainc_status moveByHost(trainc_trainer *trainer, State &after,
                                uint32_t arena, const Pages &host) {
  Pages &old = trainer->state.pages[arena];
  TRAINC_TRY(readMemory(*trainer->gpu, old.data(), host.data(), old.size()));
  TRAINC_TRY(releaseArena(trainer, old));
  TRAINC_TRY(allocateArena(trainer, after.arenas[arena], after.pages[arena]));
  return Mover{trainer, after, arena, host.data(), {}, {}}.moveAll();
}

static trainc_status moveBeside(trainc_trainer *trainer, State &after,
                                uint32_t arena) {
  TRAINC_TRY(allocateArena(trainer, after.arenas[arena], after.pages[arena]));
  TRAINC_TRY((Mover{trainer, after, arena, nullptr, {}, {}}.moveAll()));
  return releaseArena(trainer, trainer->state.pages[arena]);
}

trainc_status trainc::cuda::runConversion(trainc_trainer *trainer, State &after,
                                          ArenaPlan &plan) {
  trainer->account.peak = trainer->account.held;
  for (const ArenaMove &move : plan.moves) {
    trainc_status moved =
        move.byHost ? moveByHost(trainer, after, move.arena, plan.host)
                    : moveBeside(trainer, after, move.arena);
    TRAINC_TRY(keep(*trainer->gpu, moved)); // an arena may be gone
    ++(move.byHost ? trainer->convertedByHost : trainer->convertedBeside);
  }
  return TRAINC_OK;
}
