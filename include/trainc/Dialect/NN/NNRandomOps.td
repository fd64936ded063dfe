//===- NNRandomOps.td - Operations that draw random numbers *- tablegen -*-===//
#ifndef TRAINC_NN_RANDOM_OPS
#define TRAINC_NN_RANDOM_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_DropoutOp : NN_Op<"dropout", [AllTypesMatch<["input", "result"]>, AttrSizedOperandSegments,
                                     Decomposable, Differentiable, Shardable]> {
  let summary = "zeroes elements at random and scales the others";
  let description = [{
    Each element is 0 with probability `rate`, else x / (1 - rate), computed as x times
    the rounded factor. In a source module the op has its rate only; a pass then numbers
    the sites of a step and adds the scalars that make the draw repeatable, whole numbers
    from 0: the seed below 2^53, the count of updates and the micro-step within the
    window below 2^32. The element with row-major index i is kept if

        r[i mod 4] >= floor(rate 2^32 + 1/2),
        r = Philox4x32-10 with counter {lo(i/4), hi(i/4), update, micro_step}
            and key {lo(seed), hi(seed) xor site}

    where lo and hi are halves of 32 bits. It is the generator of the initial values. The
    gradient draws the same numbers again. An input that is a part of a tensor has the
    index of its first element there, and the tensor's strides: the draws are those of
    the whole tensor.

    (C1) rate is in [0, 1); (C2) seed, update and micro_step are given together, and only
    with a site; (C3) site is in [0, 2^31); (C4) strides, one per dimension and at least 0,
    are given together with `first`.

    ```mlir
    %y = nn.dropout %x rate 0.1 : tensor<4x8xf32>
    %z = nn.dropout %x rate 0.1 site 3 seed %s update %u micro_step %m : tensor<4x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, F64Attr:$rate, OptionalAttr<I64Attr>:$site,
                       Optional<NN_F64Scalar>:$seed, Optional<NN_F64Scalar>:$update,
                       Optional<NN_F64Scalar>:$micro_step, Optional<NN_I64Scalar>:$first,
                       OptionalAttr<DenseI64ArrayAttr>:$strides);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $input `rate` $rate (`site` $site^)? (`seed` $seed^)? (`update` $update^)?
    (`micro_step` $micro_step^)? (`first` $first^ `strides` $strides)? attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif // TRAINC_NN_RANDOM_OPS
