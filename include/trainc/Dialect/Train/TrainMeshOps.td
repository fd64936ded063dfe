//===- TrainMeshOps.td - Ranks and collectives ------------*- tablegen -*-===//
#ifndef TRAINC_TRAIN_MESH_OPS
#define TRAINC_TRAIN_MESH_OPS

include "trainc/Dialect/NN/NNInterfaces.td"
include "trainc/Dialect/Train/TrainBufferOps.td"

def Train_MeshOp : Train_Op<"mesh", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "the ranks of a run, as a grid with named axes";
  let description = [{
    An artifact is compiled for one mesh. Ranks are numbered row-major: those that differ
    in the last axis alone follow each other. Shapes in a source are global; what is split
    over an axis of size n has n parts, one for each position along it. `--mesh=` on the
    command line replaces sizes.

    (C1) at least one axis, of distinct names, UTF-8 without zero bytes; (C2) sizes are at least 1, and their
    product at most 65536; (C3) a module has one mesh at most.

    ```mlir
    train.mesh @mesh(host = 2, data = 4)
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$axes, DenseI64ArrayAttr:$sizes);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The size of `axis`, or 0 if there is none of that name.
    int64_t getSize(::llvm::StringRef axis);
    /// How many ranks differ in `axes` (names of the mesh) alone.
    int64_t getCount(::mlir::ArrayAttr axes);
  }];
}

def Train_ProcessIndexOp : Train_Op<"process_index", [Pure,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "which of the parts over some axes is this rank's";
  let description = [{
    The rank's position among those that differ in `axes` alone, the first axis being the
    slowest.

    (C1) axes are distinct ones of the mesh.

    ```mlir
    %i = train.process_index over ["host", "data"] : tensor<i64>
    ```
  }];
  let arguments = (ins StrArrayAttr:$axes);
  let results = (outs 0DTensorOf<[I64]>:$result);
  let assemblyFormat = "`over` $axes attr-dict `:` type($result)";
}

def Train_ConstrainOp : Train_Op<"constrain", [SameOperandsAndResultType, Pure,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "how a value lies on the ranks";
  let description = [{
    The result is the operand, split as given and whole along the other dimensions: what
    is a sum over ranks is added up, what is whole cut, and what is split otherwise
    gathered. `train-partition` replaces it; without axes of several ranks it does
    nothing.

    (C1) a split names axes of the mesh, each once, in at most one list per dimension.

    ```mlir
    %y = train.constrain %x split([data], [model]) : tensor<8x256x384xf32>
    ```
  }];
  let arguments = (ins Train_Tensor:$input, ArrayAttr:$split);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input `split` `(` custom<Split>($split) `)` attr-dict `:` type($input)";
}

/// Not pure: all ranks do the same collectives in the same order.
class Train_CollectiveOp<string mnemonic, list<Trait> traits = []> : Train_Op<mnemonic,
    !listconcat(traits, [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
                         MemoryEffects<[MemRead, MemWrite]>])>;

def Train_AllReduceOp : Train_CollectiveOp<"all_reduce", [SameOperandsAndResultType,
    DeclareOpInterfaceMethods<NN_DifferentiableOp>]> {
  let summary = "the sum of a tensor over ranks";
  let description = [{
    Element by element ((x0 + x1) + x2) + ..., of the ranks that differ in `axes` alone, in
    their order; bf16 and f16 are added in f32 and rounded once. With `in_place` a flat
    tensor is summed where it stands, and with `piece_of`
    only this rank's of its equal shards over those axes; the
    others stay. The gradient is the sum of those of the ranks: each loss is one part of a
    sum.

    (C1) axes are distinct ones of the mesh; (C2) elements are floats; (C3) what is summed in
    place has rank 1 and a whole number of elements per shard; `piece_of` is of what is in place.

    ```mlir
    %s = train.all_reduce %x over ["data"] : tensor<4xf32>
    %t = train.all_reduce %g over ["host"] in_place piece_of ["data"] : tensor<8192xf32>
    ```
  }];
  let arguments = (ins Train_TensorOrBucket:$input, StrArrayAttr:$axes, UnitAttr:$in_place,
                       OptionalAttr<StrArrayAttr>:$piece_of);
  let results = (outs Train_TensorOrBucket:$result);
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::ArrayAttr":$axes), [{
    build($_builder, $_state, input.getType(), input, axes, /*in_place=*/false, ::mlir::ArrayAttr());
  }]>];
  let assemblyFormat = [{
    $input `over` $axes (`in_place` $in_place^)? (`piece_of` $piece_of^)? attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
}

def Train_ReduceScatterOp : Train_CollectiveOp<"reduce_scatter",
    [DeclareOpInterfaceMethods<NN_DifferentiableOp>]> {
  let summary = "sums over ranks, each its own piece";
  let description = [{
    The operand is cut into equal shards along dimension 0, one for each rank that differs in
    `axes` alone; the result is the sum of this rank's shards over those ranks, as
    train.all_reduce has it; the gradient is all of theirs. With `in_place` this rank's shard of a
    flat tensor becomes that sum, and the others are undefined afterwards.

    (C1) axes are distinct ones of the mesh, in its order; (C2) elements are floats; (C3)
    what is done in place has rank 1 and a whole number of elements per
    shard; (C4) in place the result has the operand's type, and otherwise as many
    times less its size along dimension 0 as there are ranks.

    ```mlir
    %s = train.reduce_scatter %g over ["data"] in_place : tensor<8192xf32> -> tensor<8192xf32>
    %p = train.reduce_scatter %x over ["model"] : tensor<4x3xf32> -> tensor<2x3xf32>
    ```
  }];
  let arguments = (ins Train_TensorOrBucket:$input, StrArrayAttr:$axes, UnitAttr:$in_place);
  let results = (outs Train_TensorOrBucket:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "::mlir::Value":$input, "::mlir::ArrayAttr":$axes), [{
    build($_builder, $_state, result, input, axes, /*in_place=*/false);
  }]>];
  let assemblyFormat = [{
    $input `over` $axes (`in_place` $in_place^)? attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Train_AllGatherOp : Train_CollectiveOp<"all_gather", [DeclareOpInterfaceMethods<NN_DifferentiableOp>]> {
  let summary = "gives all ranks the pieces of each";
  let description = [{
    The operands of the ranks that differ in
    `axes` alone, one after another along dimension 0; the gradient of an operand is the
    sum of what all of them have for it: each loss is one part of a sum. With `in_place` each of the
    equal shards of a flat tensor becomes what its rank has there.

    (C1) axes are distinct ones of the mesh, in its order; (C2) in place the result has
    the operand's type, and otherwise as many times its size along dimension 0 as there
    are ranks; (C3) what is done in place has rank 1 and a whole number of
    elements per shard.

    ```mlir
    %p = train.all_gather %w over ["data"] in_place : tensor<8192xbf16> -> tensor<8192xbf16>
    %b = train.all_gather %x over ["data"] : tensor<3xf32> -> tensor<12xf32>
    ```
  }];
  let arguments = (ins Train_TensorOrBucket:$input, StrArrayAttr:$axes, UnitAttr:$in_place);
  let results = (outs Train_TensorOrBucket:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "::mlir::Value":$input, "::mlir::ArrayAttr":$axes), [{
    build($_builder, $_state, result, input, axes, /*in_place=*/false);
  }]>];
  let assemblyFormat = [{
    $input `over` $axes (`in_place` $in_place^)? attr-dict `:` type($input) `->` type($result)
  }];
}

def Train_FlattenOp : Train_CommandOpBase<"flatten", [AttrSizedOperandSegments]> {
  let summary = "tensors in one flat tensor";
  let description = [{
    The elements of operand i, row-major, are those of the result from offsets[i] on; what
    stands between is undefined. Before `train-coalesce` they are named: operand i is of parameter
    slices[i], and the result is the bucket of these. `train-plan-memory` lets operands be made where they stand
    in the result, so that a bucket needs memory of its own only while it is exchanged. On
    buffers `out` stands for the result; only operands that stand elsewhere are copied.

    (C1) operands have the result's element type, which has rank 1; (C2) one offset or slice per
    operand; offsets ascend, operands do not overlap and lie within the result; (C3) there is a
    result or `out`, not both.

    ```mlir
    %b = train.flatten %g, %h at [0, 4096] : tensor<64x64xf32>, tensor<64xf32> -> tensor<8192xf32>
    train.flatten %g, %h at [0, 4096] outs(%b : memref<8192xf32>) : memref<64x64xf32>, memref<64xf32>
    ```
  }];
  let arguments = (ins Variadic<Train_TensorOrBuffer>:$inputs, Optional<Train_Buffer>:$out,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$offsets,
                       OptionalAttr<FlatSymbolRefArrayAttr>:$slices);
  let results = (outs Optional<Train_TensorOrBucket>:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "::mlir::ValueRange":$inputs,
      "::llvm::ArrayRef<int64_t>":$offsets), [{
    build($_builder, $_state, result, inputs, {}, offsets, ::mlir::ArrayAttr());
  }]>];
  let assemblyFormat = [{
    $inputs (`at` $offsets^)? (`as` $slices^)? (`outs` `(` $out^ `:` type($out) `)`)? attr-dict `:` type($inputs)
    (`->` type($result)^)?
  }];
  let hasVerifier = 1;
}

def Train_ViewOp : Train_Op<"view", [Pure]> {
  let summary = "a part of a flat tensor, as a tensor";
  let description = [{
    The elements from `offset` on, row-major; where they stand, nothing is copied. Of a
    buffer it is also a reshape. Before `train-coalesce` it may be named: `slice` of a bucket.

    (C1) operand and result are tensors or buffers of one element type; a tensor to view has rank 1; (C2) the part
    lies within it.

    ```mlir
    %w = train.view %b from 4096 : tensor<8192xf32> -> tensor<64x64xf32>
    %v = train.view %c of @v : tensor<?xf32> -> tensor<64x64xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[Train_TensorOrBucket, Train_Buffer], "tensor, bucket or buffer", "::mlir::ShapedType">:$flat,
                       DefaultValuedAttr<I64Attr, "0">:$offset, OptionalAttr<FlatSymbolRefAttr>:$slice);
  let results = (outs Train_TensorOrBuffer:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "::mlir::Value":$flat, "int64_t":$offset), [{
    build($_builder, $_state, result, flat, offset, ::mlir::FlatSymbolRefAttr());
  }]>];
  let assemblyFormat = [{
    $flat (`of` $slice^) : (`from` $offset)? attr-dict `:` type($flat) `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif // TRAINC_TRAIN_MESH_OPS
