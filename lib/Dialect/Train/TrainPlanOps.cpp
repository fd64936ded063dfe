//===- TrainPlanOps.cpp - What the step passes insert ---------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Arenas
//===----------------------------------------------------------------------===//

void ArenaOp::build(OpBuilder &b, OperationState &state, StringRef name,
                    trainc_role role) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = b.getStringAttr(name);
  properties.role = RoleAttr::get(b.getContext(), role);
  state.addRegion()->emplaceBlock();
}

iterator_range<Block::op_iterator<SliceOp>> ArenaOp::getSlices() {
  return getBody().front().getOps<SliceOp>();
}

iterator_range<Block::op_iterator<SpanOp>> ArenaOp::getSpans() {
  return getBody().front().getOps<SpanOp>();
}

SliceOp ArenaOp::addSlice(StringAttr name, RankedTensorType type) {
  OpBuilder b = OpBuilder::atBlockEnd(&getBody().front());
  return SliceOp::create(b, getLoc(), name, type);
}

SliceOp ArenaOp::findSlice(StringRef name) {
  return lookupSymbol<SliceOp>(name);
}

SpanOp ArenaOp::findSpan(StringRef name) { return lookupSymbol<SpanOp>(name); }

Type ArenaOp::getElementType() {
  Type element;
  for (SliceOp slice : getSlices()) {
    Type type = slice.getTensorType().getElementType();
    if (element && element != type)
      return {};
    element = type;
  }
  return element;
}

LogicalResult ArenaOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (!isa<SliceOp, SpanOp>(op))
      return emitOpError("expects slices and spans alone (C1), got ")
             << op.getName();
  return success();
}

/// (C2) of the slices of `bucket` in the arena of `span`.
static LogicalResult verifyPlaced(SpanOp span, BucketOp bucket) {
  auto arena = cast<ArenaOp>(span->getParentOp());
  int64_t elements = *bucket.getElements(), end = 0;
  for (auto [param, offset] :
       llvm::zip(bucket.getParams().getAsRange<FlatSymbolRefAttr>(),
                 *bucket.getOffsets())) {
    int64_t size =
        arena.findSlice(param.getValue()).getTensorType().getNumElements();
    if (offset < end || size > elements - offset)
      return span.emitOpError("expects slices that do not overlap within the "
                              "bucket (C2), got ")
             << param << " at " << offset;
    end = offset + size;
  }
  if (ArrayAttr over = span.getOverAttr()) {
    int64_t shards = getMesh(span->getParentOfType<ModuleOp>()).getCount(over);
    if (elements % shards != 0)
      return span.emitOpError("expects a bucket of equal shards (C2), got ")
             << elements << " elements for " << shards;
  }
  return success();
}

LogicalResult ArenaOp::verifySymbolUses(SymbolTableCollection &tables) {
  if (getSpans().empty())
    return success();
  if (!getElementType())
    return emitOpError(
        "expects slices of one element type, as it has buckets (C2)");
  ArrayAttr over;
  DenseSet<StringAttr> open;
  for (SliceOp slice : getSlices())
    open.insert(slice.getSymNameAttr());
  for (SpanOp span : getSpans()) {
    auto bucket = tables.lookupNearestSymbolFrom<BucketOp>(
        (*this)->getParentOp(), span.getSymNameAttr());
    if (!bucket)
      return span.emitOpError("expects a train.bucket of its name (C2)");
    if (span.getOver() && failed(verifyOrderedAxes(span, *span.getOver())))
      return failure();
    if (span.getOver() && over && over != *span.getOver())
      return span.emitOpError("expects the axes of the other spans (C2), ")
             << over << ", got " << *span.getOver();
    if (span.getOver())
      over = *span.getOver();
    for (auto param : bucket.getParams().getAsRange<FlatSymbolRefAttr>())
      if (!open.erase(param.getAttr()))
        return span.emitOpError("expects a slice, of this bucket alone, for "
                                "each of its parameters (C2), got ")
               << param;
    if (bucket.getElements() && failed(verifyPlaced(span, bucket)))
      return failure();
  }
  for (SliceOp slice : getSlices())
    if (open.contains(slice.getSymNameAttr()))
      return slice.emitOpError("expects to belong to a bucket (C2)");
  return success();
}

