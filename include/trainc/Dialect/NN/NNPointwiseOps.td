//===- NNPointwiseOps.td - Elementwise operations ---------*- tablegen -*-===//
#ifndef TRAINC_NN_POINTWISE_OPS
#define TRAINC_NN_POINTWISE_OPS

include "trainc/Dialect/NN/NNDialect.td"

class NN_UnaryOp<string mnemonic, list<Trait> traits = [Differentiable], Trait pointwise = Pointwise>
    : NN_Op<mnemonic, !listconcat([SameOperandsAndResultType, pointwise], traits)> {
  let arguments = (ins NN_FloatTensor:$input);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

class NN_BinaryOp<string mnemonic, list<Trait> traits = [Differentiable], Trait pointwise = Pointwise>
    : NN_InferredOp<mnemonic, !listconcat([pointwise, SameOperandsAndResultElementType], traits)> {
  let arguments = (ins NN_NumberTensor:$lhs, NN_NumberTensor:$rhs);
  let results = (outs NN_NumberTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs)";
}

def NN_AddOp : NN_BinaryOp<"add", [Differentiable, Commutative], LinearPointwise> {
  let summary = "lhs + rhs, with broadcasting";
  let description = [{
    Shapes are broadcast as in NumPy: aligned at the last dimension, a missing
    dimension or one of size 1 is repeated.

    (C1) shapes are broadcastable; (C2) element types are equal.

    ```mlir
    %r = nn.add %x, %b : tensor<32x10xf32>, tensor<10xf32>
    ```
  }];
}
def NN_SubOp : NN_BinaryOp<"sub", [Differentiable], LinearPointwise> { let summary = "lhs - rhs, with broadcasting"; }
def NN_MulOp : NN_BinaryOp<"mul", [Differentiable, Commutative], LinearPointwise> {
  let summary = "lhs * rhs, with broadcasting";
}
def NN_DivOp : NN_BinaryOp<"div", [Differentiable], LinearPointwise> {
  let summary = "lhs / rhs, with broadcasting; integers round toward zero";
  let description = [{
    An integer divided by 0 is -1, and the least one divided by -1 is itself, as in XLA.

    (C1) shapes are broadcastable; (C2) element types are equal.
  }];
}

def NN_MinOp : NN_BinaryOp<"min", [Differentiable, Commutative]> {
  let summary = "the smaller of both, with broadcasting; NaN if either is";
  let description = [{
    Where both are equal each gets half of the gradient.

    (C1) shapes are broadcastable; (C2) element types are equal.
  }];
}
def NN_MaxOp : NN_BinaryOp<"max", [Differentiable, Commutative]> {
  let summary = "the larger of both, with broadcasting; NaN if either is";
  let description = [{
    Where both are equal each gets half of the gradient.

    (C1) shapes are broadcastable; (C2) element types are equal.
  }];
}
def NN_PowOp : NN_BinaryOp<"pow"> {
  let summary = "lhs to the power of rhs, with broadcasting";
  let description = [{
    Special cases are those of C's `pow`. In f32 it is exp(rhs log|lhs|), signed by
    the parity of rhs, so the relative error grows with |rhs log|lhs||: with the
    polynomials of numerics.def below 2e-7, 9e-7 and 5e-6 for |rhs| up to 1, 5 and 30
    (measured for lhs from e^-2 to e^2). The gradient of lhs is 0 where rhs is 0, that of rhs is 0 where
    lhs is 0.

    (C1) shapes are broadcastable; (C2) element types are equal.

    ```mlir
    %r = nn.pow %x, %y : tensor<4x8xf32>, tensor<f32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$lhs, NN_FloatTensor:$rhs);
  let results = (outs NN_FloatTensor:$result);
}

def NN_NegOp : NN_UnaryOp<"neg", [Differentiable], LinearPointwise> { let summary = "-x"; }
def NN_AbsOp : NN_UnaryOp<"abs"> { let summary = "absolute value; its gradient at 0 is 0"; }
def NN_ExpOp : NN_UnaryOp<"exp"> {
  let summary = "e to the power of x";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 9e-8 (measured on [-87, 88]).
  }];
}
def NN_LogOp : NN_UnaryOp<"log"> {
  let summary = "natural logarithm";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 9e-8 (measured on [1e-30, 1e30]); a
    denormal number is taken as the smallest normal one.
  }];
}
def NN_SqrtOp : NN_UnaryOp<"sqrt"> { let summary = "square root, correctly rounded"; }
def NN_RsqrtOp : NN_UnaryOp<"rsqrt"> {
  let summary = "1 / sqrt(x), root and quotient correctly rounded";
}
def NN_SinOp : NN_UnaryOp<"sin"> {
  let summary = "sine of x in radians";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 1.2e-7 for |x| < 8, below 3e-7 for
    |x| < 6.5e6. Of a larger number, whose neighbors are half a radian away, it is 0 on a CPU.
  }];
}
def NN_CosOp : NN_UnaryOp<"cos"> {
  let summary = "cosine of x in radians";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 1.2e-7 for |x| < 8, below 3e-7 for
    |x| < 6.5e6. Of a larger number, whose neighbors are half a radian away, it is 1 on a CPU.
  }];
}
def NN_FloorOp : NN_UnaryOp<"floor"> { let summary = "the next whole number toward -infinity; its gradient is 0"; }
def NN_CeilOp : NN_UnaryOp<"ceil"> { let summary = "the next whole number toward +infinity; its gradient is 0"; }
def NN_RoundOp : NN_UnaryOp<"round"> {
  let summary = "the nearest whole number, the even one of two; its gradient is 0";
}
def NN_TanhOp : NN_UnaryOp<"tanh"> {
  let summary = "hyperbolic tangent";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 3e-7 (measured on [-87, 88]).
  }];
}
def NN_ErfOp : NN_UnaryOp<"erf"> {
  let summary = "error function";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 3e-7 (measured on [-87, 88]).
  }];
}
def NN_SigmoidOp : NN_UnaryOp<"sigmoid"> {
  let summary = "1 / (1 + exp(-x))";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 2e-7 (measured on [-87, 88]).
  }];
}
def NN_SiluOp : NN_UnaryOp<"silu"> {
  let summary = "x sigmoid(x) = x / (1 + exp(-x))";
  let description = [{
    f32 with the polynomials of numerics.def: relative error below 2e-7 (measured on [-87, 88]).
  }];
}
def NN_ReluOp : NN_UnaryOp<"relu"> {
  let summary = "max(x, 0), 0 for -0; NaN stays; its gradient at 0 is 0";
}

def NN_GeluForm : I32EnumAttr<"GeluForm", "form of gelu", [
    I32EnumAttrCase<"tanh", 0>, I32EnumAttrCase<"erf", 1>]> {
  let cppNamespace = "::trainc::nn";
}

def NN_GeluOp : NN_UnaryOp<"gelu"> {
  let summary = "Gaussian error linear unit, exact or by tanh";
  let description = [{
    Form `erf`: x/2 (1 + erf(x / sqrt 2)); form `tanh`:
    x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). f32 with the polynomials of numerics.def: absolute
    error below 8e-7 (measured on [-10, 10]).

    ```mlir
    %y = nn.gelu %x tanh : tensor<4x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_GeluForm:$form);
  let assemblyFormat = "$input $form attr-dict `:` type($input)";
}

def NN_ClampOp : NN_UnaryOp<"clamp"> {
  let summary = "min(max(x, low), high); NaN stays";
  let description = [{
    The bounds are rounded to the compute type. The gradient is that of the minimum
    and the maximum: 1 inside, 0 outside, 1/2 on a bound.

    (C1) low <= high.

    ```mlir
    %y = nn.clamp %x low 0.0 high 6.0 : tensor<4x8xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, F64Attr:$low, F64Attr:$high);
  let assemblyFormat = "$input `low` $low `high` $high attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def NN_StopGradientOp : NN_UnaryOp<"stop_gradient", [Differentiable], LinearPointwise> {
  let summary = "x, through which no gradient passes";
}

def NN_CompareKind : I32EnumAttr<"CompareKind", "order relation", [
    I32EnumAttrCase<"eq", 0>, I32EnumAttrCase<"ne", 1>, I32EnumAttrCase<"lt", 2>,
    I32EnumAttrCase<"le", 3>, I32EnumAttrCase<"gt", 4>, I32EnumAttrCase<"ge", 5>]> {
  let cppNamespace = "::trainc::nn";
}

def NN_CompareOp : NN_InferredOp<"compare", [Pointwise]> {
  let summary = "i1 result of an order relation, with broadcasting";
  let description = [{
    Any relation with a NaN is false, except `ne`. Integers are signed.

    (C1) shapes are broadcastable; (C2) element types are equal.

    ```mlir
    %m = nn.compare gt %a, %b : tensor<4x8xf32>, tensor<8xf32>
    ```
  }];
  let arguments = (ins NN_CompareKind:$kind, NN_NumberTensor:$lhs, NN_NumberTensor:$rhs);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$kind $lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs)";
}

class NN_LogicalOp<string mnemonic>
    : NN_InferredOp<mnemonic, [Pointwise, Commutative]> {
  let arguments = (ins NN_BoolTensor:$lhs, NN_BoolTensor:$rhs);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs)";
}

def NN_AndOp : NN_LogicalOp<"and"> {
  let summary = "logical conjunction, with broadcasting";
  let description = [{
    (C1) shapes are broadcastable.
  }];
}
def NN_OrOp : NN_LogicalOp<"or"> {
  let summary = "logical disjunction, with broadcasting";
  let description = [{
    (C1) shapes are broadcastable.
  }];
}
def NN_NotOp : NN_Op<"not", [SameOperandsAndResultType, Pointwise]> {
  let summary = "logical negation";
  let arguments = (ins NN_BoolTensor:$input);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def NN_SelectOp : NN_InferredOp<"select", [LinearPointwise, Differentiable]> {
  let summary = "condition ? on_true : on_false, with broadcasting";
  let description = [{
    (C1) shapes are broadcastable; (C2) both values have one element type.
  }];
  let arguments = (ins NN_BoolTensor:$condition, NN_Tensor:$on_true, NN_Tensor:$on_false);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $condition `,` $on_true `,` $on_false attr-dict `:` type($condition) `,` type($on_true) `,` type($on_false)
  }];
}

def NN_CastOp : NN_InferredOp<"cast", [LinearPointwise, Differentiable]> {
  let summary = "converts the element type";
  let description = [{
    Float to float rounds to nearest even; float to integer truncates, to the nearest
    integer of the type where it has none that large, and NaN to 0; i1 becomes 0 or 1; a
    number becomes i1 by comparing with 0.

    Products and sums of bf16 and f16 are made in f32. With `unrounded` the cast of one to f32,
    which may be reshaped or transposed in between, takes it before it is rounded; of anything
    else it is a cast as others. `train-insert-casts` gives it to casts of products and sums
    in the source.

    ```mlir
    %y = nn.cast %x to bf16 : tensor<8xf32>
    %z = nn.cast %product to f32 unrounded : tensor<8x8xbf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$input, TypeAttr:$type, UnitAttr:$unrounded);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input `to` $type (`unrounded` $unrounded^)? attr-dict `:` type($input)";
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::Type":$type), [{
    build($_builder, $_state, input, type, /*unrounded=*/false);
  }]>];
  let hasFolder = 1;
}

