//===- Replicable.cpp - Ops that kernels have of their own ----------------===//
#include "Replicable.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace trainc;

bool trainc::isReplicable(Operation *op) {
  return isa<nn::ConstantOp, nn::IotaOp>(op);
}

/// Whether `op` computes numbers of elements from constants and index ramps alone.
static bool isIndexOnly(Operation *op, const DenseSet<Operation *> &others) {
  auto isKnown = [&](Value operand) {
    Operation *maker = operand.getDefiningOp();
    return maker && (isReplicable(maker) || others.contains(maker));
  };
  return isa<nn::PointwiseOpInterface>(op) && isCheap(op) &&
         op->getNumOperands() > 0 && llvm::all_of(op->getOperands(), isKnown) &&
         llvm::all_of(op->getResultTypes(), [](Type type) {
           return cast<ShapedType>(type)
                          .getElementType()
                          .getIntOrFloatBitWidth() > 8 &&
                  isa<IntegerType>(cast<ShapedType>(type).getElementType());
         });
}

void trainc::cloneIndices(Block &block) {
  DenseSet<Operation *> indices;
  SmallVector<OpOperand *> shared;
  for (Operation &op : block)
    if (isIndexOnly(&op, indices))
      indices.insert(&op);
  DenseMap<Value, Operation *> owner;
  for (Operation &op : block)
    for (OpOperand &operand : op.getOpOperands())
      if (indices.contains(operand.get().getDefiningOp()) &&
          !indices.contains(&op) &&
          owner.try_emplace(operand.get(), &op).first->second != &op &&
          isa<nn::PointwiseOpInterface, nn::ReduceOp>(op))
        shared.push_back(&operand);
  for (OpOperand *use : shared) {
    SetVector<Operation *> made;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.filter = [&](Operation *op) {
      return indices.contains(op) || isReplicable(op);
    };
    (void)getBackwardSlice(use->get(), &made, options);
    OpBuilder b(use->getOwner());
    IRMapping mapping;
    for (Operation *op : made)
      b.clone(*op, mapping);
    use->set(mapping.lookup(use->get()));
  }
}

void trainc::cloneReplicable(Block &block) {
  SmallVector<Operation *> originals;
  for (Operation &op : block)
    if (isReplicable(&op))
      originals.push_back(&op);
  for (Operation *op : originals) {
    for (OpOperand &use :
         llvm::make_early_inc_range(op->getResult(0).getUses())) {
      OpBuilder b(use.getOwner());
      use.set(b.clone(*op)->getResult(0));
    }
    op->erase();
  }
}
