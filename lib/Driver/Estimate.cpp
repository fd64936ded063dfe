//===- Estimate.cpp - How long will it take? ------------------------------===//
#include "Reports.h"
#include "trainc/Analysis/Rates.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace trainc;
using llvm::StringRef;

namespace {
/// Commands of one kind in a window, by what their time depends on.
struct Share {
  StringRef rate;
  bool flops = false; // of which `work` is; else of bytes
  double work = 0, seconds = 0;
  int64_t count = 0;

  void add(double workOfOne, double secondsOfOne, int64_t times) {
    count += times;
    work += times * workOfOne;
    seconds += times * secondsOfOne;
  }
};

/// Collectives of one kind among the same ranks in a window.
struct Traffic {
  StringRef kind;
  uint32_t axes;
  Share share;
};

class Estimator {
public:
  Estimator(const Tables &tables, const Rates &rates)
      : tables(tables), rates(rates) {}

  /// False if a rate is not known: see missing.
  bool estimate(const EntryRow &entry);
  std::string missing;

  // Of a window.
  Share shares[TRAINC_NUM_RATES];
  std::vector<Traffic> traffic;
  int64_t commands = 0; // but for collectives
  double gaps = 0;      // seconds between them
  double seconds = 0, communication = 0;

private:
  /// Says which rates are `missing`, of which one is needed.
  void miss(llvm::ArrayRef<StringRef> names, bool flops);
  /// Adds what the list does `count` times, one behind the other.
  bool run(const std::vector<CommandRow> &list, int64_t count = 1);
  bool runOnce(const std::vector<CommandRow> &list);
  std::optional<double> timeOf(const CommandRow &command);
  std::optional<double> timeOfCollective(const CommandRow &command);

  const Tables &tables;
  const Rates &rates;
  int64_t times = 1;           // of the list
  double networkFree = 0;      // when all that was started is done
  std::vector<double> started; // when each is done
  size_t waited = 0;
};
} // namespace

/// What a command's time depends on.
static Load loadOf(const CommandRow &command) {
  double bytes = 0;
  for (const trainc_operand &operand : command.operands)
    bytes += llvm::popcount(operand.access) * double(operand.bytes);
  return {command.rate, rateOfType(command.operands[0].dtype),
          double(command.flops), bytes};
}

void Estimator::miss(llvm::ArrayRef<StringRef> names, bool flops) {
  missing = llvm::formatv("expects the rate {0} in --bandwidth, in {1} per "
                          "second (trainc-run --preflight measures it)",
                          llvm::join(names, " or "), flops ? "flops" : "bytes");
}

std::optional<double> Estimator::timeOf(const CommandRow &command) {
  Load load = loadOf(command);
  auto time = secondsOf(load, rates);
  if (!time) {
    miss(load.getNeededRates(), load.isOfFlops());
    return std::nullopt;
  }
  Share &share = shares[command.rate];
  share.rate = load.getRateName();
  share.flops = load.isOfFlops();
  share.add(share.flops ? load.flops : load.bytes, *time, times);
  return time;
}

std::optional<double> Estimator::timeOfCollective(const CommandRow &command) {
  StringRef kind = nameOfCollective(command.kind);
  const trainc_collective_detail &detail = *command.collective;
  StringRef names[] = {kind, kNetworkRate};
  auto rate = rates.findOne(names);
  if (!rate) {
    miss(names, /*flops=*/false);
    return std::nullopt;
  }
  double members = 1, pieces = 1;
  for (auto [i, axis] : llvm::enumerate(tables.axes)) {
    if (detail.axes >> i & 1) {
      members *= axis.size;
      if (auto most = rates.find(kNetworkRate + "." + axis.name))
        rate = std::min(*rate, *most);
    }
    if (detail.piece_axes >> i & 1)
      pieces *= axis.size;
  }
  // Of a source and a target the one that has all pieces.
  double range =
      std::max(command.operands.front().bytes, command.operands.back().bytes) /
      pieces;
  double moved = range * (members - 1) / members;
  if (command.kind == TRAINC_COMMAND_ALL_REDUCE)
    moved *= 2;
  double time = moved / *rate + rates.find(kLatencyRate).value_or(0);
  communication += times * time;
  auto same = llvm::find_if(traffic, [&](const Traffic &other) {
    return other.kind == kind && other.axes == detail.axes;
  });
  if (same == traffic.end())
    same = traffic.insert(traffic.end(), {kind, detail.axes, {}});
  same->share.add(range, time, times);
  return time;
}

bool Estimator::runOnce(const std::vector<CommandRow> &list) {
  bool overlaps = tables.target == TRAINC_TARGET_CUDA;
  double between = rates.find(kCommandRate).value_or(0);
  for (const CommandRow &command : list) {
    if (!command.collective) {
      auto time = timeOf(command);
      if (!time)
        return false;
      seconds += *time + between;
      gaps += times * between;
      commands += times;
      continue;
    }
    uint32_t phase = command.collective->phase;
    if (phase == TRAINC_COLLECTIVE_WAIT && overlaps) {
      seconds = std::max(seconds, started[waited++]);
      continue;
    }
    if (phase == TRAINC_COLLECTIVE_START && !overlaps)
      continue; // as long as the wait takes
    auto time = timeOfCollective(command);
    if (!time)
      return false;
    networkFree = std::max(seconds, networkFree) + *time;
    if (phase == TRAINC_COLLECTIVE_START)
      started.push_back(networkFree);
    else
      seconds = networkFree;
  }
  return true;
}

