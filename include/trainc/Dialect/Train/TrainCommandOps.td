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

/// A command whose results have `places` once memory is planned: from then on it writes
/// there, though no operation may use a result, and is neither removed nor merged.
class Train_PlacedOp<string mnemonic, list<Trait> traits = []> : Train_Op<mnemonic,
    !listconcat(traits, [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  let extraClassDefinition = [{
    void $cppClass::getEffects(::llvm::SmallVectorImpl<
        ::mlir::SideEffects::EffectInstance<::mlir::MemoryEffects::Effect>> &effects) {
      if (!(*this)->hasAttr("places"))
        return;
      effects.emplace_back(::mlir::MemoryEffects::Read::get());
      effects.emplace_back(::mlir::MemoryEffects::Write::get());
    }
  }];
}

def Train_LaunchOp : Train_PlacedOp<"launch",
    [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs a kernel";
  let description = [{
    Without memory effects until `train-plan-memory` gives its results `places`.

    (C1) the kernel exists; (C2) operands and results have the types of its arguments and
    returned values.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Train_Tensor>:$inputs);
  let results = (outs Variadic<Train_Tensor>:$outputs);
  let assemblyFormat = "$kernel `(` $inputs `)` attr-dict `:` functional-type($inputs, results)";
}

def Train_Epilogue : I32EnumAttr<"Epilogue", "what a GEMM does to its result", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"gelu", 1>, I32EnumAttrCase<"gelu_grad", 2>,
    I32EnumAttrCase<"gelu_and_slope", 3>, I32EnumAttrCase<"multiply", 4>]> {
  let cppNamespace = "::trainc::train";
}
def Train_BiasGradient : I32EnumAttr<"BiasGradient", "whose rows or columns a GEMM sums up", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"lhs", 1>, I32EnumAttrCase<"rhs", 2>,
    I32EnumAttrCase<"result", 3>]> {
  let cppNamespace = "::trainc::train";
}

def Train_GemmOp : Train_PlacedOp<"gemm", [AttrSizedOperandSegments, AttrSizedResultSegments]> {
  let summary = "C = A' B' (+ bias) (+ initial C), by the runtime's GEMM";
  let description = [{
    As nn.matmul, with explicit sizes: m x n x k over a batch; with `init`, the product
    is added to it and the result takes its memory. Memory effects as train.launch.

    There are epilogues (`train-fuse-epilogues`). `gelu`: the result is gelu, in the form
    `tanh`, of what it would be; a second result, if there is one, is what gelu is taken
    of. `gelu_grad`: the product is multiplied by the slope of gelu at `at`. For processors,
    in f32: `gelu_and_slope`: gelu, and its slope as the second result; `multiply`: the
    product is multiplied by `at`. For GPUs there are bias gradients, one more result: the
    sums of A' over k (`lhs`, m elements) or of B' over k (`rhs`, n elements), or of the
    columns of the result (`result`, n elements).

    (C1) an epilogue or a bias gradient is of one product without `init`; (C2) `at` goes with
    gelu_grad and multiply, the second result with gelu and always with gelu_and_slope,
    none with f64, and both have the result's element type and number of elements; n is
    then a multiple of 8; (C3) a bias gradient `lhs` needs
    `transpose_lhs`, `rhs` a right side that is not transposed, both no epilogue; `result`
    needs gelu_grad; (C4) gelu_grad, multiply and bias gradients have no bias; (C5) a bias gradient
    has as many elements as it sums up, of the result's type.
  }];
  let arguments = (ins Train_Tensor:$lhs, Train_Tensor:$rhs, Optional<Train_Tensor>:$bias,
                       Optional<Train_Tensor>:$init, Optional<Train_Tensor>:$at,
                       I64Attr:$m, I64Attr:$n, I64Attr:$k,
                       I64Attr:$batch, UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                       UnitAttr:$broadcast_rhs,
                       DefaultValuedAttr<Train_Epilogue, "Epilogue::none">:$epilogue,
                       DefaultValuedAttr<Train_BiasGradient, "BiasGradient::none">:$bias_gradient);
  let results = (outs Train_Tensor:$result, Optional<Train_Tensor>:$kept,
                      Optional<Train_Tensor>:$bias_sums);
  let assemblyFormat = [{
    $lhs `,` $rhs (`bias` $bias^)? (`init` $init^)? `m` $m `n` $n `k` $k `batch` $batch
    (`transpose_lhs` $transpose_lhs^)? (`transpose_rhs` $transpose_rhs^)?
    (`broadcast_rhs` $broadcast_rhs^)? (`epilogue` $epilogue^)? (`at` $at^)?
    (`bias_gradient` $bias_gradient^)? attr-dict
    `:` type($lhs) `,` type($rhs) (`,` type($bias)^)? (`init` type($init)^)?
    (`at` type($at)^)? `->` type($result) (`kept` type($kept)^)?
    (`bias_sums` type($bias_sums)^)?
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_TRAIN_COMMAND_OPS
