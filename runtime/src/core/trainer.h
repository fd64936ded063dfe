//===- trainer.h - A training state and its threads -------------*- C++ -*-===//
#ifndef TRAINC_CORE_TRAINER_H
#define TRAINC_CORE_TRAINER_H

#include "core/artifact.h"
#include "core/directory.h"
#include "core/pages.h"
#include "core/ranks.h"
#include "cpu/convolution.h"
#include "cpu/gemm.h"
#include "cpu/pool.h"

namespace trainc::cuda {
struct CUfunc_st;
struct Executor;
struct Product;
} // namespace trainc::cuda

namespace trainc {

/// Where the tensors of a trainer lie. As in the artifact's tables, unless the
/// trainer was converted to types that its artifact does not compute with: an
/// arena with such tensors has no buckets, and what this rank has of each tensor
/// lies at the tensor's offset.
struct State {
  State() = default;
  State(const State &) = delete;
  State &operator=(const State &) = delete;
  ~State();

  /// Takes over the tables of an artifact of the same size.
  void setTables(const trainc_descriptor &descriptor);
  /// Takes tables over; there are no pages yet.
  void layOut(const trainc_arena *arenas, uint32_t numArenas,
              const trainc_tensor *tensors, uint32_t numTensors);
  void swap(State &other);

  const trainc_tensor *findMaster(const trainc_tensor &tensor) const {
    return trainc::findMaster(tensors.data(), tensors.size(), tensor);
  }
  uint32_t indexOf(const trainc_tensor &tensor) const {
    return static_cast<uint32_t>(&tensor - tensors.data());
  }
  bool isCopy(const trainc_tensor &tensor) const {
    return trainc::isCopy(tensors.data(), tensors.size(), tensor);
  }

  Array<trainc_arena> arenas;
  Array<trainc_tensor> tensors;
  /// Per arena; empty for constant ones that are the artifact's own. Of a trainer on
  /// a GPU these are addresses of the device: see access.h.
  Pages *pages = nullptr;
};

/// A command with its addresses: what a run needs and no more.
struct BoundCommand {
  const trainc_command *source;
  trainc_kernel_fn function; // LAUNCH on the processor
  cuda::CUfunc_st *kernel;   // LAUNCH on a GPU
  const GemmPlan *plan;      // GEMM on the processor
  const ConvolutionPlan *convolution;
  const cuda::Product *product; // GEMM on a GPU
  const Group *group;           // of a collective
  uint32_t phase;               // of a collective on a GPU
  bool ofBatch;                 // of a collective: its ranks run one entry
  size_t firstArgument;         // in EntryState::arguments
  int64_t tiles;
  bool alone;        // so little work that waking threads would cost more
  uint64_t partial;  // offset among the partial products
  unsigned together; // this and commands after it that may run at once; 0: none
  bool sumsLater;    // their partial products are added with the next ones
};

/// COPY is cut into tiles of this size.
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
  /// Memory of the host that the caller lent, or null: of the inputs, then of the
  /// outputs. On the processor these are the bases, too.
  Array<void *> ports;
  Array<size_t> firstUse; // per base, into uses; one more at the end
  Array<BaseUse> uses;
  Pages outputs;      // of outputs without a binding
  bool apart = false; // checkApart has found nothing
};

struct UserPair {
  char *key, *value;
};

} // namespace trainc

struct trainc_trainer {
  ~trainc_trainer();

  trainc::Account account; // outlives all pages
  trainc_artifact *artifact = nullptr;
  const trainc_descriptor *d = nullptr;  // of the target that it runs on
  trainc::cuda::Executor *gpu = nullptr; // null: the processor
  uint64_t seed = 0, limit = 0, outputBytes = 0;