ArenaOp SliceOp::getArena() { return cast<ArenaOp>((*this)->getParentOp()); }

LogicalResult BucketOp::verify() {
  auto offsets = getOffsets();
  if (getElements().has_value() != offsets.has_value())
    return emitOpError("expects elements with offsets (C1)");
  if (!offsets)
    return success();
  constexpr int64_t kMostElements = int64_t{1} << 40;
  int64_t elements = *getElements(), before = -1;
  if (elements < 1 || elements > kMostElements)
    return emitOpError("expects 1 to 2^40 elements (C1), got ") << elements;
  if (offsets->size() != getParams().size())
    return emitOpError("expects one offset per parameter (C1), got ")
           << offsets->size() << " for " << getParams().size();
  for (int64_t offset : *offsets) {
    if (offset <= before || offset >= elements)
      return emitOpError("expects ascending offsets below ")
             << elements << " (C1), got " << offset;
    before = offset;
  }
  return success();
}

bool train::isUnplacedBucket(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 1 && tensor.isDynamicDim(0) &&
         nn::isLegalElement(tensor.getElementType()) && !tensor.getEncoding();
}

LogicalResult StoreGradientOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto param = tables.lookupNearestSymbolFrom<ParamOp>(*this, getParamAttr());
  if (!param || param.getFrozen())
    return emitOpError("expects a parameter that is not frozen (C1), got ")
           << getParamAttr();
  for (Value value : getContributions())
    if (cast<RankedTensorType>(value.getType()).getShape() !=
        param.getTensorType().getShape())
      return emitOpError(
                 "expects contributions of the parameter's shape (C2), got ")
             << value.getType() << " for " << param.getType();
  return success();
}

LogicalResult SquareSumOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType());
  if (!isa<FloatType>(input.getElementType()) || getBlock() < 1)
    return emitOpError("expects a float tensor and a block >= 1, got ")
           << input << " and " << getBlock();
  int64_t blocks = llvm::divideCeil(input.getNumElements(), getBlock());
  auto expected =
      RankedTensorType::get({blocks}, Float64Type::get(getContext()));
  if (getResult().getType() != expected)
    return emitOpError("expects a result of type ")
           << expected << " (C1), got " << getResult().getType();
  return success();
}

/// Whether `attribute` is a list of flat symbols.
static bool isListOfSymbols(Attribute attribute) {
  auto list = dyn_cast<ArrayAttr>(attribute);
  return list && llvm::all_of(list, llvm::IsaPred<FlatSymbolRefAttr>);
}

/// Whether `type` is an f64 tensor of rank 0, or of rank 1 with `count` elements.
static bool isOneOrEach(Type type, size_t count) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getElementType().isF64() &&
         (tensor.getRank() == 0 ||
          (tensor.getRank() == 1 &&
           tensor.getDimSize(0) == static_cast<int64_t>(count)));
}

LogicalResult NormSquaredOp::verify() {
  if (getParams().size() != getSquares().size())
    return emitOpError("expects one list of parameters per result (C1), got ")
           << getParams().size() << " for " << getSquares().size();
  for (auto [params, square] : llvm::zip(getParams(), getSquares())) {
    if (!isListOfSymbols(params) ||
        !isOneOrEach(square.getType(), cast<ArrayAttr>(params).size()))
      return emitOpError("expects symbols, and an f64 result of rank 0, or of "
                         "rank 1 with one element per parameter (C1), got ")
             << square.getType() << " for " << params;
  }
  return success();
}

