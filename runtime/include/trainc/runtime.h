//===- runtime.h - Train a compiled step in your program --------*- C -*-===//
//
// The C interface (C11) of the trainc runtime. An artifact is what the compiler
// wrote: a shared library that is opened by path, or an object linked into the
// program, opened by its descriptor. A trainer is one training state of an
// artifact: parameters, optimizer states, scalars and the threads that step it.
//
//   trainc_artifact *artifact;
//   trainc_trainer *trainer;
//   trainc_step_result result;
//   trainc_artifact_open("digits.so", &artifact);
//   trainc_trainer_create(artifact, NULL, &trainer);
//   trainc_bind_input(trainer, 0, 0, images, sizeof images);
//   trainc_bind_input(trainer, 0, 1, labels, sizeof labels);
//   for (int i = 0; i < 100; ++i) {
//     fill(images, labels);
//     if (trainc_step(trainer, 0, &result) != TRAINC_OK)
//       return puts(trainc_last_error()), 1;
//   }
//   trainc_save(trainer, "digits.safetensors");
//
// Rules that hold for every function:
// - It returns a status, TRAINC_OK (0) or the reason why it did nothing. Results
//   come last, as out_x, and are written on TRAINC_OK only. trainc_last_error()
//   has the text. Nothing prints, exits, or throws.
// - No pointer may be null unless the comment says so. Handles are not checked.
// - Strings are UTF-8. What a function lends is owned by the handle it came
//   from and lives until that handle is closed, unless the comment says less.
// - Threads: an artifact is immutable and may be used from any thread; a
//   trainer by one thread at a time. Trainers are independent: two of them, of one or
//   two artifacts, may run in two threads and give the same bits as alone.
// - Results depend on the artifact, the state, the inputs, the CPU's model and the version
//   of the GEMM library only: not on the number of threads or of CPUs.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_RUNTIME_H
#define TRAINC_RUNTIME_H

#include "trainc/step_abi.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TRAINC_API __attribute__((visibility("default")))
#else
#define TRAINC_API
#endif

#define TRAINC_VERSION_STRING "0.1.0"

//===----------------------------------------------------------------------===//
// Status
//===----------------------------------------------------------------------===//

typedef enum trainc_status {
  TRAINC_OK = 0,
  TRAINC_INVALID_ARGUMENT = 1, // wrong size, dtype, shape, range of an argument
  TRAINC_NOT_FOUND = 2,        // no such file, entry, tensor, scalar
  TRAINC_OUT_OF_MEMORY = 3,    // of the machine, or of memory_limit
  TRAINC_OUT_OF_RANGE = 4,     // a value of an index input
  TRAINC_IO_ERROR = 5,         // the operating system refused (disk full, ...)
  TRAINC_DATA_CORRUPT = 6,     // a file is not what it says it is
  TRAINC_MISMATCH = 7,         // a checkpoint does not fit the artifact
  TRAINC_UNSUPPORTED = 8,      // a library or processor feature is absent
  TRAINC_ABI_MISMATCH = 9,     // an artifact of another trainc
  TRAINC_CANCELLED = 10,       // the observer stopped the run
  TRAINC_COMM_FAILED = 11,     // a collective failed: a peer is gone, too late,
                               // or does something else
  TRAINC_DEVICE_FAILED = 12    // a GPU refused, failed, or was too late
} trainc_status;

/// The name of a status, for example "TRAINC_IO_ERROR". Never null.
TRAINC_API const char *trainc_status_name(trainc_status status);

/// What went wrong in the last call of this thread that did not return
/// TRAINC_OK. Valid until the next such call in this thread. Never null.
TRAINC_API const char *trainc_last_error(void);

/// Version of the runtime, equal to TRAINC_VERSION_STRING of its header.
TRAINC_API const char *trainc_version(void);

/// One line about this machine as the runtime sees it: version, processor name,
/// cores, and the GEMM libraries with their versions and kernels as far as they
/// have been loaded (a trainer loads what its artifact needs). Owned by this
/// thread, valid until the next call in it.
TRAINC_API const char *trainc_runtime_info(void);

/// Bytes of one element, and the safetensors name ("F32"); 0 and null if
/// `dtype` is not a trainc_dtype.
TRAINC_API uint64_t trainc_dtype_size(uint32_t dtype);
TRAINC_API const char *trainc_dtype_name(uint32_t dtype);

//===----------------------------------------------------------------------===//
// Artifacts
//===----------------------------------------------------------------------===//

typedef struct trainc_artifact trainc_artifact;

/// Opens a shared library written by `trainc`, or linked of an object that it
/// wrote and nothing else. Its file is read first: before any code of it runs, and
/// before the loader sees it, refuses one with another checksum than `trainc` wrote
/// (TRAINC_DATA_CORRUPT), of another ABI, or that would run code or need other
/// libraries when it is loaded (TRAINC_ABI_MISMATCH); then one for a processor with
/// features that this one lacks (TRAINC_UNSUPPORTED, names them). The checksum is against
/// accidents: open artifacts of those alone whose code you would run. The file
/// must not be written to while it is open; `trainc` puts a new one in its place.
TRAINC_API trainc_status trainc_artifact_open(const char *path,
                                              trainc_artifact **out_artifact);

/// Opens an artifact linked into the program (`<module>_descriptor` of its
/// header). The descriptor must outlive the artifact.
TRAINC_API trainc_status trainc_artifact_open_descriptor(
    const trainc_descriptor *descriptor, trainc_artifact **out_artifact);

