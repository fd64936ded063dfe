//===- NNNormOps.td - Normalizations and softmax ----------*- tablegen -*-===//
#ifndef TRAINC_NN_NORM_OPS
#define TRAINC_NN_NORM_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_LogSoftmaxOp : NN_Op<"log_softmax", [SameOperandsAndResultType, Decomposable, Differentiable, Shardable]> {
  let summary = "logarithm of softmax over one dimension";
  let description = [{
    y = x - m - log(sum exp(x - m)), m the maximum over `dim`; in f32 for bf16 and f16.

    (C1) dim is within the rank.
  }];
  let arguments = (ins NN_FloatTensor:$input, I64Attr:$dim);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `dim` $dim attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def NN_SoftmaxOp : NN_Op<"softmax", [SameOperandsAndResultType, Decomposable, Differentiable, Shardable]> {
  let summary = "exponentials over one dimension, scaled to the sum 1";
  let description = [{
    y = exp(x - m) / sum exp(x - m), m the maximum over `dim`; in f32 for bf16 and f16.

    (C1) dim is within the rank.

    ```mlir
    %p = nn.softmax %x dim 1 : tensor<4x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, I64Attr:$dim);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `dim` $dim attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def NN_LayerNormOp : NN_Op<"layer_norm", [AllTypesMatch<["input", "result"]>, Decomposable, Differentiable, Shardable]> {
  let summary = "normalization over the last dimension";
  let description = [{
    y = (x - mean) / sqrt(variance + eps) * weight + bias, mean and (biased) variance of
    each row; in f32 for bf16 and f16. The gradient takes the statistics again from x.

    (C1) weight and bias are vectors of the input's last size; (C2) their element type
    is the input's or its compute type; (C3) eps is finite and not negative.

    ```mlir
    %y = nn.layer_norm %x, %w, %b {eps = 1.0e-6} : tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight, Optional<NN_FloatTensor>:$bias,
                       DefaultValuedAttr<F64Attr, "1.0e-5">:$eps);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight (`,` $bias^)? attr-dict `:` type($input) `,` type($weight) (`,` type($bias)^)?
  }];
  let hasVerifier = 1;
}

def NN_RmsNormOp : NN_Op<"rms_norm", [AllTypesMatch<["input", "result"]>, Decomposable, Differentiable, Shardable]> {
  let summary = "division by the root of the mean square over the last dimension";
  let description = [{
    y = x / sqrt(mean(x x) + eps) * weight; in f32 for bf16 and f16.

    (C1) weight is a vector of the input's last size; (C2) its element type is the
    input's or its compute type; (C3) eps is finite and not negative.

    ```mlir
    %y = nn.rms_norm %x, %w : tensor<8x16xf32>, tensor<16xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight,
                       DefaultValuedAttr<F64Attr, "1.0e-5">:$eps);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `,` $weight attr-dict `:` type($input) `,` type($weight)";
  let hasVerifier = 1;
}

def NN_GroupNormOp : NN_Op<"group_norm", [AllTypesMatch<["input", "result"]>, Decomposable, Differentiable, Shardable]> {
  let summary = "normalization over groups of channels of one example";
  let description = [{
    The input is [N, C, ...]. Mean and (biased) variance are those of the C / groups
    neighbouring channels of one example, with all their positions; then
    y[n, c, ...] = (x - mean) / sqrt(variance + eps) * weight[c] + bias[c]; in f32 for
    bf16 and f16.

    (C1) weight and bias are vectors of C; (C2) their element type is the input's or its
    compute type; (C3) eps is finite and not negative; (C4) the input's rank is at least
    2 and groups divides C.

    ```mlir
    %y = nn.group_norm %x, %w, %b groups 4 : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight, NN_FloatTensor:$bias,
                       I64Attr:$groups, DefaultValuedAttr<F64Attr, "1.0e-5">:$eps);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight `,` $bias `groups` $groups attr-dict
    `:` type($input) `,` type($weight) `,` type($bias)
  }];
  let hasVerifier = 1;
}

def NN_BatchNormOp : NN_Op<"batch_norm", [AllTypesMatch<["input", "result"]>,
    AllTypesMatch<["running_mean", "new_mean"]>, AllTypesMatch<["running_var", "new_var"]>,
    Decomposable, Differentiable, Shardable]> {
  let summary = "normalization of each channel over the batch";
  let description = [{
    The input is [N, C, ...]; y = (x - mean) / sqrt(variance + eps) * weight[c] + bias[c],
    in f32 for bf16 and f16. A `train.step` gives `training`: mean and variance (biased)
    are those of the batch and all positions, and
    new = (1 - momentum) running + momentum batch, with the unbiased variance. A
    `train.eval` does not give it: mean and variance are the running ones, which are
    also the results. Running statistics are constants for differentiation.

    (C1) weight, bias and the running statistics are vectors of C; (C2) their element
    type is the input's or its compute type; (C3) eps is finite and not negative; (C4)
    the input's rank is at least 2; (C5) momentum is in [0, 1]; (C6) when training, a
    channel has at least 2 elements.

    ```mlir
    %y, %m1, %v1 = nn.batch_norm %x, %w, %b, %m, %v training
        : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight, NN_FloatTensor:$bias,
                       NN_FloatTensor:$running_mean, NN_FloatTensor:$running_var, UnitAttr:$training,
                       DefaultValuedAttr<F64Attr, "1.0e-5">:$eps,
                       DefaultValuedAttr<F64Attr, "0.1">:$momentum);
  let results = (outs NN_FloatTensor:$result, NN_FloatTensor:$new_mean, NN_FloatTensor:$new_var);
  let assemblyFormat = [{
    $input `,` $weight `,` $bias `,` $running_mean `,` $running_var (`training` $training^)? attr-dict
    `:` type($input) `,` type($weight) `,` type($bias) `,` type($running_mean) `,` type($running_var)
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_NN_NORM_OPS
