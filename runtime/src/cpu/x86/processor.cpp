//===- processor.cpp - What this x86-64 processor can do ------------------===//

#include "cpu/features.h"
#include "cpu/kernels.h"
#include <cpuid.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace trainc;

namespace {
enum Register : uint8_t { EAX, EBX, ECX, EDX };
/// Register state that the operating system must save for a feature.
enum Saved : uint8_t { NONE, YMM, ZMM, TILE };

struct Feature {
  const char *name;
  uint32_t leaf, subleaf;
  Register reg;
  uint8_t bit;
  Saved saved;
};
} // namespace

static const Feature features[] = {
    {"cmov", 1, 0, EDX, 15, NONE},
    {"cx8", 1, 0, EDX, 8, NONE},
    {"fxsr", 1, 0, EDX, 24, NONE},
    {"mmx", 1, 0, EDX, 23, NONE},
    {"x87", 1, 0, EDX, 0, NONE},
    {"sse", 1, 0, EDX, 25, NONE},
    {"sse2", 1, 0, EDX, 26, NONE},
    {"sse3", 1, 0, ECX, 0, NONE},
    {"pclmul", 1, 0, ECX, 1, NONE},
    {"ssse3", 1, 0, ECX, 9, NONE},
    {"fma", 1, 0, ECX, 12, YMM},
    {"cx16", 1, 0, ECX, 13, NONE},
    {"sse4.1", 1, 0, ECX, 19, NONE},
    {"sse4.2", 1, 0, ECX, 20, NONE},
    {"crc32", 1, 0, ECX, 20, NONE},
    {"movbe", 1, 0, ECX, 22, NONE},
    {"popcnt", 1, 0, ECX, 23, NONE},
    {"aes", 1, 0, ECX, 25, NONE},
    {"xsave", 1, 0, ECX, 26, NONE},
    {"avx", 1, 0, ECX, 28, YMM},
    {"f16c", 1, 0, ECX, 29, YMM},
    {"rdrnd", 1, 0, ECX, 30, NONE},
    {"fsgsbase", 7, 0, EBX, 0, NONE},
    {"sgx", 7, 0, EBX, 2, NONE},
    {"bmi", 7, 0, EBX, 3, NONE},
    {"avx2", 7, 0, EBX, 5, YMM},
    {"bmi2", 7, 0, EBX, 8, NONE},
    {"invpcid", 7, 0, EBX, 10, NONE},
    {"rtm", 7, 0, EBX, 11, NONE},
    {"avx512f", 7, 0, EBX, 16, ZMM},
    {"avx512dq", 7, 0, EBX, 17, ZMM},
    {"rdseed", 7, 0, EBX, 18, NONE},
    {"adx", 7, 0, EBX, 19, NONE},
    {"avx512ifma", 7, 0, EBX, 21, ZMM},
    {"clflushopt", 7, 0, EBX, 23, NONE},
    {"clwb", 7, 0, EBX, 24, NONE},
    {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"sha", 7, 0, EBX, 29, NONE},
    {"avx512bw", 7, 0, EBX, 30, ZMM},
    {"avx512vl", 7, 0, EBX, 31, ZMM},
    {"avx512vbmi", 7, 0, ECX, 1, ZMM},
    {"pku", 7, 0, ECX, 4, NONE},
    {"waitpkg", 7, 0, ECX, 5, NONE},
    {"avx512vbmi2", 7, 0, ECX, 6, ZMM},
    {"shstk", 7, 0, ECX, 7, NONE},
    {"gfni", 7, 0, ECX, 8, NONE},
    {"vaes", 7, 0, ECX, 9, YMM},
    {"vpclmulqdq", 7, 0, ECX, 10, YMM},
    {"avx512vnni", 7, 0, ECX, 11, ZMM},
    {"avx512bitalg", 7, 0, ECX, 12, ZMM},
    {"avx512vpopcntdq", 7, 0, ECX, 14, ZMM},
    {"rdpid", 7, 0, ECX, 22, NONE},
    {"kl", 7, 0, ECX, 23, NONE},
    {"cldemote", 7, 0, ECX, 25, NONE},
    {"movdiri", 7, 0, ECX, 27, NONE},
    {"movdir64b", 7, 0, ECX, 28, NONE},
    {"enqcmd", 7, 0, ECX, 29, NONE},
    {"uintr", 7, 0, EDX, 5, NONE},
    {"avx512vp2intersect", 7, 0, EDX, 8, ZMM},
    {"serialize", 7, 0, EDX, 14, NONE},
    {"tsxldtrk", 7, 0, EDX, 16, NONE},
    {"pconfig", 7, 0, EDX, 18, NONE},
    {"amx-bf16", 7, 0, EDX, 22, TILE},
    {"avx512fp16", 7, 0, EDX, 23, ZMM},
    {"amx-tile", 7, 0, EDX, 24, TILE},
    {"amx-int8", 7, 0, EDX, 25, TILE},
    {"sha512", 7, 1, EAX, 0, YMM},
    {"sm3", 7, 1, EAX, 1, YMM},
    {"sm4", 7, 1, EAX, 2, YMM},
    {"raoint", 7, 1, EAX, 3, NONE},
    {"avxvnni", 7, 1, EAX, 4, YMM},
    {"avx512bf16", 7, 1, EAX, 5, ZMM},
    {"cmpccxadd", 7, 1, EAX, 7, NONE},
    {"amx-fp16", 7, 1, EAX, 21, TILE},
    {"hreset", 7, 1, EAX, 22, NONE},
    {"avxifma", 7, 1, EAX, 23, YMM},
    {"avxvnniint8", 7, 1, EDX, 4, YMM},
    {"avxneconvert", 7, 1, EDX, 5, YMM},
    {"amx-complex", 7, 1, EDX, 8, TILE},
    {"avxvnniint16", 7, 1, EDX, 10, YMM},
    {"prefetchi", 7, 1, EDX, 14, NONE},
    {"usermsr", 7, 1, EDX, 15, NONE},
    {"avx10.1", 7, 1, EDX, 19, ZMM},
    {"xsaveopt", 0xD, 1, EAX, 0, NONE},
    {"xsavec", 0xD, 1, EAX, 1, NONE},
    {"xsaves", 0xD, 1, EAX, 3, NONE},
    {"ptwrite", 0x14, 0, EBX, 4, NONE},
    {"widekl", 0x19, 0, EBX, 2, NONE},
    {"sahf", 0x80000001, 0, ECX, 0, NONE},
    {"lzcnt", 0x80000001, 0, ECX, 5, NONE},
    {"sse4a", 0x80000001, 0, ECX, 6, NONE},
    {"prfchw", 0x80000001, 0, ECX, 8, NONE},
    {"xop", 0x80000001, 0, ECX, 11, YMM},
    {"lwp", 0x80000001, 0, ECX, 15, NONE},
    {"fma4", 0x80000001, 0, ECX, 16, YMM},
    {"tbm", 0x80000001, 0, ECX, 21, NONE},
    {"mwaitx", 0x80000001, 0, ECX, 29, NONE},
    {"64bit", 0x80000001, 0, EDX, 29, NONE},
    {"clzero", 0x80000008, 0, EBX, 0, NONE},
    {"rdpru", 0x80000008, 0, EBX, 4, NONE},
    {"wbnoinvd", 0x80000008, 0, EBX, 9, NONE},
};

