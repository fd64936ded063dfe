//===- benchmark.h - Timing steps -------------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_BENCHMARK_H
#define TRAINC_RUN_BENCHMARK_H

#include "model.h"

namespace trainc::run {

/// Timed steps follow this many untimed ones.
constexpr uint64_t warmUpSteps = 5;

/// trainc-run --benchmark N: one line of JSON.
void benchmark(Model &model, const Options &options);

/// trainc-run --serve: a line of JSON when ready, then, for every line "N" of
/// stdin, one with the times of N steps. Sleeps in between.
void serve(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_BENCHMARK_H
