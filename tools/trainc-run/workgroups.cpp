//===- workgroups.cpp - --check-workgroups --------------------------------===//

#include "workgroups.h"
#include "batches.h"
#include "core/convert.h"
#include "core/workgroups.h"
#include "launch.h"
#include "observer.h"

namespace trainc::run {

namespace {
/// Sees the commands of steps and evals.
class Checker {
public:
  explicit Checker(Model &model) : model(model) {}

  /// What is wrong with a command that is to run next, or an empty text.
  std::string check(const trainc_event &event);

  uint64_t launches = 0;
  int64_t workgroups = 0;

private:
  Memory memoryOf(const trainc_event &event, uint32_t operand) const;
  std::string findOverlap(const trainc_command &command,
                          const std::string &name) const;

  Model &model;
};
} // namespace

Memory Checker::memoryOf(const trainc_event &event, uint32_t operand) const {
  const trainc_descriptor &d = model.descriptor();
  const trainc_operand &o = event.command->operands[operand];
  const void *data;
  run::check(trainc_operand_data(model.trainer(), event.entry, event.command,
                                 operand, &data));
  bool isNumber = o.dtype == TRAINC_BOOL || isFloat(o.dtype);
  return {format("operand %u (%s, %s)", operand,
                 elementType(o.dtype).name().c_str(),
                 describePlace(model, event.entry, o).c_str()),
          o.dtype,
          o.bytes,
          static_cast<const char *>(data),
          (o.access & TRAINC_READ) != 0,
          (o.access & TRAINC_WRITE) != 0,
          /*shared=*/true,
          /*replaceable=*/isNumber && o.base != d.scalar_arena,
          reinterpret_cast<uintptr_t>(data) % 64};
}

/// What one operand of a command writes no other one may touch.
std::string Checker::findOverlap(const trainc_command &command,
                                 const std::string &name) const {
  for (uint32_t i = 0; i < command.num_operands; ++i)
    for (uint32_t j = 0; j < i; ++j) {
      const trainc_operand &x = command.operands[i], &y = command.operands[j];
      if (x.base == y.base && ((x.access | y.access) & TRAINC_WRITE) &&
          x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes)
        return format("operands %u and %u of %s overlap, and one is written", j,
                      i, name.c_str());
    }
  return "";
}

std::string Checker::check(const trainc_event &event) {
  const trainc_command &source = *event.command;
  if (source.kind == TRAINC_COMMAND_REDUCE_SCATTER ||
      source.kind == TRAINC_COMMAND_ALL_REDUCE ||
      source.kind == TRAINC_COMMAND_ALL_GATHER)
    return "";
  std::string name =
      format("'%s' at %s", source.label ? source.label : "?",
             source.location ? source.location : "unknown location");
  std::vector<Memory> memories;
  for (uint32_t i = 0; i < source.num_operands; ++i)
    memories.push_back(memoryOf(event, i));
  if (source.kind == TRAINC_COMMAND_COPY &&
      memories[0].real == memories[1].real)
    return ""; // an input that is bound to where it goes
  if (std::string wrong = findOverlap(source, name); !wrong.empty())
    return wrong;
  Workgroups all(model.trainer(), event);
  size_t operands = memories.size();
  uint64_t partial = all.partialBytes();
  memories.push_back(
      {"the partial products", TRAINC_F32, partial, nullptr, false, true});
  memories.push_back({"its scratch", TRAINC_U8, all.scratchBytes(), nullptr,
                      false, true,
                      /*shared=*/false});
  bool failed = false;
  Launch launch(
      name, memories, all.count(), [&](void *const *data, int64_t number) {
        failed |= !all.run(data, number, data[operands + 1], data[operands]);
      });
  std::string wrong = launch.check();
  ++launches;
  workgroups += all.count();
  if (failed)
    fail("the GEMM library failed in %s", name.c_str());
  if (!wrong.empty() || !partial)
    return wrong;

  // The second stage: partial products are added.
  std::vector<std::vector<char>> results = launch.results();
  for (size_t m = 0; m < memories.size(); ++m) {
    memories[m].real = results[m].data();
    memories[m].read |= memories[m].written && m <= operands;
    memories[m].written &= m == 2;
  }
  int64_t pieces = all.numPieces();
  workgroups += pieces;
  return Launch("the sums of " + name, memories, pieces,
                [&](void *const *data, int64_t number) {
                  all.addPiece(data, number, data[operands]);
                })
      .check();
}

void checkWorkgroups(Model &model, const Options &options) {
  if (model.descriptor().target != TRAINC_TARGET_CPU)
    fail("--check-workgroups runs them one by one: expects --device=cpu");
  Checker checker(model);
  Observer observer(
      model, [&](const trainc_event &event) { return checker.check(event); });
  uint32_t step = model.findStep(options.entry);
  Batches batches = options.data.empty()
                        ? Batches::generate(model, step)
                        : Batches(model, step, options.data,
                                  options.shuffle ? Batches::Order::Random
                                                  : Batches::Order::File);
  uint64_t position = 0;
  for (uint64_t done = 0; done < options.checkWorkgroups; ++done)
    do
      batches.fill(position, done + 1);
    while (!model.step(step, done + 1).closed);
  for (uint32_t e = 0; e < model.descriptor().num_entries; ++e)
    if (model.entry(e).kind == TRAINC_ENTRY_EVAL) {
      Batches inputs = Batches::generate(model, e);
      model.eval(e);
    }
  std::printf("checked %lld workgroups of %llu commands\n",
              static_cast<long long>(checker.workgroups),
              static_cast<unsigned long long>(checker.launches));
  std::fflush(stdout);
}

} // namespace trainc::run
