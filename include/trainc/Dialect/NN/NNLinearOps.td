//===- NNLinearOps.td - Products of matrices --------------*- tablegen -*-===//
#ifndef TRAINC_NN_LINEAR_OPS
#define TRAINC_NN_LINEAR_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_MatmulOp : NN_InferredOp<"matmul", [CountsWorkOfUnit, Differentiable, Shardable]> {
  let summary = "batched matrix product, with optional bias";
  let description = [{
    result[b, i, j] = sum over l of lhs'[b, i, l] rhs'[b, l, j] + bias[j], where x' is
    x with its last two dimensions exchanged if `transpose_x` is given. All but the
    last two dimensions are the batch: both operands have the same batch, or `rhs`
    has none. Sums are in f32 (f64 for f64) and rounded once.

    (C1) ranks are at least 2 and batches are equal or rhs has none; (C2) the
    contracted sizes are equal; (C3) element types are equal; (C4) bias is a vector
    of the result's last size.

    ```mlir
    %c = nn.matmul %a, %b : tensor<4x8xf32>, tensor<8x16xf32>
    %d = nn.matmul %a, %w bias %v transpose_rhs : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs, Optional<NN_FloatTensor>:$bias,
                       UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs (`bias` $bias^)? (`transpose_lhs` $transpose_lhs^)? (`transpose_rhs` $transpose_rhs^)?
    attr-dict `:` type($lhs) `,` type($rhs) (`,` type($bias)^)?
  }];
}

def NN_LinearOp : NN_InferredOp<"linear", [Decomposable, Differentiable, Shardable]> {
  let summary = "x W + b on the last dimension";
  let description = [{
    The input is [..., in], the weight [in, out], the optional bias [out], the result
    [..., out].

    (C1) the input's last size is the weight's first; (C2) bias is [out]; (C3) element
    types are equal.

    ```mlir
    %h = nn.linear %x, %w, %b : tensor<32x64xf32>, tensor<64x128xf32>, tensor<128xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight, Optional<NN_FloatTensor>:$bias);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight (`,` $bias^)? attr-dict `:` type($input) `,` type($weight) (`,` type($bias)^)?
  }];
}

#endif // TRAINC_NN_LINEAR_OPS