/// Closes an artifact; null allowed. Trainers keep what they need: it is
/// unloaded when the last of them is destroyed.
TRAINC_API void trainc_artifact_close(trainc_artifact *artifact);

/// Its tables: entries, ports, tensors, scalars (step_abi.h). Never null.
TRAINC_API const trainc_descriptor *
trainc_artifact_descriptor(const trainc_artifact *artifact);

/// Index of the entry `name`, or, if `name` is null, of the first step.
TRAINC_API trainc_status trainc_artifact_find_entry(
    const trainc_artifact *artifact, const char *name, uint32_t *out_entry);

/// Index of an input or output of an entry by name.
TRAINC_API trainc_status
trainc_artifact_find_input(const trainc_artifact *artifact, uint32_t entry,
                           const char *name, uint32_t *out_index);
TRAINC_API trainc_status
trainc_artifact_find_output(const trainc_artifact *artifact, uint32_t entry,
                            const char *name, uint32_t *out_index);

/// Index of a tensor. `state` is null unless `role` is TRAINC_ROLE_STATE.
/// TRAINC_ROLE_MASTER finds a frozen parameter too (it has a compute copy
/// only).
TRAINC_API trainc_status trainc_artifact_find_tensor(
    const trainc_artifact *artifact, trainc_role role, const char *name,
    const char *state, uint32_t *out_tensor);

/// Index of a scalar by name.
TRAINC_API trainc_status trainc_artifact_find_scalar(
    const trainc_artifact *artifact, const char *name, uint32_t *out_scalar);

//===----------------------------------------------------------------------===//
// Trainers
//===----------------------------------------------------------------------===//

typedef struct trainc_trainer trainc_trainer;
typedef struct trainc_comm trainc_comm; /* of several ranks, see below */

/// A caller's thread pool: must call function(argument, i) once for every i in
/// [0, count), on any threads, and return when all have returned. Calls of one
/// trainer do not nest.
typedef void (*trainc_parallel_for_fn)(void *context,
                                       void (*function)(void *argument,
                                                        int64_t index),
                                       void *argument, int64_t count);

enum {
  /// Leave all tensors zero instead of writing initial values (when a load
  /// follows).
  TRAINC_TRAINER_NO_INIT = 1,
  /// Bind each thread of the trainer's own pool to one processor.
  TRAINC_TRAINER_PIN_THREADS = 2,
  /// On a GPU: hand over the commands of a list one by one in every run.
  TRAINC_TRAINER_NO_GRAPHS = 4
};

/// Zero is the default of every member but `size`, which must be set. A program may have
/// been compiled with a header whose struct has fewer members:
///   trainc_trainer_options options = {.size = sizeof options, .threads = 4};
typedef struct trainc_trainer_options {
  uint64_t size;
  uint32_t threads;      /* with the caller's; 0: processors of the process */
  uint32_t flags;        /* TRAINC_TRAINER_* */
  uint64_t memory_limit; /* bytes of arenas, outputs and scratch; 0: none */
  uint64_t seed;         /* of initial values and dropout; below 2^53 */
  trainc_parallel_for_fn parallel_for; /* null: the trainer's own pool */
  void *parallel_context;
  trainc_comm
      *comm; /* of an artifact for several ranks; outlives the trainer */
  /// Which of the artifact's targets runs, and where:
  ///   null, ""   a GPU if the artifact has code for one, and a driver and a device
  ///              that runs it are there, of several ranks on all; else the processor
  ///   "cpu"      the processor
  ///   "cuda"     a GPU: device 0 or, of several ranks on a host, that of the rank's
  ///              number on the host, modulo the number of devices
  ///   "cuda:N"   that GPU
  const char *device;
  double
      timeout; /* seconds that a wait for a GPU may take; 0: the communicator's
                     deadline if there is one, else 600 */
} trainc_trainer_options;

/// Makes a training state: allocates the arenas, starts the threads, loads the
/// GEMM library if the artifact multiplies matrices, writes initial values and
/// the compute copies. `options` may be null. If memory_limit is too small the
/// text says how much is needed, and nothing is left allocated. If a GPU has too
/// little memory, it lists what needs how much.
///
/// On a GPU the arenas are in its memory. Inputs are copied there when a run begins,
/// by way of pinned memory, so that what is bound may change as soon as the call
/// returns. A call returns when its work is handed over: only who asks for results,
/// scalars, tensors or outputs waits for the device. A list of commands is run once
/// plainly, then recorded as a CUDA graph. A failure of the device may thus come
/// with a later call; afterwards the trainer is of no use. The driver is libcuda.so.1,
/// or the file that TRAINC_LIBCUDA in the environment names; so is cuBLASLt opened, if
/// matrices are multiplied (TRAINC_LIBCUBLASLT), and libnccl.so.2, if ranks exchange
/// data (TRAINC_LIBNCCL).
///
/// OpenBLAS is libopenblas.so.0, or the file that TRAINC_OPENBLAS in the
/// environment names. While a step or an eval runs it is held at one thread, also for a
/// program that shares it; while it loads, the variables OPENBLAS_CORETYPE,
/// OPENBLAS_NUM_THREADS and OPENBLAS_L2_SIZE are changed (so the first trainer should not
/// be made while another thread reads the environment). bf16 products use AMX, else oneDNN (libdnnl.so.2) where it and the
/// processor can. trainc_runtime_info() says what is in use. With TRAINC_AVX2_ONLY
/// in the environment products keep to AVX2, artifacts that need more are refused, and
/// trainc compiles for x86-64-v3 if no processor is named: to test and time here what
/// other processors will run.
///
/// Initial values depend on (seed, name, element) only; this is their
/// definition, in IEEE double arithmetic, the same on every machine:
///   h    = FNV-1a 64 of the bytes of NAME (a state starts as its parameter would)
///   i    = the element's row-major index
///   r    = Philox4x32-10, counter {lo(i/2), hi(i/2), lo(h), hi(h)},
///          key {lo(seed), hi(seed)}  (lo, hi: 32-bit halves)
///   bits = r[0] + 2^32 r[1] if i is even, else r[2] + 2^32 r[3]
///   u    = (floor(bits / 2^12) + 0.5) 2^-52, in (0, 1)
///   UNIFORM           a + (b - a) u
///   NORMAL            a + b z(u), z = inverse normal distribution function by
///                     algorithm AS 241 (PPND16) of Wichura, with the logarithm
///                     ln(m 2^e) = e ln 2 + 2 (s + s^3/3 + ... + s^23/23),
///                     s = (m - 1)/(m + 1), m in [sqrt(1/2), sqrt(2))
///   TRUNCATED_NORMAL  a + b z(P + (1 - 2 P) u), P = value at -2 of the
///                     distribution function
/// rounded to nearest even to the tensor's type (so a uniform value may round
/// up to b).
TRAINC_API trainc_status trainc_trainer_create(
    trainc_artifact *artifact, const trainc_trainer_options *options,
    trainc_trainer **out_trainer);

