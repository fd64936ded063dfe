//===- TrainPlanOps.cpp - What the step passes insert ---------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

int64_t ArenaOp::findSlice(StringRef name) {
  for (auto [i, slice] : llvm::enumerate(getSlices()))
    if (cast<FlatSymbolRefAttr>(slice).getValue() == name)
      return i;
  return -1;
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
    auto type = dyn_cast<RankedTensorType>(
        cast<TypeAttr>(getTypes()[i]).getValue());
    if (!slice || !nn::isLegalTensor(type) ||
        !nn::isLegalElement(type.getElementType()))
      return emitOpError("expects slices named by symbols, of static tensors");
    int64_t width = llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    int64_t offset = getOffsets()[i];
    if (offset < end || offset % width != 0)
      return emitOpError("expects slices in order that do not overlap (C2), got ")
             << slice << " at " << offset;
    if (llvm::AddOverflow(offset, width * type.getNumElements(), end))
      return emitOpError("expects slices within its bytes (C2), got ")
             << slice << " at " << offset;
    if (!names.insert(slice.getValue()).second)
      return emitOpError("expects distinct names (C3), got ") << slice << " twice";
  }
  if (end > static_cast<int64_t>(getBytes()))
    return emitOpError("expects slices within its bytes (C2), got an end of ")
           << end << " in " << getBytes();
  return success();
}

LogicalResult StoreGradientOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto param = tables.lookupNearestSymbolFrom<ParamOp>(*this, getParamAttr());
  if (!param || param.getFrozen())
    return emitOpError("expects a parameter that is not frozen (C1), got ")
           << getParamAttr();
  for (Value value : getContributions())
    if (cast<RankedTensorType>(value.getType()).getShape() !=
        param.getTensorType().getShape())
      return emitOpError("expects contributions of the parameter's shape (C2), got ")
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
      RankedTensorType::get({blocks}, nn::getComputeType(input.getElementType()));
  if (getResult().getType() != expected)
    return emitOpError("expects a result of type ")
           << expected << " (C1), got " << getResult().getType();
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
  if (succeeded(parser.parseOptionalKeyword("workspace"))) {
    int64_t bytes;
    if (parser.parseLParen() || parser.parseInteger(bytes) ||
        parser.parseRParen())
      return failure();
    result.addAttribute(getWorkspaceAttrName(result.name),
                        parser.getBuilder().getI64IntegerAttr(bytes));
  }
  return failure(parseAttributes(parser, result) ||
                 parser.parseRegion(*result.addRegion(), arguments));
}

void ListOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  p << " of " << getEntryAttr() << " \"" << getKind() << "\" (";
  llvm::interleaveComma(getBody().getArguments(), p, [&](BlockArgument argument) {
    p.printRegionArgument(argument);
  });
  p << ")";
  if (auto bytes = getWorkspace())
    p << " workspace(" << *bytes << ")";
  p.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                     {"sym_name", "entry", "kind", "workspace"});
  p << " ";
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult ListOp::verify() {
  if (getKind() != "first" && getKind() != "next" && getKind() != "apply")
    return emitOpError("expects kind \"first\", \"next\" or \"apply\", got \"")
           << getKind() << "\"";
  if (!isa<train::ReturnOp>(getBody().front().getTerminator()))
    return emitOpError("expects a train.return at its end");
  return success();
}