def NN_MapOp : NN_Op<"map", [Pointwise, IsolatedFromAbove, SingleBlockImplicitTerminator<"::trainc::nn::YieldOp">]> {
  let summary = "pointwise op with a scalar region";
  let description = [{
    The region computes one element of every result from one element of every
    input; inputs are broadcast to the results' shape. Block arguments and yielded
    values have the compute type of their tensors (f32 for bf16 and f16).

    (C1) one block argument per input, of its compute type; (C2) one yielded value
    per result, of its compute type; (C3) all results have the broadcast shape; (C4) ops of
    the region are arith and math ops of scalars, without effects and regions.

    ```mlir
    %p1 = nn.map(%p, %g, %lr) : (tensor<8xf32>, tensor<8xf32>, tensor<f64>) -> tensor<8xf32> {
    ^bb0(%a: f32, %b: f32, %c: f64):
      ...
      nn.yield %r : f32
    }
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inputs);
  let results = (outs Variadic<NN_Tensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `(` $inputs `)` attr-dict `:` functional-type($inputs, results) $body
  }];
  let hasVerifier = 1;
}

def NN_YieldOp : NN_Op<"yield", [Terminator, HasParent<"MapOp">]> {
  let summary = "ends the region of an nn.map";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins), "">];
}

#endif // TRAINC_NN_POINTWISE_OPS
