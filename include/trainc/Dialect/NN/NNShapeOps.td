//===- NNShapeOps.td - Constants and changes of shape -----*- tablegen -*-===//
#ifndef TRAINC_NN_SHAPE_OPS
#define TRAINC_NN_SHAPE_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_ConstantOp : NN_Op<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>, MovesElements]> {
  let summary = "a tensor of known values";
  let description = [{
    (C1) value is dense, sparse, or a dense_resource with the bytes of all elements.

    ```mlir
    %c = nn.constant dense<[1.0, 2.0]> : tensor<2xf32>
    ```
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def NN_IotaOp : NN_Op<"iota", [MovesElements]> {
  let summary = "each element is its index along a dimension";
  let description = [{
    (C1) dim is within the rank.

    ```mlir
    %i = nn.iota dim 1 : tensor<4x8xi32>
    ```
  }];
  let arguments = (ins I64Attr:$dim);
  let results = (outs NN_NumberTensor:$result);
  let assemblyFormat = "`dim` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def NN_ReshapeOp : NN_Op<"reshape", [Differentiable, MovesElements, Shardable]> {
  let summary = "the same elements, in row-major order, in another shape";
  let description = [{
    (C1) element types and numbers of elements are equal.

    ```mlir
    %r = nn.reshape %x : tensor<4x8xf32> to tensor<32xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `to` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_BroadcastOp : NN_Op<"broadcast", [LinearPointwise, Differentiable]> {
  let summary = "repeats elements to a larger shape";
  let description = [{
    (C1) the input's shape broadcasts (as NumPy) to the result's; (C2) element types
    are equal.
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `to` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_TransposeOp : NN_InferredOp<"transpose", [Differentiable, Decomposable, KernelPrimitive, MovesElements, Shardable]> {
  let summary = "permutes dimensions";
  let description = [{
    Dimension i of the result is dimension permutation[i] of the input.

    (C1) permutation is a permutation of the input's dimensions.
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $permutation attr-dict `:` type($input)";
  let hasFolder = 1;
  let hasCanonicalizeMethod = 1;
}

def NN_SliceOp : NN_InferredOp<"slice", [Differentiable, Decomposable, KernelPrimitive, MovesElements, ShardableSizes]> {
  let summary = "a strided box of elements";
  let description = [{
    result[i, j, ...] = input[offsets[0] + i strides[0], offsets[1] + j strides[1], ...];
    strides are 1 if not given.

    (C1) one offset, size and stride per dimension of the input; (C2) offsets are at
    least 0, sizes and strides at least 1, and the last element is within the input.

    ```mlir
    %r = nn.slice %x offsets [0, 1] sizes [4, 3] strides [1, 2] : tensor<4x8xf32>   // tensor<4x3xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$offsets, DenseI64ArrayAttr:$sizes,
                       OptionalAttr<DenseI64ArrayAttr>:$strides);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $input `offsets` $offsets `sizes` $sizes (`strides` $strides^)? attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    /// The strides, 1 where none are given.
    ::llvm::SmallVector<int64_t> getAllStrides();
  }];
}

def NN_PadOp : NN_InferredOp<"pad", [Differentiable, Decomposable, KernelPrimitive, MovesElements, Shardable]> {
  let summary = "a border of one value, and the value between elements";
  let description = [{
    Along each dimension `low` elements of `value` come before the input's, `high` after
    them and `interior` (0 if not given) between two.

    (C1) one low, high and interior per dimension of the input, 0 to 2^40; (C2) the
    input has elements, and the result at most 2^40; (C3) value is a number of the element type if that is integer.

    ```mlir
    %r = nn.pad %x low [0, 1] high [0, 2] value 0.0 : tensor<4x8xf32>   // tensor<4x11xf32>
    ```
  }];
  let arguments = (ins NN_NumberTensor:$input, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high,
                       OptionalAttr<DenseI64ArrayAttr>:$interior, F64Attr:$value);
  let results = (outs NN_NumberTensor:$result);
  let assemblyFormat = [{
    $input `low` $low `high` $high (`interior` $interior^)? `value` $value attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    /// From one element of the input to the next, along each dimension.
    ::llvm::SmallVector<int64_t> getSteps();
  }];
}

def NN_ConcatOp : NN_InferredOp<"concat", [Differentiable, Decomposable, KernelPrimitive, MovesElements, Shardable]> {
  let summary = "tensors one after another along a dimension";
  let description = [{
    (C1) dim is within the rank; (C2) element types and all sizes but that along dim are
    equal.

    ```mlir
    %r = nn.concat %a, %b dim 1 : tensor<4x8xf32>, tensor<4x3xf32>   // tensor<4x11xf32>
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inputs, I64Attr:$dim);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$inputs `dim` $dim attr-dict `:` type($inputs)";
  let hasFolder = 1;
}

def NN_GatherOp : NN_InferredOp<"gather", [Differentiable, Decomposable, KernelPrimitive, MovesElements, Shardable]> {
  let summary = "takes elements by index along a dimension";
  let description = [{
    result[.., k, ..] = input[.., indices[.., k, ..], ..], as NumPy's take_along_axis. An
    index outside of the dimension is moved to its nearest end; indices that are inputs
    of a step are refused before that.

    (C1) dim is within the rank; (C2) input and indices have one rank and equal sizes but
    along dim; (C3) the input has elements.

    ```mlir
    %r = nn.gather %x, %i dim 1 : tensor<4x8xf32>, tensor<4x3xi32>   // tensor<4x3xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, NN_IntTensor:$indices, I64Attr:$dim);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input `,` $indices `dim` $dim attr-dict `:` type($input) `,` type($indices)";
}

def NN_ScatterAddOp : NN_Op<"scatter_add", [Differentiable, Decomposable, Shardable]> {
  let summary = "sums elements by index along a dimension";
  let description = [{
    result[.., j, ..] = sum of updates[.., k, ..] over those k whose indices[.., k, ..] is j:
    the gradient of `gather`. It is a reduction over all k, in the order of `reduce`, of
    updates masked by equality, so it is deterministic and its cost grows with the product
    of both sizes along dim. An index outside of the dimension is moved to its nearest end.

    (C1) dim is within the rank; (C2) indices and updates have one shape; (C3) the result
    has their rank and equal sizes but along dim; (C4) element types of updates and result
    are equal.

    ```mlir
    %r = nn.scatter_add %i, %u dim 1 : tensor<4x3xi32>, tensor<4x3xf32> to tensor<4x8xf32>
    ```
  }];
  let arguments = (ins NN_IntTensor:$indices, NN_NumberTensor:$updates, I64Attr:$dim);
  let results = (outs NN_NumberTensor:$result);
  let assemblyFormat = [{
    $indices `,` $updates `dim` $dim attr-dict `:` type($indices) `,` type($updates) `to` type($result)
  }];
  let hasVerifier = 1;
}

def NN_PartOp : NN_InferredOp<"part", [Differentiable, Decomposable, KernelPrimitive, MovesElements, Shardable]> {
  let summary = "one of the equal parts of a tensor along a dimension";
  let description = [{
    The dimension is cut into `count` parts of equal size n:
    result[.., i, ..] = input[.., index n + i, ..]. An index outside of [0, count) is
    moved to its nearest end.

    (C1) dim is within the rank; (C2) count is at least 1 and divides the size along dim.

    ```mlir
    %r = nn.part %x at %i dim 0 of 4 : tensor<8x3xf32>   // tensor<2x3xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, NN_I64Scalar:$index, I64Attr:$dim, I64Attr:$count);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input `at` $index `dim` $dim `of` $count attr-dict `:` type($input)";
}

#endif // TRAINC_NN_SHAPE_OPS
