//===- NNAttentionOps.td - Attention ----------------------*- tablegen -*-===//
#ifndef TRAINC_NN_ATTENTION_OPS
#define TRAINC_NN_ATTENTION_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_MaskTensor : NN_TensorOf<[F64, F32, BF16, F16, I1]>;
def NN_SegmentTensor : NN_TensorOf<[I32, I64]>;

/// What dropout of the probabilities depends on, and how it is written.
defvar NN_ScoreDraws = (ins OptionalAttr<F64Attr>:$rate, OptionalAttr<I64Attr>:$site,
                            Optional<NN_F64Scalar>:$seed, Optional<NN_F64Scalar>:$update,
                            Optional<NN_F64Scalar>:$micro_step, Optional<NN_I64Scalar>:$first,
                            OptionalAttr<DenseI64ArrayAttr>:$strides);
defvar NN_ScoreDrawsFormat = [{
    (`dropout` $rate^)? (`site` $site^)? (`seed` $seed^)? (`update` $update^)?
    (`micro_step` $micro_step^)? (`first` $first^ `strides` $strides)?
}];

def NN_AttentionOp : NN_InferredOp<"attention", [AllTypesMatch<["k", "v"]>, AttrSizedOperandSegments, CountsWorkOfUnit,
                                                Decomposable, Differentiable, KernelPrimitive, MayDrawRandom, Shardable]> {
  let summary = "scaled dot-product attention";
  let description = [{
    q is [B, Tq, H, D], k and v are [B, Tk, Hk, D]; head h of q reads head h / (H / Hk)
    of k and v. The score of (i, j) is scale q[i] . k[j] (scale 1 / sqrt(D) if not
    given), plus the mask if it is float; it is -inf where a bool mask is false, and, if
    `causal` is given, where j > i + Tk - Tq, with `window` w also where j <= i + Tk - Tq - w:
    a query sees w keys at most. With p = softmax of the scores over j,
    out[i] = sum over j of p[j] v[j], [B, Tq, H, D], and lse is the logarithm of the sum
    of exponentials of the scores, [B, H, Tq], in f32 (f64 for f64). A row without any
    finite score (all masked) gives 0 and the lse -inf. All is in f32 for bf16 and f16
    and rounded once. No gradient goes through lse. Gradients are made of it: of a row whose
    scores are all 1e5 or larger in size, as a mask of large finite numbers makes them, it does not
    hold the sum, and they are not those of `out`. What is hidden is false, or -inf.

    `segments` [B, T], with as many keys as queries, says which sequence a position is of,
    where several are packed into one row: the score of (i, j) is -inf, too, where
    segments[b, i] is not segments[b, j].

    With `dropout` p[j] is 0 with that probability, else p[j] / (1 - rate), in out alone.
    The draws are those of nn.dropout; the index of score (b, h, i, j) is
    ((b H + h) Tq + i) P + j, where P is Tk rounded up to a multiple of 4. Scores that are a
    part of others have the index of their first one, `first`, and strides of the batch, of
    heads of k and v, of the heads of q that share one, and of queries. An eval has no dropout.

    (C1) q has rank 4 and k is [B, Tk, Hk, D] of its element type; (C2) H is a multiple
    of Hk; (C3) the mask broadcasts to [B, H, Tq, Tk]; (C4) the rate is in [0, 1); (C5) a site,
    in [0, 2^31), is given with a rate only, seed, update and micro_step together and only
    with a site, four strides, multiples of 4 from 0, together with `first` and only with a rate; (C6) a
    window, of 1 or more, is given with `causal` only; (C7) segments are [B, T] with T = Tq = Tk.

    ```mlir
    %o3, %l3 = nn.attention %q, %k, %v causal dropout 0.1 : tensor<2x16x8x32xf32>, tensor<2x16x4x32xf32>
    %out, %lse = nn.attention %q, %k, %v causal : tensor<2x16x8x32xf32>, tensor<2x16x4x32xf32>
    %o2, %l2 = nn.attention %q, %k, %v mask %m scale 0.25
        : tensor<2x16x8x32xf32>, tensor<2x16x4x32xf32>, tensor<16x16xi1>
    %o4, %l4 = nn.attention %q, %k, %v segments(%s : tensor<2x16xi32>) causal : tensor<2x16x8x32xf32>, tensor<2x16x4x32xf32>
    ```
  }];
  let arguments = !con((ins NN_FloatTensor:$q, NN_FloatTensor:$k, NN_FloatTensor:$v,
                            Optional<NN_MaskTensor>:$mask, Optional<NN_SegmentTensor>:$segments,
                            UnitAttr:$causal, OptionalAttr<F64Attr>:$scale,
                            OptionalAttr<I64Attr>:$window), NN_ScoreDraws);
  let results = (outs NN_FloatTensor:$out, NN_FloatTensor:$lse);
  let assemblyFormat = !strconcat([{
    $q `,` $k `,` $v (`mask` $mask^)? (`segments` `(` $segments^ `:` type($segments) `)`)? (`causal` $causal^)? (`scale` $scale^)? (`window` $window^)?
  }], NN_ScoreDrawsFormat, [{
    attr-dict `:` type($q) `,` type($k) (`,` type($mask)^)?
  }]);
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def NN_AttentionGradOp : NN_InferredOp<"attention_grad", [AllTypesMatch<["k", "v"]>,
    AllTypesMatch<["q", "out", "dout"]>, AttrSizedOperandSegments, CountsWorkOfUnit, Decomposable, KernelPrimitive, MayDrawRandom,
    Shardable]> {
  let summary = "gradients of q, k and v of an attention";
  let description = [{
    `out` and `lse` are the results of `nn.attention` of the same operands and
    attributes, `dout` the gradient of `out`. Probabilities are taken again from the
    scores and lse, and dropped out by the same draws. `delta` [B, Tq, H], if given, is the sum of
    out dout over D, which kernels of GPUs read: nn-decompose makes it for them, once for all
    blocks.

    (C1) q has rank 4 and k is [B, Tk, Hk, D] of its element type; (C2) H is a multiple
    of Hk; (C3) the mask broadcasts to [B, H, Tq, Tk]; (C4) lse is [B, H, Tq] of the
    compute type; (C5) the rate is in [0, 1); (C6) what draws is given as in C5 of
    nn.attention; (C7) a window, of 1 or more, is given with `causal` only; (C8) segments are
    as in C7 of nn.attention.
  }];
  let arguments = !con((ins NN_FloatTensor:$q, NN_FloatTensor:$k, NN_FloatTensor:$v,
                            NN_FloatTensor:$out, NN_FloatTensor:$lse, NN_FloatTensor:$dout,
                            Optional<NN_MaskTensor>:$mask, Optional<NN_SegmentTensor>:$segments,
                            Optional<NN_FloatTensor>:$delta,
                            UnitAttr:$causal, OptionalAttr<F64Attr>:$scale,
                            OptionalAttr<I64Attr>:$window), NN_ScoreDraws);
  let results = (outs NN_FloatTensor:$dq, NN_FloatTensor:$dk, NN_FloatTensor:$dv);
  let assemblyFormat = !strconcat([{
    $q `,` $k `,` $v `,` $out `,` $lse `,` $dout (`mask` $mask^)? (`segments` `(` $segments^ `:` type($segments) `)`)?
    (`delta` `(` $delta^ `:` type($delta) `)`)?
    (`causal` $causal^)? (`scale` $scale^)? (`window` $window^)?
  }], NN_ScoreDrawsFormat, [{
    attr-dict `:` type($q) `,` type($k) `,` type($lse) (`,` type($mask)^)?
  }]);
  let hasVerifier = 1;
}

def NN_PackedAttentionOp : NN_InferredOp<"packed_attention", [
    AttrSizedOperandSegments, CountsWorkOfUnit, Decomposable, Differentiable, KernelPrimitive, MayDrawRandom, ShardableSizes]> {
  let summary = "attention on one tensor that holds q, k and v side by side";
  let description = [{
    qkv is [B, T, (H + 2 Hk) D], H = heads, Hk = kv_heads (H if not given); its last
    dimension is q as [H, D], then k as [Hk, D], then v as [Hk, D]. The results are those
    of `nn.attention` of the three parts, `out` as [B, T, H D].

    (C1) qkv has rank 3; (C2) heads is a multiple of kv_heads, both above 0; (C3) the last
    size is a multiple of heads + 2 kv_heads; (C4) the mask broadcasts to [B, H, T, T]; (C5) the
    rate is in [0, 1); (C6) what draws is given as in C5 of nn.attention; (C7) a window, of 1
    or more, is given with `causal` only.

    ```mlir
    %out, %lse = nn.packed_attention %qkv heads 12 causal : tensor<8x256x1152xf32>
    ```
  }];
  let arguments = !con((ins NN_FloatTensor:$qkv, Optional<NN_MaskTensor>:$mask, I64Attr:$heads,
                            OptionalAttr<I64Attr>:$kv_heads, UnitAttr:$causal, OptionalAttr<F64Attr>:$scale,
                            OptionalAttr<I64Attr>:$window), NN_ScoreDraws);
  let results = (outs NN_FloatTensor:$out, NN_FloatTensor:$lse);
  let assemblyFormat = !strconcat([{
    $qkv (`mask` $mask^)? `heads` $heads (`kv_heads` $kv_heads^)? (`causal` $causal^)? (`scale` $scale^)? (`window` $window^)?
  }], NN_ScoreDrawsFormat, [{
    attr-dict `:` type($qkv) (`,` type($mask)^)?
  }]);
  let hasVerifier = 1;
}

def NN_PackedAttentionGradOp : NN_InferredOp<"packed_attention_grad", [
    AllTypesMatch<["out", "dout"]>, AttrSizedOperandSegments, CountsWorkOfUnit, Decomposable, KernelPrimitive, MayDrawRandom,
    ShardableSizes]> {
  let summary = "gradient of the operand of a packed attention";
  let description = [{
    `out` and `lse` are the results of `nn.packed_attention` of the same operands and
    attributes, `dout` the gradient of `out`; the result is packed as qkv is. `delta` is that of
    nn.attention_grad, [B, T, H].

    (C1) qkv has rank 3; (C2) heads is a multiple of kv_heads, both above 0; (C3) the last
    size is a multiple of heads + 2 kv_heads; (C4) the mask broadcasts to [B, H, T, T];
    (C5) out is [B, T, H D] of qkv's element type and lse [B, H, T] of its compute type;
    (C6) the rate is in [0, 1); (C7) what draws is given as in C5 of nn.attention; (C8) a
    window, of 1 or more, is given with `causal` only; (C9) delta is [B, T, H] of the compute type.
  }];
  let arguments = !con((ins NN_FloatTensor:$qkv, NN_FloatTensor:$out, NN_FloatTensor:$lse, NN_FloatTensor:$dout,
                            Optional<NN_MaskTensor>:$mask, Optional<NN_FloatTensor>:$delta, I64Attr:$heads,
                            OptionalAttr<I64Attr>:$kv_heads, UnitAttr:$causal, OptionalAttr<F64Attr>:$scale,
                            OptionalAttr<I64Attr>:$window), NN_ScoreDraws);
  let results = (outs NN_FloatTensor:$dqkv);
  let hasVerifier = 1;
  let assemblyFormat = !strconcat([{
    $qkv `,` $out `,` $lse `,` $dout (`mask` $mask^)? (`delta` `(` $delta^ `:` type($delta) `)`)? `heads` $heads (`kv_heads` $kv_heads^)?
    (`causal` $causal^)? (`scale` $scale^)? (`window` $window^)?
  }], NN_ScoreDrawsFormat, [{
    attr-dict `:` type($qkv) `,` type($out) `,` type($lse) (`,` type($mask)^)?
  }]);
}

#endif // TRAINC_NN_ATTENTION_OPS
