//===- TrainSyntax.h - What ops are parsed and verified by ------*- C++ -*-===//
#ifndef TRAINC_DIALECT_TRAIN_TRAINSYNTAX_H
#define TRAINC_DIALECT_TRAIN_TRAINSYNTAX_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc::train {

/// Parses the attribute dictionary that ends an op (after `attributes`, or bare)
/// and checks those attributes that are the op's own.
mlir::ParseResult parseAttributes(mlir::OpAsmParser &parser,
                                  mlir::OperationState &result,
                                  bool keyword = true);

/// `[host, data], []`: a list of axes per dimension.
mlir::ParseResult parseSplit(mlir::OpAsmParser &parser, mlir::ArrayAttr &split);
void printSplit(mlir::OpAsmPrinter &p, mlir::Operation *op,
                mlir::ArrayAttr split);

/// `@arena::@slice` or `workspace 256`: what a train.address counts from.
mlir::ParseResult parsePlace(mlir::OpAsmParser &parser, MemoryAttr &memory,
                             mlir::SymbolRefAttr &symbol,
                             mlir::IntegerAttr &number);
void printPlace(mlir::OpAsmPrinter &p, mlir::Operation *op, MemoryAttr memory,
                mlir::SymbolRefAttr symbol, mlir::IntegerAttr number);

/// The role of an arena: the name of step_abi.def in lower case.
mlir::ParseResult parseRole(mlir::OpAsmParser &parser, RoleAttr &role);
void printRole(mlir::OpAsmPrinter &p, mlir::Operation *op, RoleAttr role);

/// Checks that `split`, of a tensor of type `type`, is lists of distinct axes of the
/// module's mesh, one per dimension at most; `tag` is the constraint.
llvm::LogicalResult verifySplit(mlir::Operation *op, mlir::Attribute split,
                                mlir::Type type, llvm::StringRef tag);

/// Checks that `name`, which an artifact has as a C string, is UTF-8 and has no zero byte;
/// `tag` is the constraint.
llvm::LogicalResult verifyName(mlir::Operation *op, llvm::StringRef name,
                               llvm::StringRef tag);
llvm::LogicalResult verifyNames(mlir::Operation *op, mlir::ArrayAttr names,
                                llvm::StringRef tag);

/// (C1) of what names axes: they are distinct ones of the mesh; of what has pieces in the
/// order of its ranks they are in its order, too.
llvm::LogicalResult verifyAxes(mlir::Operation *op, mlir::ArrayAttr axes);
llvm::LogicalResult verifyOrderedAxes(mlir::Operation *op,
                                      mlir::ArrayAttr axes);

/// Of what has one piece for each rank over `axes`, `whole` holds all and `piece` one of
/// them along dimension 0; of what is done in place they are alike.
llvm::LogicalResult verifyPieces(mlir::Operation *op, mlir::Value piece,
                                 mlir::Value whole, mlir::ArrayAttr axes,
                                 bool inPlace, llvm::StringRef tag);
/// (C3) of what is done in place on one shard for each rank over `axes`.
llvm::LogicalResult verifyShards(mlir::Operation *op, mlir::ArrayAttr axes);

/// `memref<8xf32> from memref<4xf32>` or `tensor<4xf32>`: what a train.start is on.
mlir::ParseResult parseStartTypes(mlir::OpAsmParser &parser, mlir::Type &input,
                                  mlir::Type &out);
void printStartTypes(mlir::OpAsmPrinter &p, mlir::Operation *op,
                     mlir::Type input, mlir::Type out);

/// Adds the effects of the buffers among `operands`.
void addEffects(mlir::MutableOperandRange operands, bool read, bool written,
                llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<
                    mlir::MemoryEffects::Effect>> &effects);

/// The value of `names[i] == name` in `values`, or null.
mlir::Attribute lookupHyper(mlir::ArrayAttr names, mlir::ArrayAttr values,
                            llvm::StringRef name);

} // namespace trainc::train

#endif // TRAINC_DIALECT_TRAIN_TRAINSYNTAX_H
