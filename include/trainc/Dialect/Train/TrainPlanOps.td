//===- TrainPlanOps.td - What the step passes insert ------*- tablegen -*-===//
#ifndef TRAINC_TRAIN_PLAN_OPS
#define TRAINC_TRAIN_PLAN_OPS

include "trainc/Dialect/Train/TrainDialect.td"

def Train_ArenaOp : Train_Op<"arena", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "memory for the values of one role";
  let description = [{
    Lists the slices it holds, in order, with their types and byte offsets. Slices are
    referred to as `@arena[@slice]`.

    (C1) one type and one offset per slice; (C2) slices do not overlap, lie within
    `bytes`, and are aligned to their element's size; (C3) names are distinct.

    ```mlir
    train.arena @master role("master") bytes(640) {
      slices = [@a, @b], types = [tensor<4xf32>, tensor<8xf32>], offsets = array<i64: 0, 256>}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$role, I64Attr:$bytes, ArrayAttr:$slices,
                       TypeArrayAttr:$types, DenseI64ArrayAttr:$offsets);
  let assemblyFormat = "$sym_name `role` `(` $role `)` `bytes` `(` $bytes `)` attr-dict";
  let extraClassDeclaration = [{
    /// The position of slice `name`, or -1.
    int64_t findSlice(::llvm::StringRef name);
  }];
  let hasVerifier = 1;
}

def Train_StoreGradientOp : Train_Op<"store_gradient", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    MemoryEffects<[MemWrite]>]> {
  let summary = "the gradient of a parameter: the sum of the contributions";
  let description = [{
    Form 1: the seam at which gradients made elsewhere enter. The gradient is that of
    the summed loss, multiplied by the backward seed.

    (C1) the symbol is a parameter that is not frozen; (C2) every contribution has its
    shape.
  }];
  let arguments = (ins Variadic<Train_Tensor>:$contributions, FlatSymbolRefAttr:$param);
  let assemblyFormat = "$contributions `into` $param attr-dict `:` type($contributions)";
}

def Train_SeedOp : Train_Op<"seed", [Pure]> {
  let summary = "the gradient of the summed loss";
  let description = [{
    The loss scale divided by `divisor`, a power of two not above the number of loss
    terms of a micro-step, so that gradients in f16 stay in range. What reads a stored
    gradient multiplies by divisor / (loss scale x sum of weights).
  }];
  let arguments = (ins F64Attr:$divisor);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$divisor attr-dict `:` type($result)";
}

def Train_AccumulateOp : Train_Op<"accumulate", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "adds a gradient to the window's sum";
  let description = [{
    target = value in the first micro-step of a window (overwriting whatever stands
    there, NaN included), target + value in the others.
  }];
  let arguments = (ins Train_Tensor:$value, SymbolRefAttr:$target);
  let assemblyFormat = "$value `into` $target attr-dict `:` type($value)";
}

def Train_WindowEndOp : Train_Op<"window_end", [MemoryEffects<[MemRead]>]> {
  let summary = "whether this micro-step is the last of its window";
  let results = (outs I1:$due);
  let assemblyFormat = "attr-dict";
}

def Train_NormSquaredOp : Train_Op<"norm_squared", [MemoryEffects<[MemRead]>]> {
  let summary = "sum of squares of stored gradients";
  let description = [{
    The sum over the listed parameters, in this order, of the sums of squares of their
    stored gradients, each in blocks (train.square_sum) added in f64.
  }];
  let arguments = (ins SymbolRefArrayAttr:$params);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$params attr-dict `:` type($result)";
}

def Train_UpdateOp : Train_Op<"update", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "updates parameters by their optimizer";
  let description = [{
    For each parameter: gradient = stored gradient x scale (clamped to +- limit if that
    is given), then the optimizer's region, then parameter, states and average are
    written. Nothing changes unless `finite`. `t` is the 1-based number of the update.
  }];
  let arguments = (ins FlatSymbolRefAttr:$optimizer, SymbolRefArrayAttr:$params,
                       Train_Tensor:$scale, Train_Tensor:$finite, Train_Tensor:$t,
                       Optional<Train_Tensor>:$limit);
  let assemblyFormat = [{
    $optimizer $params `scale` `(` $scale `)` `if` `(` $finite `)` `t` `(` $t `)`
    (`limit` `(` $limit^ `)`)? attr-dict
    `:` type($scale) `,` type($finite) `,` type($t) (`,` type($limit)^)?
  }];
}

def Train_SquareSumOp : Train_Op<"square_sum", [Pure]> {
  let summary = "sums of squares of blocks of a tensor";
  let description = [{
    The elements in row-major order are cut into blocks of `block`, the last one shorter
    if need be; result[i] is the sum of squares of block i. Within a block element j
    goes to lane j mod 32 by `fma`; the lanes are combined by halving, as in `nn.reduce`.
    bf16 and f16 are squared in f32.

    (C1) the result has ceil(elements / block) elements of the compute type.
  }];
  let arguments = (ins Train_Tensor:$input, I64Attr:$block);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input `block` $block attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Train_ListOp : Train_Op<"list", [Symbol, HasParent<"::mlir::ModuleOp">, IsolatedFromAbove,
    SingleBlock]> {
  let summary = "a list of commands of an entry";
  let description = [{
    The body of an entry for one case, straight line: for a step `first` (the first
    micro-step of a window), `next` (the others; absent if k is 1) and `apply`; for an
    eval `first`. Arguments are the entry's inputs in every list but `apply`, which has
    none; an eval's list ends in a `train.return` of its outputs.

    Before commands are formed the body holds nn ops and reads and writes of slices;
    afterwards launches and GEMMs; after planning these have memrefs as operands.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$entry, StrAttr:$kind,
                       OptionalAttr<I64Attr>:$workspace);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Train_ReturnOp : Train_Op<"return", [Terminator, Pure, ParentOneOf<["ListOp", "KernelOp"]>]> {
  let summary = "ends a list or a kernel";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

#endif // TRAINC_TRAIN_PLAN_OPS
