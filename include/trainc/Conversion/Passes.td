//===- Passes.td - Conversions out of our dialects --------*- tablegen -*-===//
#ifndef TRAINC_CONVERSION_PASSES
#define TRAINC_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def NNToLinalgPass : Pass<"nn-to-linalg"> {
  let summary = "Convert nn ops to linalg, tensor and arith ops on tensors";
  let description = [{
    Replaces ops that decompose by their decompositions and every primitive by
    linalg ops that compute exactly what its description says, in the order it
    says: the definition that the reference executor runs, and the lowering of ops
    that are not fused. Afterwards no nn op is left; other dialects are not touched.
    An op without a definition, such as a dropout that has no seed yet, is an error.

    * A pointwise op is one `linalg.generic`; bf16 and f16 are widened to f32 at its
      start and rounded at its end.
    * `nn.matmul` is a `linalg.generic` with the contraction outside of the result's
      columns, so that each sum is taken in order.
    * `nn.reduce` is a sequential reduction into 32 lanes, five halvings, and a
      sequential reduction of the outer dimensions.

    Example, from test/Conversion/NNToLinalg/nn-to-linalg.mlir: `pointwise`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

#endif // TRAINC_CONVERSION_PASSES
