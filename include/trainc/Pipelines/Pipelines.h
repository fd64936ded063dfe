//===- Pipelines.h - The order of the passes --------------------*- C++ -*-===//
#ifndef TRAINC_PIPELINES_PIPELINES_H
#define TRAINC_PIPELINES_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include "trainc/Analysis/Gemm.h"
#include "trainc/Analysis/Rates.h"
#include "trainc/Dialect/Train/Alignment.h"
#include "llvm/ADT/StringSet.h"

namespace trainc {

/// The forms of a program; each phase ends in one.
enum class Form {
  Source = 0,    ///< as written
  Gradients = 1, ///< backward explicit
  Plan = 2,      ///< storage, window and update explicit
  Commands = 3,  ///< launches and GEMMs over planned memory
  Target = 4,    ///< kernels in the LLVM dialect
};

/// What the commands of form 3, and all after it, run on.
enum class Target { CPU, CUDA };

/// The name of a form on the command line: source, gradients, plan, commands,
/// target.
llvm::StringRef formName(Form form);
std::optional<Form> formFromName(llvm::StringRef name);

struct PipelineOptions {
  Target target = Target::CPU;
  /// Passes that are left out, or run in the plainest form where the next form
  /// needs them, by argument: see `disablablePasses`.
  llvm::StringSet<> disabled;
  /// One op per kernel, lowered by its linalg decomposition, no two values in the
  /// same memory: the tests' oracle of kernels, fusion and layout. Gradients and
  /// plans are those of every other build.
  bool reference = false;
  /// Bytes at a multiple of which slices of arenas start (train-coalesce).
  int64_t alignSize = train::kBufferAlignment;
  /// Axes of the mesh that get other sizes (train-set-mesh).
  llvm::SmallVector<std::pair<std::string, int64_t>> mesh;
  /// What is sharded over the ranks: none, optimizer, gradients or parameters
  /// (train-shard).
  std::string shard = "none";
  /// How the gradients of a window are kept: full or sharded; empty: as takes the
  /// least memory (train-shard).
  std::string mergeBuffer;
  /// Bytes of gradients that ranks exchange at a time (train-form-buckets).
  int64_t bucketSize = 32 << 20;
  /// Bytes that arenas and workspace may take, or 0 (train-recompute).
  int64_t memoryLimit = 0;
  /// Measured rates of the machine, as far as they are known (train-recompute).
  Rates rates;
  /// What computes GEMMs (train-plan-gemms); `gpu` is as `target`.
  GemmTarget gemm;
  /// The same bits on every CPU: nothing that a library or the kind of the CPU decides.
  bool portableBits = false;
  /// Kernels may use tile registers, as GEMMs with gemm.amx do.
  bool amx = false;
  /// Kernels for epilogues that images get (train-lower-kernels-to-gpu).
  llvm::SmallVector<std::string> epilogues;
  /// Bytes of the processor's vector registers together.
  int64_t registerBytes = 2048;
  /// A pipeline of registered passes that is run after each pass, or after those of one
  /// argument: for tests.
  std::string inserted, insertAfter;
  /// Two passes that follow each other in a phase, by argument, which run in the other
  /// order: for tests.
  std::pair<std::string, std::string> swapped;
};

/// Arguments of the passes that `disabled` may name.
llvm::ArrayRef<llvm::StringRef> disablablePasses();

/// From GPU, vector, memref and arith operations inside of `gpu.module` to the LLVM
/// and NVVM dialects, with bare pointers as parameters of kernels. A module that
/// went this way already is not changed.
void buildLowerToNVVM(mlir::OpPassManager &pm);

/// The arguments of the passes from form `form` - 1 to `form`, in their order; without
/// those that are inserted, and those of `buildLowerToNVVM`.
llvm::SmallVector<llvm::StringRef> listPasses(Form form,
                                              const PipelineOptions &options);

/// Adds the passes from form `form` - 1 to `form`.
void buildPhase(mlir::OpPassManager &pm, Form form,
                const PipelineOptions &options);

/// Registers the pipelines `trainc-to-<form>` (from source) with mlir-opt tools.
void registerPipelines();

} // namespace trainc

#endif // TRAINC_PIPELINES_PIPELINES_H