/// Stops the threads and frees everything; null allowed.
TRAINC_API void trainc_trainer_destroy(trainc_trainer *trainer);

TRAINC_API const trainc_artifact *
trainc_trainer_artifact(const trainc_trainer *trainer);

/// The tables of the target that it runs on: of trainc_artifact_descriptor, or of one
/// that follows it. Entries, ports, tensors and scalars have the same numbers in all.
TRAINC_API const trainc_descriptor *
trainc_trainer_descriptor(const trainc_trainer *trainer);

/// Where it runs: "cpu", or "cuda:0 (NVIDIA H100, sm_90)".
TRAINC_API const char *trainc_trainer_device(const trainc_trainer *trainer);

/// Lines for the user, or null: why the processor was chosen although the artifact has
/// code for a GPU; what a GPU does by more launches than planned, because its libraries
/// refused. Steps may add some; valid until the trainer's next call.
TRAINC_API const char *trainc_trainer_notice(const trainc_trainer *trainer);

/// Threads that run tiles, with the caller's.
TRAINC_API uint32_t trainc_trainer_threads(const trainc_trainer *trainer);

//===----------------------------------------------------------------------===//
// Inputs and outputs
//===----------------------------------------------------------------------===//

/// Lends `bytes` bytes as input `index` of `entry`: dense, row major, of the
/// port's type, aligned to an element. They are read by every later run of the
/// entry until another binding, and never written. `bytes` must be exact. A run is
/// refused (TRAINC_INVALID_ARGUMENT) while an input overlaps an output of its entry, or
/// memory of the trainer that the entry writes.
///
/// The gradient of a parameter that is an input (`gradient(@p)`), of the gradient's type,
/// may stand where trainc_tensor_data says that the parameter's gradient is: then it is not
/// copied. Not with windows of several micro-steps, whose sums are there, nor where a
/// rank has only a part of it. No other input may be in memory of gradients. On a GPU
/// that is an address of the device, the only one that may be bound.
TRAINC_API trainc_status trainc_bind_input(trainc_trainer *trainer,
                                           uint32_t entry, uint32_t index,
                                           const void *data, uint64_t bytes);

/// The same, checking type and shape instead of bytes.
TRAINC_API trainc_status trainc_bind_input_shaped(
    trainc_trainer *trainer, uint32_t entry, uint32_t index, const void *data,
    uint32_t dtype, uint32_t rank, const int64_t *dims);

/// Which part of dimension `dimension` of an input (`output` 0) or output this rank
/// has, of how many equal ones: 0 of 1 if it is not split.
TRAINC_API trainc_status trainc_port_part(const trainc_trainer *trainer,
                                          uint32_t entry, uint32_t output,
                                          uint32_t index, uint32_t dimension,
                                          uint32_t *out_part,
                                          uint32_t *out_parts);

/// Lends memory for output `index` of `entry`, which overlaps no input, no other output and
/// no memory of the trainer that the entry uses. An output without a binding gets memory of
/// the trainer. A null `data` goes back to that.
TRAINC_API trainc_status trainc_bind_output(trainc_trainer *trainer,
                                            uint32_t entry, uint32_t index,
                                            void *data, uint64_t bytes);

/// Where output `index` of `entry` is written: the binding, or the trainer's
/// own memory. Valid until another binding; undefined content before the first
/// run. On a GPU it waits until the last run has written it; the trainer's own is
/// memory of the host, valid until the next run of the entry. (A run of an entry
/// with a binding waits until that is written.)
TRAINC_API trainc_status trainc_output_data(trainc_trainer *trainer,
                                            uint32_t entry, uint32_t index,
                                            const void **out_data);

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

