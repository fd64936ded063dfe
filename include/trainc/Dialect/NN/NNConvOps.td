//===- NNConvOps.td - Convolution and pooling of planes ---*- tablegen -*-===//
#ifndef TRAINC_NN_CONV_OPS
#define TRAINC_NN_CONV_OPS

include "trainc/Dialect/NN/NNDialect.td"

// All ops here see an input [N, C, H, W] through windows: with strides s, dilations d
// and padding [low of h, high of h, low of w, high of w], element (i, j) of the window of
// output (p, q) is input (p s_h + i d_h - low_h, q s_w + j d_w - low_w). Where that is
// outside of the plane, it is padding. There are
// floor((size + low + high - d (window - 1) - 1) / s) + 1 outputs along a dimension.

def NN_Conv2dOp : NN_InferredOp<"conv2d", [CountsWorkOfUnit, Decomposable, Differentiable, Shardable]> {
  let summary = "convolution of planes";
  let description = [{
    The input is [N, C, H, W], the weight [O, C / groups, KH, KW], the optional bias [O],
    the result [N, O, OH, OW]:
    result[n, o, p, q] = bias[o] + sum over c, i, j of weight[o, c, i, j]
    input[n, c', p s + i d - low, q s + j d - low], padding being 0, and c' the c-th
    channel of o's group (consecutive channels and consecutive outputs form a group).
    `strides` and `dilations` are 1, `padding` is 0 where not given. bf16 and f16 are
    rounded after the sum and after the bias.

    Decomposes into im2col, a product of matrices and a transposition. On processors it
    is a kernel of its own where getConvolution (Analysis/Convolution.h) finds its sizes
    fit, and else a `train.convolution`.

    (C1) input and weight are of rank 4, no size is 0; (C2) strides and dilations are two
    numbers of at least 1, padding is four of at least 0, all below 2^31; (C3) a window
    fits into the padded input; (C4) groups divides C and O, and the weight's second size
    is C / groups; (C5) bias is [O]; (C6) element types are equal.

    ```mlir
    %y = nn.conv2d %x, %w bias %b strides [2, 2] padding [1, 1, 1, 1] groups 2
        : tensor<8x4x9x9xf32>, tensor<6x2x3x3xf32>, tensor<6xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$weight, Optional<NN_FloatTensor>:$bias,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       OptionalAttr<DenseI64ArrayAttr>:$dilations,
                       DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight (`bias` $bias^)? (`strides` $strides^)? (`padding` $padding^)?
    (`dilations` $dilations^)? (`groups` $groups^)? attr-dict
    `:` type($input) `,` type($weight) (`,` type($bias)^)?
  }];
  let hasVerifier = 1;
}

class NN_Conv2dGradOp<string mnemonic, string operand> : NN_Op<mnemonic, [CountsWorkOfUnit, Decomposable, Shardable]> {
  let assemblyFormat = "$" # operand # [{ `,` $grad (`strides` $strides^)? (`padding` $padding^)?
    (`dilations` $dilations^)? (`groups` $groups^)? attr-dict
    `:` type($}] # operand # [{) `,` type($grad) `to` type($result)
  }];
  let results = (outs NN_FloatTensor:$result);
  let hasVerifier = 1;
}

def NN_Conv2dInputGradOp : NN_Conv2dGradOp<"conv2d_input_grad", "weight"> {
  let summary = "gradient of conv2d with respect to its input";
  let description = [{
    (C1) nn.conv2d of the result's type with this weight and these attributes is valid
    and has the grad's type.

    ```mlir
    %dx = nn.conv2d_input_grad %w, %dy strides [2, 2]
        : tensor<6x4x3x3xf32>, tensor<8x6x4x4xf32> to tensor<8x4x9x9xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$weight, NN_FloatTensor:$grad,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       OptionalAttr<DenseI64ArrayAttr>:$dilations,
                       DefaultValuedAttr<I64Attr, "1">:$groups);
}

def NN_Conv2dWeightGradOp : NN_Conv2dGradOp<"conv2d_weight_grad", "input"> {
  let summary = "gradient of conv2d with respect to its weight";
  let description = [{
    (C1) nn.conv2d of this input with a weight of the result's type and these attributes
    is valid and has the grad's type.

    ```mlir
    %dw = nn.conv2d_weight_grad %x, %dy strides [2, 2]
        : tensor<8x4x9x9xf32>, tensor<8x6x4x4xf32> to tensor<6x4x3x3xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$grad,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       OptionalAttr<DenseI64ArrayAttr>:$dilations,
                       DefaultValuedAttr<I64Attr, "1">:$groups);
}

def NN_Conv2dWeightPartsOp : NN_InferredOp<"conv2d_weight_parts", [CountsWorkOfUnit, Decomposable, KernelPrimitive]> {
  let summary = "gradients of conv2d's weight by parts of the batch";
  let description = [{
    The result is [parts, C, KH, KW, O]: part i is the gradient of a weight [O, C, KH, KW],
    its first dimension moved to the end, with respect to the examples from i `examples` to
    (i + 1) `examples` or to the end. Their sum is the gradient, without groups; parts can
    be computed one beside the other.

    (C1) nn.conv2d of this input with a weight of the result's sizes and these attributes
    is valid and has the grad's type; (C2) window, strides and dilations are two numbers of
    at least 1, padding is four of at least 0, all below 2^31; (C3) a window fits into the
    padded input; (C4) examples is at least 1.

    ```mlir
    %dw = nn.conv2d_weight_parts %x, %dy window [3, 3] examples 4
        : tensor<8x4x9x9xf32>, tensor<8x6x7x7xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$grad, DenseI64ArrayAttr:$window,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       OptionalAttr<DenseI64ArrayAttr>:$dilations,
                       I64Attr:$examples);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $grad `window` $window (`strides` $strides^)? (`padding` $padding^)?
    (`dilations` $dilations^)? `examples` $examples attr-dict `:` type($input) `,` type($grad)
  }];
}

def NN_Im2colOp : NN_InferredOp<"im2col", [Decomposable, KernelPrimitive, MovesElements, Shardable]> {
  let summary = "the windows of planes as columns of a matrix";
  let description = [{
    The result is [C, KH, KW, N, OH, OW]: element (c, i, j, n, p, q) is element (i, j) of
    the window of output (p, q) in plane (n, c), 0 in the padding. As a matrix of C KH KW
    rows it is the right side of the product of a convolution, whose groups are blocks of
    rows.

    (C1) the input is of rank 4, no size is 0; (C2) window, strides and dilations are two
    numbers of at least 1, padding is four of at least 0, all below 2^31; (C3) a window
    fits into the padded input.

    ```mlir
    %m = nn.im2col %x window [3, 3] padding [1, 1, 1, 1] : tensor<8x4x9x9xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, DenseI64ArrayAttr:$window,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       OptionalAttr<DenseI64ArrayAttr>:$dilations);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `window` $window (`strides` $strides^)? (`padding` $padding^)?
    (`dilations` $dilations^)? attr-dict `:` type($input)
  }];
}

def NN_Col2imOp : NN_Op<"col2im", [CountsWork, Decomposable, KernelPrimitive, Shardable]> {
  let summary = "sums the windows of planes back into the planes";
  let description = [{
    The transpose of nn.im2col: each element of the result is the sum of its copies in
    the windows, in row-major order of its place in the window.

    (C1) nn.im2col of the result's type with a window of the columns' sizes 1 and 2 and
    these attributes is valid and has the columns' type.

    ```mlir
    %x = nn.col2im %m padding [1, 1, 1, 1] : tensor<4x3x3x8x9x9xf32> to tensor<8x4x9x9xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$columns,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       OptionalAttr<DenseI64ArrayAttr>:$dilations);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $columns (`strides` $strides^)? (`padding` $padding^)? (`dilations` $dilations^)?
    attr-dict `:` type($columns) `to` type($result)
  }];
  let hasVerifier = 1;
}

