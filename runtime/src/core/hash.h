//===- hash.h - A hash of bytes ---------------------------------*- C++ -*-===//
#ifndef TRAINC_CORE_HASH_H
#define TRAINC_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

namespace trainc {

/// FNV-1a, 64 bits: the hash of no bytes, and of some more than `hash` has seen.
constexpr uint64_t hashStart = UINT64_C(0xCBF29CE484222325);
inline uint64_t hashBytes(uint64_t hash, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char *>(data)[i]) *
           UINT64_C(0x100000001B3);
  return hash;
}

} // namespace trainc

#endif // TRAINC_CORE_HASH_H
