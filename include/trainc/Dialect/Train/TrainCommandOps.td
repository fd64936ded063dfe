//===- TrainCommandOps.td - Commands over planned memory --*- tablegen -*-===//
#ifndef TRAINC_TRAIN_COMMAND_OPS
#define TRAINC_TRAIN_COMMAND_OPS

include "trainc/Dialect/Train/TrainDialect.td"

def Train_KernelOp : Train_Op<"kernel", [Symbol, HasParent<"::mlir::ModuleOp">, IsolatedFromAbove,
    SingleBlock]> {
  let summary = "a function on tensors that one launch computes";
  let description = [{
    The body is a graph of `nn` ops from the arguments to the returned values. Equal
    kernels are one kernel. `inplace` has one number per result: the argument in whose
    memory the result is written, or -1. Such an argument is read at an index only
    before the result is written there.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$inplace);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Train_LaunchOp : Train_Op<"launch", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    Pure]> {
  let summary = "runs a kernel";
  let description = [{
    (C1) the kernel exists; (C2) operands and results have the types of its arguments and
    returned values.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Train_Tensor>:$inputs);
  let results = (outs Variadic<Train_Tensor>:$outputs);
  let assemblyFormat = "$kernel `(` $inputs `)` attr-dict `:` functional-type($inputs, results)";
}

def Train_GemmOp : Train_Op<"gemm", [Pure, AttrSizedOperandSegments]> {
  let summary = "C = A' B' (+ bias) (+ initial C), by the runtime's GEMM";
  let description = [{
    As nn.matmul, with explicit sizes: m x n x k over a batch; with `init`, the product
    is added to it and the result takes its memory.
  }];
  let arguments = (ins Train_Tensor:$lhs, Train_Tensor:$rhs, Optional<Train_Tensor>:$bias,
                       Optional<Train_Tensor>:$init, I64Attr:$m, I64Attr:$n, I64Attr:$k,
                       I64Attr:$batch, UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                       UnitAttr:$broadcast_rhs);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs (`bias` $bias^)? (`init` $init^)? `m` $m `n` $n `k` $k `batch` $batch
    (`transpose_lhs` $transpose_lhs^)? (`transpose_rhs` $transpose_rhs^)?
    (`broadcast_rhs` $broadcast_rhs^)? attr-dict
    `:` type($lhs) `,` type($rhs) (`,` type($bias)^)? (`,` `init` type($init)^)? `->` type($result)
  }];
}

#endif // TRAINC_TRAIN_COMMAND_OPS