typedef struct trainc_step_result {
  double loss;          // of this micro-step: sum / weight (NaN if weight is 0)
  double weight;        // of this micro-step: loss terms that counted
  double window_loss;   // of the window so far, or just closed: sum / weight
  double window_weight; // of several ranks together once the window is closed,
                        // until then, as loss and weight, those of this rank
  double grad_norm;    // of the last update, averaged and unscaled, before clip
  double clip_factor;  // what the clip multiplied the gradient with
  double loss_scale;   // of this window or, by a rule, of the next one
  uint64_t update;     // updates done, with this one
  uint64_t skipped;    // updates skipped so far, as `finite` says
  uint32_t micro_step; // micro-steps in the open window, 0 after its end
  uint32_t closed;     // 1: this call closed a window (its update ran)
  uint32_t updated;    // 1: and the update was not skipped
  uint32_t finite; // 0: a gradient or the weight of the closed window was not
  uint32_t stop;   // after a window: ranks that asked to stop
  uint32_t reserved;
} trainc_step_result;

/// Runs one micro-step of step `entry`; the accumulate-th of a window also runs
/// the update. Index inputs are checked first: TRAINC_OUT_OF_RANGE names input,
/// position and value, and the state is untouched. Any step that trains the same
/// parameters goes on with an open window; those that train others have a window of
/// their own. `out_result` may be null. Outputs of the entry are then those
/// of this micro-step.
///
/// Of several ranks each may run another step of the window if no more than gradients and
/// scalars is summed over their batches; else it is TRAINC_COMM_FAILED on all of them.
///
/// A gradient or a weight that is not finite is no error: the update is skipped
/// and reported.
TRAINC_API trainc_status trainc_step(trainc_trainer *trainer, uint32_t entry,
                                     trainc_step_result *out_result);

/// Asks all ranks to stop: `stop` of their next result that closes a window is not
/// 0, on every rank alike, so that all can save and end at the same step. Nothing
/// else changes. Runs without a result leave the request as it is.
TRAINC_API trainc_status trainc_request_stop(trainc_trainer *trainer);

/// Runs an eval entry; its outputs are then in place. Does not disturb an open
/// window.
TRAINC_API trainc_status trainc_eval(trainc_trainer *trainer, uint32_t entry);

/// Closes an open window of fewer than accumulate micro-steps: the update runs
/// with what was gathered. Does nothing (closed = 0) if no window is open; of several
/// that are, closes all in the order of the entries, and the result is that of the last.
/// `out_result` may be null; its loss and weight are of the last micro-step.
TRAINC_API trainc_status trainc_flush(trainc_trainer *trainer,
                                      trainc_step_result *out_result);

//===----------------------------------------------------------------------===//
// Scalars: learning rates, hyperparameters, loss scale, counters
//===----------------------------------------------------------------------===//

/// Scalars are listed in the descriptor; the fixed ones have the numbers of
/// trainc_fixed_scalar.
TRAINC_API trainc_status trainc_get_scalar(const trainc_trainer *trainer,
                                           const char *name, double *out_value);
TRAINC_API trainc_status trainc_get_scalar_at(const trainc_trainer *trainer,
                                              uint32_t scalar,
                                              double *out_value);

/// Sets a scalar that has TRAINC_SCALAR_SETTABLE, from the next step on. The
/// value must be finite; a seed an integer in [0, 2^53); the limit of a clip and the steps
/// and size of a schedule positive, or what the source has; a loss scale positive, and in
/// an open window, whose gradients it scales, the one that it has.
///
/// What is set stays set: it is saved and loaded with the state. A scalar that was not
/// set has the value of its artifact, also after a load of what another artifact has
/// saved: an edit of the source takes effect on the next resume. (A loss scale that a
/// rule changes is part of the state, and so is the seed; one that stands still stays
/// until an open window is closed.) trainc_load_notice() says what differs.
TRAINC_API trainc_status trainc_set_scalar(trainc_trainer *trainer,
                                           const char *name, double value);
TRAINC_API trainc_status trainc_set_scalar_at(trainc_trainer *trainer,
                                              uint32_t scalar, double value);

//===----------------------------------------------------------------------===//
// Tensors by index into the descriptor's table (trainc_artifact_find_tensor)
//===----------------------------------------------------------------------===//

/// Copies a tensor out as `dtype`, or in from it. `bytes` must be those of the
/// whole tensor in `dtype`. Floating types convert into each other (to nearest
/// even); all others only to themselves. Writing a parameter also writes its
/// compute copy; compute copies of trained parameters cannot be written. With
/// several ranks all of them call it, with the same tensor and data.
TRAINC_API trainc_status trainc_tensor_read(const trainc_trainer *trainer,
                                            uint32_t tensor, uint32_t dtype,
                                            void *out_data, uint64_t bytes);
TRAINC_API trainc_status trainc_tensor_write(trainc_trainer *trainer,
                                             uint32_t tensor, uint32_t dtype,
                                             const void *data, uint64_t bytes);

/// The tensor as the trainer holds it: the table entry of its artifact, but for
/// type, bytes and place after a trainc_convert. Valid until the next one.
TRAINC_API trainc_status trainc_tensor_get(const trainc_trainer *trainer,
                                           uint32_t tensor,
                                           const trainc_tensor **out_tensor);

/// The tensor itself: `bytes` of trainc_tensor_get, valid until the trainer is
/// converted or destroyed. Who writes parameters through it calls
/// trainc_update_compute_copies before the next run. No work of the trainer is under way
/// and no other rank reads the tensor when the call returns: who writes asks for the
/// address anew after each run. It fails where the ranks' communication has. On a GPU
/// this is an address of the device.
TRAINC_API trainc_status trainc_tensor_data(trainc_trainer *trainer,
                                            uint32_t tensor, void **out_data);