bool trainc::heldToAvx2() {
  const char *only = getenv("TRAINC_AVX2_ONLY");
  return only && *only;
}

/// Whether the system keeps tile registers for this process, all of whose threads
/// may use them then. It does so on request.
static bool permitsTiles() {
  constexpr long requestPermission = 0x1023, tileData = 18;
  static int known; // 0: not yet, 1: no, 2: yes
  int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer == 0) {
    answer = syscall(SYS_arch_prctl, requestPermission, tileData) ? 1 : 2;
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer == 2;
}

static bool savedByOS(Saved saved) {
  uint32_t a, b, c, d;
  if (saved == NONE)
    return true;
  if (saved != YMM && heldToAvx2())
    return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)))
    return false;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  uint32_t wanted = saved == YMM ? 0x6 : saved == ZMM ? 0xE6 : 0x60006;
  return (low & wanted) == wanted && (saved != TILE || permitsTiles());
}

bool trainc::hasFeature(const char *name, size_t length) {
  for (const Feature &feature : features) {
    if (strlen(feature.name) != length || memcmp(feature.name, name, length))
      continue;
    uint32_t r[4];
    return __get_cpuid_count(feature.leaf, feature.subleaf, &r[EAX], &r[EBX],
                             &r[ECX], &r[EDX]) &&
           (r[feature.reg] >> feature.bit & 1) && savedByOS(feature.saved);
  }
  return false;
}

namespace trainc {
extern const Kernels kernelsV2, kernelsV3, kernelsV4; // of kernels.cpp
} // namespace trainc

const Kernels &trainc::kernels() {
  static const Kernels *chosen;
  const Kernels *table = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (table)
    return *table;
  Text missing;
  table = &kernelsV4;
  appendMissingFeatures("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi,"
                        "bmi2,f16c,fma,lzcnt,movbe",
                        missing);
  if (missing.size()) {
    missing.clear();
    table = &kernelsV3;
    appendMissingFeatures("avx2,bmi,bmi2,f16c,fma,lzcnt,movbe", missing);
  }
  if (missing.size())
    table = &kernelsV2;
  __atomic_store_n(&chosen, table, __ATOMIC_RELAXED);
  return *table;
}

void trainc::appendProcessorName(Text &text) {
  uint32_t r[13] = {};
  for (uint32_t i = 0; i < 3; ++i)
    if (!__get_cpuid(0x80000002 + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2],
                     &r[4 * i + 3]))
      return text.append("x86-64 processor");
  const char *name = reinterpret_cast<const char *>(r);
  text.append(name + strspn(name, " "));
}
