//===- EraseDead.h - Erase what nothing uses --------------------*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_ERASEDEAD_H
#define TRAINC_TRANSFORMS_ERASEDEAD_H

#include "mlir/IR/Block.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/STLExtras.h"

namespace trainc {

/// Erases those of `ops`, last first, that have no uses and no effects, each
/// after `before` was called with it.
inline void
eraseDead(llvm::iterator_range<mlir::Block::reverse_iterator> ops,
          llvm::function_ref<void(mlir::Operation *)> before = nullptr) {
  for (mlir::Operation &op : llvm::make_early_inc_range(ops))
    if (mlir::isOpTriviallyDead(&op)) {
      if (before)
        before(&op);
      op.erase();
    }
}

/// The same for all ops of `block`.
inline void
eraseDead(mlir::Block &block,
          llvm::function_ref<void(mlir::Operation *)> before = nullptr) {
  eraseDead(llvm::make_range(block.rbegin(), block.rend()), before);
}

} // namespace trainc

#endif // TRAINC_TRANSFORMS_ERASEDEAD_H
