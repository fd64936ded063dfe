//===- TrainStepOps.td - Entries and their sources --------*- tablegen -*-===//
#ifndef TRAINC_TRAIN_STEP_OPS
#define TRAINC_TRAIN_STEP_OPS

include "trainc/Dialect/Train/TrainDialect.td"

def Train_ClipKind : I32EnumAttr<"ClipKind", "gradient clip", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"global_norm", 1>,
    I32EnumAttrCase<"param_norm", 2>, I32EnumAttrCase<"value", 3>]> {
  let cppNamespace = "::trainc::train";
}

def Train_StepOp : Train_Op<"step", [Symbol, HasParent<"::mlir::ModuleOp">, IsolatedFromAbove,
    SingleBlock, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one micro-step of training";
  let description = [{
    The body computes a loss from the inputs and the parameters. It yields
    `loss(%sum) weight(%n)`: the sum of the loss terms and how many there are; what is
    minimised is the mean, sum of losses / sum of weights, over all micro-steps of a
    window (and over all ranks). Without `weight` it is 1. The tensors that it yields
    before these are outputs of each micro-step, under the names given in `-> (...)`:
    metrics, of the parameters before the update.

    - `accumulate(k)`: k micro-steps make one update. `average = false` minimises the mean
      times the number of micro-steps: the sum of their means where they weigh the same.
    - `clip(global_norm<c>)`, `clip(param_norm<c>)`, `clip(value<c>)`: of the averaged,
      unscaled gradient. With the norm n, gradients are multiplied by c / max(c, n).
    - `precision(compute = bf16, keep_f32 = [@p, @group, "nn.matmul"])`: matrix products of
      this step and of every eval run in this type (`train-insert-casts`); parameters stay
      f32. Exceptions: parameters, those of an optimizer, and kinds of ops run in f32.
      With `master = bf16` f32 parameters (but those in `keep_f32`) are stored in this
      type, rounded to the nearest, or with `rounding = stochastic` by chance so that the
      mean is right; gradients and states stay f32.
    - `loss_scale(s)`: gradients are computed of s times the loss, so that small ones do
      not become 0 in f16, and divided by s before anything looks at them. With
      `loss_scale(dynamic<init = 65536, growth = 2, backoff = 0.5, interval = 2000,
      min = 1>)` (its defaults) s starts at init, is multiplied by backoff, but not below
      min, when an update was skipped, and by growth after `interval` updates in a row
      that were not, unless the product is above the largest f32 (PyTorch's GradScaler,
      but for min). All of them are run-time scalars: `loss_scale`, `loss_scale.growth`, ...

    An input `%g: type gradient(@p)` holds a gradient of @p that was made elsewhere, of the
    summed loss times the loss scale; it is added to that of the loss, if there is one.
    With several ranks each has its own, and what is made elsewhere is their sum.

    A module may have several steps: one for each shape of the inputs. They train the same
    parameters, by the same counters; any of them goes on with an open window.

    `trains([@optimizer, ...])`: only the parameters of these optimizers; all others are as
    frozen to this step. Steps that train others have a window of their own: counters,
    sums, clip and loss scale. Their scalars begin with the name of the first of these steps
    and a dot, but for those of the module's first step.

    `%x: type split([host, data], [])` says over which axes of the module's `train.mesh`
    each dimension is split: along the first here, each rank has one of as many equal
    parts as there are positions on both axes, those on `host` being the slower.
    Dimensions without a list are not split. Shapes are global: those of all parts
    together, until `train-partition` gives every rank its part. It sets `over`, the axes
    over which loss and weight are sums of those of the ranks, and `loss_terms`, of how
    many terms the loss of all ranks is a sum. `train-plan-step` sets `divisor`, that of
    `train.seed`, if it is not 1: sums of gradients are stored divided by it.

    (C1) the body ends in train.yield with a loss, a scalar of float type, which may be
    left out with gradients among the inputs; (C2) k is from 1 to 2^31 - 1; (C3) the clip is > 0 and finite; (C4)
    inputs have static shapes, integer, float or i1 elements; (C5) scale and min are > 0,
    a dynamic scale is at least min, growth and interval >= 1, backoff is > 0 and <= 1, all finite; (C6) a gradient is of a parameter
    that is not frozen, and has its shape and float elements; (C7) `master` is f32, bf16
    or f16, and stochastic rounding needs bf16 or f16; (C8) splits, of all inputs,
    name axes of the mesh, for each input once and in at most one list per dimension; so
    do `over` and `output_splits`, which `train-partition` sets; (C9) its name and those of
    inputs and outputs are UTF-8 without zero bytes; (C10) one name per output, each of
    static shape; (C11) what it trains are optimizers, each once. Any two steps train the
    same optimizers, with the same clauses, or none that both do; together they train
    all, and have the same precision.

    ```mlir
    train.step @step(%x: tensor<32x64xf32>, %y: tensor<32xi32>) -> ("correct")
        accumulate(4) clip(global_norm<1.0>) precision(compute = bf16) {
      ...
      train.yield %correct loss(%sum) weight(%count) : tensor<i32>, tensor<f32>, tensor<f32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$input_names,
                       DefaultValuedAttr<StrArrayAttr, "{}">:$output_names,
                       DefaultValuedAttr<I64Attr, "1">:$accumulate,
                       DefaultValuedAttr<BoolAttr, "true">:$average,
                       DefaultValuedAttr<Train_ClipKind, "ClipKind::none">:$clip_kind,
                       DefaultValuedAttr<F64Attr, "0.0">:$clip_value,
                       OptionalAttr<ArrayAttr>:$input_gradients,
                       OptionalAttr<TypeAttr>:$compute_type,
                       OptionalAttr<TypeAttr>:$master_type, UnitAttr:$stochastic,
                       OptionalAttr<ArrayAttr>:$keep_f32, OptionalAttr<F64Attr>:$loss_scale,
                       OptionalAttr<DenseF64ArrayAttr>:$loss_scale_rule,
                       OptionalAttr<ArrayAttr>:$input_splits, OptionalAttr<ArrayAttr>:$output_splits,
                       OptionalAttr<StrArrayAttr>:$over,
                       OptionalAttr<I64Attr>:$loss_terms, OptionalAttr<F64Attr>:$divisor,
                       OptionalAttr<ArrayAttr>:$trained);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The parameter whose gradient input `i` is, or null.
    ::mlir::FlatSymbolRefAttr getInputGradient(size_t i);
    /// Whether it updates a parameter.
    bool trains(::trainc::train::ParamOp param);
    /// Names of the numbers in `loss_scale_rule`, in its order.
    static ::llvm::ArrayRef<::llvm::StringRef> getLossScaleRuleNames();
  }];
}

def Train_EvalOp : Train_Op<"eval", [Symbol, HasParent<"::mlir::ModuleOp">, IsolatedFromAbove,
    SingleBlock, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a computation on the parameters that changes nothing";
  let description = [{
    Returns the tensors that its train.yield lists, under the names given in
    `-> (...)`. `weights(ema)` reads the moving averages instead of the parameters (of
    those that have one). Inputs are split as those of a `train.step`. An output that
    is split is so by `output_splits`, which `train-partition` sets: each rank returns its
    part.

    (C1) one name per yielded tensor; (C2) inputs and outputs have static shapes; (C3)
    the body does not write buffers; (C4) splits, of all inputs or of all outputs, name axes
    of the mesh, for each tensor once and in at most one list per dimension; (C5) its name and
    those of inputs and outputs are UTF-8 without zero bytes.

    ```mlir
    train.eval @eval(%x: tensor<32x64xf32>) -> ("logits") {
      ...
      train.yield %logits : tensor<32x10xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$input_names,
                       StrArrayAttr:$output_names, UnitAttr:$ema,
                       OptionalAttr<ArrayAttr>:$input_splits, OptionalAttr<ArrayAttr>:$output_splits);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Train_YieldOp : Train_Op<"yield", [Terminator, Pure, AttrSizedOperandSegments,
    ParentOneOf<["StepOp", "EvalOp", "OptimizerOp", "ScheduleOp", "RecomputeOp",
                 "SegmentMapOp", "SegmentSquareSumOp"]>]> {
  let summary = "ends a step, an eval, a scalar region or a recomputed region";
  let description = [{
    `train.yield %a, %b : types`, in a step `train.yield %a, %b loss(%l) weight(%w) : types`.
  }];
  let arguments = (ins Variadic<AnyType>:$values, Optional<AnyType>:$loss, Optional<AnyType>:$weight);
  let hasCustomAssemblyFormat = 1;
}

def Train_RecomputeOp : Train_Op<"recompute", [SingleBlock, RecursiveMemoryEffects]> {
  let summary = "ops whose results are rematerialized instead of kept";
  let description = [{
    The results are the values that the region yields. For the gradients inside of the
    region only the values that it takes from outside are kept: the backward pass
    computes the others again (`train-differentiate`). Nothing else changes, no bit of
    a result either.

    (C1) the block has no arguments and ends in a train.yield of values of the result
    types; (C2) regions do not nest; (C3) the region does not write buffers.

    ```mlir
    %y = train.recompute -> tensor<8x16xf32> {
      %w = train.read @w : tensor<16x16xf32>
      %h = nn.linear %x, %w : tensor<8x16xf32>, tensor<16x16xf32>
      %g = nn.gelu %h tanh : tensor<8x16xf32>
      train.yield %g : tensor<8x16xf32>
    }
    ```
  }];
  let results = (outs Variadic<Train_Tensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`->` type($outputs) attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Train_BarrierOp : Train_Op<"barrier", [Pure, SameOperandsAndResultType]> {
  let summary = "the operand, as another value";
  let description = [{
    What uses the result is not merged with what uses the operand, nor do both become
    one kernel: so recomputation stays where it stands.

    ```mlir
    %b = train.barrier %a : tensor<8x16xf32>
    ```
  }];
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Train_ReadOp : Train_Op<"read", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    MemoryEffects<[MemRead]>]> {
  let summary = "the value of a parameter, buffer or slice";
  let description = [{
    `train.read @param` in a source; `train.read @arena[@param]` in a plan. Reading the
    scalar block: `@scalars[@name]`, a rank-0 f64. `train.read @arena` is all elements of
    an arena of one element type, padding included, and `train.read @arena::@bucket` those of a
    bucket, as far as a rank has it: a tensor<?xT> until `train-coalesce`.

    (C1) the symbol is a parameter or buffer (or, in a plan, an arena or an arena holding
    that entry); (C2) the type is its type.
  }];
  let arguments = (ins SymbolRefAttr:$source);
  let results = (outs Train_TensorOrBucket:$result);
  let assemblyFormat = "$source attr-dict `:` type($result)";
}

def Train_WriteOp : Train_Op<"write", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    MemoryEffects<[MemWrite]>]> {
  let summary = "replaces the value of a buffer or slice";
  let description = [{
    No value read before from the same slice is used after the write. An arena as a whole, or a
    bucket, is written only with what was read from it and changed in place, or made for it.

    (C1) the symbol is a buffer (or, in a plan, a slice or an arena); (C2) the type is its
    type.
  }];
  let arguments = (ins Train_TensorOrBucket:$value, SymbolRefAttr:$target);
  let assemblyFormat = "$value `to` $target attr-dict `:` type($value)";
}

#endif // TRAINC_TRAIN_STEP_OPS
