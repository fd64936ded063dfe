//===- meter.cpp - The rates of a machine ---------------------------------===//

#include "meter.h"
#include "batches.h"
#include "core/kinds.h"
#include "ranks.h"
#include "roofline.h"
#include <algorithm>
#include <cmath>
#include <iterator>

namespace trainc::run {

namespace {
struct RateKind {
  const char *name;
  bool flops;
};

/// Sees the commands of the windows that it measures.
class Meter {
public:
  Meter(Model &model, const Options &options)
      : model(model), entry(model.findStep(options.entry)),
        batches(Batches::generate(model, entry)) {
    check(trainc_set_observer(model.trainer(), observe, this));
  }
  ~Meter() { trainc_set_observer(model.trainer(), nullptr, nullptr); }

  /// Runs a window; its seconds by rate, and last those between two commands.
  std::vector<double> run();
  /// Work of a window by rate.
  const std::vector<double> &work() const { return done; }

private:
  static int observe(void *context, const trainc_event *event);
  void see(const trainc_event &event);

  Model &model;
  uint32_t entry;
  Batches batches;
  uint64_t position = 0, step = 0;
  std::vector<double> seconds, done;
  uint64_t begin = 0, end = 0; // of the last command; end 0: there is none
  double between = 0;
  uint64_t gaps = 0;
};
} // namespace

static constexpr RateKind kinds[] = {
#define TRAINC_RATE(NAME, number, text, flops) {text, flops},
#include "trainc/step_abi.def"
};

static double workOf(const trainc_command &command) {
  if (kinds[command.rate].flops)
    return static_cast<double>(command.flops);
  return static_cast<double>(movedBytes(command));
}

int Meter::observe(void *context, const trainc_event *event) {
  static_cast<Meter *>(context)->see(*event);
  return 0;
}

void Meter::see(const trainc_event &event) {
  const trainc_command &command = *event.command;
  bool collective = isCollective(command.kind);
  if (!event.end) {
    begin = event.time_ns;
    if (end && !collective) {
      between += 1e-9 * static_cast<double>(begin - end);
      ++gaps;
    }
    return;
  }
  end = collective ? 0 : event.time_ns;
  if (collective)
    return;
  seconds[command.rate] += 1e-9 * static_cast<double>(event.time_ns - begin);
  done[command.rate] += workOf(command);
}

std::vector<double> Meter::run() {
  seconds.assign(TRAINC_NUM_RATES, 0);
  done.assign(TRAINC_NUM_RATES, 0);
  between = 0;
  gaps = 0;
  trainc_step_result result;
  do {
    end = 0;
    batches.fill(position, ++step);
    result = model.step(entry, step);
  } while (!result.closed);
  seconds.push_back(gaps ? between / static_cast<double>(gaps) : 0);
  return seconds;
}

/// The mean of all ranks.
static std::vector<double> meanOfRanks(const std::vector<double> &values) {
  if (!communicator())
    return values;
  std::vector<double> all(values.size() * ranks());
  check(trainc_comm_all_gather(communicator(), values.data(),
                               values.size() * sizeof(double), all.data()));
  std::vector<double> mean(values.size());
  for (size_t i = 0; i < all.size(); ++i)
    mean[i % values.size()] += all[i] / ranks();
  return mean;
}

/// The medians of some windows.
static std::vector<double> measureCommands(Meter &meter) {
  constexpr int warmUps = 4, count = 7;
  std::vector<double> windows[count], medians;
  for (int i = 0; i < warmUps; ++i)
    meter.run();
  for (std::vector<double> &window : windows)
    window = meter.run();
  for (size_t i = 0; i < windows[0].size(); ++i) {
    double values[count];
    for (int j = 0; j < count; ++j)
      values[j] = windows[j][i];
    std::sort(values, values + count);
    medians.push_back(values[count / 2]);
  }
  return meanOfRanks(medians);
}

/// The largest range of a collective of the model's entries.
static uint64_t largestRange(const Model &model) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < model.descriptor().num_entries; ++i)
    for (const trainc_command_list &list : model.entry(i).lists)
      for (uint64_t j = 0; j < list.count; ++j)
        if (isCollective(list.commands[j].kind))
          most = std::max(most, list.commands[j].operands[0].bytes);
  return most;
}

static double timeOfCollective(uint32_t kind, uint64_t bytes) {
  double seconds;
  check(trainc_comm_measure(communicator(),
                            static_cast<trainc_collective_kind>(kind), bytes,
                            &seconds));
  return meanOfRanks({seconds})[0];
}

static std::string measureCollectives(const Model &model) {
  static const char *const names[] = {"reduce_scatter", "all_reduce",
                                      "all_gather"};
  uint64_t unit = sizeof(float) * ranks(), range = largestRange(model);
  range = range ? (range + unit - 1) / unit * unit : 64 << 20;
  double latency = timeOfCollective(TRAINC_ALL_REDUCE, unit);
  std::string text = format(",latency=%.3gu", 1e6 * latency);
  for (uint32_t kind = 0; kind < std::size(names); ++kind) {
    double seconds = timeOfCollective(kind, range);
    double moved = static_cast<double>(range) * (ranks() - 1) / ranks() *
                   (kind == TRAINC_ALL_REDUCE ? 2 : 1);
    text += format(",%s=%.4gG", names[kind],
                   moved / std::max(seconds - latency, 0.1 * seconds) / 1e9);
  }
  return text;
}

std::string measureRates(Model &model, const Options &options) {
  Meter meter(model, options);
  std::vector<double> seconds = measureCommands(meter);
  std::string text = format("command=%.3gn", 1e9 * seconds.back());
  for (uint32_t i = 0; i < TRAINC_NUM_RATES; ++i)
    if (seconds[i] > 0)
      text += format(",%s=%.4gG", kinds[i].name,
                     meter.work()[i] / seconds[i] / 1e9);
  // What moves between GPUs is NCCL's.
  if (communicator() && model.descriptor().target == TRAINC_TARGET_CPU)
    text += measureCollectives(model);
  return text;
}

} // namespace trainc::run
