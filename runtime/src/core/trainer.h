//===- trainer.h - A training state and its threads -------------*- C++ -*-===//
#ifndef TRAINC_CORE_TRAINER_H
#define TRAINC_CORE_TRAINER_H

#include "core/artifact.h"
#include "cpu/gemm.h"
#include "cpu/pool.h"

namespace trainc {

/// Memory from the system: zero, page-aligned, given back when destroyed.
class Pages {
public:
  ~Pages() { release(); }
  Pages() = default;
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;

  bool allocate(uint64_t bytes);
  void release();
  char *data() const { return start; }
  uint64_t size() const { return bytes; }

private:
  char *start = nullptr;
  uint64_t bytes = 0;
};

/// A command with its addresses: what a run needs and no more.
struct BoundCommand {
  const trainc_command *source;
  trainc_kernel_fn function; // LAUNCH
  const GemmPlan *plan;      // GEMM
  size_t firstArgument;      // in EntryState::arguments
  int64_t tiles;
  bool alone; // so little work that waking threads would cost more
};

/// FILL and COPY are cut into tiles of this size.
constexpr uint64_t moveBytes = 256 << 10;

/// One use of a base address.
struct BaseUse {
  size_t argument;
  uint64_t offset;
};

/// An entry with its bindings. Bases are numbered as in trainc_operand.
struct EntryState {
  Array<BoundCommand> lists[TRAINC_NUM_LISTS];
  Array<void *> arguments;
  Array<void *> bases;
  Array<size_t> firstUse; // per base, into uses; one more at the end
  Array<BaseUse> uses;
  Pages outputs; // of outputs without a binding
};

struct UserPair {
  char *key, *value;
};

} // namespace trainc

struct trainc_trainer {
  ~trainc_trainer();

  trainc_artifact *artifact = nullptr;
  const trainc_descriptor *d = nullptr;
  uint64_t seed = 0, limit = 0, outputBytes = 0;

  trainc::Pages *arenas = nullptr; // per arena; empty for constant ones
  double *scalars = nullptr;
  trainc::EntryState *entries = nullptr;
  trainc::Array<trainc::GemmPlan *> plans;

  trainc::Pool pool;
  trainc::Pages scratch; // `scratchBytes` per thread
  uint64_t scratchBytes = 0;

  /// Entry of the open window; meaningless if none is open.
  uint32_t windowEntry = 0;
  /// The state is between two states; only a load helps.
  bool broken = false;

  trainc_observer_fn observer = nullptr;
  void *observerContext = nullptr;

  trainc::Array<trainc::UserPair> metadata;
  trainc::Text report, checkpointPath;
};

namespace trainc {

/// Address of a tensor.
char *tensorData(const trainc_trainer *trainer, const trainc_tensor &tensor);

/// Address of an arena: the trainer's, or the artifact's if it is constant.
char *arenaData(const trainc_trainer *trainer, uint32_t arena);

/// Builds the entries' bound commands, makes GEMM plans and scratch.
trainc_status bindCommands(trainc_trainer *trainer);

/// Points every operand of `base` of `entry` to `data`.
void setBase(EntryState &entry, size_t base, void *data);

/// Checks that every input is bound and gives unbound outputs memory.
trainc_status prepareEntry(trainc_trainer *trainer, uint32_t entry);

/// Bytes that are counted against the memory limit.
uint64_t memoryTotal(const trainc_trainer *trainer);

/// TRAINC_OUT_OF_MEMORY if `more` bytes exceed the limit.
trainc_status checkLimit(const trainc_trainer *trainer, uint64_t more);

/// Allocates, saying what for if there is no memory.
trainc_status allocate(Pages &pages, uint64_t bytes, const char *what);

/// Writes initial values and compute copies.
void initializeState(trainc_trainer *trainer);

/// Casts masters to their compute copies.
void updateComputeCopies(trainc_trainer *trainer);

/// Sets or, with a null value, removes a pair.
void setPair(Array<UserPair> &pairs, const char *key, const char *value);
void clearPairs(Array<UserPair> &pairs);

inline uint64_t elementCount(const trainc_tensor &tensor) {
  return tensor.bytes / trainc_dtype_size(tensor.dtype);
}

} // namespace trainc

#endif // TRAINC_CORE_TRAINER_H
