//===- TrainOps.h - Operations of the train dialect -------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_TRAIN_TRAINOPS_H
#define TRAINC_DIALECT_TRAIN_TRAINOPS_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/step_abi.h"

#include "trainc/Dialect/Train/TrainDialect.h.inc"
#include "trainc/Dialect/Train/TrainEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "trainc/Dialect/Train/TrainAttributes.h.inc"
#define GET_TYPEDEF_CLASSES
#include "trainc/Dialect/Train/TrainTypes.h.inc"

namespace trainc::train {

/// A buffer that a command reads, writes or both.
struct Access {
  mlir::Value buffer;
  bool read, write;
};

/// Whether `type` is that of a bucket's values before train-coalesce, tensor<?xT>.
bool isUnplacedBucket(mlir::Type type);

/// Whether values can stand in a memref of type `type`.
bool isLegalBuffer(mlir::Type type);

} // namespace trainc::train

#include "trainc/Dialect/Train/TrainInterfaces.h.inc"
#define GET_OP_CLASSES
#include "trainc/Dialect/Train/TrainOps.h.inc"

namespace trainc::train {

/// The number of an element type in artifacts.
trainc_dtype getDType(mlir::Type elementType);

/// Whether `op` is a collective.
bool isCollective(mlir::Operation *op);

/// The operand that collective `op`, or a train.start on tensors, changes in place; null if
/// its result stands elsewhere.
mlir::Value getInPlaceOperand(mlir::Operation *op);

/// The first train.step of a module; a diagnostic and null if there is none, or if what
/// its steps train or their clauses do not fit together.
StepOp getStep(mlir::ModuleOp module);

/// The first step that trains what `step` does: they share a window.
StepOp getFirstOfWindow(StepOp step);

/// The name of the window of `step`; null for that of the module's first step.
mlir::StringAttr getWindow(StepOp step);

/// The mesh of a module, or null.
MeshOp getMesh(mlir::ModuleOp module);

/// The axes of more than one rank over which the step's losses, weights and gradients
/// are sums; null if there are none.
mlir::ArrayAttr getReducedAxes(StepOp step);

/// How many terms `loss` is a sum of: as many as the targets of the losses that it is
/// computed from; 1 if there are none.
int64_t countLossTerms(mlir::Value loss);

} // namespace trainc::train

#endif // TRAINC_DIALECT_TRAIN_TRAINOPS_H
