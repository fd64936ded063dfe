//===- benchmark.cpp - Timing steps ---------------------------------------===//

#include "benchmark.h"
#include "batches.h"
#include "ranks.h"
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

namespace trainc::run {

namespace {
/// Runs steps and times what the runtime does; filling the inputs is not timed.
class Timer {
public:
  Timer(Model &model, const Options &options)
      : model(model), entry(model.findStep(options.entry)),
        batches(options.data.empty()
                    ? Batches::generate(model, entry)
                    : Batches(model, entry, options.data,
                              options.shuffle ? Batches::Order::Random
                                              : Batches::Order::File)) {}

  /// Milliseconds of each of `count` steps.
  std::vector<double> run(uint64_t count) {
    std::vector<double> times;
    for (uint64_t i = 0; i < count; ++i) {
      double seconds = 0;
      trainc_step_result result;
      do {
        batches.fill(position, done + 1);
        double start = now();
        result = model.step(entry, done + 1);
        seconds += now() - start;
      } while (!result.closed);
      ++done;
      if (losses.size() < warmUpSteps)
        losses.push_back(result.window_loss);
      times.push_back(1e3 * seconds);
    }
    return times;
  }

  /// "artifact":..., "threads":..., ... of the first steps.
  std::string description() const {
    std::string text;
    for (double loss : losses)
      text += (text.empty() ? "" : ",") + jsonNumber(loss);
    return format(R"("artifact":%s,"entry":%s,"device":%s,"threads":%u,)"
                  R"("inputs":"%s","batch":%llu,"loss":[%s])",
                  jsonString(model.descriptor().name).c_str(),
                  jsonString(model.entry(entry).name).c_str(),
                  jsonString(trainc_trainer_device(model.trainer())).c_str(),
                  trainc_trainer_threads(model.trainer()),
                  batches.isGenerated() ? "generated" : "data",
                  static_cast<unsigned long long>(batches.batchSize()),
                  text.c_str());
  }

private:
  Model &model;
  uint32_t entry;
  Batches batches;
  uint64_t position = 0, done = 0;
  std::vector<double> losses; // of the first steps
};
} // namespace

/// The peak of the resident set since resetPeak(), in MiB.
static double peakResidentMib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0)
      return std::strtod(line.c_str() + 6, nullptr) / 1024;
  fail("/proc/self/status has no VmHWM");
}

static void resetPeak() {
  OutputFile file("/proc/self/clear_refs", "w");
  file.write("5");
  file.close();
}

void benchmark(Model &model, const Options &options) {
  Timer timer(model, options);
  timer.run(warmUpSteps);
  double peak = peakResidentMib();
  resetPeak();
  std::vector<double> times = timer.run(options.benchmark);
  double stepPeak = peakResidentMib();
  std::sort(times.begin(), times.end());
  size_t half = times.size() / 2;
  double median =
      times.size() % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
  std::printf(R"({%s,"steps":%zu,"step_ms_min":%.5f,"step_ms_median":%.5f,)"
              R"("peak_rss_mb":%.1f,"step_rss_mb":%.1f})"
              "\n",
              timer.description().c_str(), times.size(), times[0], median,
              std::max(peak, stepPeak), stepPeak);
  std::fflush(stdout);
}

void serve(Model &model, const Options &options) {
  if (communicator())
    fail("--serve reads from one process: expects one rank, there are %u",
         ranks());
  Timer timer(model, options);
  timer.run(warmUpSteps);
  resetPeak();
  std::printf("{\"ready\":true,%s}\n", timer.description().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    char *end;
    uint64_t count = std::strtoull(line.c_str(), &end, 10);
    if (line.empty() || line[0] < '0' || line[0] > '9' || *end || count == 0 ||
        count > UINT32_MAX)
      fail("--serve expects a number of steps, got '%s'", line.c_str());
    std::string times;
    for (double time : timer.run(count))
      times += format("%s%.5f", times.empty() ? "" : ",", time);
    std::printf("{\"step_ms\":[%s],\"step_rss_mb\":%.1f}\n", times.c_str(),
                peakResidentMib());
    std::fflush(stdout);
  }
}

} // namespace trainc::run
