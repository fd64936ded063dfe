//===- machine.h - What a machine computes and moves at most ----*- C++ -*-===//
#ifndef TRAINC_RUN_MACHINE_H
#define TRAINC_RUN_MACHINE_H

#include <string>
#include <vector>

#include <stdint.h>

namespace trainc::run {

/// The limits of this machine's processors, measured with `threads` threads at once: it
/// takes a fraction of a second. Numbers are per second, of all threads together.
struct Machine {
  explicit Machine(unsigned threads);

  unsigned threads;
  /// Flops of fused multiply-adds in registers; of bf16 by its own instructions or tile
  /// registers, or as f32.
  double f64 = 0, f32 = 0, bf16 = 0;
  /// The same of f32 as sums of six products of bf16, if that is more than `f32`.
  double splitF32 = 0;

  /// A cache, or memory: the largest working set that it holds, 0 if any, and the bytes that
  /// a copy reads and writes.
  struct Level {
    const char *name;
    uint64_t holds;
    double bandwidth;
  };
  std::vector<Level> levels; // smallest first

  /// Where a working set of so many bytes, shared by the threads, fits.
  const Level &levelOf(uint64_t bytes) const;

  /// All of it in one line.
  std::string describe() const;
};

} // namespace trainc::run

#endif // TRAINC_RUN_MACHINE_H
