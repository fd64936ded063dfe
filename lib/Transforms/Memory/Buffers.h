//===- Buffers.h - The values of a list in memory ---------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_MEMORY_BUFFERS_H
#define TRAINC_LIB_TRANSFORMS_MEMORY_BUFFERS_H

#include "trainc/Dialect/Train/TrainOps.h"
#include "llvm/ADT/MapVector.h"

namespace trainc {

/// Bytes that are needed from command `first` to command `last`, both included.
struct Lifetime {
  int64_t bytes, first, last;
};

/// Where lifetimes stand in one workspace.
struct Layout {
  llvm::SmallVector<int64_t> offsets;
  int64_t bytes = 0;
};

/// An offset for each of `lifetimes`; those that overlap in time do not in space.
/// Without `reuse` none do.
Layout layOut(llvm::ArrayRef<Lifetime> lifetimes, bool reuse);

/// The largest sum of bytes that are needed at one command: no layout is smaller.
int64_t mostAlive(llvm::ArrayRef<Lifetime> lifetimes);

/// What an address counts from, as train.address has it.
struct Origin {
  train::Memory memory;
  mlir::SymbolRefAttr symbol = {};
  int64_t number = 0;

  bool operator==(const Origin &other) const {
    return memory == other.memory && symbol == other.symbol &&
           number == other.number;
  }
};

/// Memory that one producing op fills: its value and all reshapes of it.
struct Buffer {
  mlir::Value value;
  int64_t bytes;
  int64_t first, last;         // positions of the producer and of the last user
  std::optional<Origin> place; // none: the workspace
  bool changed;                // by a command that works in place
  mlir::Value flat = {}; // what it is a part of, from byte `offset` on, or null
  int64_t offset = 0;

  Lifetime lifetime() const { return {bytes, first, last}; }
};

/// The memory of the values of a list of commands: which results stand where they
/// are written to or returned as, where nothing still needs what stands there, and
/// from when to when the others are needed.
struct Buffers {
  Buffers(train::ListOp list, mlir::SymbolTable &symbols);

  llvm::DenseMap<mlir::Operation *, int64_t> position;
  llvm::MapVector<mlir::Value, Buffer> buffers;
  /// Writes whose value is produced where they would put it.
  llvm::SmallVector<train::WriteOp> direct;
  /// Writes and outputs that are copies.
  int64_t copies = 0;

  /// The value whose memory `value` is: through reshapes and what is done in place.
  mlir::Value source(mlir::Value value) const;
  /// The value of which `value` is a view; that in whose memory it was made in place;
  /// else null.
  static mlir::Value viewed(mlir::Value value);
  /// What collective `op` gives, which of a train.start its train.wait has; null if it is none.
  static mlir::Value resultOf(mlir::Operation *op);
  mlir::Value former(mlir::Value value) const { return replaced.lookup(value); }
  /// The buffers that need a place in the workspace.
  llvm::SmallVector<Buffer *> inWorkspace();

private:
  int64_t lastUse(mlir::Value value) const;
  void findReplaced(train::ListOp list, mlir::SymbolTable &symbols);
  void findBuffers(train::ListOp list);
  void keepForPeers(train::ListOp list);
  void bindInPlace(train::ListOp list, mlir::SymbolTable &symbols);
  void bindFlat(train::ListOp list);
  void bindWrites(train::ListOp list);
  void bindOutputs(train::ListOp list);

  /// Of results that stand where a value that is no slice stood: that value.
  llvm::DenseMap<mlir::Value, mlir::Value> replaced;
};

/// Whether `op` produces values in memory.
bool isCommand(mlir::Operation *op);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_MEMORY_BUFFERS_H