def NN_MaxPool2dOp : NN_InferredOp<"max_pool2d", [CountsWork, Decomposable, KernelPrimitive, Differentiable, Shardable]> {
  let summary = "maximum over windows, and where it is";
  let description = [{
    `argmax` is the index h W + w, in the input's plane, of the first element in the
    window that is the maximum, i32. Padding is never the maximum. A NaN is: the result
    is NaN and argmax its first place. `strides` are the window's sizes where not given.

    (C1) the input is of rank 4, no size is 0; (C2) window and strides are two numbers of
    at least 1, padding is four of at least 0, all below 2^31; (C3) a window fits into the
    padded input; (C4) padding is less than the window; (C5) H W is below 2^31.

    ```mlir
    %y, %at = nn.max_pool2d %x window [2, 2] : tensor<8x4x8x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, DenseI64ArrayAttr:$window,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding);
  let results = (outs NN_FloatTensor:$result, NN_IntTensor:$argmax);
  let assemblyFormat = [{
    $input `window` $window (`strides` $strides^)? (`padding` $padding^)? attr-dict `:` type($input)
  }];
}

def NN_MaxPool2dGradOp : NN_Op<"max_pool2d_grad", [CountsWork, Decomposable, KernelPrimitive, Shardable]> {
  let summary = "gradient of max_pool2d";
  let description = [{
    Each element of the result is the sum of the grads whose argmax it is, in row-major
    order of its place in their windows.

    (C1) nn.max_pool2d of the result's type with these attributes is valid and has the
    types of grad and argmax.

    ```mlir
    %dx = nn.max_pool2d_grad %dy, %at window [2, 2]
        : tensor<8x4x4x4xf32>, tensor<8x4x4x4xi32> to tensor<8x4x8x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, NN_IntTensor:$argmax, DenseI64ArrayAttr:$window,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `,` $argmax `window` $window (`strides` $strides^)? (`padding` $padding^)? attr-dict
    `:` type($grad) `,` type($argmax) `to` type($result)
  }];
  let hasVerifier = 1;
}

