//===- NNAttentionOps.td - Attention ----------------------*- tablegen -*-===//
#ifndef TRAINC_NN_ATTENTION_OPS
#define TRAINC_NN_ATTENTION_OPS

include "trainc/Dialect/NN/NNDialect.td"

def NN_MaskTensor : NN_TensorOf<[F64, F32, BF16, F16, I1]>;

def NN_AttentionOp : NN_InferredOp<"attention", [AllTypesMatch<["k", "v"]>, Decomposable, Differentiable, KernelPrimitive, Shardable]> {
  let summary = "scaled dot-product attention";
  let description = [{
    q is [B, Tq, H, D], k and v are [B, Tk, Hk, D]; head h of q reads head h / (H / Hk)
    of k and v. The score of (i, j) is scale q[i] . k[j] (scale 1 / sqrt(D) if not
    given), plus the mask if it is float; it is -inf where a bool mask is false, and, if
    `causal` is given, where j > i + Tk - Tq. With p = softmax of the scores over j,
    out[i] = sum over j of p[j] v[j], [B, Tq, H, D], and lse is the logarithm of the sum
    of exponentials of the scores, [B, H, Tq], in f32 (f64 for f64). A row without any
    finite score (all masked) gives 0 and the lse -inf. All is in f32 for bf16 and f16
    and rounded once. No gradient goes through lse.

    (C1) q has rank 4 and k is [B, Tk, Hk, D] of its element type; (C2) H is a multiple
    of Hk; (C3) the mask broadcasts to [B, H, Tq, Tk].

    ```mlir
    %out, %lse = nn.attention %q, %k, %v causal : tensor<2x16x8x32xf32>, tensor<2x16x4x32xf32>
    %o2, %l2 = nn.attention %q, %k, %v mask %m scale 0.25
        : tensor<2x16x8x32xf32>, tensor<2x16x4x32xf32>, tensor<16x16xi1>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$q, NN_FloatTensor:$k, NN_FloatTensor:$v,
                       Optional<NN_MaskTensor>:$mask, UnitAttr:$causal, OptionalAttr<F64Attr>:$scale);
  let results = (outs NN_FloatTensor:$out, NN_FloatTensor:$lse);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`mask` $mask^)? (`causal` $causal^)? (`scale` $scale^)? attr-dict
    `:` type($q) `,` type($k) (`,` type($mask)^)?
  }];
}

def NN_AttentionGradOp : NN_InferredOp<"attention_grad", [AllTypesMatch<["k", "v"]>,
    AllTypesMatch<["q", "out", "dout"]>, Decomposable, KernelPrimitive, Shardable]> {
  let summary = "gradients of q, k and v of an attention";
  let description = [{
    `out` and `lse` are the results of `nn.attention` of the same operands and
    attributes, `dout` the gradient of `out`. Probabilities are taken again from the
    scores and lse.

    (C1) q has rank 4 and k is [B, Tk, Hk, D] of its element type; (C2) H is a multiple
    of Hk; (C3) the mask broadcasts to [B, H, Tq, Tk]; (C4) lse is [B, H, Tq] of the
    compute type.
  }];
  let arguments = (ins NN_FloatTensor:$q, NN_FloatTensor:$k, NN_FloatTensor:$v,
                       NN_FloatTensor:$out, NN_FloatTensor:$lse, NN_FloatTensor:$dout,
                       Optional<NN_MaskTensor>:$mask, UnitAttr:$causal, OptionalAttr<F64Attr>:$scale);
  let results = (outs NN_FloatTensor:$dq, NN_FloatTensor:$dk, NN_FloatTensor:$dv);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $out `,` $lse `,` $dout (`mask` $mask^)? (`causal` $causal^)? (`scale` $scale^)?
    attr-dict `:` type($q) `,` type($k) `,` type($lse) (`,` type($mask)^)?
  }];
}

def NN_PackedAttentionOp : NN_InferredOp<"packed_attention", [
    Decomposable, Differentiable, KernelPrimitive, ShardableSizes]> {
  let summary = "attention on one tensor that holds q, k and v side by side";
  let description = [{
    qkv is [B, T, (H + 2 Hk) D], H = heads, Hk = kv_heads (H if not given); its last
    dimension is q as [H, D], then k as [Hk, D], then v as [Hk, D]. The results are those
    of `nn.attention` of the three parts, `out` as [B, T, H D].

    (C1) qkv has rank 3; (C2) heads is a multiple of kv_heads, both above 0; (C3) the last
    size is a multiple of heads + 2 kv_heads; (C4) the mask broadcasts to [B, H, T, T].

    ```mlir
    %out, %lse = nn.packed_attention %qkv heads 12 causal : tensor<8x256x1152xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$qkv, Optional<NN_MaskTensor>:$mask, I64Attr:$heads,
                       OptionalAttr<I64Attr>:$kv_heads, UnitAttr:$causal, OptionalAttr<F64Attr>:$scale);
  let results = (outs NN_FloatTensor:$out, NN_FloatTensor:$lse);
  let assemblyFormat = [{
    $qkv (`mask` $mask^)? `heads` $heads (`kv_heads` $kv_heads^)? (`causal` $causal^)? (`scale` $scale^)?
    attr-dict `:` type($qkv) (`,` type($mask)^)?
  }];
}

def NN_PackedAttentionGradOp : NN_InferredOp<"packed_attention_grad", [
    AllTypesMatch<["out", "dout"]>, Decomposable, KernelPrimitive, ShardableSizes]> {
  let summary = "gradient of the operand of a packed attention";
  let description = [{
    `out` and `lse` are the results of `nn.packed_attention` of the same operands and
    attributes, `dout` the gradient of `out`; the result is packed as qkv is.

    (C1) qkv has rank 3; (C2) heads is a multiple of kv_heads, both above 0; (C3) the last
    size is a multiple of heads + 2 kv_heads; (C4) the mask broadcasts to [B, H, T, T];
    (C5) out is [B, T, H D] of qkv's element type and lse [B, H, T] of its compute type.
  }];
  let arguments = (ins NN_FloatTensor:$qkv, NN_FloatTensor:$out, NN_FloatTensor:$lse, NN_FloatTensor:$dout,
                       Optional<NN_MaskTensor>:$mask, I64Attr:$heads,
                       OptionalAttr<I64Attr>:$kv_heads, UnitAttr:$causal, OptionalAttr<F64Attr>:$scale);
  let results = (outs NN_FloatTensor:$dqkv);
  let assemblyFormat = [{
    $qkv `,` $out `,` $lse `,` $dout (`mask` $mask^)? `heads` $heads (`kv_heads` $kv_heads^)?
    (`causal` $causal^)? (`scale` $scale^)?
    attr-dict `:` type($qkv) `,` type($out) `,` type($lse) (`,` type($mask)^)?
  }];
}

#endif // TRAINC_NN_ATTENTION_OPS
