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

def LowerKernelsPass : Pass<"train-lower-kernels", "::mlir::ModuleOp"> {
  let summary = "Turn kernels into loops on memrefs";
  let description = [{
    Gives every `train.kernel` a function in the nested module `@kernels`: one flat
    memref per argument and per result that is not in place, and the index of a tile.
    Pointwise ops and reductions become loops with explicit vectors of 32 elements and
    the lanes that `nn.reduce` states; other kernels go through `nn-to-linalg`. The
    kernel gets the attribute `tiles`. With generic=true every kernel goes through
    `nn-to-linalg`: the reference. With amx=true attention in bf16, and with split-f32=true
    long attention in f32, too, multiplies by tile registers, and its kernels get the
    attribute `amx`. Sums of other attention fill half of the bytes of vector registers.

    Example: test/Conversion/Kernels/CPU/lower-kernels.mlir
  }];
  let options = [Option<"generic", "generic", "bool", "false",
                        "Lower every kernel by its linalg decomposition">,
                 Option<"amx", "amx", "bool", "false",
                        "Multiply in attention by the tile registers of AMX where it pays">,
                 Option<"splitF32", "split-f32", "bool", "true",
                        "With amx, multiply f32 by tile registers as sums of bf16 products">,
                 Option<"registerBytes", "register-bytes", "int64_t", "2048",
                        "Bytes of all vector registers together">];
  let statistics = [Statistic<"numGeneric", "generic", "Kernels lowered through linalg">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
      "::mlir::affine::AffineDialect", "::mlir::bufferization::BufferizationDialect",
      "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::math::MathDialect",
      "::mlir::vector::VectorDialect", "::mlir::linalg::LinalgDialect",
      "::mlir::LLVM::LLVMDialect"];
}

def LowerKernelsToGPUPass : Pass<"train-lower-kernels-to-gpu", "::mlir::ModuleOp"> {
  let summary = "Turn kernels into code of GPU threads";
  let description = [{
    Gives every `train.kernel` a function in the `gpu.module` `@gpu_kernels`: one flat
    memref per argument and per result that is not in place, aligned to 16 bytes and
    without aliases. A tile is a block of threads of one dimension; the kernel gets the
    attributes `tiles` and `threads`, which are the launch.

    Pointwise ops: a vector of 16 bytes of the narrowest type for each thread. Reductions
    over the inner dimension: a row for each warp or, of more than 1024 elements, for each
    block; what a thread has of a row stays in registers from reduction to reduction,
    up to 32 elements.

    Attention: up to 64 queries of a head for each block, against tiles of keys in shared
    memory; tensor cores multiply bf16 and f16. Its gradient is one launch: blocks of
    keys, then blocks of queries, and nothing is added by atomic operations.

    Convolutions and their gradients, of any stride, padding, dilation and groups: products
    of tiles, of which those of windows are gathered as they are needed.

    Square roots and quotients are rounded correctly. Sums have one order: the block that
    ends last adds up those of others.

    With `epilogues` the module also gets kernels for what GEMMs have beside their
    products, of any size: `trainc_epilogue_T` a bias, gelu or its slope on C of type T,
    `trainc_column_sums_F_T` sums of the columns of a matrix of type F (`step_abi.h`).

    Example: test/Conversion/Kernels/GPU/attention.mlir
  }];
  let options = [ListOption<"epilogues", "epilogues", "std::string",
                            "Kernels for epilogues, by name">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
      "::mlir::affine::AffineDialect", "::mlir::bufferization::BufferizationDialect",
      "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect",
      "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect", "::mlir::math::MathDialect",
      "::mlir::vector::VectorDialect", "::mlir::linalg::LinalgDialect"];
}

def KernelsToLLVMPass : Pass<"train-kernels-to-llvm", "::mlir::ModuleOp"> {
  let summary = "Lower the functions of kernels to the LLVM dialect";
  let description = [{
    Functions on memrefs become functions on pointers that do not alias, and per kernel
    one `void (ptr operands, i64 tile)` calls them. f32 functions become polynomials, f64
    functions calls of libm through the runtime's table. With portable-bits=true f64 functions
    are polynomials, too (numerics.def), and those that it does not define are refused.

    Needs `train-lower-kernels`. Runs after `train-verify-form`: there are no memrefs any more
    whose writers that one could tell.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect",
      "::mlir::ub::UBDialect"];
  let options = [Option<"portableBits", "portable-bits", "bool", "false", "Call no libm">];
}

#endif // TRAINC_CONVERSION_PASSES