  trainc::Ranks ranks;
  /// By arena: memory that peers read, or null. The communicator's.
  trainc::Array<trainc::Window *> windows;
  /// Collectives that were started, and how many of them were waited for.
  trainc::Array<uint32_t> started;
  size_t waited = 0;
  trainc::State state;
  /// On a GPU the host's copy of the block, up to date after settle().
  double *scalars = nullptr;
  /// By scalar: its value is not the artifact's, nor computed, but the caller's.
  trainc::Array<bool> isSet;
  trainc::EntryState *entries = nullptr;
  trainc::Array<trainc::GemmPlan *> plans;
  trainc::Array<trainc::ConvolutionPlan *> convolutions;

  trainc::Pool pool;
  /// `scratchBytes` per thread: first `partialBytes` per thread of partial
  /// products, of all threads together, then what is left for each one's tiles.
  trainc::Pages scratch;
  trainc::Pages library; // on a GPU: workspace of cuBLASLt
  uint64_t scratchBytes = 0, partialBytes = 0;

  /// By window: the entry that it goes on with; meaningless if it is not open.
  trainc::Array<uint32_t> windowEntries;
  /// Somebody asked to stop, and no result has said so yet.
  bool stopRequested = false;
  /// The state is between two states; only a load helps.
  bool broken = false;
  /// A tensor has another type than the artifact computes with.
  bool converted = false;
  /// Arenas of a GPU that were converted, by way.
  uint64_t convertedBeside = 0, convertedByHost = 0;

  /// Of lists on a GPU.
  bool graphs = true;

  trainc_observer_fn observer = nullptr;
  void *observerContext = nullptr;

  trainc::Array<trainc::UserPair> metadata;
  trainc::Directory directory;
  trainc::Text report, checkpointPath, notice, place, loadNotice;
};

namespace trainc {

/// Elements [first, first + count) of a tensor, or of the part of it that a rank has
/// (parts.h), at `offset` of their arena.
struct Range {
  uint64_t first, count, offset;

