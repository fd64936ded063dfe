//===- checksum.cpp - CRC-32C of bytes that come in any order -------------===//
//
// A remainder is a polynomial over GF(2) of 32 coefficients, the highest power in the
// lowest bit. A run of zeros of n bytes multiplies it by x^(8 n).
//
//===----------------------------------------------------------------------===//

#include "core/checksum.h"
#include "cpu/features.h"

using namespace trainc;

/// x^32 modulo the polynomial.
static constexpr uint32_t polynomial = 0x82F63B78;

static constexpr uint32_t timesX(uint32_t a) {
  return a >> 1 ^ (a & 1 ? polynomial : 0);
}

static constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a; a <<= 1, b = timesX(b))
    product ^= a >> 31 ? b : 0;
  return product;
}

namespace {
struct Tables {
  uint32_t power[64];      // [i]: x^(8 2^i)
  uint32_t remain[8][256]; // [i][b]: what byte b and i bytes of zeros leave

  constexpr Tables() : power(), remain() {
    power[0] = 1u << 23;
    for (int i = 1; i < 64; ++i)
      power[i] = multiply(power[i - 1], power[i - 1]);
    for (uint32_t b = 0; b < 256; ++b) {
      uint32_t left = b;
      for (int i = 0; i < 64; ++i) {
        left = timesX(left);
        if (i % 8 == 7)
          remain[i / 8][b] = left;
      }
    }
  }
};
} // namespace

static constexpr Tables tables;

static constexpr uint32_t powerOf(uint64_t bytes) {
  uint32_t power = 1u << 31;
  for (int i = 0; bytes; ++i, bytes >>= 1)
    if (bytes & 1)
      power = multiply(power, tables.power[i]);
  return power;
}

uint32_t trainc::crcShift(uint32_t remainder, uint64_t bytes) {
  return multiply(powerOf(bytes), remainder);
}

uint32_t trainc::crcRemainderPortable(uint32_t before, const void *data,
                                      uint64_t bytes) {
  auto *from = static_cast<const unsigned char *>(data);
  for (; bytes >= 8; bytes -= 8, from += 8) {
    uint64_t word;
    memcpy(&word, from, 8);
    word ^= before;
    before = 0;
    for (int i = 0; i < 8; ++i)
      before ^= tables.remain[7 - i][word >> 8 * i & 0xFF];
  }
  for (; bytes; --bytes, ++from)
    before = before >> 8 ^ tables.remain[0][(before ^ *from) & 0xFF];
  return before;
}

// An instruction of the CPU that adds bytes to a remainder.
#if defined(__x86_64__)
#define TRAINC_CRC "sse4.2"
__attribute__((target(TRAINC_CRC))) static inline uint32_t
addWord(uint32_t before, uint64_t word) {
  return static_cast<uint32_t>(__builtin_ia32_crc32di(before, word));
}
__attribute__((target(TRAINC_CRC))) static inline uint32_t
addByte(uint32_t before, unsigned char byte) {
  return __builtin_ia32_crc32qi(before, byte);
}
#else
#define TRAINC_CRC "crc"
__attribute__((target(TRAINC_CRC))) static inline uint32_t
addWord(uint32_t before, uint64_t word) {
  return __builtin_arm_crc32cd(before, word);
}
__attribute__((target(TRAINC_CRC))) static inline uint32_t
addByte(uint32_t before, unsigned char byte) {
  return __builtin_arm_crc32cb(before, byte);
}
#endif

/// Three thirds at once: an instruction takes three cycles, and one begins in each.
static constexpr uint64_t thirdBytes = 4096;

__attribute__((target(TRAINC_CRC))) static uint32_t
crcRemainderByInstruction(uint32_t a, const void *data, uint64_t bytes) {
  constexpr uint32_t shiftOne = powerOf(thirdBytes);
  auto *from = static_cast<const unsigned char *>(data);
  auto load = [](const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
  };
  for (; bytes >= 3 * thirdBytes;
       bytes -= 3 * thirdBytes, from += 3 * thirdBytes) {
    uint32_t b = 0, c = 0;
    for (uint64_t i = 0; i < thirdBytes; i += 8) {
      a = addWord(a, load(from + i));
      b = addWord(b, load(from + thirdBytes + i));
      c = addWord(c, load(from + 2 * thirdBytes + i));
    }
    a = multiply(shiftOne, multiply(shiftOne, a) ^ b) ^ c;
  }
  for (; bytes >= 8; bytes -= 8, from += 8)
    a = addWord(a, load(from));
  for (; bytes; --bytes, ++from)
    a = addByte(a, *from);
  return a;
}

uint32_t trainc::crcRemainder(uint32_t before, const void *data,
                              uint64_t bytes) {
  static uint32_t known; // 0: not yet, 1: no, 2: yes
  uint32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (!answer) {
    answer = hasFeature(TRAINC_CRC) ? 2 : 1;
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer == 2 ? crcRemainderByInstruction(before, data, bytes)
                     : crcRemainderPortable(before, data, bytes);
}

void trainc::appendChecksum(Text &text, uint32_t checksum) {
  text.format("crc32c:%08x", checksum);
}

bool trainc::parseChecksum(const char *text, uint32_t &checksum) {
  if (strncmp(text, "crc32c:", 7) != 0 || strlen(text) != 15 ||
      strspn(text + 7, "0123456789abcdef") != 8)
    return false;
  checksum = static_cast<uint32_t>(strtoul(text + 7, nullptr, 16));
  return true;
}
