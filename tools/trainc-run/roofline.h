//===- roofline.h - Commands against the limits of a machine ----*- C++ -*-===//
#ifndef TRAINC_RUN_ROOFLINE_H
#define TRAINC_RUN_ROOFLINE_H

#include "machine.h"
#include "trainc/step_abi.h"
#include <map>
#include <optional>

namespace trainc::run {

/// Bytes of a command's operands, each once.
uint64_t heldBytes(const trainc_command &command);

/// And those that it moves: what is read and written counts twice.
uint64_t movedBytes(const trainc_command &command);

/// The least time that a command can take: the longer one of its arithmetic at the peak of
/// the unit that does it, and of its bytes at the bandwidth of the first cache that holds
/// all of its operands (S. Williams et al., "Roofline", CACM 52 (2009)).
struct Limit {
  double seconds;
  const char *bound; // what it is bound by: a type, a cache, memory
};

/// Of a command that is not a collective.
std::optional<Limit> limitOf(const Machine &machine,
                             const trainc_command &command);

/// What commands took, and their limits, by what they compute.
class Roofline {
public:
  explicit Roofline(const Machine &machine) : machine(machine) {}

  void add(const std::string &name, const Limit &limit, double seconds);

  /// A table of those that are farthest from their limits, per step.
  std::string describe(uint64_t steps) const;

private:
  struct Line {
    double seconds = 0, limit = 0;
    uint64_t count = 0;
    const char *bound = "";
  };
  const Machine &machine;
  std::map<std::string, Line> lines;
};

} // namespace trainc::run

#endif // TRAINC_RUN_ROOFLINE_H
