//===- Rematerialize.h - Which values are computed again --------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_MEMORY_REMATERIALIZE_H
#define TRAINC_LIB_TRANSFORMS_MEMORY_REMATERIALIZE_H

#include "Buffers.h"
#include <map>

namespace trainc {

/// One way to compute a value again.
struct Recipe {
  /// Items that it reads.
  llvm::SmallVector<unsigned> items;
  /// Results of the launch that it takes as they are; the others of its kernel's
  /// operations are done again as far as they are needed.
  llvm::SmallVector<unsigned> stops;
  /// The whole command, with all of its results; else a part of its kernel.
  bool whole;
  /// Bytes of the results that nobody asked for.
  int64_t extra;
  double seconds;
};

/// A value in the workspace.
struct Item {
  int64_t bytes;
  /// Where it is made, and where it is read: positions in the list.
  int64_t first;
  llvm::SmallVector<int64_t> uses;
  /// None: it cannot be computed again.
  llvm::SmallVector<Recipe> recipes;
};

/// What is computed again: (before which position, which item) -> by which recipe.
/// Items come after those that their recipes read, so that iteration is in the order of
/// execution.
/// Uses from that position on are of the new value.
using Again = std::map<std::pair<int64_t, unsigned>, unsigned>;

/// The lifetimes in the workspace if `again` is done.
llvm::SmallVector<Lifetime> lifetimesOf(llvm::ArrayRef<Item> items,
                                        const Again &again);

/// The estimated time of `again`.
double secondsOf(llvm::ArrayRef<Item> items, const Again &again);

/// The values to compute again so that a layout takes at most `limit` bytes, in
/// little time; none if no choice was found.
std::optional<Again> chooseAgain(llvm::ArrayRef<Item> items, int64_t limit);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_MEMORY_REMATERIALIZE_H
