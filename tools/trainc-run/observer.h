//===- observer.h - --profile, --roofline and --check-finite ----*- C++ -*-===//
#ifndef TRAINC_RUN_OBSERVER_H
#define TRAINC_RUN_OBSERVER_H

#include "model.h"
#include "roofline.h"
#include <functional>
#include <memory>

namespace trainc::run {

/// What lies at an operand of a command of entry `entry`: a tensor, an input or output,
/// or an arena.
std::string describePlace(const Model &model, uint32_t entry,
                          const trainc_operand &operand);

/// Sees every command of the steps and evals of a model while it lives: writes
/// the first steps as a Chrome trace, and stops at the first command that
/// writes a value that is not finite.
class Observer {
public:
  Observer(Model &model, const Options &options);
  /// Stops before the first command of which `check` says what is wrong.
  using Check = std::function<std::string(const trainc_event &event)>;
  Observer(Model &model, Check check);
  Observer(const Observer &) = delete;
  ~Observer();

  void beginStep(uint64_t number);
  void endStep();
  /// Writes the trace and prints the roofline, if they are wanted.
  void finish();
  /// Why the run was cancelled.
  const std::string &reason() const { return text; }

private:
  static int observe(void *context, const trainc_event *event);
  /// Adds a command to the roofline and to the trace.
  void record(const trainc_event &event);
  bool allFinite(const trainc_event &event);
  /// Index of the first element that is not finite, and its value; false if all
  /// are, or if the operand is not of a floating type.
  bool findNotFinite(const trainc_event &event, uint32_t operand,
                     uint64_t &element, double &value) const;

  Model &model;
  Check before;     // or null
  std::string path; // of the trace; empty: none
  bool checking = false;
  uint64_t step = 0, firstStep = 0;
  bool recording = false;
  std::unique_ptr<Machine> machine;   // of a CPU whose commands are recorded
  std::unique_ptr<Roofline> roofline; // or null
  uint64_t recorded = 0;              // steps
  uint64_t origin = 0, stepBegin = 0, commandBegin = 0; // ns
  std::string spans;
  std::string text;
};

} // namespace trainc::run

#endif // TRAINC_RUN_OBSERVER_H