LogicalResult UpdateOp::verify() {
  size_t groups = getOptimizers().size();
  if (getParams().size() != groups || getScales().size() != groups ||
      (!getLimits().empty() && getLimits().size() != groups))
    return emitOpError("expects parameters and a scale for each optimizer, and "
                       "a limit for each or none (C1), got ")
           << getParams().size() << ", " << getScales().size() << " and "
           << getLimits().size() << " for " << groups;
  for (auto [params, scale] : llvm::zip(getParams(), getScales())) {
    if (!isListOfSymbols(params))
      return emitOpError("expects lists of symbols (C1), got ") << params;
    if (!isOneOrEach(scale.getType(), cast<ArrayAttr>(params).size()))
      return emitOpError("expects an f64 scale of rank 0, or of rank 1 with "
                         "one element per parameter (C2), got ")
             << scale.getType() << " for " << params;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

LogicalResult SegmentsAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   DenseI64ArrayAttr groups,
                                   DenseI64ArrayAttr lengths, ArrayAttr offsets,
                                   DenseI64ArrayAttr owners,
                                   DenseI64ArrayAttr shards,
                                   DenseI64ArrayAttr starts) {
  int64_t count = lengths.size();
  auto isOfSegments = [&](Attribute attribute) {
    auto list = dyn_cast<DenseI64ArrayAttr>(attribute);
    return list && list.size() == count &&
           llvm::all_of(list.asArrayRef(), [](int64_t n) { return n >= 0; });
  };
  if (!isOfSegments(lengths) || !isOfSegments(groups) ||
      !llvm::all_of(offsets, isOfSegments))
    return emitError() << "expects a length, a group and an offset per array "
                          "of each of "
                       << count << " segments, none below 0";
  if (!owners != !starts ||
      (owners && (!isOfSegments(owners) || !isOfSegments(starts))))
    return emitError()
           << "expects an owner and a start per segment, none below 0";
  if (!shards)
    return success();
  ArrayRef<int64_t> ends = shards;
  if (ends.size() < 2 || ends.front() != 0 || ends.back() != count ||
      !llvm::is_sorted(ends))
    return emitError() << "expects shards from 0 to " << count << ", ascending";
  return success();
}

/// (C1) to (C3) of the ops on segments.
template <typename Op> static LogicalResult verifySegments(Op op) {
  int64_t wholes = op.getLengths().size();
  if (op.getOffsets().size() != op.getArrays().size())
    return op.emitOpError("expects offsets of each array (C1), got those of ")
           << op.getOffsets().size() << " of " << op.getArrays().size();
  int64_t groups = 1;
  for (int64_t group : op.getGroups())
    groups = std::max(groups, group + 1);
  if (op.getGrouped().size() % groups != 0)
    return op.emitOpError("expects a grouped operand per group and argument "
                          "(C1), got ")
           << op.getGrouped().size() << " for " << groups << " groups";
  for (auto [array, attribute] : llvm::zip(op.getArrays(), op.getOffsets())) {
    auto type = cast<RankedTensorType>(array.getType());
    if (type.getRank() != 1)
      return op.emitOpError("expects arrays of rank 1 (C2), got ") << type;
    for (auto [offset, length] : llvm::zip(
             cast<DenseI64ArrayAttr>(attribute).asArrayRef(), op.getLengths()))
      if (offset > type.getDimSize(0) - length)
        return op.emitOpError("expects segments within their array (C1), got ")
               << length << " elements at " << offset << " of " << type;
  }
  if (op.getOwners())
    wholes =
        op.getOwners()->empty() ? 0 : *llvm::max_element(*op.getOwners()) + 1;
  if (!op.getEach().empty() && op.getOwners())
    wholes = std::max(wholes,
                      nn::getTensorType(op.getEach().front()).getNumElements());
  if (!op.getShards() != !op.getShard())
    return op.emitOpError("expects shards with the number of one (C5)");
  SmallVector<Type> expected;
  auto expect = [&](OperandRange operands, ArrayRef<int64_t> shape,
                    int64_t stride) -> LogicalResult {
    for (auto [i, operand] : llvm::enumerate(operands)) {
      auto type = cast<RankedTensorType>(operand.getType());
      if (type.getShape() != shape)
        return op.emitOpError("expects operands of rank 0 and `each` of one "
                              "element per segment or whole (C2), got ")
               << type;
      if (i % stride == 0)
        expected.push_back(nn::getComputeType(type.getElementType()));
    }
    return success();
  };
  for (Value array : op.getArrays())
    expected.push_back(
        nn::getComputeType(nn::getTensorType(array).getElementType()));
  if (failed(expect(op.getUniforms(), {}, 1)) ||
      failed(expect(op.getGrouped(), {}, groups)) ||
      failed(expect(op.getEach(), {wholes}, 1)))
    return failure();
  if (op.getIndexed())
    expected.push_back(IntegerType::get(op.getContext(), 64));
  Block &body = op.getBody().front();
  if (body.getArgumentTypes() != TypeRange(expected))
    return op.emitOpError("expects block arguments of the operands' compute "
                          "types (C3), ")
           << expected << ", got " << body.getArgumentTypes();
  auto yield = dyn_cast<train::YieldOp>(body.getTerminator());
  if (!yield || yield.getOperands().size() != op.getOutputs().size())
    return op.emitOpError("expects a train.yield of one value per result (C3)");
  return success();
}

LogicalResult SegmentMapOp::verify() {
  if (failed(verifySegments(*this)))
    return failure();
  if (getTargets().size() != getOutputs().size())
    return emitOpError("expects one target per result (C4), got ")
           << getTargets().size() << " for " << getOutputs().size();
  for (auto [value, output] : llvm::zip(
           getBody().front().getTerminator()->getOperands(), getOutputs())) {
    Type element = nn::getTensorType(output).getElementType();
    if (value.getType() != nn::getComputeType(element))
      return emitOpError("expects yielded values of the results' compute "
                         "types (C3), got ")
             << value.getType() << " for " << output.getType();
  }
  DenseSet<int64_t> taken;
  for (auto [target, output] : llvm::zip(getTargets(), getOutputs()))
    if (target < 0 || target >= static_cast<int64_t>(getArrays().size()) ||
        getArrays()[target].getType() != output.getType() ||
        !taken.insert(target).second)
      return emitOpError("expects distinct targets of the results' types (C4), "
                         "got ")
             << target << " for " << output.getType();
  return success();
}

LogicalResult SegmentSquareSumOp::verify() {
  if (failed(verifySegments(*this)))
    return failure();
  if (static_cast<int64_t>(getBlock()) < 1)
    return emitOpError("expects a block >= 1, got ") << getBlock();
  auto expected =
      RankedTensorType::get({countBlocks()}, Float64Type::get(getContext()));
  for (Type type : getResultTypes())
    if (type != expected)
      return emitOpError("expects results of type ")
             << expected << " (C4), got " << type;
  for (Value value : getBody().front().getTerminator()->getOperands())
    if (!isa<FloatType>(value.getType()))
      return emitOpError("expects a region that yields floats (C3), got ")
             << value.getType();
  return success();
}

int64_t SegmentSquareSumOp::countBlocks() {
  SmallVector<int64_t> whole{0, static_cast<int64_t>(getLengths().size())};
  ArrayRef<int64_t> shards = getShards().value_or(whole);
  int64_t most = 0;
  for (size_t i = 0; i + 1 < shards.size(); ++i) {
    int64_t blocks = 0;
    for (int64_t length :
         getLengths().slice(shards[i], shards[i + 1] - shards[i]))
      blocks += llvm::divideCeil(length, getBlock());
    most = std::max(most, blocks);
  }
  return std::max<int64_t>(most, getShards() ? 1 : 0);
}

LogicalResult SumBlocksOp::verify() {
  size_t count = getSources().size();
  if (auto owners = getOwners()) {
    bool good = owners->size() == count;
    int64_t next = 0;
    for (size_t i = 0; good && i < count; ++i) {
      good = (*owners)[i] == next || (i > 0 && (*owners)[i] == next - 1);
      next = (*owners)[i] + 1;
    }
    if (!good)
      return emitOpError("expects an owner per range, from 0 on without a gap "
                         "(C1)");
  }
  if (getFirsts().size() != count || getCounts().size() != count)
    return emitOpError("expects one source, first and count per sum (C1), got ")
           << count << ", " << getFirsts().size() << " and "
           << getCounts().size();
  for (auto [source, first, length] :
       llvm::zip(getSources(), getFirsts(), getCounts())) {
    RankedTensorType type;
    if (source >= 0 && source < static_cast<int64_t>(getBlocks().size()))
      type = cast<RankedTensorType>(getBlocks()[source].getType());
    if (!type || type.getRank() != 1 ||
        !isa<FloatType>(type.getElementType()) || first < 0 || length < 1 ||
        first > type.getDimSize(0) - length)
      return emitOpError("expects sums of elements of the inputs (C1), got ")
             << length << " from " << first << " on of input " << source;
  }
  int64_t numSums = countSums();
  if (getSets().size() != getSums().size())
    return emitOpError("expects one set per result (C2), got ")
           << getSets().size() << " for " << getSums().size();
  for (auto [attribute, sum] : llvm::zip(getSets(), getSums())) {
    auto set = dyn_cast<DenseI64ArrayAttr>(attribute);
    if (!set || !isOneOrEach(sum.getType(), set.size()))
      return emitOpError(
                 "expects an f64 result of rank 0, or of rank 1 with one "
                 "element per sum (C2), got ")
             << sum.getType() << " for " << attribute;
    for (int64_t i : set.asArrayRef())
      if (i < 0 || i >= numSums)
        return emitOpError("expects sets of sums that there are (C2), got ")
               << i;
  }
  return success();
}

ParseResult ListOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  FlatSymbolRefAttr entry;
  SmallVector<OpAsmParser::Argument> arguments;
  std::string kindText;
  SMLoc kindLoc;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseKeyword("of") ||
      parser.parseAttribute(entry, getEntryAttrName(result.name),
                            result.attributes) ||
      parser.getCurrentLocation(&kindLoc) || parser.parseString(&kindText) ||
      parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren,
                               /*allowType=*/true))
    return failure();
  auto kind = symbolizeListKind(kindText);
  if (!kind)
    return parser.emitError(kindLoc, "expects kind \"first\", \"next\", "
                                     "\"merge\" or \"apply\", got \"")
           << kindText << "\"";
  result.addAttribute(getKindAttrName(result.name),
                      ListKindAttr::get(parser.getContext(), *kind));
  for (StringAttr number :
       {getWorkspaceAttrName(result.name), getAliveAttrName(result.name)}) {
    int64_t bytes;
    if (failed(parser.parseOptionalKeyword(number.getValue())))
      continue;
    if (parser.parseLParen() || parser.parseInteger(bytes) ||
        parser.parseRParen())
      return failure();
    result.addAttribute(number, parser.getBuilder().getI64IntegerAttr(bytes));
  }
  return failure(parseAttributes(parser, result) ||
                 parser.parseRegion(*result.addRegion(), arguments));
}

void ListOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  p << " of " << getEntryAttr() << " \"" << stringifyListKind(getKind())
    << "\" (";
  llvm::interleaveComma(
      getBody().getArguments(), p,
      [&](BlockArgument argument) { p.printRegionArgument(argument); });
  p << ")";
  if (auto bytes = getWorkspace())
    p << " workspace(" << *bytes << ")";
  if (auto bytes = getAlive())
    p << " alive(" << *bytes << ")";
  p.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {"sym_name", "entry", "kind", "workspace", "alive"});
  p << " ";
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult ListOp::verify() {
  if (!isa<train::ReturnOp>(getBody().front().getTerminator()))
    return emitOpError("expects a train.return at its end");
  return success();
}
