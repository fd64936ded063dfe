//===- TrainPlanOps.cpp - What the step passes insert ---------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

int64_t ArenaOp::findSlice(StringRef name) {
  for (auto [i, slice] : llvm::enumerate(getSlices()))
    if (cast<FlatSymbolRefAttr>(slice).getValue() == name)
      return i;
  return -1;
}

RankedTensorType ArenaOp::getFlatType() {
  Type element;
  for (Attribute attribute : getTypes()) {
    auto type = cast<RankedTensorType>(cast<TypeAttr>(attribute).getValue());
    if (element && element != type.getElementType())
      return {};
    element = type.getElementType();
  }
  if (!element)
    return {};
  int64_t width = nn::getElementBytes(element);
  return RankedTensorType::get({static_cast<int64_t>(getBytes()) / width},
                               element);
}

int64_t ArenaOp::countPieces() {
  MeshOp mesh = getMesh((*this)->getParentOfType<ModuleOp>());
  return getShard() && mesh ? mesh.getCount(*getShard()) : 1;
}

SmallVector<ArenaOp::Bucket> ArenaOp::getAllBuckets() {
  SmallVector<Bucket> buckets;
  auto ends = getBuckets();
  if (!ends)
    return buckets;
  ArrayRef<bool> pieces = getPieces().value_or(ArrayRef<bool>());
  int64_t parts = countPieces();
  int64_t first = 0, localFirst = 0;
  for (auto [i, end] : llvm::enumerate(*ends)) {
    int64_t count = end - first;
    int64_t local = i < pieces.size() && pieces[i] ? count / parts : count;
    buckets.push_back({first, count, localFirst, local});
    first = end;
    localFirst += local;
  }
  return buckets;
}

int64_t ArenaOp::getLocalOffset(int64_t slice) {
  int64_t offset = getOffsets()[slice];
  int64_t width = nn::getElementBytes(
      cast<RankedTensorType>(cast<TypeAttr>(getTypes()[slice]).getValue())
          .getElementType());
  for (const Bucket &bucket : getAllBuckets())
    if (offset / width < bucket.first + bucket.count) {
      assert(!bucket.isPiece() && "expects a slice that a rank has whole");
      return offset + (bucket.localFirst - bucket.first) * width;
    }
  return offset;
}

/// (C4)
static LogicalResult verifyBuckets(ArenaOp arena) {
  std::optional<ArrayRef<int64_t>> ends = arena.getBuckets();
  if (!ends)
    return arena.getPieces() || arena.getShard()
               ? arena.emitOpError("expects buckets with pieces (C4)")
               : success();
  RankedTensorType flat = arena.getFlatType();
  if (!flat)
    return arena.emitOpError("expects slices of one element type in an arena "
                             "with buckets (C4)");
  int64_t width = nn::getElementBytes(flat.getElementType());
  int64_t before = 0; // first: their differences have to fit
  for (int64_t end : *ends) {
    if (end < before)
      return arena.emitOpError("expects ascending ends of buckets (C4), got ")
             << end << " after " << before;
    before = end;
  }
  auto buckets = arena.getAllBuckets();
  if (!arena.getPieces() != !arena.getShard() ||
      (arena.getPieces() && arena.getPieces()->size() != buckets.size()))
    return arena.emitOpError("expects axes of the pieces, and whether it is "
                             "one for each bucket (C4)");
  size_t slice = 0, slices = arena.getSlices().size();
  int64_t local = 0;
  for (const ArenaOp::Bucket &bucket : buckets) {
    if (bucket.isPiece() && bucket.count % arena.countPieces() != 0)
      return arena.emitOpError("expects buckets of equal pieces (C4), got ")
             << bucket.count << " elements";
    local += bucket.localCount;
    for (; slice < slices; ++slice) {
      int64_t first = arena.getOffsets()[slice] / width;
      if (first >= bucket.first + bucket.count)
        break;
      auto type = cast<RankedTensorType>(
          cast<TypeAttr>(arena.getTypes()[slice]).getValue());
      if (type.getNumElements() > bucket.first + bucket.count - first)
        return arena.emitOpError("expects slices within a bucket (C4), got ")
               << arena.getSlices()[slice];
    }
  }
  if (slice != slices)
    return arena.emitOpError("expects slices within a bucket (C4), got ")
           << arena.getSlices()[slice] << " after the last";
  int64_t bytes;
  if (llvm::MulOverflow(local, width, bytes) ||
      bytes != static_cast<int64_t>(arena.getBytes()))
    return arena.emitOpError("expects the bytes of its buckets (C4), ")
           << local << " times " << width << ", got " << arena.getBytes();
  return success();
}

LogicalResult ArenaOp::verify() {
  size_t count = getSlices().size();
  if (getTypes().size() != count || getOffsets().size() != count)
    return emitOpError("expects one type and one offset per slice (C1), got ")
           << count << " slices, " << getTypes().size() << " types and "
           << getOffsets().size() << " offsets";
  llvm::StringSet<> names;
  int64_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    auto slice = dyn_cast<FlatSymbolRefAttr>(getSlices()[i]);
    auto type =
        dyn_cast<RankedTensorType>(cast<TypeAttr>(getTypes()[i]).getValue());
    if (!slice || !nn::isLegalTensor(type) ||
        !nn::isLegalElement(type.getElementType()))
      return emitOpError("expects slices named by symbols, of static tensors");
    int64_t width = nn::getElementBytes(type.getElementType());
    int64_t offset = getOffsets()[i];
    if (offset < end || offset % width != 0)
      return emitOpError(
                 "expects slices in order that do not overlap (C2), got ")
             << slice << " at " << offset;
    if (llvm::AddOverflow(offset, width * type.getNumElements(), end))
      return emitOpError("expects slices within its bytes (C2), got ")
             << slice << " at " << offset;
    if (!names.insert(slice.getValue()).second)
      return emitOpError("expects distinct names (C3), got ")
             << slice << " twice";
  }
  if (!getBuckets() && end > static_cast<int64_t>(getBytes()))
    return emitOpError("expects slices within its bytes (C2), got an end of ")
           << end << " in " << getBytes();
  return verifyBuckets(*this);
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

