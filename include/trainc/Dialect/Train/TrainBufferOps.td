//===- TrainBufferOps.td - Buffers of planned commands ----*- tablegen -*-===//
#ifndef TRAINC_TRAIN_BUFFER_OPS
#define TRAINC_TRAIN_BUFFER_OPS

include "trainc/Dialect/Train/TrainDialect.td"
include "trainc/Dialect/Train/TrainInterfaces.td"

/// A command in both forms. The kinds of its effects are those of its accesses.
class Train_CommandOpBase<string mnemonic, list<Trait> traits = []> : Train_Op<mnemonic,
    !listconcat(traits, [DeclareOpInterfaceMethods<Train_CommandOp>, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])>;

def Train_Memory : I32EnumAttr<"Memory", "where an address counts from", [
    I32EnumAttrCase<"arena", 0>, I32EnumAttrCase<"workspace", 1>, I32EnumAttrCase<"input", 2>,
    I32EnumAttrCase<"output", 3>]> {
  let cppNamespace = "::trainc::train";
}

def Train_AddressOp : Train_Op<"address", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a buffer at a place that the memory plan has chosen";
  let description = [{
    Every buffer of a planned list is a train.address or a train.view of one. The place is
    a slice or a bucket of an arena, or an arena, as far as a rank has them, the workspace from byte `number`
    on, or the memory of input or output `number` of the entry.

    `train-plan-memory` makes an address of its own for each value, so that two values that
    share memory one after the other can be told apart (`train-verify-form`, P2).

    (C1) the symbol is an arena, or a slice or bucket of one; (C2) the buffer has the number of bytes
    of that; (C3) a number is not negative, and that of an arena is 0.

    ```mlir
    %w = train.address @arena.master.f32::@w : memref<4x8xf32>
    %g = train.address @arena.grad.f32 : memref<8192xf32>
    %x = train.address workspace 256 : memref<16xbf16>
    %t = train.address input 1 : memref<4xi32>
    ```
  }];
  let arguments = (ins Train_Memory:$memory, OptionalAttr<SymbolRefAttr>:$symbol,
                       DefaultValuedAttr<I64Attr, "0">:$number);
  let results = (outs Train_Buffer:$result);
  let assemblyFormat = "custom<Place>($memory, $symbol, $number) attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Train_CopyOp : Train_CommandOpBase<"copy"> {
  let summary = "copies a buffer";
  let description = [{
    (C1) both have one element type and one number of elements.

    ```mlir
    train.copy %a to %b : memref<4x8xf32> to memref<32xf32>
    ```
  }];
  let arguments = (ins Train_Buffer:$source, Train_Buffer:$target);
  let assemblyFormat = "$source `to` $target attr-dict `:` type($source) `to` type($target)";
  let hasVerifier = 1;
}

def Train_Collective : I32EnumAttr<"Collective", "an exchange of ranks", [
    I32EnumAttrCase<"all_reduce", 0>, I32EnumAttrCase<"reduce_scatter", 1>,
    I32EnumAttrCase<"all_gather", 2>]> {
  let cppNamespace = "::trainc::train";
}

