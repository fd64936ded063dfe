//===- TrainCommandOps.cpp - Commands over planned memory -----------------===//
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"

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

/// Checks that `value` is like the result of `op`; `what` names it.
static LogicalResult verifyLikeResult(GemmOp op, Value value, StringRef what) {
  RankedTensorType type = nn::getTensorType(value);
  RankedTensorType result = nn::getTensorType(op.getResult());
  if (type.getElementType() == result.getElementType() &&
      type.getNumElements() == result.getNumElements())
    return success();
  return op.emitOpError("expects ")
         << what << " like " << result << " (C2), got " << type;
}

LogicalResult GemmOp::verify() {
  Epilogue epilogue = getEpilogue();
  bool any = epilogue != Epilogue::none;
  bool geluGrad = epilogue == Epilogue::gelu_grad;
  bool multiplies = geluGrad || epilogue == Epilogue::multiply;
  bool keepsSlope = epilogue == Epilogue::gelu_and_slope;
  BiasGradient gradient = getBiasGradient();
  bool sums = gradient != BiasGradient::none;
  if ((any || sums) && (getBatch() != 1 || getInit()))
    return emitOpError("expects a batch of 1 and no init with an epilogue or a "
                       "bias gradient (C1)");
  if (multiplies != bool(getAt()) || (keepsSlope && !getKept()) ||
      (getKept() && !keepsSlope && epilogue != Epilogue::gelu))
    return emitOpError("expects 'at' with gelu_grad and multiply, and a second "
                       "result with gelu_and_slope, or gelu, only (C2)");
  Type element = nn::getTensorType(getResult()).getElementType();
  if (any && element.isF64())
    return emitOpError("expects no epilogue in f64 (C2)");
  if ((getAt() || getKept()) && getN() % 8)
    return emitOpError("expects rows of a multiple of 8 elements (C2), got ")
           << getN();
  if (getAt() && failed(verifyLikeResult(*this, getAt(), "'at'")))
    return failure();
  if (getKept() &&
      failed(verifyLikeResult(*this, getKept(), "the second result")))
    return failure();
  if ((gradient == BiasGradient::lhs && !getTransposeLhs()) ||
      (gradient == BiasGradient::rhs && getTransposeRhs()) ||
      (gradient == BiasGradient::result ? !geluGrad : sums && any))
    return emitOpError("expects a bias gradient that this product has (C3), "
                       "got ")
           << stringifyBiasGradient(gradient);
  if (getBias() && (multiplies || sums))
    return emitOpError("expects no bias with gelu_grad, multiply or a bias "
                       "gradient (C4)");
  if (sums != bool(getBiasSums()))
    return emitOpError("expects the bias gradient as a result (C5)");
  if (!sums)
    return success();
  int64_t count = gradient == BiasGradient::lhs ? getM() : getN();
  RankedTensorType type = nn::getTensorType(getBiasSums());
  if (type.getElementType() != element || type.getNumElements() != count)
    return emitOpError("expects a bias gradient of ")
           << count << " x " << element << " (C5), got " << type;
  return success();
}
