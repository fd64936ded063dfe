//===- NNLossOps.td - Losses ------------------------------*- tablegen -*-===//
#ifndef TRAINC_NN_LOSS_OPS
#define TRAINC_NN_LOSS_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_CrossEntropyOp : NN_InferredOp<"cross_entropy", [Decomposable, Differentiable, Shardable]> {
  let summary = "sum of cross entropies of logits against class indices, and the count";
  let description = [{
    Logits are [..., classes], targets [...] class indices, the optional weights [...]
    f32 factors per example. With lp = log_softmax(logits) in f32 and the target t of a
    row, the row's loss is w (-(1 - s) lp[t] - s mean(lp)), s the label smoothing.
    Rows whose target is `ignore_index` count nothing. `loss` is the sum over rows and
    `count` the sum of their weights (the number of rows if none), both f32 (f64 for
    f64 logits) scalars; mean loss = loss / count.

    Other targets are in [0, classes): for inputs of a step the runtime checks it first. A row
    whose target is computed and is not has no class: it counts, and lp[t] is 0.

    (C1) targets' shape is the logits' without the last dimension; (C2) weights have
    the targets' shape; (C3) label_smoothing is in [0, 1); (C4) ignore_index and the
    last class are numbers of the targets' element type.

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

def NN_LinearCrossEntropyOp : NN_InferredOp<"linear_cross_entropy", [AttrSizedOperandSegments, Decomposable,
    Differentiable, Shardable]> {
  let summary = "cross_entropy of the logits hidden x weight, which never stand whole in memory";
  let description = [{
    Hidden is [..., in], the weight [in, classes] ([classes, in] with
    `transpose_weight`), the optional bias [classes]; the rest is as in `nn.cross_entropy` of their
    `nn.matmul`, cast to the compute type before with `wide_logits`.

    Rows are computed in chunks, one after the other, of a number of rows that follows from the
    shapes and the kind of target alone: only one chunk of logits is kept. Losses of chunks are
    added in their order.

    (C1) the hidden's last size is the weight's `in`; (C2) element types of hidden and
    weight are equal; (C3) targets' shape is the hidden's without the last dimension;
    (C4) weights have the targets' shape; (C5) label_smoothing is in [0, 1); (C6)
    ignore_index and the last class are numbers of the targets' element type; (C7) the bias has one
    element for each class, of the weight's type.

    ```mlir
    %loss, %count = nn.linear_cross_entropy %h, %table, %y transpose_weight
        : tensor<8x16x32xf32>, tensor<100x32xf32>, tensor<8x16xi32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$hidden, NN_FloatTensor:$weight, Optional<NN_FloatTensor>:$bias,
                       NN_IntTensor:$targets, Optional<NN_FloatTensor>:$weights,
                       UnitAttr:$transpose_weight, UnitAttr:$wide_logits,
                       DefaultValuedAttr<I64Attr, "-100">:$ignore_index,
                       DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs NN_FloatTensor:$loss, NN_FloatTensor:$count);
  let extraClassDeclaration = [{
    int64_t countClasses() { return getWeight().getType().getDimSize(getTransposeWeight() ? 0 : 1); }
    /// How many rows of logits are computed at once, `least` or more; the last chunk may have
    /// fewer. The more rows, the seldomer weight and gradient go through memory: per row that is
    /// 6 x in x classes operations.
    int64_t getChunkRows(int64_t least = 512);
    /// As `decompose`, in chunks of so many rows, of `columns` logits each: those behind the
    /// classes are the lowest number.
    ::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>>
    decomposeInChunks(::mlir::OpBuilder &b, int64_t rows, int64_t columns);
    /// `count`, made of targets and weights alone.
    ::mlir::Value buildCount(::mlir::OpBuilder &b);
    /// Its loss and count of all rows at once.
    ::llvm::SmallVector<::mlir::Value> buildWhole(::mlir::OpBuilder &b);
  }];
  let assemblyFormat = [{
    $hidden `,` $weight `,` $targets (`bias` $bias^)? (`weights` $weights^)? (`transpose_weight` $transpose_weight^)?
    (`wide_logits` $wide_logits^)? attr-dict
    `:` type($hidden) `,` type($weight) `,` type($targets) (`bias` type($bias)^)? (`,` type($weights)^)?
  }];
  let hasVerifier = 1;
}

def NN_LinearCrossEntropyGradOp : NN_InferredOp<"linear_cross_entropy_grad", [AttrSizedOperandSegments, Decomposable]> {
  let summary = "loss and gradients of linear_cross_entropy, of each chunk of logits at once";
  let description = [{
    Operands and attributes are those of a valid `nn.linear_cross_entropy`, and `grad`, the
    gradient of its loss. `loss` is its loss; `row_losses`, of the targets' shape, are the
    losses of the rows before their weights, also of those that are ignored; `hidden_grad`,
    `weight_grad` and `bias_grad` are the gradients of hidden, weight and bias, whether there is one or
    not. The latter two are in the compute type: they are sums of those of the chunks, in their order.

    (C1) the grad is a scalar of the compute type.

    ```mlir
    %loss, %rows, %dh, %dtable, %db = nn.linear_cross_entropy_grad %h, %table, %y grad %g transpose_weight
        : tensor<8x16x32xf32>, tensor<100x32xf32>, tensor<8x16xi32>, tensor<f32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$hidden, NN_FloatTensor:$weight, Optional<NN_FloatTensor>:$bias,
                       NN_IntTensor:$targets, Optional<NN_FloatTensor>:$weights, NN_FloatTensor:$grad,
                       UnitAttr:$transpose_weight, UnitAttr:$wide_logits,
                       DefaultValuedAttr<I64Attr, "-100">:$ignore_index,
                       DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs NN_FloatTensor:$loss, NN_FloatTensor:$row_losses, NN_FloatTensor:$hidden_grad,
                      NN_FloatTensor:$weight_grad, NN_FloatTensor:$bias_grad);
  let extraClassDeclaration = [{
    int64_t countClasses() { return getWeight().getType().getDimSize(getTransposeWeight() ? 0 : 1); }
    /// How many rows of logits are computed at once, `least` or more; the last chunk may have
    /// fewer. The more rows, the seldomer weight and gradient go through memory: per row that is
    /// 6 x in x classes operations.
    int64_t getChunkRows(int64_t least = 512);
    /// As `decompose`, in chunks of so many rows, of `columns` logits each: those behind the
    /// classes are the lowest number.
    ::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>>
    decomposeInChunks(::mlir::OpBuilder &b, int64_t rows, int64_t columns);
  }];
  let assemblyFormat = [{
    $hidden `,` $weight `,` $targets (`bias` $bias^)? (`weights` $weights^)? `grad` $grad (`transpose_weight` $transpose_weight^)?
    (`wide_logits` $wide_logits^)? attr-dict
    `:` type($hidden) `,` type($weight) `,` type($targets) `,` type($grad) (`bias` type($bias)^)? (`,` type($weights)^)?
  }];
  let hasVerifier = 1;
}

/// A loss per element of `prediction` against `targets` of its shape.
class NN_ElementLossOp<string mnemonic> : NN_InferredOp<mnemonic, [Decomposable, Differentiable, Shardable]> {
  let arguments = (ins NN_FloatTensor:$prediction, NN_FloatTensor:$targets, Optional<NN_FloatTensor>:$weights);
  let results = (outs NN_FloatTensor:$loss, NN_FloatTensor:$count);
  let assemblyFormat = [{
    $prediction `,` $targets (`weights` $weights^)? attr-dict
    `:` type($prediction) `,` type($targets) (`,` type($weights)^)?
  }];
}

def NN_BceWithLogitsOp : NN_ElementLossOp<"bce_with_logits"> {
  let summary = "sum of binary cross entropies of logits against probabilities, and the count";
  let description = [{
    The loss of an element is max(x, 0) - x t + log(1 + exp(-|x|)), x the logit and t
    the target. Weights are factors per example: their shape is a leading part of the
    prediction's ([N] or [N, C] for [N, C]). `loss` is the sum of weight times loss over
    elements, `count` the sum of the elements' weights (the number of elements if none),
    both f32 (f64 for f64 predictions) scalars; loss / count is the mean over elements.
    An element of weight 0 counts nothing, even if it is not finite.

    (C1) targets have the prediction's shape; (C2) weights' shape is a leading part of it.

    ```mlir
    %loss, %count = nn.bce_with_logits %x, %t weights %w : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8xf32>
    ```
  }];
}

def NN_MseOp : NN_ElementLossOp<"mse"> {
  let summary = "sum of squared differences, and the count";
  let description = [{
    The loss of an element is (prediction - target)^2. Weights, `loss` and `count` are as
    in `nn.bce_with_logits`: loss / count is the mean over elements.

    (C1) targets have the prediction's shape; (C2) weights' shape is a leading part of it.

    ```mlir
    %loss, %count = nn.mse %x, %t : tensor<8x4xf32>, tensor<8x4xf32>
    ```
  }];
}

#endif // TRAINC_NN_LOSS_OPS
