//===- workgroups.h - The workgroups of a command, one by one ---*- C++ -*-===//
//
// For `trainc-run --check-workgroups`. A workgroup is one call of a kernel, a tile of a
// GEMM, or a piece of what a command fills or copies.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_WORKGROUPS_H
#define TRAINC_CORE_WORKGROUPS_H

#include "trainc/runtime.h"

namespace trainc {

/// A command of a list of an entry that is no collective, on the processor.
class Workgroups {
public:
  Workgroups(const trainc_trainer *trainer, const trainc_event &event);

  /// How many there are.
  int64_t count() const;
  /// Bytes of scratch for each of them.
  uint64_t scratchBytes() const;
  /// Bytes of the partial products of all; 0: there is one stage only.
  uint64_t partialBytes() const;
  /// In how many pieces partial products are added to operand 2, in the second stage.
  int64_t numPieces() const;

  /// Runs one on `args`, the operands; false if a library failed.
  bool run(void *const *args, int64_t number, void *scratch,
           void *partial) const;
  void addPiece(void *const *args, int64_t number, const void *partial) const;

private:
  const trainc_trainer *trainer;
  const struct BoundCommand &command;
};

} // namespace trainc

#endif // TRAINC_CORE_WORKGROUPS_H
