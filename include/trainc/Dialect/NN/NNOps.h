//===- NNOps.h - Operations of the nn dialect -------------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_NN_NNOPS_H
#define TRAINC_DIALECT_NN_NNOPS_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "trainc/Dialect/NN/ShardingRule.h"
#include "trainc/Dialect/NN/Work.h"

namespace trainc::nn {
/// See KernelPrimitive in NNDialect.td.
template <typename ConcreteType>
class KernelPrimitive
    : public mlir::OpTrait::TraitBase<ConcreteType, KernelPrimitive> {};

/// Lanes of a reduction (see nn.reduce), and elements of a vector of generated code.
inline constexpr int64_t kLanes = 32;

/// Most elements of a tensor.
inline constexpr int64_t kMaxElements = int64_t{1} << 40;

/// Whether `type` is a ranked tensor of static shape with 1 to 2^40 elements (so
/// that offsets of all tensors of a step fit 64 bits) and without encoding.
bool isLegalTensor(mlir::Type type);

/// Checks that `region` holds pure scalar arith and math ops only.
llvm::LogicalResult verifyScalarOps(mlir::Operation *op, mlir::Region &region,
                                    llvm::StringRef tag);

/// Whether elements may have this type: f64, f32, bf16, f16, i8 to i64, i1.
bool isLegalElement(mlir::Type type);
} // namespace trainc::nn

#include "trainc/Dialect/NN/NNDialect.h.inc"
#include "trainc/Dialect/NN/NNEnums.h.inc"
#include "trainc/Dialect/NN/NNInterfaces.h.inc"
#define GET_OP_CLASSES
#include "trainc/Dialect/NN/NNOps.h.inc"

namespace trainc::nn {

/// The type in which elements of `type` are computed: f32 for bf16 and f16, else
/// `type` itself.
mlir::Type getComputeType(mlir::Type type);

/// Whether `value` lists the elements of a tensor: `dense`, `sparse`, or a
/// `dense_resource` with the bytes of all elements, one of each i1.
bool isElements(mlir::Attribute value);

/// The elements that `value` lists, as `dense`; null if it lists none.
mlir::DenseElementsAttr getDense(mlir::Attribute value);

/// Bytes that an element of `type` takes in memory.
int64_t getElementBytes(mlir::Type type);

/// Bytes of a tensor or buffer of static shape, and of all that are such among some values.
int64_t countBytes(mlir::ShapedType type);
int64_t countBytes(mlir::Value value);
int64_t countBytes(mlir::ValueRange values);

inline mlir::RankedTensorType getTensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

} // namespace trainc::nn

#endif // TRAINC_DIALECT_NN_NNOPS_H
