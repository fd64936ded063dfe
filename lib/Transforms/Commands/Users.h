//===- Users.h - Who uses a value -------------------------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_USERS_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_USERS_H

#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// Whether `op` gives the memory of its operand as it is.
inline bool passesOn(mlir::Operation *op) {
  return mlir::isa_and_nonnull<nn::ReshapeOp, train::ViewOp, train::BarrierOp>(
      op);
}

/// Whether one for which `accept` is true uses `value`, itself or passed on.
inline bool hasUser(mlir::Value value,
                    llvm::function_ref<bool(mlir::Operation *)> accept) {
  return llvm::any_of(value.getUsers(), [&](mlir::Operation *user) {
    return passesOn(user) ? hasUser(user->getResult(0), accept) : accept(user);
  });
}

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_USERS_H
