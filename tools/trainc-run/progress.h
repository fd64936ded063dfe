//===- progress.h - Showing how far a training has come ---------*- C++ -*-===//
#ifndef TRAINC_RUN_PROGRESS_H
#define TRAINC_RUN_PROGRESS_H

#include "support.h"
#include <optional>

namespace trainc::run {

/// A bar on stderr if it is a terminal, else about 20 lines.
class Progress {
public:
  /// Steps (first, last]; `unit` is what `count` of update() counts.
  Progress(uint64_t first, uint64_t last, const char *unit);

  /// After step `step`, with `count` units done since the start.
  void update(uint64_t step, uint64_t count, const trainc_step_result &result,
              std::optional<double> learningRate);
  /// Ends the bar.
  void finish();

private:
  uint64_t first, last, interval;
  const char *unit;
  bool isTerminal;
  double start, drawn = 0;
};

} // namespace trainc::run

#endif // TRAINC_RUN_PROGRESS_H
