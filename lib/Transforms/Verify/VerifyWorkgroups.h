//===- VerifyWorkgroups.h - What all workgroups do --------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_VERIFY_VERIFYWORKGROUPS_H
#define TRAINC_LIB_TRANSFORMS_VERIFY_VERIFYWORKGROUPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace trainc {

/// Checks that nothing in a function of several workgroups writes to one of its
/// arguments, scratch aside, in the same way in all of them: neither whether it runs
/// nor where it writes would depend on the workgroup's number, the last argument.
/// That the bytes differ is checked when they run (trainc-run --check-workgroups).
llvm::LogicalResult verifyWorkgroups(mlir::func::FuncOp function);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_VERIFY_VERIFYWORKGROUPS_H
