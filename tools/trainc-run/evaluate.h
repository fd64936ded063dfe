//===- evaluate.h - Running an eval entry over a data set -------*- C++ -*-===//
#ifndef TRAINC_RUN_EVALUATE_H
#define TRAINC_RUN_EVALUATE_H

#include "batches.h"
#include <csignal>

namespace trainc::run {

/// Means over a data set. An entry reports by outputs of one float each: sums
/// `loss` or `correct`, and `count`, how many terms are in the sums.
struct Evaluation {
  uint64_t examples = 0;
  std::optional<double> loss, accuracy;
  bool stopped = false; // early
};

/// The eval entry for options.evalEntry and the files that it reads.
class Evaluator {
public:
  Evaluator(Model &model, const Options &options);

  /// Runs every batch of the data. `step` is for messages; with a `folder`,
  /// every output goes to folder/NAME.npy: those with a row per example as the
  /// rows of all examples, others with one entry per batch.
  /// Ends early, without a result, when `*stop` is not 0.
  Evaluation run(uint64_t step, const std::string &folder = "",
                 const volatile std::sig_atomic_t *stop = nullptr);

private:
  Model &model;
  uint32_t entry;
  Batches batches;
};

/// Prints "eval loss X" and "accuracy X", as far as they are known.
void print(const Evaluation &evaluation);

/// trainc-run --eval.
void evaluateOnly(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_EVALUATE_H
