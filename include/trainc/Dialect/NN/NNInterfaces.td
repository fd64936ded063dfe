//===- NNInterfaces.td - What the passes ask of an nn op --*- tablegen -*-===//
#ifndef TRAINC_NN_INTERFACES
#define TRAINC_NN_INTERFACES

include "mlir/IR/OpBase.td"

def NN_DifferentiableOp : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::trainc::nn";
  let description = [{
    An operation that knows the vector-Jacobian product of its results. All ops
    it builds must be pure: what is not used is erased afterwards.
  }];
  let methods = [InterfaceMethod<[{
      Builds the gradients of the operands. `resultGrads` has one value per
      result, of the result's type, null where no gradient reaches it (at least
      one is not null). `operandGrads` has one null value per operand; the
      method sets those which have a gradient, each of its operand's type.
      Integer operands never have one.
    }], "::llvm::LogicalResult", "buildGradients",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$resultGrads,
         "::llvm::SmallVectorImpl<::mlir::Value> &":$operandGrads)>];
}

def NN_PointwiseOp : OpInterface<"PointwiseOpInterface"> {
  let cppNamespace = "::trainc::nn";
  let description = [{
    Each element of each result is a scalar function of the elements of the
    operands at the same index, operands being broadcast as NumPy does. All
    results have the broadcast shape. bf16 and f16 elements are computed in f32
    and rounded once, at the results.
  }];
  let methods = [InterfaceMethod<[{
      Groups of operands in which the function is linear, in those of one group
      together.
    }], "::llvm::SmallVector<::llvm::SmallVector<unsigned>>", "getLinearOperands", (ins), "", "return {};">,
  InterfaceMethod<[{
      Builds the scalar function. `args` has one value per operand, of the
      operand's compute type (`nn::getComputeType`: f32 for bf16 and f16, else
      the element type) or a vector of it; the results have the same form. Only
      elementwise-mappable `arith` and `math` ops may be built, constants with
      `nn::splatConstant`. No fast-math flag is allowed: a multiply-add that
      should be fused is a `math.fma`.
    }], "void", "buildScalar",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc,
         "::mlir::ValueRange":$args,
         "::llvm::SmallVectorImpl<::mlir::Value> &":$results)>];
}

def NN_DecomposableOp : OpInterface<"DecomposableOpInterface"> {
  let cppNamespace = "::trainc::nn";
  let description = [{
    An operation defined by simpler ones: `nn` ops that are closer to pointwise
    ops and reductions, or `linalg`, `tensor` and `arith` ops on tensors. The
    decomposition is the definition of the op.
  }];
  let methods = [InterfaceMethod<[{
      Builds the decomposition at the builder's insertion point and returns the
      values that replace the results, of the same types.
    }], "::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>>", "decompose",
    (ins "::mlir::OpBuilder &":$builder)>];
}

def NN_CostOp : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::trainc::nn";
  let description = [{
    An operation that says itself what it computes: what moves elements only, a primitive, or
    one whose kernel does less than its decomposition. What any other op computes
    follows from its scalar function or its decomposition (workOf in Analysis/Cost.h, which
    also counts bytes).
  }];
  let methods = [
    InterfaceMethod<"What the op computes, without bytes: nothing.", "::trainc::nn::Work", "countWork",
                    (ins), "", "return {};">,
    InterfaceMethod<"The unit whose peak bounds it.", "::trainc::nn::Unit", "getUnit",
                    (ins), "", "return ::trainc::nn::Unit::Vector;">];
}

def MovesElements : DeclareOpInterfaceMethods<NN_CostOp>;
def CountsWork : DeclareOpInterfaceMethods<NN_CostOp, ["countWork"]>;
/// One that does not run on vector units.
def CountsWorkOfUnit : DeclareOpInterfaceMethods<NN_CostOp, ["countWork", "getUnit"]>;

def NN_ShardableOp : OpInterface<"ShardableOpInterface"> {
  let cppNamespace = "::trainc::nn";
  let description = [{
    An operation that can be done in parts, each by another rank. A pointwise op needs
    no rule of its own.
  }];
  let methods = [InterfaceMethod<[{
      Which dimensions of operands and results are split alike, of the op as it
      stands.
    }], "::trainc::nn::ShardingRule", "getShardingRule", (ins)>,
  InterfaceMethod<[{
      Called for an op that is to become a part, whose operands and results have their
      types already: adapts attributes that hold sizes.
    }], "void", "adaptToTypes", (ins), "", "return;">];
}

def NN_RandomOpInterface : OpInterface<"RandomOpInterface"> {
  let cppNamespace = "::trainc::nn";
  let description = [{
    An operation that draws a random word for each element of its result, or for each
    score of an attention, as nn.dropout describes it: with a site that no other has, the
    scalars that make the draw repeatable, and the place of its elements in a tensor of
    which they are a part. The other methods are those of ODS.
  }];
  let methods = [
    InterfaceMethod<"Whether it draws at all.", "bool", "draws", (ins), "", "return true;">,
    InterfaceMethod<"", "::std::optional<uint64_t>", "getSite">,
    InterfaceMethod<"", "void", "setSite", (ins "::std::optional<uint64_t>":$site)>,
    InterfaceMethod<"", "::mlir::MutableOperandRange", "getSeedMutable">,
    InterfaceMethod<"", "::mlir::MutableOperandRange", "getUpdateMutable">,
    InterfaceMethod<"", "::mlir::MutableOperandRange", "getMicroStepMutable">,
    InterfaceMethod<"", "::mlir::MutableOperandRange", "getFirstMutable">,
    InterfaceMethod<"", "void", "setStrides",
                    (ins "::std::optional<::llvm::ArrayRef<int64_t>>":$strides)>];
}

#endif // TRAINC_NN_INTERFACES
