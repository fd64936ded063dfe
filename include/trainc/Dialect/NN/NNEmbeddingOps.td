//===- NNEmbeddingOps.td - Table lookup and positions -----*- tablegen -*-===//
#ifndef TRAINC_NN_EMBEDDING_OPS
#define TRAINC_NN_EMBEDDING_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_EmbeddingOp : NN_InferredOp<"embedding", [Decomposable, Differentiable, KernelPrimitive, MovesElements, Shardable]> {
  let summary = "rows of a table, by index";
  let description = [{
    The table is [V, D], ids [...], the result [..., D]: result[..., d] =
    table[ids[...], d]. An id outside of [0, V) is moved to its nearest end; ids that are
    inputs of a step are refused before that. A table that is a part of another one has
    the row `from` there on, `of` so many rows: ids are those of the other one's rows, and
    the result is 0 where they are not among the part's.

    (C1) the table has rank 2 and rows; (C2) `of` is there with `from` alone, and at least 1.

    ```mlir
    %x = nn.embedding %table, %ids : tensor<100x32xf32>, tensor<8x16xi32>
    %y = nn.embedding %part, %ids from %first of 100 : tensor<50x32xf32>, tensor<8x16xi32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$table, NN_IntTensor:$ids, Optional<NN_I64Scalar>:$first,
                       OptionalAttr<I64Attr>:$rows);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $table `,` $ids (`from` $first^ `of` $rows)? attr-dict `:` type($table) `,` type($ids)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// How many rows ids are of.
    int64_t countRows() {
      return getRows().value_or(::llvm::cast<::mlir::RankedTensorType>(getTable().getType()).getDimSize(0));
    }
  }];
}

def NN_EmbeddingGradOp : NN_Op<"embedding_grad", [
    AttrSizedOperandSegments, CountsWork, Decomposable, KernelPrimitive, Shardable]> {
  let summary = "gradient of the table of an embedding";
  let description = [{
    result[v, :] is the sum of grad[i, :] over the positions i (row-major) with ids[i] = v,
    added in ascending order of i to init[v, :], or to 0 if there is no init, in f32 (f64
    for f64), and rounded once. Every lowering to a processor gives these bits; on GPUs the order is
    another fixed one. Ids are taken as
    `nn.embedding` takes them; those that are not among the rows of a part add nothing.

    (C1) the grad's shape is that of the ids with the result's last size appended; (C2)
    the result has rank 2, rows and the grad's element type; (C3) init has the result's
    type; (C4) `of` is there with `from` alone, and at least 1.

    ```mlir
    %dt = nn.embedding_grad %ids, %g : tensor<8x16xi32>, tensor<8x16x32xf32> to tensor<100x32xf32>
    ```
  }];
  let arguments = (ins NN_IntTensor:$ids, NN_FloatTensor:$grad, Optional<NN_FloatTensor>:$init,
                       Optional<NN_I64Scalar>:$first, OptionalAttr<I64Attr>:$rows);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $ids `,` $grad (`from` $first^ `of` $rows)? (`init` $init^ `:` type($init))? attr-dict
    `:` type($ids) `,` type($grad) `to` type($result)
  }];
  let extraClassDeclaration = [{
    /// How many rows ids are of.
    int64_t countRows() {
      return getRows().value_or(::llvm::cast<::mlir::RankedTensorType>(getResult().getType()).getDimSize(0));
    }
  }];
  let hasVerifier = 1;
}

def NN_RotaryOp : NN_Op<"rotary", [SameOperandsAndResultType, Decomposable, Differentiable, Shardable]> {
  let summary = "rotary position embedding";
  let description = [{
    The input is [B, T, H, D]. The pair (x[i], x[i + D/2]), 0 <= i < D/2, at position t is
    rotated by the angle (t + offset) theta^(-2 i / D):
    y[i] = x[i] cos - x[i + D/2] sin, y[i + D/2] = x[i + D/2] cos + x[i] sin; backward if
    `inverse` is given, which is also the gradient. Angles, cos and sin are taken in f64
    and rounded to the input's compute type.

    (C1) the input has rank 4 and an even last size; (C2) theta is finite and above 0.

    ```mlir
    %y = nn.rotary %x theta 10000.0 : tensor<2x16x4x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, F64Attr:$theta, DefaultValuedAttr<I64Attr, "0">:$offset,
                       UnitAttr:$inverse);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `theta` $theta (`inverse` $inverse^)? attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def NN_RotatePairsOp : NN_Op<"rotate_pairs", [AllTypesMatch<["input", "result"]>,
    AllTypesMatch<["cos", "sin"]>, CountsWork, Decomposable, KernelPrimitive, Shardable]> {
  let summary = "the rotation of an nn.rotary, by given cos and sin";
  let description = [{
    The input is [B, T, H, D], cos and sin are [T, D/2]; y[i] = x[i] cos[i] -
    x[i + D/2] sin[i], y[i + D/2] = x[i + D/2] cos[i] + x[i] sin[i], for 0 <= i < D/2; with
    `inverse` for -sin. The sum is a fused multiply-add of the product by cos.

    (C1) the input has rank 4 and an even last size; (C2) cos and sin are [T, D/2] of the
    input's compute type.

    ```mlir
    %y = nn.rotate_pairs %x, %cos, %sin : tensor<2x16x4x8xf32>, tensor<16x4xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$cos, NN_FloatTensor:$sin, UnitAttr:$inverse);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $cos `,` $sin (`inverse` $inverse^)? attr-dict `:` type($input) `,` type($cos)
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_NN_EMBEDDING_OPS
