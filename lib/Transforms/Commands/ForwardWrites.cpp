//===- ForwardWrites.cpp - Reads of what a list has written ---------------===//
#include "ForwardWrites.h"
#include "mlir/IR/SymbolTable.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/ForwardReads.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Checks that what `list` reads after a write is not named otherwise there: a bucket and its
/// arena or one of its slices have no value in common, by which they would keep their order.
static LogicalResult verifyNames(ListOp list, SymbolTable &symbols) {
  auto isPartOf = [&](SymbolRefAttr part, SymbolRefAttr all) {
    if (all.getNestedReferences().empty())
      return true;
    auto bucket = symbols.lookup<BucketOp>(all.getLeafReference());
    return bucket && !part.getNestedReferences().empty() &&
           llvm::is_contained(bucket.getParams(),
                              FlatSymbolRefAttr::get(part.getLeafReference()));
  };
  DenseMap<StringAttr, llvm::SetVector<SymbolRefAttr>> written; // by arena
  for (Operation &op : list.getBody().front()) {
    if (auto write = dyn_cast<WriteOp>(op))
      written[write.getTarget().getRootReference()].insert(write.getTarget());
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      continue;
    SymbolRefAttr source = read.getSource();
    for (SymbolRefAttr target : written[source.getRootReference()])
      if (target != source &&
          (isPartOf(source, target) || isPartOf(target, source)))
        return op.emitOpError("reads ")
               << source << " after " << target
               << " was written; expects one name for both";
  }
  return success();
}

LogicalResult trainc::forwardWrites(ListOp list, SymbolTable &symbols) {
  if (failed(verifyNames(list, symbols)))
    return failure();
  Block &block = list.getBody().front();
  forwardReads(block);
  DenseMap<Attribute, WriteOp> written;
  for (auto write : llvm::make_early_inc_range(block.getOps<WriteOp>())) {
    WriteOp &last = written[write.getTarget()];
    if (last)
      last.erase();
    last = write;
  }
  for (auto write : llvm::to_vector(block.getOps<WriteOp>()))
    write->moveBefore(block.getTerminator());
  return success();
}
