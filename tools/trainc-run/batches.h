//===- batches.h - Filling the inputs of an entry ---------------*- C++ -*-===//
#ifndef TRAINC_RUN_BATCHES_H
#define TRAINC_RUN_BATCHES_H

#include "arrays.h"
#include "model.h"
#include <functional>
#include <optional>

namespace trainc::run {

/// The inputs of one entry, bound to memory that is filled batch by batch from
/// files. What a batch holds depends on the files, the seed and the number of
/// examples before it only. A batch is that of all ranks, of which each fills in its
/// own rows.
class Batches {
public:
  enum class Order {
    File,  // one example after the other
    Random // examples: a shuffle per epoch; a token stream: windows anywhere
  };

  /// Ends the program if `files` do not give every input of the entry its data.
  Batches(Model &model, uint32_t entry, const std::vector<DataArgument> &files,
          Order order);
  /// Without files: fills the inputs once with values in range.
  static Batches generate(Model &model, uint32_t entry);

  /// Fills the inputs with the examples from `position` on, and moves it.
  /// Returns how many there are; the remaining rows of a short batch are
  /// masked. `step` is for messages.
  uint64_t fill(uint64_t &position, uint64_t step);

  /// Examples of an epoch; windows of a stream are so many that do not overlap.
  uint64_t examples() const { return length; }
  uint64_t batchSize() const { return batch; }
  /// Of one example; 0 if the data is no token stream.
  uint64_t tokens() const { return window; }
  bool isGenerated() const { return generated; }

private:
  struct Input {
    const trainc_port *port;
    std::unique_ptr<char, void (*)(void *)> memory;
    uint32_t part = 0, parts = 1; // of the rows of a batch
    const FileArray *array = nullptr;
    uint64_t rowElements = 0; // of one example
    uint64_t shift = 0;       // of a stream: 1 for the targets
    bool isMask = false;      // 1 for an example, 0 for a missing one
    bool isConstant = false;  // filled once
    std::optional<int64_t> ignore = std::nullopt; // value of a missing target

    /// Rows of a batch, of all ranks together.
    uint64_t rows() const {
      return static_cast<uint64_t>(port->dims[0]) * parts;
    }
  };

  Batches(Model &model, uint32_t entry);
  void assign(const std::vector<DataArgument> &arguments);
  void assignNamed(const DataArgument &argument);
  void assignUnnamed(const std::string &path);
  void assignArray(Input &input, const FileArray &array);
  void assignStream(const FileArray &array, Input &tokens, Input *targets);
  void findBatchSize();
  void compareData();
  void findLength(Order order);
  bool rowsAreIndependent() const;
  uint64_t source(uint64_t example);
  uint64_t availableTokens(const Input &input, uint64_t start) const;
  void fillRow(Input &input, uint64_t row, uint64_t index, bool missing);
  void copy(Input &input, uint64_t begin, uint64_t count, uint64_t to);
  std::string inputList() const;

  Model &model;
  uint32_t number; // of the entry
  const trainc_entry &entry;
  std::vector<std::unique_ptr<std::vector<FileArray>>> files;
  std::vector<Input> inputs;
  const FileArray *stream = nullptr;
  uint64_t batch = 0, length = 0, window = 0;
  bool maskable = false, random = false, generated = false;
  uint64_t shuffledEpoch = UINT64_MAX;
  std::vector<uint64_t> permutation;
  uint64_t currentStep = 0;
};

} // namespace trainc::run

#endif // TRAINC_RUN_BATCHES_H
