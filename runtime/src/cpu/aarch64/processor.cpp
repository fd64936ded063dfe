//===- processor.cpp - What this AArch64 processor can do -----------------===//

#include "cpu/features.h"
#include "cpu/kernels.h"
#include <stdio.h>
#include <sys/auxv.h>

using namespace trainc;

namespace {
/// A feature by LLVM's name, and its bit of AT_HWCAP or AT_HWCAP2
/// (Documentation/arch/arm64/elf_hwcaps.rst of Linux).
struct Feature {
  const char *name;
  unsigned long word;
  uint8_t bit;
};
} // namespace

// Also those that lib/Target/AArch64.cpp lets code use.
static const Feature features[] = {
    {"fp-armv8", AT_HWCAP, 0},  {"neon", AT_HWCAP, 1},
    {"aes", AT_HWCAP, 3},       {"sha2", AT_HWCAP, 6},
    {"crc", AT_HWCAP, 7},       {"lse", AT_HWCAP, 8},
    {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"jsconv", AT_HWCAP, 13},   {"complxnum", AT_HWCAP, 14},
    {"rcpc", AT_HWCAP, 15},     {"sha3", AT_HWCAP, 17},
    {"dotprod", AT_HWCAP, 20},  {"fp16fml", AT_HWCAP, 23},
    {"lse2", AT_HWCAP, 25},     {"rcpc-immo", AT_HWCAP, 26},
    {"flagm", AT_HWCAP, 27},    {"altnzcv", AT_HWCAP2, 7},
    {"fptoint", AT_HWCAP2, 8},  {"i8mm", AT_HWCAP2, 13},
    {"bf16", AT_HWCAP2, 14},
};

bool trainc::heldToAvx2() { return false; }

bool trainc::hasFeature(const char *name, size_t length) {
  for (const Feature &feature : features)
    if (strlen(feature.name) == length && !memcmp(feature.name, name, length))
      return getauxval(feature.word) >> feature.bit & 1;
  return false;
}

namespace trainc {
extern const Kernels kernelsNeon; // of kernels.cpp
} // namespace trainc

const Kernels &trainc::kernels() { return kernelsNeon; }

/// MIDR_EL1 of the first processor: who made it, and which part it is.
void trainc::appendProcessorName(Text &text) {
  constexpr const char *path =
      "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1";
  unsigned long number = 0;
  if (FILE *file = fopen(path, "re")) {
    if (fscanf(file, "%lx", &number) != 1)
      number = 0;
    fclose(file);
  }
  text.append("AArch64 processor");
  if (number)
    text.format(" (implementer 0x%02lx, part 0x%03lx)", number >> 24 & 0xFF,
                number >> 4 & 0xFFF);
}
