//===- roofline.cpp - Commands against the limits of a machine ------------===//

#include "roofline.h"
#include "core/kinds.h"
#include "support.h"
#include "trainc/runtime.h"
#include <algorithm>

namespace trainc::run {

namespace {
struct Peak {
  const char *name;
  double flops;
};
} // namespace

static Peak peakOfType(const Machine &machine, uint32_t dtype) {
  switch (dtype) {
  case TRAINC_F64:
    return {"f64", machine.f64};
  case TRAINC_BF16:
    return {"bf16", machine.bf16};
  default: // f16 is widened
    return {"f32", machine.splitF32};
  }
}

/// Of the unit that computes a command. Vector units do one operation of an element where
/// a multiply-add is two.
static Peak peakOf(const Machine &machine, const trainc_command &command) {
  uint32_t dtype =
      command.num_operands ? command.operands[0].dtype : uint32_t(TRAINC_F32);
  switch (command.rate) {
  case TRAINC_RATE_MEMORY:
  case TRAINC_RATE_UPDATE:
    return dtype == TRAINC_F64 ? Peak{"f64", machine.f64 / 2}
                               : Peak{"f32", machine.f32 / 2};
  case TRAINC_RATE_F64:
    return peakOfType(machine, TRAINC_F64);
  case TRAINC_RATE_F32:
    return peakOfType(machine, TRAINC_F32);
  case TRAINC_RATE_BF16:
    return peakOfType(machine, TRAINC_BF16);
  case TRAINC_RATE_F16:
    return peakOfType(machine, TRAINC_F16);
  default:
    return peakOfType(machine, dtype);
  }
}

uint64_t heldBytes(const trainc_command &command) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < command.num_operands; ++i)
    bytes += command.operands[i].bytes;
  return bytes;
}

uint64_t movedBytes(const trainc_command &command) {
  uint64_t bytes = heldBytes(command);
  for (uint32_t i = 0; i < command.num_operands; ++i)
    if (command.operands[i].access == (TRAINC_READ | TRAINC_WRITE))
      bytes += command.operands[i].bytes;
  return bytes;
}

std::optional<Limit> limitOf(const Machine &machine,
                             const trainc_command &command) {
  if (isCollective(command.kind))
    return std::nullopt;
  Peak peak = peakOf(machine, command);
  const Machine::Level &level = machine.levelOf(heldBytes(command));
  double arithmetic = static_cast<double>(command.flops) / peak.flops;
  double bytes = static_cast<double>(movedBytes(command)) / level.bandwidth;
  return arithmetic > bytes ? Limit{arithmetic, peak.name}
                            : Limit{bytes, level.name};
}

void Roofline::add(const std::string &name, const Limit &limit,
                   double seconds) {
  Line &line = lines[name];
  line.seconds += seconds;
  line.limit += limit.seconds;
  line.bound = limit.bound;
  ++line.count;
}

std::string Roofline::describe(uint64_t steps) const {
  constexpr size_t most = 16;
  std::vector<std::pair<std::string, Line>> sorted(lines.begin(), lines.end());
  auto lost = [](const Line &line) { return line.seconds - line.limit; };
  std::sort(sorted.begin(), sorted.end(),
            [&](auto &a, auto &b) { return lost(a.second) > lost(b.second); });
  Line all;
  for (auto &[name, line] : sorted) {
    all.seconds += line.seconds;
    all.limit += line.limit;
    all.count += line.count;
  }
  std::string text = "roofline of " + machine.describe() + "\n" +
                     "  ms/step   limit  share  bound   runs  command\n";
  auto add = [&](const std::string &name, const Line &line) {
    double perStep = 1e3 / static_cast<double>(steps);
    text += format("%9.3f %7.3f  %3.0f %%  %-6s %5.0f  %s\n",
                   perStep * line.seconds, perStep * line.limit,
                   line.seconds > 0 ? 100 * line.limit / line.seconds : 100.0,
                   line.bound,
                   static_cast<double>(line.count) / static_cast<double>(steps),
                   name.c_str());
  };
  for (size_t i = 0; i < std::min(most, sorted.size()); ++i)
    add(sorted[i].first, sorted[i].second);
  if (sorted.size() > most)
    text += format("  and %zu more\n", sorted.size() - most);
  add("all commands", all);
  return text;
}

} // namespace trainc::run