/// The elements of a tensor that this rank has, at trainc_tensor_data: all, or, of
/// an artifact whose ranks divide it, `count` from `first` on. Of a tensor with splits
/// (step_abi.h) they are counted in this rank's part, row major.
TRAINC_API trainc_status trainc_tensor_part(const trainc_trainer *trainer,
                                            uint32_t tensor,
                                            uint64_t *out_first,
                                            uint64_t *out_count);
TRAINC_API trainc_status trainc_update_compute_copies(trainc_trainer *trainer);

//===----------------------------------------------------------------------===//
// Checkpoints (safetensors files)
//
// Tensor names in a file: NAME for parameters and buffers,
// optimizer/NAME/STATE, scalar/NAME (F64, shape []) for counters and for scalars that
// were set, and, if the file was written inside a window, gradient/NAME. Of several
// ranks ("trainc.window_ranks") it then has rank/I/scalar/NAME for the sums of losses and weights of each and,
// unless gradients are summed over ranks in each micro-step, rank/I/gradient/NAME in
// place of gradient/NAME. __metadata__ has "trainc.format" ("1"), "trainc.artifact",
// "trainc.state_hash", "trainc.update" (of all windows together), "trainc.window_entry"
// (of windows but the first "trainc.window_entry.NAME", by the first entry), in an open window
// "trainc.divisor", the power of two that the sums of gradients are divided by, for
// artifacts that divide them by another,
// "trainc.source.NAME" for the value of a scalar that was not set, and the caller's own
// pairs as "user.KEY"; and "trainc.checksum", the CRC-32C of the data section (as of RFC
// 3720), as "crc32c:" and eight hexadecimal digits, which a load compares with the data.
// (What is edited by another program should lose that entry.) Files without it load
// unchecked. A state that is saved, loaded and stepped is bitwise the state that is
// stepped.
//
// A save is atomic: a temporary file in the same folder is written and synced,
// then renamed, then the folder is synced. Whatever stops the process or fills
// the disk leaves the previous file whole. (If the folder alone cannot be synced, the new
// file is there, as TRAINC_IO_ERROR says.) Two saves to one path do not mix: each
// has a temporary file of its own, .NAME.NUMBER.tmp (16 hexadecimal digits), and holds
// a lock on it (flock; where the file system has none, nothing is locked). What a
// killed save has left, and nobody has locked, is removed by the next save to the path.
// A link is followed: what it points to is replaced. Where something else than a
// regular file is (a device, a FIFO, a folder) a save is refused.
//
// For tests, TRAINC_FAULT in the environment makes the I/O of saves fail:
// a comma-separated list of OPERATION:N:ACTION; OPERATION is open, write,
// fsync, rename, remove or *; N is a number from 1 (the N-th such operation
// since the variable was set) or *; ACTION is kill (SIGKILL before the
// operation), fail (as a full disk) or delay=MILLISECONDS. Example:
// write:3:kill,fsync:*:delay=20.
//===----------------------------------------------------------------------===//

/// Saves the whole state to `path`.
TRAINC_API trainc_status trainc_save(trainc_trainer *trainer, const char *path);

enum {
  /// The folder may have checkpoints of another run. They stay until this run writes
  /// files of the same names; its `latest` becomes this run's.
  TRAINC_DIRECTORY_OVERWRITE = 1
};

/// Reserves `directory` for the checkpoints of this trainer, until it is destroyed:
/// makes the directory if it does not exist (its parent must), tries to write into it,
/// and locks its file .lock. TRAINC_IO_ERROR if another process, which is named, saves
/// there. TRAINC_MISMATCH if there is a `latest` of another run, that is, if the last
/// trainc_load of this trainer was not from this directory. To be called before a
/// training that will save there, so that nothing is found out too late; saves work
/// without it. With several ranks all of them call it.
TRAINC_API trainc_status trainc_reserve_directory(trainc_trainer *trainer,
                                                  const char *directory,
                                                  uint32_t flags);

/// Saves to `directory`/step-NNNNNN.safetensors (N = updates done; -M appended
/// after M micro-steps of an open window), makes the file `directory`/latest
/// name it, then removes all but the `keep` last files of this run (0: keeps all): those
/// that this trainer has saved there and, if it has loaded its state from there, those
/// up to that state, as long as no other run has replaced them. Others are never removed.
/// Makes the directory if it does not exist; its parent must. One process at a
/// time may save to a directory: a second one gets TRAINC_IO_ERROR, which names the
/// first. `out_path` may be null; it is valid until the next save.
TRAINC_API trainc_status trainc_save_checkpoint(trainc_trainer *trainer,
                                                const char *directory,
                                                uint32_t keep,
                                                const char **out_path);

/// Loads a whole state from a file, or from a directory what its `latest`
/// names. Everything is checked before anything changes: on TRAINC_MISMATCH the
/// text lists all missing, unexpected and mis-shaped tensors; the state is
/// untouched. Other floating types are converted piece by piece. (If reading
/// itself fails half-way, TRAINC_IO_ERROR, the trainer refuses to run until a
/// load succeeds.) With several ranks all of them call it. If some do not find the file,
/// rank 0 reads it for all; otherwise all must see the same one.
TRAINC_API trainc_status trainc_load(trainc_trainer *trainer, const char *path);

/// Where the last trainc_load has found scalars of the checkpoint that are not those of
/// the artifact, and which of the two is in use: one line each, for the user; or null.
/// Valid until the next load.
TRAINC_API const char *trainc_load_notice(const trainc_trainer *trainer);

/// Loads parameters, and buffers as far as the file has them, by name; other
/// tensors of the file are ignored, states and scalars stay. But while no update was
/// made, the moving average of a parameter begins anew at what is loaded. Checks as
/// trainc_load does.
TRAINC_API trainc_status trainc_load_parameters(trainc_trainer *trainer,
                                                const char *path);

