//===- trainc-opt.cpp - Runs single passes on a module --------------------===//
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "trainc/Conversion/Passes.h"
#include "trainc/Driver/Compiler.h"
#include "trainc/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  trainc::registerDialects(registry);
  registry.insert<mlir::linalg::LinalgDialect, mlir::scf::SCFDialect,
                  mlir::tensor::TensorDialect, mlir::memref::MemRefDialect>();
  mlir::registerTransformsPasses();
  trainc::registerTraincTransformsPasses();
  trainc::registerTraincConversionPasses();
  trainc::registerPipelines();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "trainc pass driver\n", registry));
}