/// Whether `type` is an f64 tensor of rank 0, or of rank 1 with `count` elements.
static bool isOneOrEach(Type type, size_t count) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getElementType().isF64() &&
         (tensor.getRank() == 0 ||
          (tensor.getRank() == 1 &&
           tensor.getDimSize(0) == static_cast<int64_t>(count)));
}

/// (C1) of an op on parameters: `what`, of `type`, is one number or one for each.
template <typename Op>
static LogicalResult verifyOneOrEach(Op op, StringRef what, Type type) {
  if (isOneOrEach(type, op.getParams().size()))
    return success();
  return op.emitOpError("expects an f64 ")
         << what
         << " of rank 0, or of rank 1 with one element per parameter (C1), got "
         << type << " for " << op.getParams().size() << " parameters";
}

LogicalResult NormSquaredOp::verify() {
  return verifyOneOrEach(*this, "result", getResult().getType());
}

LogicalResult UpdateOp::verify() {
  return verifyOneOrEach(*this, "scale", getScale().getType());
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

/// (C1) to (C3) of the ops on segments.
template <typename Op> static LogicalResult verifySegments(Op op) {
  size_t count = op.getLengths().size();
  int64_t wholes = count;
  if (op.getGroups().size() != count ||
      op.getOffsets().size() != op.getArrays().size())
    return op.emitOpError("expects a group per segment and offsets per array "
                          "(C1), got ")
           << op.getGroups().size() << " groups for " << count
           << " segments and offsets of " << op.getOffsets().size() << " of "
           << op.getArrays().size() << " arrays";
  int64_t groups = 1;
  for (int64_t group : op.getGroups()) {
    if (group < 0)
      return op.emitOpError("expects groups from 0 on (C1), got ") << group;
    groups = std::max(groups, group + 1);
  }
  if (op.getGrouped().size() % groups != 0)
    return op.emitOpError("expects a grouped operand per group and argument "
                          "(C1), got ")
           << op.getGrouped().size() << " for " << groups << " groups";
  for (auto [array, attribute] : llvm::zip(op.getArrays(), op.getOffsets())) {
    auto type = cast<RankedTensorType>(array.getType());
    auto offsets = dyn_cast<DenseI64ArrayAttr>(attribute);
    if (type.getRank() != 1)
      return op.emitOpError("expects arrays of rank 1 (C2), got ") << type;
    if (!offsets || offsets.size() != static_cast<int64_t>(count))
      return op.emitOpError("expects one offset per segment and array (C1), "
                            "got ")
             << attribute;
    for (auto [offset, length] :
         llvm::zip(offsets.asArrayRef(), op.getLengths()))
      if (offset < 0 || length < 0 || offset > type.getDimSize(0) - length)
        return op.emitOpError("expects segments within their array (C1), got ")
               << length << " elements at " << offset << " of " << type;
  }
  if (!op.getOwners() != !op.getStarts() ||
      (op.getOwners() &&
       (op.getOwners()->size() != count || op.getStarts()->size() != count)))
    return op.emitOpError("expects an owner and a start per segment (C5)");
  if (op.getOwners())
    wholes =
        op.getOwners()->empty() ? 0 : *llvm::max_element(*op.getOwners()) + 1;
  if (!op.getEach().empty() && op.getOwners())
    wholes = std::max(wholes,
                      nn::getTensorType(op.getEach().front()).getNumElements());
  if (auto owners = op.getOwners();
      owners && llvm::any_of(*owners, [](int64_t owner) { return owner < 0; }))
    return op.emitOpError("expects owners from 0 on (C5)");
  if (!op.getShards() != !op.getShard())
    return op.emitOpError("expects shards with the number of one (C5)");
  if (auto shards = op.getShards())
    if (shards->size() < 2 || shards->front() != 0 ||
        shards->back() != static_cast<int64_t>(count) ||
        !llvm::is_sorted(*shards))
      return op.emitOpError("expects shards from 0 to ")
             << count << ", ascending (C5)";
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
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseKeyword("of") ||
      parser.parseAttribute(entry, getEntryAttrName(result.name),
                            result.attributes) ||
      parser.parseString(&kindText) ||
      parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren,
                               /*allowType=*/true))
    return failure();
  result.addAttribute(getKindAttrName(result.name),
                      parser.getBuilder().getStringAttr(kindText));
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
  p << " of " << getEntryAttr() << " \"" << getKind() << "\" (";
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
  if (getKind() != "first" && getKind() != "next" && getKind() != "merge" &&
      getKind() != "apply")
    return emitOpError("expects kind \"first\", \"next\", \"merge\" or "
                       "\"apply\", got \"")
           << getKind() << "\"";
  if (!isa<train::ReturnOp>(getBody().front().getTerminator()))
    return emitOpError("expects a train.return at its end");
  return success();
}
