//===- TrainPlaces.h - The memory of planned commands -----------*- C++ -*-===//
#ifndef TRAINC_DIALECT_TRAIN_TRAINPLACES_H
#define TRAINC_DIALECT_TRAIN_TRAINPLACES_H

#include "trainc/Dialect/Train/TrainLayout.h"

namespace trainc::train {

/// Collectives that passes leave in flight at once: room for others is left.
inline constexpr size_t kMostInFlight = TRAINC_MAX_IN_FLIGHT - 8;

/// Bytes from `begin` to before `end` of an arena as far as a rank has it (a symbol), of
/// the workspace, or of an input or output (their names).
struct Place {
  mlir::Attribute base;
  int64_t begin = 0, end = 0;

  bool overlaps(const Place &other) const {
    return base == other.base && begin < other.end && other.begin < end;
  }
  bool operator==(const Place &other) const {
    return base == other.base && begin == other.begin && end == other.end;
  }
};
llvm::raw_ostream &operator<<(llvm::raw_ostream &os, const Place &place);

/// The type of a buffer with the shape and elements of `tensor`, a ranked tensor.
mlir::MemRefType bufferLike(mlir::Type tensor);

/// The address of which `buffer` is, or is a view.
AddressOp getAddress(mlir::Value buffer);

/// The base of what stands in input or output `number` of an entry.
mlir::Attribute getPortBase(mlir::MLIRContext *context, Memory memory,
                            int64_t number);

/// Where `buffer` stands.
Place getPlace(mlir::Value buffer, Layouts &layouts);

/// What starts the collective for which `wait` waits: in its list, or in the first list
/// that leaves it in flight.
StartOp getStart(WaitOp wait);

/// Whether the next command waits for what `start` starts.
bool isWaitedForAtOnce(StartOp start);

/// The lists of which one runs just before `list`, a list `merge` or `apply`, of its window;
/// none for others.
llvm::SmallVector<ListOp> getPredecessors(ListOp list);

} // namespace trainc::train

#endif // TRAINC_DIALECT_TRAIN_TRAINPLACES_H
