//===- CheckText.h - What the parser must not see ---------------*- C++ -*-===//
#ifndef TRAINC_LIB_DRIVER_CHECKTEXT_H
#define TRAINC_LIB_DRIVER_CHECKTEXT_H

#include "mlir/Support/LLVM.h"
#include "llvm/Support/SourceMgr.h"

namespace mlir {
class MLIRContext;
} // namespace mlir

namespace trainc {

/// Checks the main file of `sources`, a module's text, for what ends MLIR's parser instead
/// of being an error: brackets nested so deeply that the stack overflows (most are 256
/// here), affine expressions of as many operators (most have 1024 characters between
/// brackets), and resources aligned to no power of two up to 4096. A diagnostic and failure if there is any.
mlir::LogicalResult checkText(llvm::SourceMgr &sources,
                              mlir::MLIRContext *context);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_CHECKTEXT_H
