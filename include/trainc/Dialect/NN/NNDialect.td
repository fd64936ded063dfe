//===- NNDialect.td - Differentiable tensor operations ----*- tablegen -*-===//
#ifndef TRAINC_NN_DIALECT
#define TRAINC_NN_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "trainc/Dialect/NN/NNInterfaces.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::trainc::nn";
  let summary = "Differentiable tensor operations";
  let description = [{
    Operations on tensors of static shape at the granularity at which people
    think of networks and at which fused kernels exist. All are pure. Element
    types are f64, f32, bf16, f16, integers and i1; arithmetic on bf16 and f16
    is done in f32 and rounded once per operation. No size is 0, and a tensor has at
    most 2^40 elements.

    An op is either pointwise (with broadcasting), a primitive of its own
    (`reduce`, `matmul`, `transpose`, ...), or decomposes into such ops.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
  let hasConstantMaterializer = 1;
}

def NN_Float : AnyTypeOf<[F64, F32, BF16, F16]>;
def NN_Int : AnyTypeOf<[I8, I16, I32, I64]>;
def NN_Bool : TypeAlias<I1, "bool">;
/// Sizes that every layout and every decomposition can compute with.
def NN_LegalTensor : CPred<"::trainc::nn::isLegalTensor($_self)">;
class NN_TensorOf<list<Type> elements>
    : Type<And<[TensorOf<elements>.predicate, NN_LegalTensor]>,
           "static " # TensorOf<elements>.summary # ", 1 to 2^40 of them, without encoding",
           "::mlir::RankedTensorType">;
def NN_FloatTensor : NN_TensorOf<[F64, F32, BF16, F16]>;
def NN_IntTensor : NN_TensorOf<[I8, I16, I32, I64]>;
def NN_BoolTensor : NN_TensorOf<[I1]>;
def NN_NumberTensor : NN_TensorOf<[F64, F32, BF16, F16, I8, I16, I32, I64]>;
def NN_Tensor : NN_TensorOf<[F64, F32, BF16, F16, I8, I16, I32, I64, I1]>;

def NN_F64Scalar : 0DTensorOf<[F64]>,
                   BuildableType<"::mlir::RankedTensorType::get({}, $_builder.getF64Type())">;
def NN_I64Scalar : 0DTensorOf<[I64]>,
                   BuildableType<"::mlir::RankedTensorType::get({}, $_builder.getI64Type())">;

class NN_Op<string mnemonic, list<Trait> traits = []>
    : Op<NN_Dialect, mnemonic, !listconcat([Pure], traits)>;

/// An op whose result types follow from its operands and attributes. The C++
/// side defines `inferReturnTypes(context, location, adaptor, types)`.
class NN_InferredOp<string mnemonic, list<Trait> traits = []>
    : NN_Op<mnemonic, !listconcat([InferTypeOpAdaptor], traits)>;

def Differentiable : DeclareOpInterfaceMethods<NN_DifferentiableOp>;
def Pointwise : DeclareOpInterfaceMethods<NN_PointwiseOp>;
/// A pointwise op that is linear in operands.
def LinearPointwise : DeclareOpInterfaceMethods<NN_PointwiseOp, ["getLinearOperands"]>;
def Shardable : DeclareOpInterfaceMethods<NN_ShardableOp>;
/// One with attributes that hold sizes.
def ShardableSizes : DeclareOpInterfaceMethods<NN_ShardableOp, ["adaptToTypes"]>;
def DrawsRandom : DeclareOpInterfaceMethods<NN_RandomOpInterface>;
/// One that draws if it has a rate.
def MayDrawRandom : DeclareOpInterfaceMethods<NN_RandomOpInterface, ["draws"]>;
def Decomposable : DeclareOpInterfaceMethods<NN_DecomposableOp>;

/// A decomposable op that is a kernel of its own rather than decomposed when
/// kernels are formed: its decomposition is into linalg.
def KernelPrimitive : NativeOpTrait<"KernelPrimitive"> { let cppNamespace = "::trainc::nn"; }

#endif // TRAINC_NN_DIALECT
