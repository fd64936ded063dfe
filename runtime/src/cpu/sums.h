//===- sums.h - Sums and copies of what several ranks have ------*- C++ -*-===//
//
// For kernels.cpp only, as halves.h.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_SUMS_H
#define TRAINC_CPU_SUMS_H

#include <stdint.h>
#include <string.h>

namespace {

template <typename T> inline T same(T value) { return value; }

/// A block of a sum: ((x0 + x1) + x2) + ..., rounded once. It is read before it is
/// written, so `to` may be a source.
template <typename T, typename Wide, Wide (*Widen)(T), T (*Narrow)(Wide)>
inline void sumBlock(const void *const *sources, unsigned number, T *to,
                     int64_t begin, int64_t size, Wide *sums) {
  const T *first = static_cast<const T *>(sources[0]) + begin;
  for (int64_t j = 0; j < size; ++j)
    sums[j] = Widen(first[j]);
  for (unsigned s = 1; s < number; ++s) {
    const T *source = static_cast<const T *>(sources[s]) + begin;
    for (int64_t j = 0; j < size; ++j)
      sums[j] = sums[j] + Widen(source[j]);
  }
  for (int64_t j = 0; j < size; ++j)
    to[begin + j] = Narrow(sums[j]);
}

/// The whole blocks of a sum; what is left begins at the result. Number 0: known at
/// run time only. Else a block stays in registers.
template <unsigned Number, typename T, typename Wide, Wide (*Widen)(T),
          T (*Narrow)(Wide)>
int64_t sumBlocks(const void *const *sources, unsigned number, T *to,
                  int64_t count) {
  constexpr int64_t block = 64;
  int64_t i = 0;
  for (; i + block <= count; i += block) {
    Wide sums[block];
    sumBlock<T, Wide, Widen, Narrow>(sources, Number ? Number : number, to, i,
                                     block, sums);
  }
  return i;
}

template <typename T, typename Wide, Wide (*Widen)(T), T (*Narrow)(Wide)>
void sum(const void *const *sources, unsigned number, void *to, int64_t count) {
  T *out = static_cast<T *>(to);
  constexpr auto two = sumBlocks<2, T, Wide, Widen, Narrow>,
                 three = sumBlocks<3, T, Wide, Widen, Narrow>,
                 four = sumBlocks<4, T, Wide, Widen, Narrow>,
                 any = sumBlocks<0, T, Wide, Widen, Narrow>;
  auto blocks = number == 2   ? two
                : number == 3 ? three
                : number == 4 ? four
                              : any;
  int64_t done = blocks(sources, number, out, count);
  Wide sums[64];
  sumBlock<T, Wide, Widen, Narrow>(sources, number, out, done, count - done,
                                   sums);
}

/// A copy past the caches, which spares reading what is overwritten. Four streams
/// at once, as one does not keep the memory busy.
inline void streamBytes(void *to, const void *from, uint64_t bytes) {
  typedef char Line __attribute__((vector_size(TRAINC_VECTOR_BYTES)));
  typedef Line Loaded __attribute__((aligned(1)));
  constexpr uint64_t line = sizeof(Line), step = 128, ahead = 512;
  char *out = static_cast<char *>(to);
  const char *in = static_cast<const char *>(from);
  uint64_t head = -reinterpret_cast<uintptr_t>(out) % line;
  head = head < bytes ? head : bytes;
  memcpy(out, in, head);
  uint64_t part = (bytes - head) / 4 / step * step;
  for (uint64_t i = 0; i < part; i += step)
    for (uint64_t stream = 0; stream < 4; ++stream) {
      uint64_t at = head + stream * part + i;
      for (uint64_t j = 0; j < step; j += 64)
        __builtin_prefetch(in + at + ahead + j);
      for (uint64_t j = 0; j < step; j += line)
        __builtin_nontemporal_store(
            *reinterpret_cast<const Loaded *>(in + at + j),
            reinterpret_cast<Line *>(out + at + j));
    }
  uint64_t done = head + 4 * part;
  memcpy(out + done, in + done, bytes - done);
#if defined(__x86_64__)
  __builtin_ia32_sfence(); // elsewhere any fence orders these stores, too
#endif
}

} // namespace

#endif // TRAINC_CPU_SUMS_H
