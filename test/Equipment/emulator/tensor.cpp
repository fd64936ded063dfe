//===- tensor.cpp - mma.sync, ldmatrix, cp.async --------------------------===//
//
// Fragments are laid out as the PTX ISA says under "Matrix Fragments for
// mma.m16n8k16" and its neighbours: lane = 4 * group + place.
//
//===----------------------------------------------------------------------===//
#include "calls.h"
#include "cpu/halves.h"
#include "machine.h"

using namespace trainc::emu;

/// These operations are of the whole warp (.aligned).
static constexpr uint32_t kAll = ~0u;

//===----------------------------------------------------------------------===//
// mma.sync
//===----------------------------------------------------------------------===//

/// A product is 16 x 8, of depth 16; words of a and b that a lane brings.
static constexpr uint32_t kDepth = 16, kWordsA = 4, kWordsB = 2;

static float fromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// The i-th half of a word, as a number.
static float half(uint32_t kind, uint32_t word, uint32_t i) {
  uint32_t bits = word >> 16 * i & 0xffff;
  bool bf16 = kind == TRAINC_EMU_MMA_BF16;
  return bf16 ? fromBits(bits << 16) : widenF16(static_cast<uint16_t>(bits));
}

/// The matrices of a product, gathered from the lanes.
struct Operands {
  float a[16][kDepth], b[kDepth][8];
};

static void gather(Lane **lanes, uint32_t kind, Operands &operands) {
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    const uint32_t *words = static_cast<uint32_t *>(lanes[lane]->memory);
    uint32_t group = lane / 4, place = lane % 4;
    for (uint32_t i = 0; i < 2; ++i) {
      for (uint32_t word = 0; word < kWordsA; ++word)
        operands.a[group + 8 * (word & 1)][place * 2 + i + 8 * (word >> 1)] =
            half(kind, words[word], i);
      for (uint32_t word = 0; word < kWordsB; ++word)
        operands.b[place * 2 + i + 8 * word][group] =
            half(kind, words[kWordsA + word], i);
    }
  }
}

/// Products that tensor cores add up at a time. The sum is not rounded, but cut off.
static constexpr uint32_t kStep = 8;

static float roundTowardZero(double value) {
  float rounded = static_cast<float>(value);
  if (__builtin_isinf(rounded) || __builtin_isnan(rounded) ||
      __builtin_fabs(static_cast<double>(rounded)) <= __builtin_fabs(value))
    return rounded;
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof(bits));
  return fromBits(bits - 1);
}

static void multiply(Lane **lanes, uint32_t) {
  uint32_t kind = lanes[0]->detail;
  Operands operands;
  gather(lanes, kind, operands);
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    uint32_t *c =
        static_cast<uint32_t *>(lanes[lane]->memory) + kWordsA + kWordsB;
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t row = lane / 4 + 8 * (i >> 1), column = lane % 4 * 2 + (i & 1);
      float sum = fromBits(c[i]);
      for (uint32_t first = 0; first < kDepth; first += kStep) {
        double exact = static_cast<double>(sum);
        for (uint32_t k = first; k < first + kStep; ++k)
          exact += static_cast<double>(operands.a[row][k]) *
                   static_cast<double>(operands.b[k][column]);
        sum = roundTowardZero(exact);
      }
      memcpy(&c[i], &sum, sizeof(sum));
    }
  }
}

void trainc_emu_mma(uint32_t kind, uint32_t *words) {
  Lane lane = makeLane(multiply, "mma.sync", kAll, kind);
  lane.memory = words;
  meet(lane);
}

//===----------------------------------------------------------------------===//
// ldmatrix
//===----------------------------------------------------------------------===//

/// The address of a row is in a lane's `value`, the place of the words that it gets
/// in `memory`; `detail` is the number of matrices, and bit 8 is set if transposed.
/// A lane gives a row and gets words of others: both are checked, so that order is
/// checked between the threads that wrote and the one that gets.
static void loadMatrices(Lane **lanes, uint32_t) {
  trainc_emu &device = *machine;
  Thread *warp = device.current - device.current->index % kWarp;
  uint32_t matrices = lanes[0]->detail & 0xff;
  bool transposed = lanes[0]->detail >> 8;
  constexpr uint32_t kRead = TRAINC_EMU_READ, kShared = TRAINC_EMU_SHARED;
  for (uint32_t matrix = 0; matrix < matrices; ++matrix) {
    Lane **rows = lanes + 8 * matrix;
    for (uint32_t row = 0; row < 8; ++row) {
      device.current = &warp[8 * matrix + row];
      access(rows[row]->value, 16, TRAINC_EMU_FLAGS(kRead, 4u, kShared));
    }
    for (uint32_t self = 0; self < kWarp; ++self) {
      device.current = &warp[self];
      uint32_t group = self / 4, place = self % 4, word = 0;
      for (uint32_t i = 0; i < 2; ++i) {
        uint32_t row = transposed ? place * 2 + i : group;
        uint32_t column = transposed ? group : place * 2 + i;
        uintptr_t address = rows[row]->value + 2 * column;
        access(address & ~uintptr_t(3), 4,
               TRAINC_EMU_FLAGS(kRead, 2u, kShared));
        uint16_t bits;
        memcpy(&bits, reinterpret_cast<char *>(address), sizeof(bits));
        word |= static_cast<uint32_t>(bits) << 16 * i;
      }
      static_cast<uint32_t *>(lanes[self]->memory)[matrix] = word;
    }
  }
}

void trainc_emu_ldmatrix(const void *row, uint32_t matrices,
                         uint32_t transposed, uint32_t *out) {
  Lane lane =
      makeLane(loadMatrices, "ldmatrix", kAll, matrices | transposed << 8);
  lane.memory = out;
  lane.value = reinterpret_cast<uintptr_t>(row);
  Thread *self = machine->current;
  meet(lane);
  machine->current = self;
}

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

void trainc_emu_cp_async(void *to, const void *from, uint32_t bytes,
                         uint32_t read) {
  trainc_emu &device = *machine;
  Thread &thread = *device.current;
  uint32_t log2 = static_cast<uint32_t>(__builtin_ctz(bytes));
  Copy copy = {reinterpret_cast<uintptr_t>(to),
               reinterpret_cast<uintptr_t>(from), bytes,
               read < bytes ? read : bytes, thread.group};
  access(copy.to, bytes,
         TRAINC_EMU_FLAGS(uint32_t(TRAINC_EMU_WRITE), log2,
                          uint32_t(TRAINC_EMU_SHARED)));
  access(copy.from, copy.read,
         TRAINC_EMU_FLAGS(uint32_t(TRAINC_EMU_READ), log2,
                          uint32_t(TRAINC_EMU_GLOBAL)));
  if (!thread.copies.push(copy)) {
    beginFault(TRAINC_EMU_OUT_OF_MEMORY, "no memory to remember a cp.async");
    endFault();
  }
  ++device.launch.copies;
  size_t offset = copy.to - device.sharedRegion.base;
  for (size_t i = 0; i < bytes; ++i)
    device.pending[offset + i] = static_cast<uint16_t>(thread.index + 1);
  memset(to, 0xff, bytes);
}

void trainc_emu_cp_async_commit(void) { ++machine->current->group; }

void trainc_emu_cp_async_wait(uint32_t groups) {
  Thread &thread = *machine->current;
  if (groups == UINT32_MAX)
    finishCopies(thread, UINT32_MAX);
  else if (groups < thread.group)
    finishCopies(thread, thread.group - groups);
}
