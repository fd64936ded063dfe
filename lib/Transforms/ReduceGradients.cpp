//===- ReduceGradients.cpp - Sums of gradients over ranks -----------------===//
#include "ReduceGradients.h"
#include "UpdateRule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

Value trainc::readShard(OpBuilder &b, Location loc, ArrayAttr pieceAxes) {
  auto axis = cast<StringAttr>(pieceAxes[0]).getValue();
  return nn::castTo(b, loc, readScalar(b, loc, meshScalar(axis)),
                    b.getI64Type());
}

/// The gradients of `arena`, of which this rank's pieces are summed over ranks.
Value GradientReducer::sumGradients(OpBuilder &b, ArenaOp arena) {
  Location loc = arena.getLoc();
  Value value = ReadOp::create(b, loc, arena.getFlatType(),
                               SymbolRefAttr::get(arena.getSymNameAttr()));
  for (const ArenaOp::Bucket &bucket : arena.getAllBuckets()) {
    auto range = b.getDenseI64ArrayAttr({bucket.first, bucket.count});
    value = ReduceScatterOp::create(b, loc, value.getType(), value, pieceAxes,
                                    range, /*started=*/false);
    if (mesh.getCount(otherAxes) > 1)
      value = AllReduceOp::create(b, loc, value.getType(), value, otherAxes,
                                  range, pieceAxes);
    ++reduced;
  }
  return value;
}

/// Gives every rank all pieces of `value`, gradients laid out as `arena`.
Value GradientReducer::gatherGradients(OpBuilder &b, ArenaOp arena,
                                       Value value) {
  for (const ArenaOp::Bucket &bucket : arena.getAllBuckets()) {
    value = AllGatherOp::create(
        b, arena.getLoc(), value.getType(), value, pieceAxes,
        b.getDenseI64ArrayAttr({bucket.first, bucket.count}));
    ++gathered;
  }
  return value;
}

void GradientReducer::reduceOnce(OpBuilder b) {
  for (auto arena : step->getParentOfType<ModuleOp>().getOps<ArenaOp>()) {
    if (arena.getRole() != "gradients")
      continue;
    Value value = sumGradients(b, arena);
    if (!sharded)
      value = gatherGradients(b, arena, value);
    WriteOp::create(b, arena.getLoc(), value,
                    SymbolRefAttr::get(arena.getSymNameAttr()));
  }
}

//===----------------------------------------------------------------------===//
// In every micro-step
//===----------------------------------------------------------------------===//

/// An arena for what is summed over ranks of `gradients`: this rank's pieces.
ArenaOp GradientReducer::addMerged(ArenaOp gradients) {
  ArenaOp merged = gradients.clone();
  merged.setSymName(
      arenaName(kMergedArena, gradients.getFlatType().getElementType()));
  merged.setRole("merged gradients");
  merged.setShardAttr(pieceAxes);
  merged.setPieces(SmallVector<bool>(gradients.getAllBuckets().size(), true));
  merged.setBytes(gradients.getBytes() / mesh.getCount(pieceAxes));
  symbols.insert(merged, std::next(gradients->getIterator()));
  return merged;
}

