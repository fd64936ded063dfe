//===- TrainDialect.td - The training step ----------------*- tablegen -*-===//
#ifndef TRAINC_TRAIN_DIALECT
#define TRAINC_TRAIN_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Train_Dialect : Dialect {
  let name = "train";
  let cppNamespace = "::trainc::train";
  let summary = "One training step: parameters, optimizer, update, commands";
  let description = [{
    A module is a model: parameters and buffers, optimizers and schedules, one
    `train.step` and any number of `train.eval`. The same ops, joined by those that
    the passes insert, describe the step in all its forms: source (form 0), gradients
    explicit (1), step plan (2) and commands over planned memory (3).

    Persistent storage is named: `@param` in form 0 and 1; `@arena[@param]` from form
    2 on, where an arena holds the values of one role (`@master`, `@compute`, `@grad`,
    a state, `@buffer`, `@scalars`).
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::trainc::nn::NNDialect", "::mlir::scf::SCFDialect"];
}

def Train_LegalTensor : CPred<"::trainc::nn::isLegalTensor($_self)">;
class Train_TensorOf<list<Type> elements>
    : Type<And<[TensorOf<elements>.predicate, Train_LegalTensor]>,
           "static " # TensorOf<elements>.summary # ", 1 to 2^40 of them, without encoding",
           "::mlir::RankedTensorType">;
def Train_Tensor : Train_TensorOf<[F64, F32, BF16, F16, I8, I16, I32, I64, I1]>;

/// A bucket's values, of which only train-coalesce says how many there are.
def Train_Bucket : Type<CPred<"::trainc::train::isUnplacedBucket($_self)">,
    "tensor<?xT>, a bucket that is not laid out", "::mlir::RankedTensorType">;
def Train_TensorOrBucket : AnyTypeOf<[Train_Tensor, Train_Bucket], "tensor or bucket", "::mlir::RankedTensorType">;

/// What a value stands in once memory is planned: row-major, at an address.
def Train_LegalBuffer : CPred<"::trainc::train::isLegalBuffer($_self)">;
class Train_BufferOf<list<Type> elements>
    : Type<And<[MemRefOf<elements>.predicate, Train_LegalBuffer]>,
           "static " # MemRefOf<elements>.summary # ", 1 to 2^40 elements, row-major", "::mlir::MemRefType">;
def Train_Buffer : Train_BufferOf<[F64, F32, BF16, F16, I8, I16, I32, I64, I1]>;
def Train_TensorOrBuffer : AnyTypeOf<[Train_Tensor, Train_Buffer], "tensor or buffer", "::mlir::ShapedType">;

def Train_Token : TypeDef<Train_Dialect, "Token"> {
  let mnemonic = "token";
  let summary = "a collective in flight";
}

class Train_Op<string mnemonic, list<Trait> traits = []> : Op<Train_Dialect, mnemonic, traits>;

#endif // TRAINC_TRAIN_DIALECT
