//===- TrainArenas.h - Names and ranks of arenas and scalars ----*- C++ -*-===//
#ifndef TRAINC_DIALECT_TRAIN_TRAINARENAS_H
#define TRAINC_DIALECT_TRAIN_TRAINARENAS_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc::train {

/// What the arenas of a plan hold; see arenaName.
inline constexpr llvm::StringLiteral kMasterArena = "arena.master";
inline constexpr llvm::StringLiteral kComputeArena = "arena.compute";
inline constexpr llvm::StringLiteral kGradientArena = "arena.grad";
inline constexpr llvm::StringLiteral kMergedArena = "arena.merged";
inline constexpr llvm::StringLiteral kBufferArena = "arena.buffer";
inline constexpr llvm::StringLiteral kScalarArena = "arena.scalars";

/// Of a comparison that says of each class whether it is the target, where no loss does: how
/// many classes there are, and the target that is ignored.
inline constexpr llvm::StringLiteral kClassesAttr = "train.classes";

/// What the arena of an optimizer's state holds.
std::string stateRole(llvm::StringRef state);

/// The arena of parameters, gradients or states of one element type, such as
/// `arena.master.f32`; of those of which ranks that differ in `axes` have different
/// parts, such as `arena.master.f32.model`; gradients of each window have their own.
std::string arenaName(llvm::StringRef role, mlir::Type element, ParamOp param);

/// The arena of buffers of one element type.
std::string bufferArena(mlir::Type element);

/// Elements per block of the norm (train.square_sum).
inline constexpr int64_t kNormBlock = 4096;

/// The scalar of the plan that holds this rank's position along an axis of the mesh.
std::string meshScalar(llvm::StringRef axis);

/// `@arena[@slice]`.
mlir::SymbolRefAttr sliceRef(mlir::MLIRContext *context, llvm::StringRef arena,
                             llvm::StringRef slice);

/// The name of a scalar that each window has.
std::string windowScalar(mlir::StringAttr window, llvm::StringRef name);

/// Which ranks exchange what an arena with slices of parameters has: those that differ
/// in axes over which gradients are sums, and along which the parameters are not in
/// parts. Pieces of buckets are for the ranks along the last such axis, if possible one
/// along which no parameter is in parts; none if there is no such axis.
struct Exchange {
  mlir::ArrayAttr pieceAxes, otherAxes;
  int64_t pieces;
};
Exchange getExchange(StepOp step, ArenaOp arena);

} // namespace trainc::train

#endif // TRAINC_DIALECT_TRAIN_TRAINARENAS_H
