//===- TrainLayout.cpp - Where the slices of arenas stand -----------------===//
#include "trainc/Dialect/Train/TrainLayout.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

ArenaLayout::ArenaLayout(ArenaOp arena, SymbolTableCollection &tables)
    : element(arena.getElementType()) {
  if (element)
    width = nn::getElementBytes(element);
  auto module = arena->getParentOfType<ModuleOp>();
  MeshOp mesh = getMesh(module);
  int64_t first = 0, localFirst = 0;
  for (SpanOp op : arena.getSpans()) {
    auto bucket = tables.lookupSymbolIn<BucketOp>(module, op.getSymNameAttr());
    assert(bucket.getElements() && "expects buckets that are laid out");
    int64_t count = *bucket.getElements(), local = count;
    if (ArrayAttr over = op.getOverAttr(); over && mesh) {
      shards = mesh.getCount(over);
      local /= shards;
    }
    for (auto [param, offset] :
         llvm::zip(bucket.getParams().getAsRange<FlatSymbolRefAttr>(),
                   *bucket.getOffsets()))
      slices[param.getAttr()] = {spans.size(), (first + offset) * width};
    spanIndex[op.getSymNameAttr()] = spans.size();
    spans.push_back({bucket, first, count, localFirst, local});
    first += count;
    localFirst += local;
  }
  bytes = localFirst * width;
  if (!spans.empty())
    return;
  for (SliceOp slice : arena.getSlices()) {
    RankedTensorType type = slice.getTensorType();
    bytes = llvm::alignTo(bytes, nn::getElementBytes(type.getElementType()));
    slices[slice.getSymNameAttr()] = {0, bytes};
    bytes += nn::countBytes(type);
  }
}

const Span &ArenaLayout::getSpan(StringAttr bucket) const {
  return spans[spanIndex.at(bucket)];
}

const Span &ArenaLayout::getSpanOf(StringAttr slice) const {
  return spans[slices.at(slice).first];
}

RankedTensorType ArenaLayout::getFlatType() const {
  return element ? RankedTensorType::get({bytes / width}, element)
                 : RankedTensorType();
}

int64_t ArenaLayout::getOffset(StringAttr slice) const {
  return slices.at(slice).second;
}

int64_t ArenaLayout::getLocalOffset(StringAttr name) const {
  if (auto it = spanIndex.find(name); it != spanIndex.end())
    return spans[it->second].localFirst * width;
  auto [index, offset] = slices.at(name);
  if (spans.empty())
    return offset;
  const Span &span = spans[index];
  assert(!span.isShard() && "expects a slice that a rank has whole");
  return offset + (span.localFirst - span.first) * width;
}

Type train::getStoredType(ArenaOp arena, ArrayRef<FlatSymbolRefAttr> names,
                          SymbolTableCollection &tables) {
  auto module = arena->getParentOfType<ModuleOp>();
  auto isPlaced = [&](SpanOp span) {
    auto bucket =
        tables.lookupSymbolIn<BucketOp>(module, span.getSymNameAttr());
    return bucket && bucket.getElements();
  };
  if (names.empty())
    return llvm::all_of(arena.getSpans(), isPlaced)
               ? ArenaLayout(arena, tables).getFlatType()
               : Type();
  if (names.size() != 1)
    return {};
  Operation *op = tables.lookupSymbolIn(arena, names[0].getAttr());
  if (auto slice = dyn_cast_or_null<SliceOp>(op))
    return slice.getType();
  auto span = dyn_cast_or_null<SpanOp>(op);
  if (!span || !arena.getElementType())
    return {};
  int64_t elements = ShapedType::kDynamic;
  if (isPlaced(span)) {
    elements = *tables.lookupSymbolIn<BucketOp>(module, span.getSymNameAttr())
                    .getElements();
    if (span.getOver())
      elements /= getMesh(module).getCount(*span.getOver());
  }
  return RankedTensorType::get({elements}, arena.getElementType());
}

LogicalResult train::verifyLayout(ModuleOp module, StringRef user) {
  DenseSet<Attribute> params;
  for (auto bucket : module.getOps<BucketOp>()) {
    if (!bucket.getElements())
      return bucket.emitOpError("expects a layout; run train-coalesce before ")
             << user;
    for (Attribute param : bucket.getParams())
      if (!params.insert(param).second)
        return bucket.emitOpError("expects parameters of no other bucket, got ")
               << param;
  }
  DenseSet<Attribute> sharded; // slices
  SymbolTable symbols(module);
  for (auto arena : module.getOps<ArenaOp>())
    for (SpanOp span : arena.getSpans())
      if (span.getOver())
        for (Attribute param :
             symbols.lookup<BucketOp>(span.getSymName()).getParams())
          sharded.insert(SymbolRefAttr::get(arena.getSymNameAttr(),
                                            cast<FlatSymbolRefAttr>(param)));
  for (auto list : module.getOps<ListOp>())
    for (Operation &op : list.getBody().front()) {
      SymbolRefAttr ref;
      if (auto read = dyn_cast<ReadOp>(op))
        ref = read.getSource();
      else if (auto write = dyn_cast<WriteOp>(op))
        ref = write.getTarget();
      else if (auto address = dyn_cast<AddressOp>(op))
        ref = address.getSymbolAttr();
      if (ref && sharded.contains(ref))
        return op.emitOpError("expects a bucket, as ranks have shards of it, "
                              "got ")
               << ref;
    }
  return success();
}

const ArenaLayout &Layouts::of(StringAttr arena) {
  std::unique_ptr<ArenaLayout> &layout = made[arena];
  if (!layout)
    layout = std::make_unique<ArenaLayout>(
        tables.lookupSymbolIn<ArenaOp>(module, arena), tables);
  return *layout;
}