/// Pairs that are saved and loaded with the state (a data position, a
/// generator's state), both UTF-8. Setting a null value removes the key. A value that is
/// lent is valid until the key is set or a load.
TRAINC_API trainc_status trainc_set_metadata(trainc_trainer *trainer,
                                             const char *key,
                                             const char *value);
TRAINC_API trainc_status trainc_get_metadata(const trainc_trainer *trainer,
                                             const char *key,
                                             const char **out_value);

//===----------------------------------------------------------------------===//
// Converting
//===----------------------------------------------------------------------===//

/// What a conversion applies to.
enum {
  TRAINC_CONVERT_PARAMETERS = 1,
  TRAINC_CONVERT_GRADIENTS = 2,
  TRAINC_CONVERT_STATES = 4,
  TRAINC_CONVERT_BUFFERS = 8
};

/// Zero is the default of every member but `size`, which must be set.
typedef struct trainc_convert_options {
  uint64_t size;
  const char *device; /* null, or where it is: "cpu" or "cuda" */
  const char *dtype;  /* "f64", "f32", "bf16" or "f16"; null: no other type */
  uint32_t blocking;  /* 0 or 1; on the CPU every call returns when done */
  uint32_t what;      /* TRAINC_CONVERT_*; 0: all of them */
  uint32_t include_integers; /* 1: tensors of integers, too, by way of f64 */
  uint32_t reserved;
  uint64_t memory_limit;     /* of this call, as the trainer's own; 0: none */
  trainc_artifact *artifact; /* go on with this one, in its types; or null */
} trainc_convert_options;

/// Converts the state of a trainer in place. Values are rounded to nearest even
/// (what f16 has no number for becomes infinite); scalars, metadata and an open
/// window stay; compute copies are made anew.
///
/// With `dtype`, the floating tensors of `what` become that type. A trainer
/// whose tensors then have other types than its artifact computes with can be
/// read, written, saved and loaded; it refuses to run until it is converted
/// back, or to an artifact.
///
/// With `artifact` (and neither `dtype` nor `what`) the trainer goes on with
/// that artifact: each tensor gets the type that it has there, by name. It
/// must have the same parameters, states, buffers and scalars: TRAINC_MISMATCH
/// lists what differs. This is, bit by bit, what a new trainer of `artifact` is
/// after trainc_load of what trainc_save would have written.
///
/// With neither, or null `options`, nothing happens.
///
/// What stays valid: the trainer; with `dtype`, the indices of its artifact's
/// tables and what is bound. With `artifact`, indices are those of the new
/// tables, and inputs and outputs must be bound again. Pointers of
/// trainc_tensor_data, trainc_tensor_get, trainc_output_data and
/// trainc_operand_data do not stay valid.
///
/// Memory: parts of an arena go back to the system as soon as they are
/// converted, so the trainer never holds more than the larger of what it holds
/// before and after, and 1 MiB. (A page or two per tensor come on top if the
/// two lay out their tensors in different orders.) What will be needed is known
/// before: if it exceeds a memory limit, TRAINC_OUT_OF_MEMORY says how much it
/// is. Whatever is refused, nothing has changed. While the call lasts, both
/// states need addresses (RLIMIT_AS).
///
/// On a GPU arenas are converted one by one, those that shrink first. The new arena of
/// `bytes` bytes is made beside the old one if
///   (bytes / 256 + 1) 256 x 1.2
/// bytes are free: the driver gives memory in units of 256 bytes, one more for a unit
/// that is not filled, and a fifth in reserve, as what is free is in pieces, and
/// others may take of it. Else the old one goes to the host, is freed, and comes back
/// converted, so that the device never holds two copies: the host then needs as much.
/// Types are converted on the host, by pieces. trainc_memory counts both ways. To
/// another artifact, or another device, a state goes by trainc_save and trainc_load:
/// TRAINC_UNSUPPORTED.
///
/// With several ranks all of them call it with the same options, but for
/// memory_limit, which is a rank's own; each converts what it has of the state.
/// What one rank refuses all refuse. An artifact is one for as many ranks, of any
/// mesh, mode and buckets: where a rank has other parts afterwards they go through
/// all ranks in pieces, and a rank may hold its parts of one bucket of either
/// artifact on top of the larger state. Each rank keeps its own sums of an open
/// window; to or from an artifact that sums gradients over ranks in each micro-step
/// only between windows, TRAINC_UNSUPPORTED inside of one. If a peer fails
/// meanwhile, TRAINC_COMM_FAILED, the trainer refuses to run.
TRAINC_API trainc_status trainc_convert(trainc_trainer *trainer,
                                        const trainc_convert_options *options);

//===----------------------------------------------------------------------===//
// Reading safetensors files (the reader of checkpoints, for data files)
//===----------------------------------------------------------------------===//

typedef struct trainc_tensor_file trainc_tensor_file;

/// A tensor of a file. `dtype` is a trainc_dtype, or UINT32_MAX for a type that
/// trainc does not have (`dtype_name` then says which). `data` is mapped read
/// only and aligned as in the file (writers usually align it to 8 bytes).
typedef struct trainc_tensor_view {
  const char *name;
  const char *dtype_name;
  uint32_t dtype;
  uint32_t rank;
  const int64_t *dims;
  const void *data;
  uint64_t bytes;
} trainc_tensor_view;

