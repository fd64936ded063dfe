//===- SegmentCode.cpp - Code of scalars and code of elements -------------===//
//
// What an op on segments needs: the elements' code without what depends on
// scalars alone, the scalars that it takes, and the places of the segments.
//
//===----------------------------------------------------------------------===//
#include "SegmentCode.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Transforms/EraseDead.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// The ops that `values` need, in order of the block.
static SmallVector<Operation *> needed(Block &block, ArrayRef<Value> values) {
  DenseSet<Operation *> found;
  SmallVector<Value> open(values);
  while (!open.empty())
    if (Operation *op = open.pop_back_val().getDefiningOp())
      if (found.insert(op).second)
        llvm::append_range(open, op->getOperands());
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    if (found.contains(&op))
      ops.push_back(&op);
  return ops;
}

/// A map that computes `values` of one member's scalars.
static ValueRange computeScalars(OpBuilder &b, Location loc, ElementCode &code,
                                 size_t member, ArrayRef<Value> values) {
  SmallVector<Operation *> ops = needed(*code.block, values);
  llvm::SetVector<Value> arguments;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (isa<BlockArgument>(operand))
        arguments.insert(operand);
  SmallVector<Value> inputs;
  SmallVector<Type> types;
  for (Value argument : arguments)
    inputs.push_back(code.scalars[cast<BlockArgument>(argument).getArgNumber() -
                                  code.arrays.size()][member]);
  for (Value value : values)
    types.push_back(RankedTensorType::get({}, value.getType()));
  auto map = nn::MapOp::create(b, loc, types, inputs);
  Block &block = map.getBody().emplaceBlock();
  OpBuilder inner = OpBuilder::atBlockEnd(&block);
  IRMapping mapping;
  for (Value argument : arguments)
    mapping.map(argument, block.addArgument(argument.getType(), loc));
  for (Operation *op : ops)
    inner.clone(*op, mapping);
  SmallVector<Value> yielded;
  for (Value value : values)
    yielded.push_back(mapping.lookup(value));
  nn::YieldOp::create(inner, loc, yielded);
  return map.getResults();
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

SegmentsAttr SegmentTable::toAttr(Builder &b) const {
  auto optional = [&](ArrayRef<int64_t> list) {
    return list.empty() ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(list);
  };
  return SegmentsAttr::get(b.getContext(), b.getDenseI64ArrayAttr(groups),
                           b.getDenseI64ArrayAttr(lengths),
                           b.getArrayAttr(llvm::map_to_vector(
                               offsets,
                               [&](ArrayRef<int64_t> list) -> Attribute {
                                 return b.getDenseI64ArrayAttr(list);
                               })),
                           optional(owners), optional(shards),
                           optional(starts));
}

namespace {
/// A part of a parameter that lies within one shard.
struct Part {
  int64_t param, shard, start, length;
  SmallVector<int64_t> offsets; // by array
};
} // namespace

/// The element of what `read` reads, an arena or a bucket of it, where element `start` of
/// `param` is, in shard `shard` of `shards`.
static int64_t elementAt(ReadOp read, ParamOp param, int64_t start,
                         int64_t shard, int64_t shards, Layouts &layouts) {
  SymbolRefAttr source = read.getSource();
  const ArenaLayout &layout = layouts.of(source.getRootReference());
  StringAttr name = param.getSymNameAttr();
  int64_t offset = layout.getOffset(name) / layout.getElementBytes() + start;
  if (layout.getSpans().empty())
    return offset;
  const Span &span = layout.getSpanOf(name);
  offset -= span.first;
  if (span.isShard())
    offset -= shard * span.count / shards;
  return source.getNestedReferences().empty() ? span.localFirst + offset
                                              : offset;
}

/// The parts of `param`, number `number`.
static void addParts(SmallVectorImpl<Part> &parts, const ElementCode &code,
                     ParamOp param, int64_t number, int64_t shards,
                     Layouts &layouts) {
  int64_t length = param.getTensorType().getNumElements();
  int64_t within = 0, size = length; // of the bucket, and of a shard of it
  if (shards > 1) {
    auto read = code.arrays.front().getDefiningOp<ReadOp>();
    const ArenaLayout &layout = layouts.of(read.getSource().getRootReference());
    const Span &span = layout.getSpanOf(param.getSymNameAttr());
    within =
        layout.getOffset(param.getSymNameAttr()) / layout.getElementBytes() -
        span.first;
    size = span.count / shards;
  }
  for (int64_t at = within, end = within + length; at < end;) {
    int64_t shard = shards > 1 ? at / size : 0;
    int64_t next = shards > 1 ? std::min((shard + 1) * size, end) : end;
    Part &part =
        parts.emplace_back(Part{number, shard, at - within, next - at, {}});
    for (auto [array, places] : llvm::zip(code.arrays, code.places))
      part.offsets.push_back(
          places.empty() ? elementAt(array.getDefiningOp<ReadOp>(), param,
                                     part.start, shard, shards, layouts)
                         : places[number] + part.start);
    at = next;
  }
}

SegmentTable trainc::makeTable(const ElementCode &code,
                               ArrayRef<ParamOp> params,
                               ArrayRef<int64_t> groups, int64_t shards,
                               Layouts &layouts) {
  SmallVector<Part> parts;
  for (auto [number, param] : llvm::enumerate(params))
    addParts(parts, code, param, number, shards, layouts);
  llvm::sort(parts, [](const Part &a, const Part &b) {
    return std::tuple(a.shard, a.param, a.start) <
           std::tuple(b.shard, b.param, b.start);
  });
  SegmentTable table;
  table.offsets.resize(code.arrays.size());
  for (const Part &part : parts) {
    table.lengths.push_back(part.length);
    table.groups.push_back(groups[part.param]);
    if (shards > 1) {
      table.owners.push_back(part.param);
      table.starts.push_back(part.start);
    }
    for (auto [list, offset] : llvm::zip(table.offsets, part.offsets))
      list.push_back(offset);
  }
  if (shards > 1)
    for (int64_t shard = 0; shard <= shards; ++shard)
      table.shards.push_back(llvm::count_if(
          parts, [&](const Part &part) { return part.shard < shard; }));
  return table;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

SplitCode trainc::splitCode(OpBuilder &b, Location loc, ElementCode &code,
                            size_t members) {
  SplitCode result;
  // Constants belong to both sides.
  DenseSet<Value> scalars;
  llvm::SetVector<Value> computed, given;
  for (Operation &op : *code.block) {
    auto isKnown = [&](Value value) {
      return code.isScalar(value) || scalars.contains(value);
    };
    auto isFree = [&](Value value) {
      Operation *producer = value.getDefiningOp();
      return producer && producer->getNumOperands() == 0;
    };
    bool terminator = op.hasTrait<OpTrait::IsTerminator>();
    if (!terminator && llvm::any_of(op.getOperands(), isKnown) &&
        llvm::all_of(op.getOperands(),
                     [&](Value v) { return isKnown(v) || isFree(v); })) {
      scalars.insert_range(op.getResults());
      continue;
    }
    for (Value operand : op.getOperands())
      if (scalars.contains(operand))
        computed.insert(operand);
      else if (code.isScalar(operand))
        given.insert(operand);
  }

  SmallVector<SmallVector<Value>> values; // per argument and member
  SmallVector<Value> sources;
  for (Value value : given) {
    sources.push_back(value);
    values.push_back(code.scalars[cast<BlockArgument>(value).getArgNumber() -
                                  code.arrays.size()]);
  }
  if (!computed.empty()) {
    size_t first = values.size();
    sources.append(computed.begin(), computed.end());
    values.resize(sources.size());
    for (size_t member = 0; member < members; ++member)
      for (auto [i, value] : llvm::enumerate(
               computeScalars(b, loc, code, member, computed.getArrayRef())))
        values[first + i].push_back(value);
  }

  Block &block = result.region->emplaceBlock();
  IRMapping mapping;
  auto addArgument = [&](Value source) {
    mapping.map(source, block.addArgument(source.getType(), loc));
  };
  for (size_t i = 0; i < code.arrays.size(); ++i)
    addArgument(code.block->getArgument(i));
  for (bool uniform : {true, false})
    for (auto [source, ofMembers] : llvm::zip(sources, values)) {
      if (llvm::all_equal(ofMembers) != uniform)
        continue;
      addArgument(source);
      if (uniform)
        result.uniforms.push_back(ofMembers.front());
      else
        llvm::append_range(result.grouped, ofMembers);
    }
  for (size_t i = 0; i < code.each.size(); ++i)
    addArgument(
        code.block->getArgument(code.arrays.size() + code.scalars.size() + i));
  if (code.index)
    addArgument(code.index);
  OpBuilder inner(b.getContext());
  inner.setInsertionPointToEnd(&block);
  for (Operation &op : *code.block)
    if (op.getNumResults() == 0 || !scalars.contains(op.getResult(0)))
      inner.clone(op, mapping);
  eraseDead(block);
  return result;
}
