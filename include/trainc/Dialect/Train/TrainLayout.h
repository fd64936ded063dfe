//===- TrainLayout.h - Where the slices of arenas stand ---------*- C++ -*-===//
#ifndef TRAINC_DIALECT_TRAIN_TRAINLAYOUT_H
#define TRAINC_DIALECT_TRAIN_TRAINLAYOUT_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc::train {

/// A bucket in an arena, in elements: of the arena with all shards, and as a rank has it.
struct Span {
  BucketOp bucket;
  int64_t first, count, localFirst, localCount;

  bool isShard() const { return localCount != count; }
};

/// Where spans and slices of an arena stand. Its buckets have to be laid out.
class ArenaLayout {
public:
  ArenaLayout(ArenaOp arena, mlir::SymbolTableCollection &tables);

  llvm::ArrayRef<Span> getSpans() const { return spans; }
  /// The span of which `slice` or `bucket` is, both by name.
  const Span &getSpanOf(mlir::StringAttr slice) const;
  const Span &getSpan(mlir::StringAttr bucket) const;
  /// How many equal shards make a span that no rank has whole.
  int64_t countShards() const { return shards; }
  /// Bytes that a rank has.
  int64_t getBytes() const { return bytes; }
  /// What a rank has, as a tensor of rank 1; null if slices differ in element type or there
  /// is none.
  mlir::RankedTensorType getFlatType() const;
  /// The byte offset of a slice in the arena with all shards.
  int64_t getOffset(mlir::StringAttr slice) const;
  /// The byte offset, in what a rank has, of a bucket or of a slice of one that it has whole.
  int64_t getLocalOffset(mlir::StringAttr name) const;
  int64_t getElementBytes() const { return width; }

private:
  llvm::SmallVector<Span> spans;
  llvm::DenseMap<mlir::StringAttr, std::pair<int64_t, int64_t>>
      slices; // span and byte offset
  llvm::DenseMap<mlir::StringAttr, int64_t> spanIndex;
  mlir::Type element;
  int64_t width = 1, shards = 1, bytes = 0;
};

/// The type of an arena of one element type, or of slice or bucket names[0] in it, as a rank
/// has it: a tensor<?xT> of a bucket that is not laid out; null if there is no such.
mlir::Type getStoredType(ArenaOp arena,
                         llvm::ArrayRef<mlir::FlatSymbolRefAttr> names,
                         mlir::SymbolTableCollection &tables);

/// Checks that buckets are laid out, each parameter in one, and that nothing in lists names a slice of which ranks
/// have shards: what `user` needs.
llvm::LogicalResult verifyLayout(mlir::ModuleOp module, llvm::StringRef user);

/// The layouts of a module's arenas, each made when it is first asked for.
class Layouts {
public:
  explicit Layouts(mlir::ModuleOp module) : module(module) {}

  const ArenaLayout &of(mlir::StringAttr arena);
  const ArenaLayout &of(ArenaOp arena) { return of(arena.getSymNameAttr()); }

private:
  mlir::ModuleOp module;
  mlir::SymbolTableCollection tables;
  llvm::DenseMap<mlir::StringAttr, std::unique_ptr<ArenaLayout>> made;
};

} // namespace trainc::train

#endif // TRAINC_DIALECT_TRAIN_TRAINLAYOUT_H
