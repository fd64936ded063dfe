//===- KernelEmitter.h - Loops of a kernel ----------------------*- C++ -*-===//
//
// What the emitters of the different kinds of kernels share. An emitter turns a
// train.kernel into a function on memrefs (flat, one per operand) and a tile
// index, with explicit vectors of kLanes elements.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_COMMON_KERNELEMITTER_H
#define TRAINC_LIB_CONVERSION_KERNELS_COMMON_KERNELEMITTER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/Train/Alignment.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// Elements of a vector are the lanes of a reduction.
using nn::kLanes;

/// The type in which elements of `type` stand in memory: i8 for i1.
mlir::Type getStorageType(mlir::Type type);

/// Elementary code at an insertion point.
struct LoopBuilder {
  mlir::OpBuilder &b;
  mlir::Location loc;

  mlir::Value index(int64_t value);
  mlir::Value add(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, int64_t factor);
  mlir::Value mod(mlir::Value x, int64_t divisor);
  mlir::Value div(mlir::Value x, int64_t divisor);
  mlir::Value min(mlir::Value x, mlir::Value y);

  /// A vector of copies of `scalar`; itself if it is one already.
  mlir::Value splat(mlir::Value scalar, int64_t lanes = kLanes);
  /// True in the lanes below `count`, an index.
  mlir::Value maskBelow(mlir::Value count, int64_t lanes = kLanes);
  /// The numbers from index `from` on, as a vector of i64.
  mlir::Value count(mlir::Value from, int64_t lanes = kLanes);
  /// Loads `lanes` elements, only those in `mask` if given, in compute type. Those
  /// that are `aligned` begin at a multiple of their size or of
  /// train::kVectorAlignment.
  mlir::Value loadVector(mlir::Value memref, mlir::Value at, mlir::Type element,
                         mlir::Value mask, int64_t lanes = kLanes,
                         bool aligned = false);
  mlir::Value loadScalar(mlir::Value memref, mlir::Value at,
                         mlir::Type element);
  /// Stores a value of the compute type, rounded to `element`.
  void storeVector(mlir::Value value, mlir::Value memref, mlir::Value at,
                   mlir::Type element, mlir::Value mask, int64_t lanes = kLanes,
                   bool aligned = false);
  void storeScalar(mlir::Value value, mlir::Value memref, mlir::Value at,
                   mlir::Type element);
  /// `value`, a float or a vector of floats, in f64.
  mlir::Value toF64(mlir::Value value);
  /// `value` of the compute type as it reads back from memory: rounded to
  /// `element` and widened again.
  mlir::Value roundTo(mlir::Value value, mlir::Type element);

  using Body = llvm::function_ref<void(LoopBuilder &, mlir::Value)>;
  using CarryingBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      LoopBuilder &, mlir::Value, mlir::ValueRange)>;
  /// A loop of indices low, low + step, ... below high.
  void loop(mlir::Value low, mlir::Value high, int64_t step, Body body);
  /// A loop that carries values from each round to the next.
  llvm::SmallVector<mlir::Value> loop(mlir::Value low, mlir::Value high,
                                      int64_t step, mlir::ValueRange initial,
                                      CarryingBody body);

  mlir::Value identity(nn::ReduceKind kind, mlir::Type type) {
    return nn::reductionIdentity(b, loc, kind, type);
  }
  mlir::Value combine(nn::ReduceKind kind, mlir::Value x, mlir::Value y) {
    return nn::reductionCombine(b, loc, kind, x, y);
  }
  /// Combines the lanes of a vector by halving.
  mlir::Value combineLanes(nn::ReduceKind kind, mlir::Value vector);
};

/// Transposes as many vectors as each has lanes.
void transpose(LoopBuilder &l, llvm::MutableArrayRef<mlir::Value> rows);

/// A function being emitted: its memrefs by kernel value.
struct KernelFunction {
  train::KernelOp kernel;
  mlir::func::FuncOp function;
  llvm::DenseMap<mlir::Value, mlir::Value> inputs; // block argument -> memref
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> outputs;
  mlir::Value tile;
  /// Of the processor's vector registers together.
  int64_t registerBytes = 0;

  /// Rows and columns, 4 to 16, of a block that is transposed in registers: half of them
  /// hold it.
  int64_t transposedSize(mlir::Type element) const;

