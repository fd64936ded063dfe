//===- NNReductionOps.td - Reductions ---------------------*- tablegen -*-===//
#ifndef TRAINC_NN_REDUCTION_OPS
#define TRAINC_NN_REDUCTION_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_ReduceKind : I32EnumAttr<"ReduceKind", "reduction", [
    I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>,
    I32EnumAttrCase<"prod", 3>]> {
  let cppNamespace = "::trainc::nn";
}

def NN_ReduceOrder : I32EnumAttr<"ReduceOrder", "order of a reduction", [
    I32EnumAttrCase<"sequence", 0>, I32EnumAttrCase<"lanes", 1>, I32EnumAttrCase<"threads", 2>]> {
  let cppNamespace = "::trainc::nn";
}

def NN_ReduceOp : NN_InferredOp<"reduce", [CountsWork, Differentiable, Shardable]> {
  let summary = "reduction over dimensions";
  let description = [{
    The `order`, which every lowering follows bit for bit, is set once, by nn-decompose, from shape
    and target:
      - `lanes`, of the innermost run of the input's dimensions, as one index i: element i
        goes to lane i mod 32, each lane starting from the identity element and taking its
        elements in order; the lanes are combined by halving (lane l with lane l + 16, then
        8, 4, 2, 1);
      - `sequence`: elements are taken one after the other, in row-major order, from the
        identity element;
      - `threads`, on GPUs: that of the kernel, which depends on shapes and types in it.
    Without one, as in a source, the innermost run is reduced by `lanes` and then what is
    further out by `sequence`. bf16 and f16 are
    accumulated in f32 and rounded at the end. The maximum or minimum with a NaN is
    NaN. The gradient of max and min goes to the elements equal to the result, in
    equal parts. The gradient of a product is the product of the other elements,
    taken as result / x where nothing is 0.

    (C1) dims are distinct and within the rank.

    ```mlir
    %s = nn.reduce sum %x dims [1] keep : tensor<4x8xf32>   // tensor<4x1xf32>
    %t = nn.reduce sum %x dims [0] keep : tensor<4x8xf32> order sequence
    ```
  }];
  let arguments = (ins NN_ReduceKind:$kind, NN_NumberTensor:$input,
                       DenseI64ArrayAttr:$dims, UnitAttr:$keep, OptionalAttr<NN_ReduceOrder>:$order);
  let results = (outs NN_NumberTensor:$result);
  let builders = [OpBuilder<(ins "ReduceKind":$kind, "::mlir::Value":$input, "::llvm::ArrayRef<int64_t>":$dims,
                                 CArg<"bool", "false">:$keep), [{
    build($_builder, $_state, kind, input, dims, keep, ReduceOrderAttr());
  }]>];
  let assemblyFormat = [{
    $kind $input `dims` $dims (`keep` $keep^)? attr-dict `:` type($input) (`order` $order^)?
  }];
}

def NN_ArgmaxOp : NN_InferredOp<"argmax", [Decomposable, Shardable]> {
  let summary = "index of the first maximum along a dimension";
  let description = [{
    The result is i32 and lacks the dimension, or has it with size 1 if `keep` is
    given. A NaN is larger than any number.

    (C1) dim is within the rank; (C2) the size along dim is at least 1 and fits i32.

    ```mlir
    %i = nn.argmax %x dim 1 : tensor<4x8xf32>   // tensor<4xi32>
    ```
  }];
  let arguments = (ins NN_NumberTensor:$input, I64Attr:$dim, UnitAttr:$keep);
  let results = (outs NN_IntTensor:$result);
  let assemblyFormat = "$input `dim` $dim (`keep` $keep^)? attr-dict `:` type($input)";
}

def NN_SortOp : NN_InferredOp<"sort", [CountsWork, Decomposable, Differentiable, Shardable]> {
  let summary = "elements in order along a dimension";
  let description = [{
    values[.., k, ..] is the element that k others come before: smaller ones, or larger
    ones if `descending`, and of equal ones those of smaller index (the sort is stable). A
    NaN is larger than any number and equal to a NaN; -0.0 equals 0.0. indices, i32, are
    those of values in the input: values is gather(input, indices). positions, i32, say
    where each element went: input is gather(values, positions), and so is its gradient of
    that of values.

    (C1) dim is within the rank; (C2) the size along dim is at least 1 and fits i32.

    ```mlir
    %v, %i, %p = nn.sort %x dim 1 descending : tensor<4x8xf32>
    ```
  }];
  let arguments = (ins NN_NumberTensor:$input, I64Attr:$dim, UnitAttr:$descending);
  let results = (outs NN_NumberTensor:$values, NN_IntTensor:$indices, NN_IntTensor:$positions);
  let assemblyFormat = "$input `dim` $dim (`descending` $descending^)? attr-dict `:` type($input)";
}

#endif // TRAINC_NN_REDUCTION_OPS
