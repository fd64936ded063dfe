//===- model.h - The artifact and its trainer -------------------*- C++ -*-===//
#ifndef TRAINC_RUN_MODEL_H
#define TRAINC_RUN_MODEL_H

#include "options.h"
#include "support.h"
#include <vector>

namespace trainc::run {

class Observer;

/// An artifact with one training state. Every member function ends the program
/// with an error if it cannot do what it says.
class Model {
public:
  /// Opens options.model; makes the trainer; loads the checkpoint or the
  /// initial parameters and sets the scalars that the options name.
  explicit Model(const Options &options);
  Model(const Model &) = delete;
  ~Model();

  /// Of the target that it runs on.
  const trainc_descriptor &descriptor() const { return *tables; }
  const trainc_entry &entry(uint32_t index) const {
    return tables->entries[index];
  }
  trainc_trainer *trainer() const { return handle; }
  /// Of the order of the data, sampling and generated inputs.
  uint64_t seed() const { return dataSeed; }

  /// The entry to train: `name`, or the first step.
  uint32_t findStep(const std::string &name) const;
  /// The entry to evaluate: `name`, or the first eval that `accepts`.
  /// `expected` says in the error message what the model should have.
  template <typename Predicate>
  uint32_t findEval(const std::string &name, Predicate accepts,
                    const char *expected) const {
    for (uint32_t i = 0; name.empty() && i < tables->num_entries; ++i)
      if (entry(i).kind == TRAINC_ENTRY_EVAL && accepts(entry(i)))
        return i;
    return findEvalNamed(name, expected);
  }

  /// Prints what the trainer's notice says and was not printed yet.
  void tellNotice();

  double scalar(uint32_t index) const;
  /// Index of the learning rate: the scalar "lr", or the first "*.lr"; -1:
  /// none.
  int64_t learningRate() const;

  /// One micro-step; `step` is for messages.
  /// The model cannot run afterwards.
  void convert(const ConvertArgument &argument);

  trainc_step_result step(uint32_t entry, uint64_t step);
  void eval(uint32_t entry);
  const void *output(uint32_t entry, uint32_t index) const;

  /// A value saved with the state; null if there is none.
  const char *metadata(const char *key) const;
  void setMetadata(const char *key, const std::string &value);

  /// Sees every command while it lives; may cancel a run.
  Observer *observer = nullptr;

private:
  uint32_t findEvalNamed(const std::string &name, const char *expected) const;
  void load(const Options &options);
  void setScalars(const Options &options);
  void noteDifferences(const Options &options);
  std::string entryNames(uint32_t kind) const;

  trainc_artifact *artifact;
  const trainc_descriptor *tables;
  trainc_trainer *handle;
  uint64_t dataSeed;
  size_t told = 0; // bytes of the notice
};

} // namespace trainc::run

#endif // TRAINC_RUN_MODEL_H
