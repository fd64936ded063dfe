//===- TrainCommandOps.cpp - Commands over planned memory -----------------===//
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
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

/// The arguments of `kernel` that it writes in place.
static llvm::SmallDenseSet<int64_t> findInPlace(KernelOp kernel) {
  llvm::SmallDenseSet<int64_t> arguments;
  for (int64_t argument : kernel.getInplace())
    if (argument >= 0)
      arguments.insert(argument);
  return arguments;
}

/// (C2) in the buffer form.
static LogicalResult verifyBuffers(LaunchOp launch, KernelOp kernel,
                                   train::ReturnOp end) {
  auto inPlace = findInPlace(kernel);
  SmallVector<Type> inputs, outs;
  for (BlockArgument argument : kernel.getBody().getArguments())
    if (!inPlace.contains(argument.getArgNumber()))
      inputs.push_back(bufferLike(argument.getType()));
  for (Value value : end.getValues())
    outs.push_back(bufferLike(value.getType()));
  if (launch.getInputs().getTypes() == TypeRange(inputs) &&
      launch.getOuts().getTypes() == TypeRange(outs))
    return success();
  return launch.emitOpError("expects the types of its kernel (C2), ")
         << inputs << " and outs " << outs;
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto kernel =
      tables.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError("expects a train.kernel (C1), got ") << getKernelAttr();
  auto end = cast<train::ReturnOp>(kernel.getBody().front().getTerminator());
  if (getOutputs().empty() && isOnBuffers())
    return verifyBuffers(*this, kernel, end);
  if (!getOuts().empty() ||
      !llvm::equal(getOperandTypes(), kernel.getBody().getArgumentTypes()) ||
      !llvm::equal(getResultTypes(), end.getOperandTypes()))
    return emitOpError("expects the types of its kernel (C2), ")
           << kernel.getBody().getArgumentTypes() << " -> "
           << end.getOperandTypes();
  return success();
}

SmallVector<Access> LaunchOp::getAccesses(SymbolTable &symbols) {
  SmallVector<Access> accesses;
  for (Value input : getInputs())
    accesses.push_back({input, true, false});
  auto kernel = symbols.lookup<KernelOp>(getKernel());
  for (auto [out, argument] : llvm::zip(getOuts(), kernel.getInplace()))
    accesses.push_back({out, argument >= 0, true});
  return accesses;
}

/// The kinds alone: what is in place depends on the kernel.
void LaunchOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  addEffects(getInputsMutable(), /*read=*/true, /*written=*/false, effects);
  addEffects(getOutsMutable(), /*read=*/true, /*written=*/true, effects);
}

//===----------------------------------------------------------------------===//
// GEMMs
//===----------------------------------------------------------------------===//

Value GemmOp::getSecond() {
  if (getOuts().empty())
    return getKept();
  bool sums = getBiasGradient() != BiasGradient::none;
  return getOuts().size() == (sums ? 3 : 2) ? getOuts()[1] : Value();
}

Value GemmOp::getSums() {
  if (getOuts().empty())
    return getBiasSums();
  return getBiasGradient() != BiasGradient::none ? getOuts().back() : Value();
}

SmallVector<Access> GemmOp::getAccesses(SymbolTable &) {
  SmallVector<Access> accesses;
  for (Value input :
       {Value(getLhs()), Value(getRhs()), Value(getBias()), Value(getAt())})
    if (input)
      accesses.push_back({input, true, false});
  for (auto [i, out] : llvm::enumerate(getOuts()))
    accesses.push_back({out, i == 0 && getAccumulate(), true});
  return accesses;
}

void GemmOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (getOuts().empty())
    return;
  for (OpOperand &operand : (*this)->getOpOperands())
    if (!llvm::is_contained(getOuts(), operand.get()))
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  addEffects(getOutsMutable(), /*read=*/getAccumulate(), /*written=*/true,
             effects);
}

/// Checks that `value` is like the result of `op`; `what` names it.
static LogicalResult verifyLikeResult(GemmOp op, Value value, StringRef what) {
  auto type = cast<ShapedType>(value.getType());
  auto result = cast<ShapedType>(op.getMain().getType());
  if (type.getElementType() == result.getElementType() &&
      type.getNumElements() == result.getNumElements())
    return success();
  return op.emitOpError("expects ")
         << what << " like " << result << " (C2), got " << type;
}

/// (C6).
static LogicalResult verifyForm(GemmOp op) {
  bool onBuffers = !op.getOuts().empty();
  bool fits = onBuffers ? op->getNumResults() == 0 && op.isOnBuffers() &&
                              op.getOuts().size() <= 3
                        : op.getResult() && !op.getAccumulate() &&
                              llvm::all_of(op->getOperandTypes(),
                                           llvm::IsaPred<RankedTensorType>);
  if (fits)
    return success();
  return op.emitOpError("expects tensors with results, or buffers with 'outs' "
                        "and neither results nor init (C6)");
}

LogicalResult GemmOp::verify() {
  if (failed(verifyForm(*this)))
    return failure();
  if (GemmPlanAttr plan = getPlanAttr())
    if (plan.getTileM() < 1 || plan.getTileN() < 1 || plan.getSplitK() < 0 ||
        plan.getSplitK() >= std::max<int64_t>(getK(), 1) ||
        (plan.getSplitK() && plan.getBackEnd() != BackEnd::AMX))
      return emitOpError("expects a plan with tiles of 1 or more and, of amx "
                         "alone, a split_k below k (C7), got ")
             << plan;
  Epilogue epilogue = getEpilogue();
  bool any = epilogue != Epilogue::none;
  bool geluGrad = epilogue == Epilogue::gelu_grad;
  bool multiplies = geluGrad || epilogue == Epilogue::multiply;
  bool keepsSlope = epilogue == Epilogue::gelu_and_slope;
  BiasGradient gradient = getBiasGradient();
  bool sums = gradient != BiasGradient::none;
  if ((any || sums) && (getBatch() != 1 || accumulates()))
    return emitOpError("expects a batch of 1 and no init with an epilogue or a "
                       "bias gradient (C1)");
  if (multiplies != bool(getAt()) || (keepsSlope && !getSecond()) ||
      (getSecond() && !keepsSlope && epilogue != Epilogue::gelu))
    return emitOpError("expects 'at' with gelu_grad and multiply, and a second "
                       "result with gelu_and_slope, or gelu, only (C2)");
  Type element = cast<ShapedType>(getMain().getType()).getElementType();
  if (any && element.isF64())
    return emitOpError("expects no epilogue in f64 (C2)");
  if ((getAt() || getSecond()) && getN() % 8)
    return emitOpError("expects rows of a multiple of 8 elements (C2), got ")
           << getN();
  if (getAt() && failed(verifyLikeResult(*this, getAt(), "'at'")))
    return failure();
  if (getSecond() &&
      failed(verifyLikeResult(*this, getSecond(), "the second result")))
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
  if (sums != bool(getSums()))
    return emitOpError("expects the bias gradient as a result (C5)");
  if (!sums)
    return success();
  int64_t count = gradient == BiasGradient::lhs ? getM() : getN();
  auto type = cast<ShapedType>(getSums().getType());
  if (type.getElementType() != element || type.getNumElements() != count)
    return emitOpError("expects a bias gradient of ")
           << count << " x " << element << " (C5), got " << type;
  return success();
}