/// Opens and checks a file: TRAINC_DATA_CORRUPT says what is wrong with it. It must not
/// become shorter while it is open: reading `data` of a view would then be SIGBUS.
TRAINC_API trainc_status trainc_tensor_file_open(const char *path,
                                                 trainc_tensor_file **out_file);
TRAINC_API void trainc_tensor_file_close(trainc_tensor_file *file);
TRAINC_API uint64_t trainc_tensor_file_count(const trainc_tensor_file *file);

/// Tensor `index` of the file, in the order of the data.
TRAINC_API trainc_status trainc_tensor_file_get(const trainc_tensor_file *file,
                                                uint64_t index,
                                                trainc_tensor_view *out_view);
TRAINC_API trainc_status trainc_tensor_file_find(const trainc_tensor_file *file,
                                                 const char *name,
                                                 trainc_tensor_view *out_view);
/// Compares the data with the checksum that trainc_save has written ("trainc.checksum"):
/// TRAINC_DATA_CORRUPT if they differ, TRAINC_NOT_FOUND if the file has none. Reads all.
TRAINC_API trainc_status
trainc_tensor_file_verify(const trainc_tensor_file *file);

/// A value of __metadata__.
TRAINC_API trainc_status trainc_tensor_file_metadata(
    const trainc_tensor_file *file, const char *key, const char **out_value);

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

typedef struct trainc_memory {
  uint64_t persistent; // arenas that keep their content
  uint64_t workspace;  // activations and transient buffers
  uint64_t outputs;    // output memory of the trainer; on a GPU inputs, too
  uint64_t scratch; // of running tiles, all threads; on a GPU of libraries, too
  uint64_t total;   // what memory_limit limits
  uint64_t limit;   // 0: none
  uint64_t peak; // the most that total has been since the trainer was made, or
                 // since its last conversion began
  // Of a trainer on a GPU, else 0:
  uint64_t staging;           // pinned memory of the host, beside all that
  uint64_t converted_beside;  // arenas that trainc_convert made beside the old
  uint64_t converted_by_host; // ones, and after these had gone to the host
} trainc_memory;

TRAINC_API trainc_status trainc_memory_use(const trainc_trainer *trainer,
                                           trainc_memory *out_memory);

/// The same as text, one line per arena; valid until the next call.
TRAINC_API trainc_status trainc_memory_report(trainc_trainer *trainer,
                                              const char **out_text);

//===----------------------------------------------------------------------===//
// Ranks: processes that train together
//
// A communicator joins processes (ranks), on one host or on many. Ranks of one
// host exchange data through shared memory, others through MPI. What is summed
// is summed in the order of the ranks: the bits do not depend on the way.
//
// A collective fails if a peer has died, has not come within the deadline, or
// does something else: TRAINC_COMM_FAILED on all ranks that take part, with a
// text that names the collective, who has come and who is missing. The
// communicator then refuses everything but queries and its destruction.
//
// A communicator is used by one thread at a time; trainc_comm_interrupt may be
// called by any thread and by signal handlers.
//===----------------------------------------------------------------------===//

enum {
  /// Exchange through MPI with all peers, as if each rank had a host of its own.
  TRAINC_COMM_NO_WINDOW = 1,
  /// A wait that does not even notice its deadline (a call of MPI that hangs)
  /// ends the process, with status 1, two seconds after the deadline.
  TRAINC_COMM_EXIT = 2
};

/// Zero is the default of every member but `size`, which must be set.
typedef struct trainc_comm_options {
  uint64_t size;
  /// How the ranks find each other:
  ///   "mpi"            as MPI says. MPI is in a library of its own,
  ///                    libtrainc_mpi.so, looked for beside the runtime, or
  ///                    TRAINC_MPI_PLUGIN in the environment
  ///   "tcp"            at the address HOST:PORT of TRAINC_COORD
  ///   "tcp:HOST:PORT"  the same, at this address. All are on that host, so the
  ///                    port is the name of a local socket and none of the
  ///                    network: processes of other users are not heard
  ///   "file:PATH"      by files in PATH/.trainc-comm, in a folder that all ranks
  ///                    see; one run at a time. What an earlier run left there does
  ///                    no harm.
  ///   "self"           one rank, alone
  ///   null             from the environment: the first of these that is there
  ///     TRAINC_COORD                       tcp
  ///     OMPI_COMM_WORLD_RANK, _SIZE        mpi  (Open MPI's mpirun)
  ///     PMI_RANK, PMI_SIZE                 mpi  (MPICH's mpirun, Slurm)
  ///     SLURM_PROCID, SLURM_NTASKS         mpi  (Slurm; in a step of srun only)
  ///     RANK, WORLD_SIZE, MASTER_ADDR, _PORT  tcp, at MASTER_PORT + 1, as
  ///                                        torchrun itself listens on the port
  ///   and one rank alone if there is none.
  const char *bootstrap;
  /// With tcp and file. ranks = 0: both from the environment, TRAINC_RANK and
  /// TRAINC_RANKS, else the first pair of the above that is there. MPI knows
  /// them itself; if they are given they must be as it says.
  uint32_t rank, ranks;
  double
      deadline;   /* seconds that a collective, or the start, may wait; 0: 60 */
  uint32_t flags; /* TRAINC_COMM_* */
  uint32_t reserved;
  /// Told at once what is wrong while a collective waits; `text` is valid in
  /// the call only. Any thread. May be null.
  void (*report)(void *context, const char *text);
  void *report_context;
} trainc_comm_options;

