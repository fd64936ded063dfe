//===- observer.cpp - --profile, --roofline and --check-finite ------------===//

#include "observer.h"
#include "arrays.h"
#include "core/convert.h"
#include "core/kinds.h"
#include "ranks.h"
#include <algorithm>
#include <cmath>
#include <ctime>

namespace trainc::run {

/// A trace of more steps tells nothing new and takes long to open.
static constexpr uint64_t tracedSteps = 10;

static uint64_t nanoseconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(time.tv_nsec);
}

Observer::Observer(Model &model, const Options &options)
    : model(model), path(pathOfRank(options.profile)),
      checking(options.checkFinite) {
  if (options.roofline && model.descriptor().target != TRAINC_TARGET_CPU)
    fail("--roofline knows the limits of CPUs alone, and the model runs on a "
         "GPU");
  bool records = !path.empty() || options.roofline;
  if (!records && !checking)
    return;
  if (records && model.descriptor().target == TRAINC_TARGET_CPU)
    machine =
        std::make_unique<Machine>(trainc_trainer_threads(model.trainer()));
  if (options.roofline)
    roofline = std::make_unique<Roofline>(*machine);
  check(trainc_set_observer(model.trainer(), observe, this));
  model.observer = this;
}

Observer::Observer(Model &model, Check check)
    : model(model), before(std::move(check)) {
  run::check(trainc_set_observer(model.trainer(), observe, this));
  model.observer = this;
}

Observer::~Observer() {
  if (!model.observer)
    return;
  model.observer = nullptr;
  trainc_set_observer(model.trainer(), nullptr, nullptr);
}

void Observer::beginStep(uint64_t number) {
  step = number;
  if (!firstStep) {
    firstStep = number;
    origin = nanoseconds();
  }
  recording = (!path.empty() || roofline) && step < firstStep + tracedSteps;
  stepBegin = nanoseconds();
}

/// One complete event ("ph": "X"); times in microseconds.
static std::string span(std::string_view name, uint64_t begin, uint64_t end,
                        const std::string &arguments) {
  return format(R"({"name":%s,"ph":"X","pid":1,"tid":1,"ts":%.3f,"dur":%.3f,)"
                R"("args":{%s}})",
                jsonString(name).c_str(), 1e-3 * static_cast<double>(begin),
                1e-3 * static_cast<double>(end - begin), arguments.c_str());
}

void Observer::endStep() {
  recorded += recording;
  if (recording)
    spans += (spans.empty() ? "" : ",\n") +
             span(format("step %llu", static_cast<unsigned long long>(step)),
                  stepBegin - origin, nanoseconds() - origin, "");
  recording = false;
}

void Observer::finish() {
  if (roofline)
    std::printf("%s",
                recorded > 1
                    ? roofline->describe(recorded - 1).c_str()
                    : "no roofline: the first step opens libraries and is "
                      "left out, and there is no other\n");
  if (path.empty())
    return;
  OutputFile file(path, "wb", /*tolerant=*/true);
  file.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + spans +
             "\n]}\n");
  file.close();
}

int Observer::observe(void *context, const trainc_event *event) {
  Observer &self = *static_cast<Observer *>(context);
  if (!event->end) {
    self.commandBegin = event->time_ns;
    self.text = self.before ? self.before(*event) : "";
    return !self.text.empty();
  }
  if (self.recording)
    self.record(*event);
  return self.checking && !self.allFinite(*event);
}

/// ,"phase":"start" or "wait" of a collective that is in flight between the two.
static std::string phaseOf(const trainc_command &command) {
  if (!isCollective(command.kind))
    return "";
  const auto &detail =
      *static_cast<const trainc_collective_detail *>(command.detail);
  if (detail.phase == TRAINC_COLLECTIVE_WHOLE)
    return "";
  return detail.phase == TRAINC_COLLECTIVE_START ? R"(,"phase":"start")"
                                                 : R"(,"phase":"wait")";
}

