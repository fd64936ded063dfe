//===- NNRandomOps.td - Operations that draw random numbers *- tablegen -*-===//
#ifndef TRAINC_NN_RANDOM_OPS
#define TRAINC_NN_RANDOM_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_DropoutOp : NN_Op<"dropout", [AllTypesMatch<["input", "result"]>, AttrSizedOperandSegments,
                                     Decomposable, Differentiable, DrawsRandom, Shardable]> {
  let summary = "zeroes elements at random and scales the others";
  let description = [{
    Each element is 0 with probability `rate`, else x / (1 - rate), computed as x times
    the rounded factor. In a source module the op has its rate only; a pass then numbers
    the sites of a step and adds the scalars that make the draw repeatable, whole numbers
    from 0: the seed below 2^53 and, below 2^32, `update`, the count of updates that were
    done or skipped, and the micro-step within the window. The element with row-major index i is kept if

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

def NN_Distribution : I32EnumAttr<"Distribution", "distribution of random numbers", [
    I32EnumAttrCase<"uniform", 0>, I32EnumAttrCase<"normal", 1>, I32EnumAttrCase<"bernoulli", 2>]> {
  let cppNamespace = "::trainc::nn";
}

def NN_RandomOp : NN_Op<"random", [AttrSizedOperandSegments, Decomposable, DrawsRandom]> {
  let summary = "random numbers, other ones in each micro-step";
  let description = [{
    Site, scalars, the index i of an element and the words r are those of nn.dropout; so
    are parts of a tensor. With w = r[i mod 4]:

    - `uniform`: floor(w / 2^(32 - b)) / 2^b, in [0, 1), where b is 8 for bf16, 11 for
      f16, 24 for f32 and 32 for f64.
    - `normal`, of mean 0 and deviation 1, by Box and Muller: with the words (v, w) of the
      pair r[0], r[1] or r[2], r[3] to which the element belongs,
      sqrt(-2 log(u)) cos(2 pi t), u = (floor(v / 2^(32 - b)) + 1) / 2^b,
      t = floor(w / 2^(32 - b)) / 2^b, less 1/4 for the second of a pair, whose cosine is
      the sine then; b is 32 for f64 and else 24, computed in f32.
    - `bernoulli p`: 1 with probability p, where w < floor(p 2^32 + 1/2), else 0.

    In a `train.eval` numbers depend on the same count: a second run draws the same ones
    until the next update is done or skipped.

    (C1) p is given with `bernoulli` only, in [0, 1]; (C2) seed, update and micro_step are
    given together, and only with a site; (C3) site is in [0, 2^31); (C4) strides, one per
    dimension and at least 0, are given together with `first`.

    ```mlir
    %e = nn.random normal : tensor<4x8xf32>
    %m = nn.random bernoulli p 0.3 site 3 seed %s update %u micro_step %n : tensor<4x8xf32>
    ```
  }];
  let arguments = (ins NN_Distribution:$distribution, OptionalAttr<F64Attr>:$p, OptionalAttr<I64Attr>:$site,
                       Optional<NN_F64Scalar>:$seed, Optional<NN_F64Scalar>:$update,
                       Optional<NN_F64Scalar>:$micro_step, Optional<NN_I64Scalar>:$first,
                       OptionalAttr<DenseI64ArrayAttr>:$strides);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = [{
    $distribution (`p` $p^)? (`site` $site^)? (`seed` $seed^)? (`update` $update^)?
    (`micro_step` $micro_step^)? (`first` $first^ `strides` $strides)? attr-dict `:` type($result)
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_NN_RANDOM_OPS
