//===- Compiler.h - From a module's text to an artifact ---------*- C++ -*-===//
#ifndef TRAINC_DRIVER_COMPILER_H
#define TRAINC_DRIVER_COMPILER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "trainc/Pipelines/Pipelines.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <vector>

namespace trainc {

/// What a compilation writes.
enum class Emit {
  SharedLibrary, ///< .so, and the header beside it
  Object,        ///< .o, and the header beside it
  LLVM,          ///< LLVM IR text
  MLIR,          ///< the module in the form `stopAfter`
  Header,        ///< the C header alone
};

/// What is said of an artifact in place of making it.
enum class ReportKind {
  None,
  Memory,   ///< the memory plan
  Estimate, ///< time and memory per rank, by the pipeline's rates
  Work, ///< arithmetic and bytes that each step needs, however it is compiled
};

struct CompileOptions {
  Emit emit = Emit::SharedLibrary;
  /// Where to write; "-" is standard output (text only).
  std::string output;
  /// Last form to reach.
  Form stopAfter = Form::Target;
  /// Folder that receives the module in each form, or empty.
  std::string dumpDirectory;
  /// What the artifact runs on; an artifact may hold several. The module in a form
  /// after `Plan`, and the memory report, are of one.
  llvm::SmallVector<Target> targets = {Target::CPU};
  /// Architectures to make code of GPUs for: sm_90, ..., and host for the emulator. The
  /// newest also gets PTX, for later ones.
  std::vector<std::string> cudaArchs = {"sm_80", "sm_90", "sm_100"};
  /// The CUDA toolkit, or empty: see findToolkit.
  std::string cudaPath;
  /// The architecture and system to make code for, or empty: this machine's.
  std::string triple;
  /// LLVM's name of the processor; "native" is this machine's.
  std::string cpu = "native";
  /// Optimization level of LLVM, 0 to 3.
  unsigned optimize = 3;
  PipelineOptions pipeline;
  /// Folder that keeps what was compiled for later compilations, or empty.
  std::string cacheDirectory;
  /// Bytes that the folder may grow to; what was not used for the longest time goes.
  uint64_t cacheSize = 1 << 30;
  /// Threads that compile; 0: one per processor.
  unsigned threads = 0;
  /// Writes a report instead, as text or JSON.
  ReportKind report = ReportKind::None;
  bool reportJson = false;
  /// Prints the decisions of passes whose whole name matches this regular expression.
  std::string remarks;
  /// Prints the time of each phase to standard error.
  bool time = false;
};

/// cpu or cuda.
llvm::StringRef targetName(Target target);

/// Registers the dialects that a source may use, and what the pipeline needs.
void registerDialects(mlir::DialectRegistry &registry);

/// The module that `sources` holds, or null after a diagnostic.
mlir::OwningOpRef<mlir::ModuleOp> parseModule(llvm::SourceMgr &sources,
                                              mlir::MLIRContext *context);

/// Compiles the module in file `input` ("-": standard input). Diagnostics go to
/// standard error; failure if there was an error.
llvm::LogicalResult compileFile(llvm::StringRef input,
                                const CompileOptions &options);

} // namespace trainc

#endif // TRAINC_DRIVER_COMPILER_H