/// Sets each element of this rank's pieces of the first array, in place, to what
/// `element` makes of those of all arrays, the block's first arguments, and of the
/// uniform operands.
Value GradientReducer::mapPieces(
    OpBuilder &b, StringRef name, ArrayRef<ArenaOp> arenas, ValueRange arrays,
    ValueRange uniforms, function_ref<Value(OpBuilder &, Block &)> element) {
  ArenaOp target = arenas.front();
  int64_t pieces = mesh.getCount(pieceAxes);
  Location loc = NameLoc::get(b.getStringAttr(name), target.getLoc());
  SmallVector<int64_t> lengths, shards{0};
  SmallVector<Attribute> offsets;
  for (ArenaOp arena : arenas) {
    SmallVector<int64_t> starts;
    for (int64_t piece = 0; piece < pieces; ++piece)
      for (const ArenaOp::Bucket &bucket : arena.getAllBuckets())
        starts.push_back(
            bucket.localFirst +
            (bucket.isPiece() ? 0 : piece * bucket.count / pieces));
    offsets.push_back(b.getDenseI64ArrayAttr(starts));
  }
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (const ArenaOp::Bucket &bucket : target.getAllBuckets())
      lengths.push_back(bucket.count / pieces);
    shards.push_back(lengths.size());
  }
  auto map = SegmentMapOp::create(
      b, loc, arrays.front().getType(), arrays, uniforms,
      /*grouped=*/ValueRange(), /*each=*/ValueRange(),
      readShard(b, step.getLoc(), pieceAxes), lengths,
      SmallVector<int64_t>(lengths.size(), 0), b.getArrayAttr(offsets),
      /*indexed=*/false, DenseI64ArrayAttr(), DenseI64ArrayAttr(),
      b.getDenseI64ArrayAttr(shards), /*targets=*/ArrayRef<int64_t>{0});
  Block &block = map.getBody().emplaceBlock();
  for (ValueRange values : {arrays, uniforms})
    for (Value value : values)
      block.addArgument(nn::getTensorType(value).getElementType(), loc);
  OpBuilder inner = OpBuilder::atBlockEnd(&block);
  train::YieldOp::create(inner, loc, element(inner, block), Value(), Value());
  return map.getResult(0);
}

/// Lets what happens once per window use `merged` in place of `gradients`.
void GradientReducer::readMerged(ArenaOp gradients, ArenaOp merged) {
  auto from = SymbolRefAttr::get(gradients.getSymNameAttr());
  auto to = SymbolRefAttr::get(merged.getSymNameAttr());
  SmallVector<ReadOp> reads;
  for (auto read : apply.getOps<ReadOp>())
    if (read.getSource() == from)
      reads.push_back(read);
  if (sharded) {
    for (ReadOp read : reads) {
      read.setSourceAttr(to);
      read.getResult().setType(merged.getFlatType());
    }
    return;
  }
  if (reads.empty())
    return;
  // Not before the totals, which peers start when they have read this rank's
  // gradients.
  OpBuilder b(reads.front());
  Location loc = gradients.getLoc();
  Value whole = ReadOp::create(b, loc, gradients.getFlatType(), from);
  Value own = ReadOp::create(b, loc, merged.getFlatType(), to);
  whole =
      mapPieces(b, "unmerge", {gradients, merged}, {whole, own}, {},
                [](OpBuilder &, Block &args) { return args.getArgument(1); });
  WriteOp::create(b, loc, gatherGradients(b, gradients, whole), from);
}

void GradientReducer::reduceEachMicroStep() {
  Block &body = step.getBody().front();
  for (auto op : llvm::make_early_inc_range(body.getOps<AccumulateOp>()))
    if (isGradient(op.getTarget(), symbols)) {
      OpBuilder b(op);
      WriteOp::create(b, op.getLoc(), op.getValue(), op.getTarget());
      op.erase();
    }
  OpBuilder b(*body.getOps<WindowEndOp>().begin());
  Location loc = step.getLoc();
  MicroEndOp::create(b, loc);
  Value begins = nn::CompareOp::create(
      b, loc, nn::CompareKind::eq, readScalar(b, loc, "micro_step"),
      nn::scalarConstant(b, loc, b.getF64Type(), 0.0));
  auto module = step->getParentOfType<ModuleOp>();
  for (auto arena : llvm::to_vector(module.getOps<ArenaOp>())) {
    if (arena.getRole() != "gradients")
      continue;
    ArenaOp merged = addMerged(arena);
    Value sums = sumGradients(b, arena);
    WriteOp::create(b, loc, sums, SymbolRefAttr::get(arena.getSymNameAttr()));
    auto ref = SymbolRefAttr::get(merged.getSymNameAttr());
    Value window = ReadOp::create(b, loc, merged.getFlatType(), ref);
    window = mapPieces(
        b, "merge", {merged, arena}, {window, sums}, {begins},
        [&](OpBuilder &inner, Block &args) -> Value {
          Value sum = arith::AddFOp::create(inner, loc, args.getArgument(0),
                                            args.getArgument(1));
          return arith::SelectOp::create(inner, loc, args.getArgument(2),
                                         args.getArgument(1), sum);
        });
    WriteOp::create(b, loc, window, ref);
    readMerged(arena, merged);
  }
}