/// Kinds of collectives, as trainc_comm_info counts them.
typedef enum trainc_collective_kind {
  TRAINC_REDUCE_SCATTER = 0,
  TRAINC_ALL_REDUCE = 1,
  TRAINC_ALL_GATHER = 2,
  TRAINC_BROADCAST = 3,
  TRAINC_BARRIER = 4,
  TRAINC_NUM_COLLECTIVES = 5
} trainc_collective_kind;

typedef struct trainc_comm_info {
  uint32_t rank, ranks;
  uint32_t host, hosts;           // hosts in the order of their first ranks
  uint32_t host_rank, host_ranks; // among the ranks of my host
  double deadline;                // seconds
  const char
      *bootstrap; // "mpi (Open MPI v4.1.4)", ...; owned by the communicator
  uint64_t collectives[TRAINC_NUM_COLLECTIVES]; // done, by kind
  uint64_t bytes[TRAINC_NUM_COLLECTIVES];       // of their ranges
} trainc_comm_info;

/// Makes a communicator of all ranks; all of them call it. `options` may be
/// null. Ranks are on one host if they share a kernel (its boot id), a namespace
/// of process ids and the value of TRAINC_HOST in the environment, any name; if
/// there are several hosts, MPI must start them (else TRAINC_UNSUPPORTED). A
/// mistake that any rank finds (another number of ranks, a rank that is there
/// twice) fails on all, as far as they can be told.
///
/// For tests, TRAINC_TEST_BANDWIDTH in the environment pretends a network of so many
/// bytes per second: a collective of b bytes is done b / bandwidth after its start at
/// the soonest, and not before that of those started before. A wait sleeps for as long.
TRAINC_API trainc_status trainc_comm_create(const trainc_comm_options *options,
                                            trainc_comm **out_comm);

/// Frees it; null allowed. Peers that still wait for this rank fail. MPI is
/// finalized when the process exits, if the runtime initialized it and no
/// communicator has failed or is left.
TRAINC_API void trainc_comm_destroy(trainc_comm *comm);

TRAINC_API trainc_status trainc_comm_get_info(const trainc_comm *comm,
                                              trainc_comm_info *out_info);

/// Returns when all ranks have called it. Equivalent to: MPI_Barrier.
TRAINC_API trainc_status trainc_comm_barrier(trainc_comm *comm);

/// TRAINC_COMM_FAILED if a peer is known to have died or given up. Does not wait.
TRAINC_API trainc_status trainc_comm_check(trainc_comm *comm);

/// A wait in progress, or else the next one, reports at once what it waits for,
/// and goes on waiting: for a handler of the SIGTERM that launchers send when a
/// rank has died.
TRAINC_API void trainc_comm_interrupt(trainc_comm *comm);

/// Checks that all ranks give the same `value` for `what` (a name for the message):
/// TRAINC_MISMATCH on every rank if not. Does nothing without a communicator.
TRAINC_API trainc_status trainc_comm_agree(trainc_comm *comm, const char *what,
                                           uint64_t value);

/// Writes the `bytes` bytes at `data` of every rank, in their order, to `out_all`.
/// Equivalent to: MPI_Allgather.
TRAINC_API trainc_status trainc_comm_all_gather(trainc_comm *comm,
                                                const void *data,
                                                uint64_t bytes, void *out_all);

/// The seconds of one collective of `bytes` bytes (a multiple of 4 x ranks) between
/// all ranks, the median of seven; all of them call it. Takes as much memory.
TRAINC_API trainc_status trainc_comm_measure(trainc_comm *comm,
                                             trainc_collective_kind kind,
                                             uint64_t bytes,
                                             double *out_seconds);

/// Tells the peers to give up, so that they fail with this rank's number and
/// `status`. Then, with MPI, ends the job (MPI_Abort) and does not return.
TRAINC_API void trainc_comm_abort(trainc_comm *comm, int status);

//===----------------------------------------------------------------------===//
// Observing
//===----------------------------------------------------------------------===//

/// One command of a run, seen from the calling thread. On a GPU it has been done when
/// its end is seen, and the time between its begin and end is the device's.
typedef struct trainc_event {
  uint32_t end; // 0: before the command, 1: after it
  uint32_t entry;
  uint32_t list;  // trainc_list_kind
  uint32_t index; // of the command in the list
  const trainc_command *command;
  uint64_t time_ns; // CLOCK_MONOTONIC
} trainc_event;

/// Returns 0 to go on. Anything else ends the run at once with
/// TRAINC_CANCELLED: the state is then between two states, and the trainer
/// refuses to run until a load succeeds. May call trainc_operand_data,
/// trainc_operand_read and trainc_get_scalar only.
typedef int (*trainc_observer_fn)(void *context, const trainc_event *event);

/// Calls `observer` before and after every command; null ends that.
TRAINC_API trainc_status trainc_set_observer(trainc_trainer *trainer,
                                             trainc_observer_fn observer,
                                             void *context);

/// The memory of operand `operand` of a command of `entry`, as bound now; on a GPU an
/// address of the device.
TRAINC_API trainc_status trainc_operand_data(const trainc_trainer *trainer,
                                             uint32_t entry,
                                             const trainc_command *command,
                                             uint32_t operand,
                                             const void **out_data);

/// Copies `bytes` bytes of it, from `offset` on, to memory of the host.
TRAINC_API trainc_status trainc_operand_read(const trainc_trainer *trainer,
                                             uint32_t entry,
                                             const trainc_command *command,
                                             uint32_t operand, uint64_t offset,
                                             void *out_data, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif // TRAINC_RUNTIME_H