def Train_TokenOp : Train_Op<"token", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "a collective that a list leaves in flight";
  let description = [{
    Names a collective that one list starts and the list that follows it waits for. Lists
    that stand for each other (`first` and `next`) start it alike.

    ```mlir
    train.token @grad.0
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let assemblyFormat = "$sym_name attr-dict";
}

def Train_StartOp : Train_CommandOpBase<"start", [AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "starts a collective";
  let description = [{
    On tensors, train.all_reduce, train.reduce_scatter or train.all_gather of `input` is in flight
    until the train.wait of the token, whose result is that of the collective.

    On buffers: from `input` to `out` or, without `input`, in place. In place, `out` has an equal piece for
    each rank that differs in `axes` alone: a reduce_scatter leaves the sum in this rank's
    and the others undefined, an all_gather fills all. An all_reduce in place sums all of
    `out`, or with `piece_of` only this rank's of its pieces over those axes.

    Until train.wait nothing writes what it reads or touches what it writes. The token is a
    value or, where another list waits, the name of a train.token.

    (C1) axes are distinct ones of the mesh and, where ranks have pieces, in its order; (C2)
    elements are of one type, and floats where they are added; (C3) pieces are equal: in place `out` has rank 1 and a whole number
    of elements per piece, and with `input` the larger of the two has as many times the
    size of the other along dimension 0 as there are ranks, or both are alike for an
    all_reduce; (C4) `piece_of` is of an all_reduce in place; (C5) the token is a value or a
    train.token; (C6) on tensors there is an input alone, and a value for the token, for which one train.wait
    with a result waits; on buffers there is an `out`.

    ```mlir
    %t = train.start all_gather(%x) outs(%y) over ["data"] : memref<8xf32> from memref<4xf32> -> !train.token
    %s = train.start reduce_scatter(%g) over ["data"] in_place : tensor<8192xf32> -> !train.token
    train.start reduce_scatter outs(%g) over ["data"] as @grad.0 : memref<8192xf32>
    ```
  }];
  let arguments = (ins Train_Collective:$collective, Optional<Train_TensorOrBuffer>:$input, Optional<Train_Buffer>:$out,
                       StrArrayAttr:$axes, UnitAttr:$in_place, OptionalAttr<StrArrayAttr>:$piece_of,
                       OptionalAttr<FlatSymbolRefAttr>:$pending);
  let results = (outs Optional<Train_Token>:$token);
  let builders = [
    // On tensors.
    OpBuilder<(ins "Collective":$collective, "::mlir::Value":$input, "::mlir::ArrayAttr":$axes,
                   CArg<"bool", "false">:$inPlace), [{
      build($_builder, $_state, TokenType::get($_builder.getContext()), collective, input, /*out=*/::mlir::Value(), axes,
            inPlace, /*piece_of=*/::mlir::ArrayAttr(), /*pending=*/::mlir::FlatSymbolRefAttr());
    }]>,
    // On buffers; `input` and `pieceOf` may be null.
    OpBuilder<(ins "Collective":$collective, "::mlir::Value":$input, "::mlir::Value":$out, "::mlir::ArrayAttr":$axes,
                   "::mlir::ArrayAttr":$pieceOf), [{
      build($_builder, $_state, TokenType::get($_builder.getContext()), collective, input, out, axes,
            /*in_place=*/false, pieceOf, /*pending=*/::mlir::FlatSymbolRefAttr());
    }]>,
    // On a buffer in place, waited for in another list.
    OpBuilder<(ins "Collective":$collective, "::mlir::Value":$out, "::mlir::ArrayAttr":$axes,
                   "::mlir::FlatSymbolRefAttr":$pending), [{
      build($_builder, $_state, /*token=*/::mlir::Type(), collective, /*input=*/::mlir::Value(), out, axes,
            /*in_place=*/false, /*piece_of=*/::mlir::ArrayAttr(), pending);
    }]>];
  let assemblyFormat = [{
    $collective (`(` $input^ `)`)? (`outs` `(` $out^ `)`)? `over` $axes (`in_place` $in_place^)?
    (`piece_of` $piece_of^)? (`as` $pending^)? attr-dict
    `:` custom<StartTypes>(type($input), type($out)) (`->` type($token)^)?
  }];
  let hasVerifier = 1;
}

def Train_WaitOp : Train_Op<"wait", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "waits for a collective in flight";
  let description = [{
    Collectives are waited for in the order of their starts. Of one on tensors the result is what it
    gives; it stands where the collective works in place, or in memory of its own from the start on.

    (C1) a value or a train.token, not both; (C2) a token is waited for once; (C3) a result is of a
    collective on tensors.

    ```mlir
    train.wait %t
    train.wait @grad.0
    %v = train.wait %s : tensor<8192xf32>
    ```
  }];
  let arguments = (ins Optional<Train_Token>:$token, OptionalAttr<FlatSymbolRefAttr>:$pending);
  let results = (outs Optional<Train_Tensor>:$result);
  let builders = [OpBuilder<(ins "::mlir::Value":$token, CArg<"::mlir::Type", "{}">:$result), [{
    build($_builder, $_state, result, token, /*pending=*/::mlir::FlatSymbolRefAttr());
  }]>];
  let assemblyFormat = "($token^)? ($pending^)? attr-dict (`:` type($result)^)?";
  let hasVerifier = 1;
}

#endif // TRAINC_TRAIN_BUFFER_OPS
