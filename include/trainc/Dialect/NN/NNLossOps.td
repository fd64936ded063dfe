//===- NNLossOps.td - Losses ------------------------------*- tablegen -*-===//
#ifndef TRAINC_NN_LOSS_OPS
#define TRAINC_NN_LOSS_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_CrossEntropyOp : NN_InferredOp<"cross_entropy", [Decomposable, Differentiable]> {
  let summary = "sum of cross entropies of logits against class indices, and the count";
  let description = [{
    Logits are [..., classes], targets [...] class indices, the optional weights [...]
    f32 factors per example. With lp = log_softmax(logits) in f32 and the target t of a
    row, the row's loss is w (-(1 - s) lp[t] - s mean(lp)), s the label smoothing.
    Rows whose target is `ignore_index` count nothing. `loss` is the sum over rows and
    `count` the sum of their weights (the number of rows if none), both f32 (f64 for
    f64 logits) scalars; mean loss = loss / count.

    (C1) targets' shape is the logits' without the last dimension; (C2) weights have
    the targets' shape; (C3) label_smoothing is in [0, 1).

    ```mlir
    %loss, %count = nn.cross_entropy %logits, %y : tensor<32x10xf32>, tensor<32xi32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$logits, NN_IntTensor:$targets, Optional<NN_FloatTensor>:$weights,
                       DefaultValuedAttr<I64Attr, "-100">:$ignore_index,
                       DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs NN_FloatTensor:$loss, NN_FloatTensor:$count);
  let assemblyFormat = [{
    $logits `,` $targets (`weights` $weights^)? attr-dict
    `:` type($logits) `,` type($targets) (`,` type($weights)^)?
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_NN_LOSS_OPS
