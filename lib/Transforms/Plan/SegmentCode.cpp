//===- SegmentCode.cpp - Code of scalars and code of elements -------------===//
//
// What an op on segments needs: the elements' code without what depends on
// scalars alone, the scalars that it takes, and the places of the segments.
//
//===----------------------------------------------------------------------===//
#include "SegmentCode.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

static void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

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

Segments trainc::splitCode(OpBuilder &b, Location loc, ElementCode &code,
                           ArrayRef<SmallVector<ParamOp>> params,
                           SymbolTable &symbols) {
  Segments result;
  SmallVector<ParamOp> all;
  for (auto [member, list] : llvm::enumerate(params))
    for (ParamOp param : list) {
      all.push_back(param);
      result.lengths.push_back(param.getTensorType().getNumElements());
      result.groups.push_back(member);
    }
  SmallVector<Attribute> offsets;
  for (auto [array, places] : llvm::zip(code.arrays, code.places)) {
    if (!places.empty()) {
      offsets.push_back(b.getDenseI64ArrayAttr(places));
      continue;
    }
    auto arena = symbols.lookup<ArenaOp>(
        array.getDefiningOp<ReadOp>().getSource().getRootReference());
    int64_t width =
        nn::getElementBytes(nn::getTensorType(array).getElementType());
    SmallVector<int64_t> positions;
    for (ParamOp param : all)
      positions.push_back(
          arena.getOffsets()[arena.findSlice(param.getSymName())] / width);
    offsets.push_back(b.getDenseI64ArrayAttr(positions));
  }
  result.offsets = b.getArrayAttr(offsets);

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

  size_t members = params.size();
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
  if (result.grouped.empty())
    result.groups.assign(result.groups.size(), 0);
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