  uint64_t end() const { return first + count; }
};

/// What `rank` has of tensor `index` of an artifact.
Range rangeOf(const trainc_descriptor &descriptor, const Ranks &ranks,
              uint32_t index, uint32_t rank);

/// What this rank has of it in `state`: the same elements, perhaps elsewhere.
Range rangeIn(const State &state, const trainc_descriptor &descriptor,
              const Ranks &ranks, uint32_t index);

/// What this rank has of a tensor of the trainer's state.
Part partOf(const trainc_trainer *trainer, const trainc_tensor &tensor);

/// The bucket in which tensor `index` of an artifact lies, or null if its arena has
/// none.
const trainc_bucket *bucketOf(const trainc_descriptor &descriptor,
                              uint32_t index);

/// Frees the windows that are there, of a place in a mesh.
void destroyWindows(const Ranks &ranks, Array<Window *> &windows);

/// Do peers read the arena, so that it is a window?
bool isInWindow(const trainc_descriptor &descriptor, uint32_t arena);

/// Fills `data`, of `dtype`, which is `tensor` or this rank's part of it (parts.h), and
/// in which this rank's piece of that stands, with the pieces of its peers.
trainc_status gatherTensor(const trainc_trainer *trainer,
                           const trainc_tensor &tensor, uint32_t dtype,
                           char *data);

/// Address of a tensor of which a rank has all.
char *tensorData(const trainc_trainer *trainer, const trainc_tensor &tensor);

/// Address of an arena: the trainer's, or the artifact's own if it is constant. It
/// is not the host's if the trainer runs on a GPU: see access.h.
char *arenaData(const trainc_trainer *trainer, uint32_t arena);

/// Builds the entries' bound commands for `threads` threads, makes GEMM plans,
/// and finds out how much scratch a thread needs.
trainc_status bindCommands(trainc_trainer *trainer, unsigned threads);

/// Writes this rank's place in the mesh for the step to read.
void setCoordinates(trainc_trainer *trainer);

/// Points the commands and the scalars to the arenas.
void bindArenas(trainc_trainer *trainer);

/// Points every operand of `base` of `entry` to `data`.
void setBase(EntryState &entry, size_t base, void *data);

/// Of the memory for all outputs of an entry.
uint64_t countOutputBytes(const trainc_entry &entry);

/// Is any of `data` in memory of gradients? On a GPU an address of the device may be.
bool isGradientMemory(const State &state, const void *data, uint64_t bytes);

/// Is `data` where the gradient is that the input is, of which this rank has all?
bool isOwnGradient(const trainc_trainer *trainer, const trainc_port &port,
                   const void *data);

/// Checks that nothing is written where an input stands, but the gradient that it is, and
/// that what the caller has lent for an output is used for nothing else.
trainc_status checkApart(trainc_trainer *trainer, uint32_t entry);

/// Checks that every input is bound and gives unbound outputs memory.
trainc_status prepareEntry(trainc_trainer *trainer, uint32_t entry);

/// Runs one workgroup of a command on the processor that is no collective, on the memory
/// given, of which `partial` is for partial products; false if a library failed.
bool runWorkgroup(const BoundCommand &command, void *const *args,
                  int64_t number, void *scratch, void *partial);

/// Tells the observer of a command; TRAINC_CANCELLED if it stops the run.
trainc_status observe(trainc_trainer *trainer, uint32_t entry, uint32_t list,
                      size_t index, bool end, uint64_t time);

/// TRAINC_OUT_OF_MEMORY if `more` bytes exceed the limit; the text says what `outputs`
/// bytes beyond would make of it.
trainc_status checkLimit(const trainc_trainer *trainer, uint64_t more,
                         uint64_t outputs = 0);

/// Allocates, saying what for if there is no memory.
trainc_status allocate(trainc_trainer *trainer, Pages &pages, uint64_t bytes,
                       const char *what);

/// Brings the scalars up to date; waits for the device.
trainc_status settle(const trainc_trainer *trainer);

/// May a checkpoint have `value` of a scalar, or a caller set it? Then null, else what
/// was expected.
const char *expectedOf(const trainc_descriptor &descriptor, uint32_t scalar,
                       double value);

/// Has a scalar the artifact's value unless the caller sets it?
inline bool followsArtifact(const trainc_descriptor &d, uint32_t scalar) {
  return (d.scalars[scalar].flags &
          (TRAINC_SCALAR_SETTABLE | TRAINC_SCALAR_PERSISTENT)) ==
         TRAINC_SCALAR_SETTABLE;
}

/// How far the training has come, all windows together.
inline Position positionOf(const trainc_trainer *trainer) {
  Position position = {};
  for (uint32_t window = 0; window < trainer->d->num_windows; ++window) {
    auto count = [&](uint32_t fixed) {
      return static_cast<uint64_t>(trainer->scalars[scalarOf(window, fixed)]);
    };
    position.update += count(TRAINC_SCALAR_UPDATE);
    position.microStep += count(TRAINC_SCALAR_MICRO_STEP);
  }
  return position;
}

/// Sets a scalar that kernels write, too.
void setScalar(trainc_trainer *trainer, uint32_t scalar, double value);

/// Ends a step or flush that closed the window whose scalars these are, or did not: gives its
/// result, if one is asked for, for which it waits for the device. `before` is the number
/// of updates that were done.
trainc_status endRun(trainc_trainer *trainer, const double *scalars,
                     bool closed, double before,
                     trainc_step_result *out_result);

/// Writes initial values and compute copies.
trainc_status initializeState(trainc_trainer *trainer);

/// Casts masters to their compute copies. All ranks do it.
trainc_status updateComputeCopies(trainc_trainer *trainer);

/// Sets or, with a null value, removes a pair.
void setPair(Array<UserPair> &pairs, const char *key, const char *value);
void clearPairs(Array<UserPair> &pairs);

/// What an arena of that role holds.
const char *roleText(uint32_t role);

/// How many elements a rank has of a tensor, all pieces together.
inline uint64_t elementCount(const trainc_tensor &tensor) {
  return tensor.bytes / trainc_dtype_size(tensor.dtype);
}

} // namespace trainc

#endif // TRAINC_CORE_TRAINER_H
