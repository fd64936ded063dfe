//===- trainc-emulate.cpp - Makes images for the emulator, for tests ------===//
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "trainc/Pipelines/Pipelines.h"
#include "trainc/Target/GPU/Emulate.h"
#include "trainc/Target/GPU/Serialize.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

namespace cl = llvm::cl;

static llvm::LogicalResult emulate(llvm::StringRef input,
                                   llvm::StringRef output) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  trainc::registerGPUTranslations(registry);
  mlir::MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  std::string message;
  auto file = mlir::openInputFile(input, &message);
  if (!file) {
    llvm::errs() << "trainc-emulate: error: " << message << "\n";
    return llvm::failure();
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  if (!module)
    return llvm::failure();
  mlir::PassManager pm(&context);
  trainc::buildLowerToNVVM(pm);
  if (mlir::failed(pm.run(*module)))
    return llvm::failure();
  auto kernels = module->getOps<mlir::gpu::GPUModuleOp>();
  if (!llvm::hasSingleElement(kernels))
    return module->emitError("expects one gpu.module");
  std::string image;
  if (llvm::failed(trainc::emulateModule(*kernels.begin(), image)))
    return llvm::failure();
  auto out = mlir::openOutputFile(output, &message);
  if (!out) {
    llvm::errs() << "trainc-emulate: error: " << message << "\n";
    return llvm::failure();
  }
  out->os() << image;
  out->keep();
  return llvm::success();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::opt<std::string> input(cl::Positional, cl::Required,
                             cl::desc("<module.mlir>"));
  cl::opt<std::string> output("o", cl::Required, cl::value_desc("file"),
                              cl::desc("Write the image to this file"));
  cl::ParseCommandLineOptions(argc, argv,
                              "image of a gpu.module for the emulator\n");
  return llvm::failed(emulate(input, output));
}
