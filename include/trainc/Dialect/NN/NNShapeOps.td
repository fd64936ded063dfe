//===- NNShapeOps.td - Constants and changes of shape -----*- tablegen -*-===//
#ifndef TRAINC_NN_SHAPE_OPS
#define TRAINC_NN_SHAPE_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_ConstantOp : NN_Op<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "a tensor of known values";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}

def NN_IotaOp : NN_Op<"iota"> {
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

def NN_ReshapeOp : NN_Op<"reshape", [Differentiable]> {
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

def NN_BroadcastOp : NN_Op<"broadcast", [Pointwise, Differentiable]> {
  let summary = "repeats elements to a larger shape";
  let description = [{
    (C1) the input's shape broadcasts (as NumPy) to the result's; (C2) element types
    are equal.
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `to` type($result)";
  let hasVerifier = 1;
}

def NN_TransposeOp : NN_InferredOp<"transpose", [Differentiable, Decomposable, KernelPrimitive]> {
  let summary = "permutes dimensions";
  let description = [{
    Dimension i of the result is dimension permutation[i] of the input.

    (C1) permutation is a permutation of the input's dimensions.
  }];
  let arguments = (ins NN_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input $permutation attr-dict `:` type($input)";
}

#endif // TRAINC_NN_SHAPE_OPS
