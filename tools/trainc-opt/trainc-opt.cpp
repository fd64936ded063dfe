//===- trainc-opt.cpp - Runs single passes on a module --------------------===//
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "trainc/Conversion/Passes.h"
#include "trainc/Driver/Compiler.h"
#include "trainc/Transforms/Passes.h"

#ifdef TRAINC_TEST_PASSES
namespace trainc {
/// Of test/Equipment/passes.
void registerTestPasses();
} // namespace trainc
#endif

/// Removes `--disable-pass=NAME` and every `--NAME` from the command line: NAME then
/// does nothing. The pass tests use it to see that each fails without its pass.
static llvm::SmallVector<char *> dropDisabled(int argc, char **argv) {
  llvm::SmallVector<char *> kept;
  llvm::SmallVector<llvm::StringRef> disabled;
  for (char *argument : llvm::ArrayRef(argv, argc)) {
    llvm::StringRef text(argument);
    if (text.consume_front("--disable-pass="))
      disabled.push_back(text);
  }
  for (char *argument : llvm::ArrayRef(argv, argc)) {
    llvm::StringRef text =
        llvm::StringRef(argument).ltrim('-').split('=').first;
    if (text != "disable-pass" && !llvm::is_contained(disabled, text))
      kept.push_back(argument);
  }
  return kept;
}

int main(int argc, char **argv) {
  llvm::SmallVector<char *> arguments = dropDisabled(argc, argv);
  mlir::DialectRegistry registry;
  trainc::registerDialects(registry);
  registry.insert<mlir::linalg::LinalgDialect, mlir::scf::SCFDialect,
                  mlir::tensor::TensorDialect, mlir::memref::MemRefDialect>();
  mlir::registerTransformsPasses();
  trainc::registerTraincTransformsPasses();
  trainc::registerTraincConversionPasses();
  trainc::registerPipelines();
#ifdef TRAINC_TEST_PASSES
  trainc::registerTestPasses();
#endif
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      arguments.size(), arguments.data(), "trainc pass driver\n", registry));
}
