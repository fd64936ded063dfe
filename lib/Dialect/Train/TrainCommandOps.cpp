//===- TrainCommandOps.cpp - Commands over planned memory -----------------===//
#include "trainc/Dialect/Train/TrainOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<int64_t> inplace;
  auto parseOne = [&]() -> ParseResult {
    return parser.parseInteger(inplace.emplace_back());
  };
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren,
                               /*allowType=*/true) ||
      parser.parseKeyword("inplace") ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne) ||
      parseAttributes(parser, result) ||
      parser.parseRegion(*result.addRegion(), arguments))
    return failure();
  result.addAttribute(getInplaceAttrName(result.name),
                      parser.getBuilder().getDenseI64ArrayAttr(inplace));
  return success();
}

void KernelOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  p << "(";
  llvm::interleaveComma(
      getBody().getArguments(), p,
      [&](BlockArgument argument) { p.printRegionArgument(argument); });
  p << ") inplace [";
  llvm::interleaveComma(getInplace(), p);
  p << "]";
  p.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                     {"sym_name", "inplace"});
  p << " ";
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult KernelOp::verify() {
  auto end = dyn_cast<train::ReturnOp>(getBody().front().getTerminator());
  if (!end)
    return emitOpError("expects a train.return at its end");
  if (end.getValues().size() != getInplace().size())
    return emitOpError("expects one inplace entry per returned value, got ")
           << getInplace().size() << " for " << end.getValues().size();
  for (auto [value, argument] : llvm::zip(end.getValues(), getInplace())) {
    if (argument == -1)
      continue;
    if (argument < 0 || argument >= getBody().getNumArguments() ||
        getBody().getArgument(argument).getType() != value.getType())
      return emitOpError("expects inplace arguments of the returned type, got ")
             << argument << " for " << value.getType();
  }
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto kernel =
      tables.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError("expects a train.kernel (C1), got ") << getKernelAttr();
  auto end = cast<train::ReturnOp>(kernel.getBody().front().getTerminator());
  if (!llvm::equal(getOperandTypes(), kernel.getBody().getArgumentTypes()) ||
      !llvm::equal(getResultTypes(), end.getOperandTypes()))
    return emitOpError("expects the types of its kernel (C2), ")
           << kernel.getBody().getArgumentTypes() << " -> "
           << end.getOperandTypes();
  return success();
}
