//===- NNNormOps.td - Normalizations and softmax ----------*- tablegen -*-===//
#ifndef TRAINC_NN_NORM_OPS
#define TRAINC_NN_NORM_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_LogSoftmaxOp : NN_Op<"log_softmax", [SameOperandsAndResultType, Decomposable, Differentiable]> {
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

#endif // TRAINC_NN_NORM_OPS