def NN_AvgPool2dOp : NN_InferredOp<"avg_pool2d", [CountsWork, Decomposable, KernelPrimitive, Differentiable, Shardable]> {
  let summary = "mean over windows";
  let description = [{
    The sum of the window's elements, in row-major order, divided by the window's size,
    or, with `count_include_pad = false`, by how many of them are not padding.
    `strides` are the window's sizes where not given.

    (C1) to (C4) of nn.max_pool2d.

    ```mlir
    %y = nn.avg_pool2d %x window [2, 2] : tensor<8x4x8x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, DenseI64ArrayAttr:$window,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       DefaultValuedAttr<BoolAttr, "true">:$count_include_pad);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `window` $window (`strides` $strides^)? (`padding` $padding^)? attr-dict `:` type($input)
  }];
}

def NN_AvgPool2dGradOp : NN_Op<"avg_pool2d_grad", [CountsWork, Decomposable, KernelPrimitive, Shardable]> {
  let summary = "gradient of avg_pool2d";
  let description = [{
    (C1) nn.avg_pool2d of the result's type with these attributes is valid and has the
    grad's type.

    ```mlir
    %dx = nn.avg_pool2d_grad %dy window [2, 2] : tensor<8x4x4x4xf32> to tensor<8x4x8x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$grad, DenseI64ArrayAttr:$window,
                       OptionalAttr<DenseI64ArrayAttr>:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$padding,
                       DefaultValuedAttr<BoolAttr, "true">:$count_include_pad);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $grad `window` $window (`strides` $strides^)? (`padding` $padding^)? attr-dict
    `:` type($grad) `to` type($result)
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_NN_CONV_OPS
