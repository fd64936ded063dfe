//===- TrainPlanOps.td - What the step passes insert ------*- tablegen -*-===//
#ifndef TRAINC_TRAIN_PLAN_OPS
#define TRAINC_TRAIN_PLAN_OPS

include "trainc/Dialect/NN/NNInterfaces.td"
include "trainc/Dialect/Train/TrainDialect.td"

def Train_RoleAttr : AttrDef<Train_Dialect, "Role"> {
  let mnemonic = "role";
  let summary = "what an arena holds: TRAINC_ROLE of step_abi.def, in lower case";
  let parameters = (ins AttrParameter<"::trainc_role", "">:$value);
  let hasCustomAssemblyFormat = 1;
  let returnType = "::trainc_role";
  let convertFromStorage = "$_self.getValue()";
  let constBuilderCall = "::trainc::train::RoleAttr::get($_builder.getContext(), $0)";
}

def Train_ArenaOp : Train_Op<"arena", [Symbol, SymbolTable, HasParent<"::mlir::ModuleOp">,
    IsolatedFromAbove, SingleBlock, NoTerminator, NoRegionArguments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "memory for the values of one role";
  let description = [{
    Holds a train.slice for each value, referred to as `@arena::@slice`, and, once buckets are
    formed, a train.span for each bucket of which it has something, `@arena::@bucket`. Spans follow
    each other in their order; where the slices are follows from the buckets (`ArenaLayout`).
    Without spans slices follow each other, each aligned to its element's size, as scalars do.

    (C1) it holds slices and spans alone; (C2) with spans, slices are of one element type and
    each belongs to the bucket of one of them, all of whose parameters have a slice; slices lie
    within their bucket and do not overlap; spans that ranks share are over the same axes, and
    their buckets of equal shards.

    ```mlir
    train.bucket @bucket [@a, @b] elements(192) offsets([0, 64])
    train.arena @arena.master.f32 master {
      train.slice @a : tensor<4xf32>
      train.slice @b : tensor<8xf32>
      train.span @bucket
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Train_RoleAttr:$role);
  let regions = (region SizedRegion<1>:$body);
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::trainc_role":$role)>];
  let assemblyFormat = "$sym_name custom<Role>($role) attr-dict-with-keyword $body";
  let extraClassDeclaration = [{
    ::llvm::iterator_range<::mlir::Block::op_iterator<SliceOp>> getSlices();
    ::llvm::iterator_range<::mlir::Block::op_iterator<SpanOp>> getSpans();
    /// Adds a slice at the end.
    SliceOp addSlice(::mlir::StringAttr name, ::mlir::RankedTensorType type);
    /// Slice `name`, or null.
    SliceOp findSlice(::llvm::StringRef name);
    /// The span of bucket `name`, or null.
    SpanOp findSpan(::llvm::StringRef name);
    /// The element type of its slices; null if they differ or there is none.
    ::mlir::Type getElementType();
  }];
  let hasRegionVerifier = 1;
}

def Train_SliceOp : Train_Op<"slice", [Symbol, HasParent<"::trainc::train::ArenaOp">]> {
  let summary = "a value in an arena";
  let description = [{
    Its name is that of the parameter, buffer or scalar that it is of. A scalar has an initial
    `value` and `flags`, which are TRAINC_SCALAR_SETTABLE or 0.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<Train_Tensor>:$type,
                       OptionalAttr<F64Attr>:$value, OptionalAttr<I32Attr>:$flags);
  let builders = [OpBuilder<(ins "::mlir::StringAttr":$name, "::mlir::RankedTensorType":$type), [{
    build($_builder, $_state, name, ::mlir::TypeAttr::get(type), {}, {});
  }]>];
  let assemblyFormat = [{
    $sym_name `:` $type (`value` `(` $value^ `)`)? (`flags` `(` $flags^ `)`)? attr-dict
  }];
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getType());
    }
    ArenaOp getArena();
  }];
}

def Train_SpanOp : Train_Op<"span", [Symbol, HasParent<"::trainc::train::ArenaOp">]> {
  let summary = "a bucket in an arena";
  let description = [{
    Its name is that of the bucket. With `over` each rank has only its own of the equal shards of
    the bucket, one for each position along these axes of the mesh.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrArrayAttr>:$over);
  let assemblyFormat = "$sym_name (`over` $over^)? attr-dict";
}

def Train_BucketOp : Train_Op<"bucket", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "parameters that are communicated and updated together";
  let description = [{
    The parameters have slices in the same arenas, where they stand at the same distances: from
    element offsets[i] of the bucket on. A bucket is `elements` long, padding included. Both
    numbers are there once `train-coalesce` has placed the slices, and equal in every arena.

    (C1) one offset per parameter, with `elements`, 1 to 2^40 of them; offsets ascend from 0 on.

    ```mlir
    train.bucket @bucket [@w, @b] elements(8192) offsets([0, 4096])
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefArrayAttr:$params,
                       OptionalAttr<I64Attr>:$elements, OptionalAttr<DenseI64ArrayAttr>:$offsets);
  let assemblyFormat = [{
    $sym_name $params (`elements` `(` $elements^ `)`)? (`offsets` `(` $offsets^ `)`)? attr-dict
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
    terms of a micro-step of all ranks, so that gradients in f16 stay in range. What reads a stored
    gradient multiplies by divisor / (loss scale x sum of weights). `window` as that of
    a train.param.
  }];
  let arguments = (ins F64Attr:$divisor, OptionalAttr<StrAttr>:$window);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$divisor attr-dict `:` type($result)";
}

def Train_AccumulateOp : Train_Op<"accumulate", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "adds a gradient to the window's sum";
  let description = [{
    target = value in the first micro-step of a window (overwriting whatever stands
    there, NaN included), target + value in the others. Where the target is a bucket of which
    a rank has its own shard, the value is the whole bucket, of which that shard counts.
  }];
  let arguments = (ins Train_TensorOrBucket:$value, SymbolRefAttr:$target);
  let assemblyFormat = "$value `into` $target attr-dict `:` type($value)";
}

