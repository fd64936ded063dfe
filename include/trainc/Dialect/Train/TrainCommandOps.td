//===- TrainCommandOps.td - Commands over planned memory --*- tablegen -*-===//
#ifndef TRAINC_TRAIN_COMMAND_OPS
#define TRAINC_TRAIN_COMMAND_OPS

include "trainc/Dialect/NN/NNInterfaces.td"
include "trainc/Dialect/Train/TrainBufferOps.td"

def Train_AbiAttr : AttrDef<Train_Dialect, "Abi"> {
  let mnemonic = "abi";
  let summary = "how the runtime calls a kernel";
  let description = [{
    Set when a kernel is lowered: how many workgroups it has, the threads of each on a GPU (0
    elsewhere), bytes of scratch memory of a workgroup, and whether it needs AMX's tile
    registers.
  }];
  let parameters = (ins "int64_t":$workgroups, DefaultValuedParameter<"int64_t", "0">:$threads,
                        DefaultValuedParameter<"int64_t", "0">:$scratch,
                        DefaultValuedParameter<"bool", "false">:$amx);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Train_KernelOp : Train_Op<"kernel", [Symbol, HasParent<"::mlir::ModuleOp">, IsolatedFromAbove,
    SingleBlock]> {
  let summary = "a function on tensors that one launch computes";
  let description = [{
    The body is a graph of `nn` ops from the arguments to the returned values. Equal
    kernels are one kernel. `inplace` has one number per result: the argument in whose
    memory the result is written, or -1. Such an argument is read at an index only
    before the result is written there. `abi` is how it is called, once it is lowered.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$inplace, OptionalAttr<Train_AbiAttr>:$abi);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Train_LaunchOp : Train_CommandOpBase<"launch", [AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs a kernel";
  let description = [{
    On tensors, without effects, it has the kernel's arguments and results. On buffers it
    has `outs` for the results: for one in place the buffer of its argument, which is then not
    among `inputs`.

    (C1) the kernel exists; (C2) operands and results have the types of its arguments and
    returned values, as tensors or as buffers.

    ```mlir
    %r = train.launch @k(%a, %b) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    train.launch @k(%a) outs(%b : memref<8xf32>) : (memref<8xf32>) -> ()
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Train_TensorOrBuffer>:$inputs,
                       Variadic<Train_Buffer>:$outs);
  let results = (outs Variadic<Train_Tensor>:$outputs);
  let builders = [OpBuilder<(ins "::mlir::TypeRange":$results, "::mlir::FlatSymbolRefAttr":$kernel,
      "::mlir::ValueRange":$inputs), [{ build($_builder, $_state, results, kernel, inputs, {}); }]>];
  let assemblyFormat = [{
    $kernel `(` $inputs `)` (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict `:`
    functional-type($inputs, $outputs)
  }];
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

/// The numbers are those of TRAINC_BACK_END.
def Train_BackEnd : I32EnumAttr<"BackEnd", "what computes a GEMM", [
    I32EnumAttrCase<"OPENBLAS", 0, "openblas">, I32EnumAttrCase<"ONEDNN", 1, "onednn">,
    I32EnumAttrCase<"VECTOR", 2, "vector">, I32EnumAttrCase<"AMX", 3, "amx">,
    I32EnumAttrCase<"CUBLASLT", 4, "cublaslt">, I32EnumAttrCase<"CUBLASLT_TF32", 5, "cublaslt_tf32">]> {
  let cppNamespace = "::trainc::train";
}

def Train_GemmPlanAttr : AttrDef<Train_Dialect, "GemmPlan"> {
  let mnemonic = "gemm_plan";
  let summary = "how a GEMM is computed";
  let description = [{
    Set by `train-plan-gemms`: the back end; the tiles into which a library's result is cut, in elements;
    and, of AMX, if it is not 0, `split_k`: the result is the sum of the GEMMs of the first
    `split_k` of k and of the others. Bits depend on all of it, and on nothing else but the operands
    and the version of the library.
  }];
  let parameters = (ins EnumParameter<Train_BackEnd>:$back_end, "int64_t":$tile_m, "int64_t":$tile_n,
                        DefaultValuedParameter<"int64_t", "0">:$split_k);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Train_GemmOp : Train_CommandOpBase<"gemm", [AttrSizedOperandSegments, AttrSizedResultSegments,
    CountsWorkOfUnit]> {
  let summary = "C = A' B' (+ bias) (+ initial C), by the runtime's GEMM";
  let description = [{
    As nn.matmul, with explicit sizes: m x n x k over a batch; with `init`, the product
    is added to it and the result takes its memory. On buffers `outs` stand for the
    results, in their order, and `accumulate` for `init`: the product is added to what stands in
    the first.

    There are epilogues (`train-fuse-epilogues`). `gelu`: the result is gelu, in the form
    `tanh`, of what it would be; a second result, if there is one, is what gelu is taken
    of. `gelu_grad`: the product is multiplied by the derivative of gelu at `at`. For CPUs,
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
    has as many elements as it sums up, of the result's type; (C6) there are results and
    no `outs`, or `outs` alone and no `init`; `accumulate` goes with `outs`; (C7) a `plan` has
    tiles of 1 or more and, of AMX alone, a `split_k` below k; (C8) left and right side and the
    result have the elements of their matrices or, of rank 2, longer rows: what stands behind
    the matrix is not read, and of a result not written.

    ```mlir
    %c = train.gemm %a, %b m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
    train.gemm %a, %b outs(%c : memref<4x8xf32>) m 4 n 8 k 6 batch 1 accumulate
      plan <back_end = openblas, tile_m = 4, tile_n = 8> : memref<4x6xf32>, memref<6x8xf32>
    ```
  }];
  let arguments = (ins Train_TensorOrBuffer:$lhs, Train_TensorOrBuffer:$rhs,
                       Optional<Train_TensorOrBuffer>:$bias, Optional<Train_Tensor>:$init,
                       Optional<Train_TensorOrBuffer>:$at, Variadic<Train_Buffer>:$outs, I64Attr:$m, I64Attr:$n, I64Attr:$k,
                       I64Attr:$batch, UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                       UnitAttr:$broadcast_rhs,
                       DefaultValuedAttr<Train_Epilogue, "Epilogue::none">:$epilogue,
                       DefaultValuedAttr<Train_BiasGradient, "BiasGradient::none">:$bias_gradient,
                       UnitAttr:$accumulate, OptionalAttr<Train_GemmPlanAttr>:$plan);
  let results = (outs Optional<Train_Tensor>:$result, Optional<Train_Tensor>:$kept,
                      Optional<Train_Tensor>:$bias_sums);
  let extraClassDeclaration = [{
    /// The results as tensors, or the buffers that stand for them; null where there is none.
    ::mlir::Value getMain() { return getOuts().empty() ? ::mlir::Value(getResult()) : getOuts()[0]; }
    ::mlir::Value getSecond();
    ::mlir::Value getSums();
    /// From one row to the next of the left side, the right side and the result as they are stored.
    int64_t getLhsPitch();
    int64_t getRhsPitch();
    int64_t getPitch();
    /// Whether the product is added to what stands in the result's memory.
    bool accumulates() { return getInit() || getAccumulate(); }
  }];
  let assemblyFormat = [{
    $lhs `,` $rhs (`bias` $bias^)? (`init` $init^)? (`outs` `(` $outs^ `:` type($outs) `)`)? `m` $m `n` $n `k` $k `batch` $batch
    (`transpose_lhs` $transpose_lhs^)? (`transpose_rhs` $transpose_rhs^)?
    (`broadcast_rhs` $broadcast_rhs^)? (`epilogue` $epilogue^)? (`at` $at^)?
    (`bias_gradient` $bias_gradient^)? (`accumulate` $accumulate^)? (`plan` $plan^)? attr-dict
    `:` type($lhs) `,` type($rhs) (`,` type($bias)^)? (`init` type($init)^)?
    (`at` type($at)^)? (`->` type($result)^)? (`kept` type($kept)^)?
    (`bias_sums` type($bias_sums)^)?
  }];
  let hasVerifier = 1;
}

/// The numbers are those of TRAINC_CONVOLUTION.
def Train_ConvolutionKind : I32EnumAttr<"ConvolutionKind", "what a convolution computes", [
    I32EnumAttrCase<"forward", 0>, I32EnumAttrCase<"input_gradient", 1>,
    I32EnumAttrCase<"weight_gradient", 2>]> {
  let cppNamespace = "::trainc::train";
}

def Train_ConvolutionPlanAttr : AttrDef<Train_Dialect, "ConvolutionPlan"> {
  let mnemonic = "convolution_plan";
  let summary = "how a convolution is computed";
  let description = [{
    Set by `train-plan-gemms`: the back end of its GEMMs, and how many tiles of the result there are
    at least, if they are worth it. Bits depend on both; of `vector` not on the tiles, which the threads
    decide.
  }];
  let parameters = (ins EnumParameter<Train_BackEnd>:$back_end, "int64_t":$tiles);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Train_ConvolutionOp : Train_CommandOpBase<"convolution", [AttrSizedOperandSegments,
    CountsWorkOfUnit]> {
  let summary = "a convolution of planes, or a gradient, by the runtime's GEMMs";
  let description = [{
    For processors: `forward` is nn.conv2d of input and weight without a bias,
    `input_gradient` is nn.conv2d_input_grad of weight and gradient, `weight_gradient` is
    nn.conv2d_weight_grad of input and gradient. The result has their element type or f32, in
    which it is summed up (f64 of f64). With `init` a weight_gradient is added to that, and the result
    takes its memory. On buffers `out` stands for the result and `accumulate` for `init`.

    (C1) the nn op of these types and attributes is valid, but for the result's element type; (C2)
    that is the operands', or f32 of bf16 and f16; (C3) there is a result and no `out`, or `out` alone and
    no `init`; `accumulate` goes with `out`; (C4) init and accumulate go with
    weight_gradient, in f32 and f64; (C5) a `plan` has 1 tile or more.

    ```mlir
    %y = train.convolution forward %x, %w strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 1
        : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x5x5xf32>
    train.convolution forward %x, %w out(%y : memref<8x6x5x5xf32>) strides [2, 2] padding [1, 1, 1, 1]
        dilations [1, 1] groups 1 plan <back_end = vector, tiles = 4> : memref<8x4x9x9xf32>, memref<6x4x3x3xf32>
    ```
  }];
  let arguments = (ins Train_ConvolutionKind:$kind, Train_TensorOrBuffer:$lhs, Train_TensorOrBuffer:$rhs,
                       Optional<Train_Tensor>:$init, Optional<Train_Buffer>:$out,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$dilations,
                       I64Attr:$groups, UnitAttr:$accumulate, OptionalAttr<Train_ConvolutionPlanAttr>:$plan);
  let results = (outs Optional<Train_Tensor>:$result);
  let extraClassDeclaration = [{
    /// The result as a tensor, or the buffer that stands for it.
    ::mlir::Value getMain() { return getOut() ? ::mlir::Value(getOut()) : ::mlir::Value(getResult()); }
    /// The shapes of the input, the weight and the output, whichever of them are operands.
    ::mlir::ShapedType getInputType();
    ::mlir::ShapedType getWeightType();
    ::mlir::ShapedType getOutputType();
  }];
  let assemblyFormat = [{
    $kind $lhs `,` $rhs (`init` $init^)? (`out` `(` $out^ `:` type($out) `)`)? `strides` $strides
    `padding` $padding `dilations` $dilations `groups` $groups (`accumulate` $accumulate^)?
    (`plan` $plan^)? attr-dict `:` type($lhs) `,` type($rhs) (`init` type($init)^)?
    (`->` type($result)^)?
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_TRAIN_COMMAND_OPS