  /// Memory of the running tile for `count` elements, aligned to a cache line, as a
  /// flat memref: it is part of an argument before the tile index.
  mlir::Value allocateScratch(LoopBuilder &l, mlir::Type element,
                              int64_t count);
};

/// Declares the function of `kernel` in `module`: one flat memref per argument
/// and per result that is not in place, then the tile index.
KernelFunction createFunction(train::KernelOp kernel, mlir::ModuleOp module);

/// How the kernel whose lowered function is `function` is called.
train::AbiAttr abiOf(mlir::func::FuncOp function);

/// The op on segments in which `ops` end, if nothing but constants stands before it:
/// these become numbers of the module. Else null.
mlir::Operation *findSegments(KernelFunction &function,
                              llvm::ArrayRef<mlir::Operation *> ops);

/// Constant numbers of the module, as a flat memref.
mlir::Value getGlobal(LoopBuilder &l, mlir::DenseElementsAttr data);

/// A copy of `op` of a scalar region, on what `lookup` gives for its operands: on
/// vectors if one of them is a vector.
mlir::Operation *
cloneScalarOp(LoopBuilder &l, mlir::Operation &op,
              llvm::function_ref<mlir::Value(mlir::Value)> lookup);

/// Code that computes ops of a kernel element by element, shared by row and
/// column kernels. Values are scalars where they do not vary along the inner
/// dimension, and vectors elsewhere.
class PointEmitter {
public:
  PointEmitter(KernelFunction &function, const IterationSpace &space,
               int64_t lanes = kLanes)
      : function(function), space(space), lanes(lanes) {}

  KernelFunction &function;
  const IterationSpace &space;
  /// Elements of a vector.
  int64_t lanes;
  /// Values at the current point of the outer dimensions that do not vary along
  /// the inner one.
  llvm::DenseMap<mlir::Value, mlir::Value> scalars;
  /// Scalars inside the region of an nn.map, by the region's values.
  llvm::DenseMap<mlir::Value, mlir::Value> regionScalars;
  /// Coordinates along the outer dimensions.
  llvm::SmallVector<mlir::Value> coordinates;

  /// Sets the coordinates along those outer dimensions that `which` names, or all,
  /// from their row-major index.
  void setCoordinates(LoopBuilder &l, mlir::Value index,
                      llvm::ArrayRef<bool> which = {});

  bool isVector(mlir::Value value) const { return space.extentOf(value).inner; }
  bool isUniform(mlir::Value value) const;

  /// Offset of the first element of `value` at the current coordinates.
  mlir::Value offsetOf(LoopBuilder &l, mlir::Value value);
  /// The scalar `value`, emitted where the builder stands if need be.
  mlir::Value getScalar(LoopBuilder &l, mlir::Value value);
  /// Emits all scalars that the vectors of `op` use; with `uniformOnly` those
  /// that do not vary at all.
  void prepareScalars(LoopBuilder &l, mlir::Operation *op, bool uniformOnly);
  /// The vector `value` for inner elements at..at+lanes; `memo` holds those
  /// already emitted in this loop body.
  mlir::Value getVector(LoopBuilder &l, mlir::Value value, mlir::Value at,
                        mlir::Value mask,
                        llvm::DenseMap<mlir::Value, mlir::Value> &memo);

  /// Runs `store` where `condition` (null: always) holds and `value`, which may not
  /// vary along every outer dimension, is to be stored: at the first point along the
  /// others.
  void storeOnce(LoopBuilder &l, mlir::Value value, mlir::Value condition,
                 llvm::function_ref<void(LoopBuilder &)> store);

  /// If set, whether vectors of a value are `aligned`.
  std::function<bool(mlir::Value)> isAligned;
  /// If set, tells where a value has been stored for this row.
  std::function<mlir::Value(LoopBuilder &, mlir::Value, mlir::Value at,
                            mlir::Value mask)>
      loadStored;

private:
  mlir::Value emitIota(LoopBuilder &l, nn::IotaOp op, mlir::Value at);
  llvm::SmallVector<mlir::Value> emitMap(LoopBuilder &l, nn::MapOp op,
                                         mlir::ValueRange arguments,
                                         bool vector);
};

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_COMMON_KERNELEMITTER_H