/// Not only read: it stays where it is, also if nobody asks.
def Train_WindowEndOp : Train_Op<"window_end", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "whether this micro-step is the last of its window";
  let results = (outs I1:$due);
  let assemblyFormat = "attr-dict";
}

def Train_MicroEndOp : Train_Op<"micro_end", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "the gradients of this micro-step are written";
  let description = [{
    What stands from here to train.window_end ends every micro-step: sums over ranks, and
    merging them. It uses no value from before, and reads arenas as wholes.
  }];
  let assemblyFormat = "attr-dict";
}

def Train_NormSquaredOp : Train_Op<"norm_squared", [MemoryEffects<[MemRead]>]> {
  let summary = "sums of squares of stored gradients";
  let description = [{
    For each result, of one list of parameters: the sums of squares of their stored gradients, each
    in blocks (train.square_sum) added in f64. A result is either their sum, in the order of the
    list, as a rank-0 tensor, or one element per parameter.

    `fused`: in one pass over the gradients. `over`: each rank adds up the blocks of its own
    shards of the buckets, and gathers the others' sums.

    (C1) one list of symbols of parameters per result, an f64 tensor of rank 0, or of rank 1 with one element
    per parameter.

    ```mlir
    %all, %each = train.norm_squared [[@a, @b], [@c]] fused : tensor<f64>, tensor<1xf64>
    ```
  }];
  let arguments = (ins ArrayAttr:$params, OptionalAttr<StrArrayAttr>:$over, UnitAttr:$fused);
  let results = (outs Variadic<Train_Tensor>:$squares);
  let assemblyFormat = [{
    $params (`over` $over^)? (`fused` $fused^)? attr-dict `:` type($squares)
  }];
  let hasVerifier = 1;
}