bool Estimator::run(const std::vector<CommandRow> &list, int64_t count) {
  times = count;
  double begin = seconds;
  if (!runOnce(list))
    return false;
  // A list that runs several times waits for all that it starts: each time takes as long.
  seconds += (times - 1) * (seconds - begin);
  return true;
}

bool Estimator::estimate(const EntryRow &entry) {
  if (!run(entry.lists[TRAINC_LIST_FIRST]) ||
      (entry.accumulate > 1 &&
       !run(entry.lists[TRAINC_LIST_NEXT], entry.accumulate - 1)))
    return false;
  return run(entry.lists[TRAINC_LIST_APPLY]);
}

/// What of the time the ranks do nothing but communicate.
static double exposedOf(const Estimator &e) {
  double exposed = e.seconds - e.gaps;
  for (const Share &share : e.shares)
    exposed -= share.seconds;
  return std::max(0.0, exposed);
}

static std::string axesText(const Tables &tables, uint32_t axes) {
  std::string text;
  for (auto [i, axis] : llvm::enumerate(tables.axes))
    if (axes >> i & 1)
      text += (text.empty() ? "" : ",") + axis.name;
  return text;
}

static llvm::json::Object jsonOf(const Tables &tables, const EntryRow &entry,
                                 const Estimator &e) {
  llvm::json::Array work, collectives;
  for (const Share &share : e.shares)
    if (share.count)
      work.push_back(
          llvm::json::Object{{"rate", share.rate},
                             {"count", share.count},
                             {share.flops ? "flops" : "bytes", share.work},
                             {"seconds", share.seconds}});
  for (const Traffic &t : e.traffic)
    collectives.push_back(llvm::json::Object{{"kind", t.kind},
                                             {"axes", axesText(tables, t.axes)},
                                             {"count", t.share.count},
                                             {"bytes", t.share.work},
                                             {"seconds", t.share.seconds}});
  return llvm::json::Object{{"name", entry.name},
                            {"micro_steps", int64_t(entry.accumulate)},
                            {"seconds", e.seconds},
                            {"commands", e.commands},
                            {"communication", e.communication},
                            {"exposed", exposedOf(e)},
                            {"work", std::move(work)},
                            {"collectives", std::move(collectives)}};
}

static void print(llvm::raw_ostream &os, const Tables &tables,
                  const EntryRow &entry, const Estimator &e) {
  os << llvm::formatv("{0}: {1:F3} ms", entry.name, 1e3 * e.seconds);
  if (entry.accumulate > 1)
    os << llvm::formatv(" per window of {0} micro-steps", entry.accumulate);
  os << llvm::formatv(", {0:F3} ms of it exposed communication\n",
                      1e3 * exposedOf(e));
  auto line = [&](const std::string &name, const Share &share, StringRef unit) {
    os << "  " << llvm::left_justify(name, 30)
       << llvm::format("%12.3f ms %12.3f ", 1e3 * share.seconds,
                       share.work / 1e6)
       << unit << " in " << share.count << "\n";
  };
  for (const Share &share : e.shares)
    if (share.count)
      line(share.rate.str(), share, share.flops ? "Mflop" : "MB");
  for (const Traffic &t : e.traffic)
    line((t.kind + " (" + axesText(tables, t.axes) + ")").str(), t.share, "MB");
  os << "  " << llvm::left_justify("between commands", 30)
     << llvm::format("%12.3f ms\n", 1e3 * e.gaps);
}

llvm::FailureOr<std::string> trainc::buildEstimate(const Tables &tables,
                                                   const Rates &rates,
                                                   bool json,
                                                   std::string &message) {
  std::string text;
  llvm::raw_string_ostream os(text);
  uint64_t memory = 0, ranks = 1;
  for (const ArenaRow &arena : tables.arenas)
    memory += arena.bytes;
  for (const AxisRow &axis : tables.axes)
    ranks *= axis.size;
  for (const auto &[name, rate] : rates) {
    StringRef axis = name;
    if (!axis.consume_front("network.") || tables.axes.empty() ||
        llvm::any_of(tables.axes,
                     [&](const AxisRow &row) { return row.name == axis; }))
      continue;
    message = "expects network.AXIS in --bandwidth to name an axis of the "
              "mesh, got '" +
              name + "'";
    return llvm::failure();
  }
  llvm::json::Array entries;
  for (const EntryRow &entry : tables.entries) {
    Estimator estimator(tables, rates);
    if (!estimator.estimate(entry)) {
      message = estimator.missing;
      return llvm::failure();
    }
    if (json)
      entries.push_back(jsonOf(tables, entry, estimator));
    else
      print(os, tables, entry, estimator);
  }
  if (json) {
    llvm::json::Object root{{"name", tables.name},
                            {"ranks", int64_t(ranks)},
                            {"memory", int64_t(memory)},
                            {"entries", std::move(entries)}};
    os << llvm::formatv("{0:2}", llvm::json::Value(std::move(root))) << "\n";
  } else {
    os << llvm::formatv("memory: {0:F3} MB per rank, {1} rank{2}\n",
                        memory / 1e6, ranks, ranks == 1 ? "" : "s");
  }
  return text;
}
