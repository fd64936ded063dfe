//===- sums.h - Sums and copies of what several ranks have ------*- C++ -*-===//
//
// For kernels.cpp only, as halves.h.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_SUMS_H
#define TRAINC_CPU_SUMS_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace {

template <typename T> inline T same(T value) { return value; }

/// ((x0 + x1) + x2) + ..., rounded once. A block of each source is read before
/// the block of `to` is written, so `to` may be a source; no other overlap.
template <typename T, typename Wide, Wide (*Widen)(T), T (*Narrow)(Wide)>
void sum(const void *const *sources, unsigned number, void *to, int64_t count) {
  constexpr int64_t block = 256;
  Wide sums[block];
  for (int64_t i = 0; i < count; i += block) {
    int64_t size = count - i < block ? count - i : block;
    const T *first = static_cast<const T *>(sources[0]) + i;
    for (int64_t j = 0; j < size; ++j)
      sums[j] = Widen(first[j]);
    for (unsigned s = 1; s < number; ++s) {
      const T *source = static_cast<const T *>(sources[s]) + i;
      for (int64_t j = 0; j < size; ++j)
        sums[j] = sums[j] + Widen(source[j]);
    }
    T *out = static_cast<T *>(to) + i;
    for (int64_t j = 0; j < size; ++j)
      out[j] = Narrow(sums[j]);
  }
}

#if TRAINC_LEVEL == 4
typedef __m512i StreamedLine;
inline StreamedLine loadLine(const char *from) {
  return _mm512_loadu_si512(from);
}
inline void streamLine(char *to, StreamedLine line) {
  _mm512_stream_si512(reinterpret_cast<__m512i *>(to), line);
}
#elif TRAINC_LEVEL == 3
typedef __m256i StreamedLine;
inline StreamedLine loadLine(const char *from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(from));
}
inline void streamLine(char *to, StreamedLine line) {
  _mm256_stream_si256(reinterpret_cast<__m256i *>(to), line);
}
#else
typedef __m128i StreamedLine;
inline StreamedLine loadLine(const char *from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i_u *>(from));
}
inline void streamLine(char *to, StreamedLine line) {
  _mm_stream_si128(reinterpret_cast<__m128i *>(to), line);
}
#endif

/// A copy past the caches, which spares reading what is overwritten.
inline void streamBytes(void *to, const void *from, uint64_t bytes) {
  constexpr uint64_t line = sizeof(StreamedLine);
  char *out = static_cast<char *>(to);
  const char *in = static_cast<const char *>(from);
  uint64_t head = -reinterpret_cast<uintptr_t>(out) % line;
  head = head < bytes ? head : bytes;
  memcpy(out, in, head);
  uint64_t i = head;
  for (; i + 4 * line <= bytes; i += 4 * line) {
    StreamedLine a = loadLine(in + i), b = loadLine(in + i + line),
                 c = loadLine(in + i + 2 * line),
                 d = loadLine(in + i + 3 * line);
    streamLine(out + i, a);
    streamLine(out + i + line, b);
    streamLine(out + i + 2 * line, c);
    streamLine(out + i + 3 * line, d);
  }
  memcpy(out + i, in + i, bytes - i);
  _mm_sfence();
}

} // namespace

#endif // TRAINC_CPU_SUMS_H