def Train_UpdateOp : Train_Op<"update", [AttrSizedOperandSegments, MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "updates parameters by their optimizers";
  let description = [{
    For each parameter: gradient = stored gradient x scale (clamped to +- limit if that
    is given), then the optimizer's region, then parameter, states and average are
    written. Nothing changes unless `finite`. `t` is the 1-based number of the update. There is a
    group of parameters for each optimizer, with a scale, and a limit, of its own. Of parameters
    whose parts are uneven, elements that are 0 with a gradient of 0, as their padding is, keep what
    would not be finite (0 / 0 without eps), and their direction is 0 then.

    In each arena of `copies` that has a slice of the parameter's name, the new value is
    written as well, rounded to the arena's type. With `stochastic` parameters of bf16 or
    f16 are rounded up or down by chance: with w the word that nn.dropout would draw for
    the element in micro-step 0 at site 2^31 + position of the parameter in the module,
    the bits of the magnitude that do not fit are cut off after w modulo their number
    of values is added.

    `fused`: in one pass over all that is read and written; the optimizers then have the same
    regions. `over`: each rank updates its own shards of the buckets.

    (C1) as many groups, lists of symbols, and scales as optimizers, and as many limits if any; (C2) a scale is of rank 0,
    or of rank 1 with one element per parameter of its group.

    ```mlir
    train.update [@decayed, @plain] [[@w, @v], [@b]] scale(%s, %s : tensor<f64>, tensor<f64>)
        if(%finite : tensor<i1>) t(%t : tensor<f64>) copies [@arena.compute.bf16] fused
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$optimizers, ArrayAttr:$params,
                       Variadic<Train_Tensor>:$scales, Train_Tensor:$finite, Train_Tensor:$t,
                       Variadic<Train_Tensor>:$limits, OptionalAttr<FlatSymbolRefArrayAttr>:$copies,
                       OptionalAttr<StrArrayAttr>:$over, UnitAttr:$fused, UnitAttr:$stochastic);
  let assemblyFormat = [{
    $optimizers $params `scale` `(` $scales `:` type($scales) `)`
    (`limit` `(` $limits^ `:` type($limits) `)`)? `if` `(` $finite `:` type($finite) `)`
    `t` `(` $t `:` type($t) `)` (`copies` $copies^)? (`over` $over^)? (`fused` $fused^)?
    (`stochastic` $stochastic^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Train_SquareSumOp : Train_Op<"square_sum", [CountsWork, Pure]> {
  let summary = "sums of squares of blocks of a tensor";
  let description = [{
    The elements in row-major order are cut into blocks of `block`, the last one shorter
    if need be; result[i] is the sum of squares of block i. Elements are converted to f64:
    squares of f32, bf16 and f16 are then exact and in range, and the sum is infinity or
    NaN only if an element is. Within a block element j goes to lane j mod 32 by `fma`; the
    lanes are combined by halving, as in `nn.reduce`.

    (C1) the result has ceil(elements / block) elements of f64.
  }];
  let arguments = (ins Train_Tensor:$input, I64Attr:$block);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input `block` $block attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Train_SegmentsAttr : AttrDef<Train_Dialect, "Segments"> {
  let mnemonic = "segments";
  let summary = "where segments of flat arrays are, and whose they are";
  let description = [{
    Segment s is lengths[s] elements of every array, from offsets[a][s] of array a on, and
    of group groups[s].

    With `owners` and `starts` segment s is a part of whole owners[s], from its element
    starts[s] on. With `shards` segments shards[i] to shards[i + 1] (excluded) belong to shard
    i.

    One number per segment in every list but `shards`, which ascend from 0 to the number of
    segments; all are at least 0, and owners come with starts.

    ```mlir
    #train.segments<groups = [0, 0], lengths = [4, 8], offsets = [array<i64: 0, 64>]>
    ```
  }];
  let parameters = (ins "::mlir::DenseI64ArrayAttr":$groups, "::mlir::DenseI64ArrayAttr":$lengths,
                        "::mlir::ArrayAttr":$offsets,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$owners,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$shards,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$starts);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

class Train_SegmentOp<string mnemonic> : Train_Op<mnemonic, [CountsWork, Pure,
    AttrSizedOperandSegments, IsolatedFromAbove, SingleBlock]> {
  let regions = (region SizedRegion<1>:$body);
  let hasVerifier = 1;
  dag operandArguments = (ins Variadic<Train_Tensor>:$arrays, Variadic<Train_Tensor>:$uniforms,
                       Variadic<Train_Tensor>:$grouped, Variadic<Train_Tensor>:$each,
                       Optional<0DTensorOf<[I64]>>:$shard, Train_SegmentsAttr:$segments,
                       UnitAttr:$indexed);
  code accessors = [{
    using Numbers = ::llvm::ArrayRef<int64_t>;
    Numbers getLengths() { return getSegments().getLengths(); }
    Numbers getGroups() { return getSegments().getGroups(); }
    ::mlir::ArrayAttr getOffsets() { return getSegments().getOffsets(); }
    std::optional<Numbers> getOwners() { return optional(getSegments().getOwners()); }
    std::optional<Numbers> getStarts() { return optional(getSegments().getStarts()); }
    std::optional<Numbers> getShards() { return optional(getSegments().getShards()); }
    static std::optional<Numbers> optional(::mlir::DenseI64ArrayAttr list) {
      return list ? std::optional<Numbers>(list) : std::nullopt;
    }
    /// Elements of the segments of the shard that has the most.
    int64_t countElements();
  }];
  let extraClassDeclaration = accessors;
}

def Train_SegmentMapOp : Train_SegmentOp<"segment_map"> {
  let summary = "a scalar region over segments of flat arrays, in place";
  let description = [{
    The segments of the arrays are those of a #train.segments. The
    region computes one element: its arguments are an element of each array, the uniform
    operands (rank 0), for each grouped argument the operand of the segment's group
    (rank 0; G operands per argument, groups[s] of them is the segment's), element s of
    each operand of `each` (rank 1) and, if `indexed`, the element's index in the segment,
    an i64. Result i is array targets[i], in which the
    elements of the segments are replaced by what the region yields. Elements have the
    compute type of their tensors.

    With `owners` `each` has one element per whole, and the index counts from the whole's first
    element. With `shards` only segments of shard number `shard` take part.

    (C1) segments lie within their array, groups within the number of grouped operands per
    argument; there are offsets of each array; (C2) arrays and `each` have rank 1, the other operands rank 0, `each` one
    element per segment or whole; (C3) block arguments and yielded values have the compute types of
    their tensors; (C4) targets are arrays, each at most once, of the results' types; (C5)
    owners are numbers of elements of `each`; shards come with the operand.

    ```mlir
    %w1 = train.segment_map %w, %g : tensor<80xf32>, tensor<80xf32> uniforms %lr : tensor<f32>
        segments <groups = [0, 0], lengths = [4, 8], offsets = [array<i64: 0, 64>, array<i64: 0, 64>]>
        {targets = array<i64: 0>} -> tensor<80xf32> {
    ^bb0(%p: f32, %d: f32, %a: f32):
      ...
      train.yield %q : f32
    }
    ```
  }];
  let arguments = !con(operandArguments, (ins DenseI64ArrayAttr:$targets));
  let results = (outs Variadic<Train_Tensor>:$outputs);
  let assemblyFormat = [{
    $arrays `:` type($arrays) (`uniforms` $uniforms^ `:` type($uniforms))?
    (`grouped` $grouped^ `:` type($grouped))? (`each` $each^ `:` type($each))?
    (`shard` $shard^ `:` type($shard))? `segments` $segments attr-dict `->` type($outputs) $body
  }];
}

def Train_SegmentSquareSumOp : Train_SegmentOp<"segment_square_sum"> {
  let summary = "sums of squares of blocks of segments";
  let description = [{
    The region computes values as in train.segment_map; result i holds the sums of the
    squares of the i-th: for each segment those of its blocks, as train.square_sum has
    them, in f64, one segment after the other. With `shards`: of the segments of this shard; what
    stands behind them is undefined.

    (C1) to (C3) and (C5) as train.segment_map, but that the region may yield any floats; (C4) every result is rank 1, of f64, with one
    element per block, of the shard that has the most.
  }];
  let arguments = !con(operandArguments, (ins I64Attr:$block));
  let results = (outs Variadic<Train_Tensor>:$outputs);
  let extraClassDeclaration = accessors # [{
    /// The elements of a result.
    int64_t countBlocks();
  }];
  let assemblyFormat = [{
    $arrays `:` type($arrays) (`uniforms` $uniforms^ `:` type($uniforms))?
    (`grouped` $grouped^ `:` type($grouped))? (`each` $each^ `:` type($each))?
    (`shard` $shard^ `:` type($shard))? `block` $block `segments` $segments attr-dict `->` type($outputs) $body
  }];
}

def Train_SumBlocksOp : Train_Op<"sum_blocks", [CountsWork, Pure]> {
  let summary = "adds sums of blocks, per segment and over sets of segments";
  let description = [{
    Range i is counts[i] elements of input sources[i] from firsts[i] on. Sum i is that of
    range i or, with `owners`, of the ranges k with owners[k] = i put together in this
    order; in f64, of one element itself, of more as nn.reduce adds them. Result r of rank 0
    is the sum of the sums in sets[r], one after the other in this order (0 if there is
    none); of rank 1 it holds them.

    (C1) `sources`, `firsts`, `counts` and `owners` have one number per range, stay within the
    inputs, of rank 1, and owners ascend from 0 without a gap; (C2) one set per result, of existing sums; results are f64 tensors
    of rank 0, or of rank 1 with one element per sum of the set.
  }];
  let arguments = (ins Variadic<Train_Tensor>:$blocks, DenseI64ArrayAttr:$sources,
                       DenseI64ArrayAttr:$firsts, DenseI64ArrayAttr:$counts, ArrayAttr:$sets,
                       OptionalAttr<DenseI64ArrayAttr>:$owners);
  let results = (outs Variadic<Train_Tensor>:$sums);
  let extraClassDeclaration = [{
    int64_t countSums() {
      auto owners = getOwners();
      return !owners ? getSources().size() : owners->empty() ? 0 : owners->back() + 1;
    }
  }];
  let assemblyFormat = "$blocks attr-dict `:` functional-type($blocks, $sums)";
  let hasVerifier = 1;
}

def Train_ListKind : I32EnumAttr<"ListKind", "which part of an entry a list does", [
    I32EnumAttrCase<"first", 0>, I32EnumAttrCase<"next", 1>, I32EnumAttrCase<"merge", 2>,
    I32EnumAttrCase<"apply", 3>]> {
  let cppNamespace = "::trainc::train";
}

def Train_ListOp : Train_Op<"list", [Symbol, HasParent<"::mlir::ModuleOp">, IsolatedFromAbove,
    SingleBlock]> {
  let summary = "a list of commands of an entry";
  let description = [{
    The body of an entry for one case, straight line: for a step `first` (the first
    micro-step of a window), `next` (the others; absent if k is 1) and `apply`; for an
    eval `first`. A list `merge` is what `first` and `next` both end in: an artifact has
    its commands behind theirs. Arguments are the entry's inputs in every list but `merge`
    and `apply`, which have none; an eval's list ends in a `train.return` of its outputs.

    Before commands are formed the body holds nn ops and reads and writes of slices;
    afterwards launches and GEMMs. After planning they are on buffers, without arguments and
    returned values: inputs and outputs have addresses. `workspace` says how many bytes
    values take, and `alive` the largest sum of bytes needed at one command: no plan takes less.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$entry, Train_ListKind:$kind,
                       OptionalAttr<I64Attr>:$workspace, OptionalAttr<I64Attr>:$alive);
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