void Observer::record(const trainc_event &event) {
  static const char *const kinds[] = {
#define TRAINC_COMMAND(NAME, number) #NAME,
#include "trainc/step_abi.def"
  };
  static const char *const lists[] = {
#define TRAINC_LIST(NAME, number) #NAME,
#include "trainc/step_abi.def"
  };
  const trainc_command &command = *event.command;
  double duration = static_cast<double>(event.time_ns - commandBegin);
  std::string label = command.label ? command.label : kinds[command.kind];
  auto limit = machine ? limitOf(*machine, command) : std::nullopt;
  // The first step opens libraries and touches memory for the first time.
  if (roofline && limit && step > firstStep)
    roofline->add(label, *limit, 1e-9 * duration);
  if (path.empty())
    return;
  uint64_t bytes = heldBytes(command);
  std::string arguments = format(
      R"("entry":%s,"list":"%s","index":%u,"kind":"%s","tiles":%lld,)"
      R"("flops":%lld,"bytes":%llu,"gflops_per_s":%.3f,"gbytes_per_s":%.3f)",
      jsonString(model.entry(event.entry).name).c_str(), lists[event.list],
      event.index, kinds[command.kind], static_cast<long long>(command.tiles),
      static_cast<long long>(command.flops),
      static_cast<unsigned long long>(bytes),
      duration > 0 ? static_cast<double>(command.flops) / duration : 0.0,
      duration > 0 ? static_cast<double>(bytes) / duration : 0.0);
  if (limit)
    arguments += format(R"(,"limit_us":%.3f,"bound":"%s")",
                        1e6 * limit->seconds, limit->bound);
  arguments += phaseOf(command);
  if (command.location)
    arguments += ",\"location\":" + jsonString(command.location);
  spans +=
      (spans.empty() ? "" : ",\n") +
      span(label, commandBegin - origin, event.time_ns - origin, arguments);
}

bool Observer::findNotFinite(const trainc_event &event, uint32_t operand,
                             uint64_t &element, double &value) const {
  const trainc_operand &o = event.command->operands[operand];
  if (!isFloat(o.dtype))
    return false;
  uint64_t size = trainc_dtype_size(o.dtype);
  std::vector<char> piece(std::min<uint64_t>(o.bytes, 1 << 20));
  element = 0;
  for (uint64_t at = 0; at < o.bytes; at += piece.size()) {
    uint64_t bytes = std::min<uint64_t>(piece.size(), o.bytes - at);
    if (trainc_operand_read(model.trainer(), event.entry, event.command,
                            operand, at, piece.data(), bytes) != TRAINC_OK)
      return false;
    for (uint64_t i = 0; i < bytes / size; ++i, ++element) {
      value = loadElement(o.dtype, piece.data(), i);
      if (!std::isfinite(value))
        return true;
    }
  }
  return false;
}

std::string describePlace(const Model &model, uint32_t index,
                          const trainc_operand &operand) {
  const trainc_descriptor &d = model.descriptor();
  const trainc_entry &entry = model.entry(index);
  if (operand.base >= d.num_arenas + entry.num_inputs)
    return format(
        "output '%s'",
        entry.outputs[operand.base - d.num_arenas - entry.num_inputs].name);
  if (operand.base >= d.num_arenas)
    return format("input '%s'", entry.inputs[operand.base - d.num_arenas].name);
  if (operand.base == d.scalar_arena && operand.offset / 8 < d.num_scalars)
    return format("scalar '%s'", d.scalars[operand.offset / 8].name);
  static const char *const roles[] = {"parameter", "compute copy", "gradient",
                                      "state", "buffer"};
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    const trainc_tensor &tensor = d.tensors[i];
    if (tensor.arena == operand.base && tensor.offset <= operand.offset &&
        operand.offset - tensor.offset < tensor.bytes)
      return format("%s '%s%s%s'", roles[tensor.role], tensor.name,
                    tensor.state ? "/" : "", tensor.state ? tensor.state : "");
  }
  return format("arena '%s' at byte %llu", d.arenas[operand.base].name,
                static_cast<unsigned long long>(operand.offset));
}

bool Observer::allFinite(const trainc_event &event) {
  const trainc_command &command = *event.command;
  uint64_t element;
  double value;
  uint32_t written = 0;
  for (; written < command.num_operands; ++written)
    if ((command.operands[written].access & TRAINC_WRITE) &&
        findNotFinite(event, written, element, value))
      break;
  if (written == command.num_operands)
    return true;

  // Element and operand as one: where the value lies, not where the operand
  // does.
  trainc_operand at = command.operands[written];
  at.offset += element * trainc_dtype_size(at.dtype);
  text = format("'%s' at %s wrote %f to %s (element %llu of the %s operand %u)",
                command.label ? command.label : "?",
                command.location ? command.location : "unknown location", value,
                describePlace(model, event.entry, at).c_str(),
                static_cast<unsigned long long>(element),
                elementType(at.dtype).name().c_str(), written);
  for (uint32_t i = 0; i < command.num_operands; ++i) {
    if (command.operands[i].access != TRAINC_READ ||
        !findNotFinite(event, i, element, value))
      continue;
    at = command.operands[i];
    at.offset += element * trainc_dtype_size(at.dtype);
    text += format("; it reads %f from %s", value,
                   describePlace(model, event.entry, at).c_str());
    break;
  }
  return false;
}

} // namespace trainc::run
