//===- Tables.h - The tables of an artifact ---------------------*- C++ -*-===//
//
// The content of trainc_descriptor (step_abi.h), gathered from a module in form 3
// whose kernels know their tiles. Descriptor.h writes it as constants, Header.h as C;
// Reports.h says what follows of memory and time.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_DRIVER_TABLES_H
#define TRAINC_LIB_DRIVER_TABLES_H

#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/step_abi.h"
#include <string>
#include <vector>

namespace trainc {

struct ArenaRow {
  std::string name;
  trainc_role role;
  trainc_dtype dtype;
  uint64_t bytes;
  uint32_t pieceAxes = 0;
  std::vector<trainc_bucket> buckets;
};

struct AxisRow {
  std::string name;
  uint64_t size;
};

struct TensorRow {
  std::string name, state;
  trainc_role role;
  trainc_dtype dtype;
  std::vector<int64_t> dims;
  std::vector<trainc_split> splits; // per dimension; empty: whole
  uint32_t arena;
  uint64_t offset, bytes;
  int32_t group;
  trainc_init_kind init;
  double initA = 0, initB = 0;
  std::string data; // of a dense initial value
};

struct ScalarRow {
  std::string name;
  double init;
  uint32_t flags;
};

struct PortRow {
  std::string name;
  trainc_dtype dtype;
  std::vector<int64_t> dims;
  uint64_t bytes;
  std::vector<int64_t> splits; // per dimension; empty: whole
  uint64_t gradient = 0;       // number of the tensor that it may stand in + 1
};

struct KernelRow {
  std::string name;
  uint64_t scratchBytes = 0;
  uint32_t threads = 0; // of a block on a GPU
  bool amx = false;     // has instructions on tile registers
};

struct ImageRow {
  trainc_image_kind kind;
  uint32_t arch, toolkit;
  std::string data;
};

struct CommandRow {
  trainc_command_kind kind;
  uint32_t kernel = 0;
  int64_t tiles = 1;
  std::vector<trainc_operand> operands;
  std::optional<trainc_gemm_detail> gemm;
  std::optional<trainc_convolution_detail> convolution;
  std::optional<trainc_collective_detail> collective;
  std::string label, location;
  trainc_rate rate = TRAINC_RATE_MEMORY;
  int64_t flops = 0;
};

struct EntryRow {
  std::string name;
  uint32_t kind;
  uint32_t accumulate = 1, window = 0;
  std::vector<PortRow> inputs, outputs;
  std::vector<trainc_index_check> checks;
  std::vector<CommandRow> lists[TRAINC_NUM_LISTS];
  uint64_t workspaceBytes = 0;
  /// The largest sum of bytes needed at one command, and what is computed again: how
  /// many values, which bytes that saves, and its part of the estimated time.
  uint64_t aliveBytes = 0, recomputed = 0, savedBytes = 0;
  double recomputeTime = 0;
};

struct Tables {
  std::string name;
  trainc_target target;
  std::vector<ImageRow> images; // of a GPU
  std::vector<ArenaRow> arenas;
  std::vector<TensorRow> tensors;
  std::vector<ScalarRow> scalars;
  std::vector<std::string> groups;
  std::vector<EntryRow> entries;
  std::vector<KernelRow> kernels;
  std::string code; // hash of the kernels of a processor; empty of a GPU
  std::vector<AxisRow> axes; // none for one rank
  uint32_t scalarArena = 0, workspaceArena = 0, windows = 0;
  double divisor = 1.0; // of sums of gradients
};

/// Gathers the tables of `module`, which is in form 3 or 4, under name `name`, but for
/// the images and the hash of the code.
Tables gatherTables(mlir::ModuleOp module, llvm::StringRef name,
                    trainc_target target);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_TABLES_H
