//===- checksum.h - CRC-32C of bytes that come in any order -----*- C++ -*-===//
//
// The checksum of a checkpoint's data section, "crc32c:" and eight hexadecimal digits
// as "trainc.checksum" of its header. CRC-32C is that of iSCSI (RFC 3720, 12.1): the
// polynomial 0x1EDC6F41, bits reflected, all ones at the start and inverted at the end.
//
// It is linear: the checksum of a file is the sum (exclusive or) of what each run of
// its bytes adds, wherever it stands and whoever writes it. So ranks that write one
// file each sum up what they write.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_CHECKSUM_H
#define TRAINC_CORE_CHECKSUM_H

#include "core/containers.h"

namespace trainc {

inline constexpr char checksumKey[] = "trainc.checksum";

/// Appends the value of the header's entry.
void appendChecksum(Text &text, uint32_t checksum);
/// False if `text` is none.
bool parseChecksum(const char *text, uint32_t &checksum);

/// The remainder of the polynomial that has the bits of `data`, after those that left
/// `before`: no ones at the start, nothing inverted.
uint32_t crcRemainder(uint32_t before, const void *data, uint64_t bytes);
/// The same on a processor without an instruction for it.
uint32_t crcRemainderPortable(uint32_t before, const void *data,
                              uint64_t bytes);
/// What is left of `remainder` after `bytes` more bytes of zeros.
uint32_t crcShift(uint32_t remainder, uint64_t bytes);

class Checksum {
public:
  /// Of `bytes` bytes, each of which is added once; those that are not are zero.
  explicit Checksum(uint64_t bytes) : bytes(bytes) {}

  /// Runs that follow each other cost least.
  void add(uint64_t offset, const void *data, uint64_t count) {
    if (offset != end)
      close();
    run = crcRemainder(run, data, count);
    end = offset + count;
  }

  /// What this has added, for addPart() of another one of the same bytes.
  uint32_t part() {
    close();
    return sum;
  }
  void addPart(uint32_t other) { sum ^= other; }

  uint32_t finish() {
    return part() ^ crcShift(UINT32_MAX, bytes) ^ UINT32_MAX;
  }

private:
  void close() {
    sum ^= run ? crcShift(run, bytes - end) : 0;
    run = 0;
  }

  uint64_t bytes, end = 0; // of the last run
  uint32_t sum = 0, run = 0;
};

} // namespace trainc

#endif // TRAINC_CORE_CHECKSUM_H
