//===- TrainInterfaces.td - What commands say of themselves -*- tablegen -*-===//
#ifndef TRAINC_TRAIN_INTERFACES
#define TRAINC_TRAIN_INTERFACES

include "mlir/IR/OpBase.td"

def Train_CommandOp : OpInterface<"CommandOpInterface"> {
  let cppNamespace = "::trainc::train";
  let description = [{
    A command of a list: what the runtime does at once. It has two forms. In the tensor
    form its results are tensors and it has no effect. `train-plan-memory` turns it into
    the buffer form, on memrefs without results.
  }];
  let methods = [InterfaceMethod<[{
      The buffers that the command reads, writes or both, in the buffer form. A buffer is
      listed once for each operand.
    }], "::llvm::SmallVector<::trainc::train::Access>", "getAccesses", (ins "::mlir::SymbolTable &":$symbols)>,
  InterfaceMethod<"Whether the command is in the buffer form.", "bool", "isOnBuffers", (ins), "", [{
      return llvm::none_of($_op->getResultTypes(), llvm::IsaPred<::mlir::RankedTensorType>) &&
             llvm::none_of($_op->getOperandTypes(), llvm::IsaPred<::mlir::RankedTensorType>);
    }]>];
}

#endif // TRAINC_TRAIN_INTERFACES
