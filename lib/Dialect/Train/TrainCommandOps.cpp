//===- TrainCommandOps.cpp - Commands over planned memory -----------------===//
#include "trainc/Dialect/NN/Window.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "trainc/Dialect/Train/TrainSyntax.h"

#include "llvm/Support/CheckedArithmetic.h"

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

/// From one row to the next of a matrix of `rows` x `columns` in a value of `type`.
static int64_t pitchOf(Type type, int64_t rows, int64_t columns) {
  auto shape = cast<ShapedType>(type).getShape();
  return shape.size() == 2 && shape[0] == rows ? std::max(shape[1], columns)
                                               : columns;
}

int64_t GemmOp::getLhsPitch() {
  int64_t rows = getTransposeLhs() ? getK() : getM();
  return pitchOf(getLhs().getType(), rows, getTransposeLhs() ? getM() : getK());
}

int64_t GemmOp::getRhsPitch() {
  int64_t rows = getTransposeRhs() ? getN() : getK();
  return pitchOf(getRhs().getType(), rows, getTransposeRhs() ? getK() : getN());
}

int64_t GemmOp::getPitch() {
  return pitchOf(getMain().getType(), getM(), getN());
}

/// (C8).
static LogicalResult verifySizes(GemmOp op) {
  int64_t m = op.getM(), n = op.getN(), k = op.getK(), batch = op.getBatch();
  auto fits = [&](Value value, StringRef name, int64_t rows, int64_t pitch,
                  int64_t count) -> LogicalResult {
    std::optional<int64_t> elements = llvm::checkedMul(count, rows);
    elements = elements ? llvm::checkedMul(*elements, pitch) : elements;
    if (elements == cast<ShapedType>(value.getType()).getNumElements())
      return success();
    return op.emitOpError("expects ")
           << name << " of " << count << " x " << rows << " x " << pitch
           << " elements (C8), got " << value.getType();
  };
  return success(
      succeeded(fits(op.getLhs(), "a left side", op.getTransposeLhs() ? k : m,
                     op.getLhsPitch(), batch)) &&
      succeeded(fits(op.getRhs(), "a right side", op.getTransposeRhs() ? n : k,
                     op.getRhsPitch(), op.getBroadcastRhs() ? 1 : batch)) &&
      succeeded(fits(op.getMain(), "a result", m, op.getPitch(), batch)));
}

LogicalResult GemmOp::verify() {
  if (failed(verifyForm(*this)) || failed(verifySizes(*this)))
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

//===----------------------------------------------------------------------===//
// Convolutions
//===----------------------------------------------------------------------===//

/// The operands and the result that are the input, the weight and the output.
static ShapedType typeOf(ConvolutionOp op, ArrayRef<int> places) {
  Value values[] = {op.getLhs(), op.getRhs(), op.getMain()};
  return cast<ShapedType>(
      values[places[static_cast<int>(op.getKind())]].getType());
}

ShapedType ConvolutionOp::getInputType() { return typeOf(*this, {0, 2, 0}); }
ShapedType ConvolutionOp::getWeightType() { return typeOf(*this, {1, 0, 2}); }
ShapedType ConvolutionOp::getOutputType() { return typeOf(*this, {2, 1, 1}); }

SmallVector<Access> ConvolutionOp::getAccesses(SymbolTable &) {
  return {{getLhs(), true, false},
          {getRhs(), true, false},
          {getOut(), getAccumulate(), true}};
}

void ConvolutionOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (!getOut())
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &getLhsMutable());
  effects.emplace_back(MemoryEffects::Read::get(), &getRhsMutable());
  addEffects(getOutMutable(), /*read=*/getAccumulate(), /*written=*/true,
             effects);
}

/// (C1), but for element types.
static LogicalResult verifySizes(ConvolutionOp op) {
  ShapedType input = op.getInputType(), weight = op.getWeightType();
  if (weight.getRank() != 4 || input.getRank() != 4 ||
      llvm::is_contained(weight.getShape(), 0))
    return op.emitOpError("expects an input and a weight of rank 4 (C1), got ")
           << input << " and " << weight;
  StringRef name = ConvolutionOp::getOperationName();
  auto window =
      nn::makeWindow(op.getLoc(), name, weight.getShape().take_back(2),
                     op.getStrides(), {}, op.getPadding(), op.getDilations());
  if (failed(window))
    return failure();
  auto tensor = RankedTensorType::get(input.getShape(), input.getElementType());
  auto sizes = nn::outputSizes(op.getLoc(), name, *window, tensor);
  if (failed(sizes))
    return failure();
  int64_t groups = op.getGroups();
  if (groups < 1 || weight.getDimSize(0) % groups ||
      weight.getDimSize(1) * groups != input.getDimSize(1))
    return op.emitOpError("expects groups that divide outputs and channels "
                          "(C1), got ")
           << groups << " of " << input << " and " << weight;
  int64_t expected[] = {input.getDimSize(0), weight.getDimSize(0), (*sizes)[0],
                        (*sizes)[1]};
  if (op.getOutputType().getShape() != ArrayRef(expected))
    return op.emitOpError("expects an output of shape ")
           << ArrayRef(expected) << " (C1), got " << op.getOutputType();
  return success();
}

LogicalResult ConvolutionOp::verify() {
  bool fits = getOut() ? !getResult() && isOnBuffers() && !getInit()
                       : getResult() && !getAccumulate() &&
                             llvm::all_of((*this)->getOperandTypes(),
                                          llvm::IsaPred<RankedTensorType>);
  if (!fits)
    return emitOpError("expects tensors with a result, or buffers with 'out' "
                       "and neither a result nor init (C3)");
  auto elementOf = [](Value value) {
    return cast<ShapedType>(value.getType()).getElementType();
  };
  Type element = elementOf(getLhs()), result = elementOf(getMain());
  Type wide = nn::getComputeType(element);
  if (elementOf(getRhs()) != element || (result != element && result != wide))
    return emitOpError("expects operands of one element type, and a result of "
                       "that or f32 (C2), got ")
           << element << ", " << elementOf(getRhs()) << " and " << result;
  if ((getInit() || getAccumulate()) &&
      (getKind() != ConvolutionKind::weight_gradient || result != wide ||
       (getInit() && getInit().getType() != getResult().getType())))
    return emitOpError("expects init and accumulate of a weight_gradient in "
                       "f32 or f64 alone, like the result (C4)");
  if (ConvolutionPlanAttr plan = getPlanAttr(); plan && plan.getTiles() < 1)
    return emitOpError("expects a plan of 1 tile or more (C5), got ") << plan;
  return verifySizes(*this);
}
