//===- TrainBufferOps.cpp - Buffers of planned commands -------------------===//
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "trainc/Dialect/Train/TrainSyntax.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

bool train::isLegalBuffer(Type type) {
  auto buffer = dyn_cast<MemRefType>(type);
  return buffer && buffer.getLayout().isIdentity() &&
         !buffer.getMemorySpace() && buffer.hasStaticShape() &&
         nn::isLegalTensor(
             RankedTensorType::get(buffer.getShape(), buffer.getElementType()));
}

MemRefType train::bufferLike(Type tensor) {
  auto type = cast<RankedTensorType>(tensor);
  return MemRefType::get(type.getShape(), type.getElementType());
}

AddressOp train::getAddress(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewOp>())
    buffer = view.getFlat();
  return buffer.getDefiningOp<AddressOp>();
}

Attribute train::getPortBase(MLIRContext *context, Memory memory,
                             int64_t number) {
  return StringAttr::get(context,
                         stringifyMemory(memory) + " " + Twine(number));
}

Place train::getPlace(Value buffer, Layouts &layouts) {
  Place place;
  int64_t size = nn::countBytes(buffer);
  for (; auto view = buffer.getDefiningOp<ViewOp>(); buffer = view.getFlat())
    place.begin +=
        int64_t(view.getOffset()) *
        nn::getElementBytes(view.getFlat().getType().getElementType());
  auto address = buffer.getDefiningOp<AddressOp>();
  Builder b(address.getContext());
  switch (address.getMemory()) {
  case Memory::arena: {
    SymbolRefAttr symbol = *address.getSymbol();
    place.base = FlatSymbolRefAttr::get(symbol.getRootReference());
    if (!symbol.getNestedReferences().empty())
      place.begin += layouts.of(symbol.getRootReference())
                         .getLocalOffset(symbol.getLeafReference());
    break;
  }
  case Memory::workspace:
    place.base = b.getStringAttr("the workspace");
    place.begin += int64_t(address.getNumber());
    break;
  case Memory::input:
  case Memory::output:
    place.base = getPortBase(address.getContext(), address.getMemory(),
                             address.getNumber());
  }
  place.end = place.begin + size;
  return place;
}

llvm::raw_ostream &train::operator<<(llvm::raw_ostream &os,
                                     const Place &place) {
  os << "bytes " << place.begin << " to " << place.end << " of ";
  if (auto name = dyn_cast<StringAttr>(place.base))
    return os << name.getValue();
  return os << place.base;
}

StartOp train::getStart(WaitOp wait) {
  if (wait.getToken())
    return wait.getToken().getDefiningOp<StartOp>();
  for (auto list : wait->getParentOfType<ModuleOp>().getOps<ListOp>())
    for (auto start : list.getBody().getOps<StartOp>())
      if (start.getPendingAttr() == wait.getPendingAttr())
        return start;
  return {};
}

bool train::isWaitedForAtOnce(StartOp start) {
  Operation *next = start->getNextNode();
  while (isa<AddressOp, ViewOp>(next))
    next = next->getNextNode();
  auto wait = dyn_cast<WaitOp>(next);
  return wait && wait.getToken() && wait.getToken() == start.getToken();
}

/// The name of the first step of the window that `list` is of; of evals that of the entry.
static StringAttr windowOf(ListOp list) {
  auto step =
      SymbolTable::lookupNearestSymbolFrom<StepOp>(list, list.getEntryAttr());
  return step ? getFirstOfWindow(step).getSymNameAttr()
              : list.getEntryAttr().getAttr();
}

SmallVector<ListOp> train::getPredecessors(ListOp list) {
  SmallVector<ListOp> makers, merges;
  if (list.getKind() != ListKind::merge && list.getKind() != ListKind::apply)
    return {};
  for (auto other : list->getParentOfType<ModuleOp>().getOps<ListOp>()) {
    if (windowOf(other) != windowOf(list) || other.getKind() == ListKind::apply)
      continue;
    (other.getKind() == ListKind::merge ? merges : makers).push_back(other);
  }
  return list.getKind() == ListKind::apply && !merges.empty() ? merges : makers;
}

void train::addEffects(
    MutableOperandRange operands, bool read, bool written,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  for (OpOperand &operand : operands) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (read)
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
    if (written)
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
}

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

ParseResult train::parsePlace(OpAsmParser &parser, MemoryAttr &memory,
                              SymbolRefAttr &symbol, IntegerAttr &number) {
  Builder &b = parser.getBuilder();
  int64_t value = 0;
  OptionalParseResult named = parser.parseOptionalAttribute(symbol);
  if (named.has_value()) {
    if (failed(*named))
      return failure();
    memory = MemoryAttr::get(b.getContext(), Memory::arena);
  } else {
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<Memory> found = symbolizeMemory(keyword);
    if (!found || *found == Memory::arena)
      return parser.emitError(parser.getCurrentLocation(),
                              "expects a symbol, workspace, input or output");
    memory = MemoryAttr::get(b.getContext(), *found);
    if (parser.parseInteger(value))
      return failure();
  }
  number = b.getI64IntegerAttr(value);
  return success();
}

void train::printPlace(OpAsmPrinter &p, Operation *, MemoryAttr memory,
                       SymbolRefAttr symbol, IntegerAttr number) {
  if (memory.getValue() == Memory::arena)
    p << symbol;
  else
    p << stringifyMemory(memory.getValue()) << " " << number.getInt();
}

LogicalResult AddressOp::verify() {
  if ((getMemory() == Memory::arena) != getSymbol().has_value())
    return emitOpError(
        "expects a symbol of an arena, and of nothing else (C1)");
  if (int64_t(getNumber()) < 0 || (getSymbol() && getNumber() != 0))
    return emitOpError("expects a number that is not negative, and 0 for an "
                       "arena (C3), got ")
           << getNumberAttr();
  return success();
}

LogicalResult AddressOp::verifySymbolUses(SymbolTableCollection &tables) {
  if (!getSymbol())
    return success();
  auto arena = tables.lookupNearestSymbolFrom<ArenaOp>(
      *this, getSymbol()->getRootReference());
  Type type =
      arena ? getStoredType(arena, getSymbol()->getNestedReferences(), tables)
            : Type();
  if (!type || isUnplacedBucket(type))
    return emitOpError("expects an arena, or a slice or bucket of one (C1), "
                       "got ")
           << *getSymbol();
  int64_t bytes = nn::countBytes(cast<ShapedType>(type));
  if (nn::countBytes(getResult()) == bytes)
    return success();
  return emitOpError("expects a buffer of ")
         << bytes << " bytes (C2), got " << getType();
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

LogicalResult CopyOp::verify() {
  MemRefType source = getSource().getType(), target = getTarget().getType();
  if (source.getElementType() == target.getElementType() &&
      source.getNumElements() == target.getNumElements())
    return success();
  return emitOpError("expects one element type and one number of elements "
                     "(C1), got ")
         << source << " and " << target;
}

SmallVector<Access> CopyOp::getAccesses(SymbolTable &) {
  return {{getSource(), true, false}, {getTarget(), false, true}};
}

void CopyOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getSourceMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getTargetMutable());
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

ParseResult train::parseStartTypes(OpAsmParser &parser, Type &input,
                                   Type &out) {
  Type first;
  if (parser.parseType(first))
    return failure();
  if (!isa<MemRefType>(first)) {
    input = first;
    return success();
  }
  out = first;
  return succeeded(parser.parseOptionalKeyword("from"))
             ? parser.parseType(input)
             : ParseResult(success());
}

void train::printStartTypes(OpAsmPrinter &p, Operation *, Type input,
                            Type out) {
  if (!out) {
    p << input;
    return;
  }
  p << out;
  if (input)
    p << " from " << input;
}

LogicalResult StartOp::verify() {
  bool onTensors = !getOut();
  if (onTensors ? !getInput() || !isa<RankedTensorType>(getInput().getType()) ||
                      !getToken() || !getToken().hasOneUse() ||
                      !isa<WaitOp>(*getToken().user_begin()) ||
                      !cast<WaitOp>(*getToken().user_begin()).getResult()
                : getInPlace() ||
                      (getInput() && !isa<MemRefType>(getInput().getType())))
    return emitOpError("expects a tensor and a token for which a train.wait "
                       "with a result waits, or buffers with an 'outs' (C6)");
  Type element = onTensors ? getInput().getType().getElementType()
                           : getOut().getType().getElementType();
  if ((getCollective() != Collective::all_gather && !isa<FloatType>(element)) ||
      (getInput() && getInput().getType().getElementType() != element))
    return emitOpError("expects elements of one type, and floats to add (C2)");
  bool inPlace = onTensors ? getInPlace() : !getInput();
  if (getPieceOf() && (!inPlace || getCollective() != Collective::all_reduce))
    return emitOpError("expects piece_of of an all_reduce in place only (C4)");
  if (bool(getToken()) == getPending().has_value())
    return emitOpError("expects a value or a name for its token (C5)");
  return success();
}

/// (C3) of a collective on tensors, whose result is that of `wait`.
static LogicalResult verifyTensors(StartOp op, Value result) {
  bool isSum = op.getCollective() == Collective::all_reduce;
  bool isGather = op.getCollective() == Collective::all_gather;
  bool alike = isSum || op.getInPlace();
  Value piece = isGather ? Value(op.getInput()) : result;
  Value whole = isGather ? result : Value(op.getInput());
  if (failed(verifyPieces(op, piece, whole, op.getAxes(), alike, "C3")))
    return failure();
  ArrayAttr none = ArrayAttr::get(op.getContext(), {});
  return op.getInPlace()
             ? verifyShards(op, isSum ? op.getPieceOf().value_or(none)
                                      : op.getAxes())
             : success();
}

/// (C3) of what is done in place.
static LogicalResult verifyInPlace(StartOp op, MeshOp mesh) {
  ArrayAttr axes =
      op.getCollective() == Collective::all_reduce
          ? op.getPieceOf().value_or(ArrayAttr::get(op.getContext(), {}))
          : op.getAxes();
  MemRefType type = op.getOut().getType();
  if (type.getRank() == 1 && type.getNumElements() % mesh.getCount(axes) == 0)
    return success();
  return op.emitOpError("expects a buffer of rank 1 of a multiple of ")
         << mesh.getCount(axes) << " elements (C3), got " << type;
}

LogicalResult StartOp::verifySymbolUses(SymbolTableCollection &tables) {
  bool isSum = getCollective() == Collective::all_reduce;
  if (failed(isSum ? verifyAxes(*this, getAxes())
                   : verifyOrderedAxes(*this, getAxes())) ||
      (getPieceOf() && failed(verifyAxes(*this, *getPieceOf()))))
    return failure();
  if (getPending() &&
      !tables.lookupNearestSymbolFrom<TokenOp>(*this, getPendingAttr()))
    return emitOpError("expects a train.token (C5), got ") << getPendingAttr();
  MeshOp mesh = getMesh((*this)->getParentOfType<ModuleOp>());
  if (!getOut())
    return verifyTensors(*this,
                         cast<WaitOp>(*getToken().user_begin()).getResult());
  if (!getInput())
    return verifyInPlace(*this, mesh);
  ShapedType piece = getInput().getType(), all = getOut().getType();
  if (getCollective() == Collective::reduce_scatter)
    std::swap(piece, all);
  SmallVector<int64_t> shape(piece.getShape());
  if (!isSum && !shape.empty())
    shape[0] *= mesh.getCount(getAxes());
  if (all.getShape() == ArrayRef(shape) && (isSum || !shape.empty()))
    return success();
  return emitOpError("expects a piece, of rank 1 or more, and as many of them "
                     "as there are ranks (C3), got ")
         << piece << " and " << all;
}

SmallVector<Access> StartOp::getAccesses(SymbolTable &) {
  if (!getInput())
    return {{getOut(), true, true}};
  return {{getInput(), true, false}, {getOut(), false, true}};
}

void StartOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (!getOut()) { // all ranks do the same collectives in the same order
    effects.emplace_back(MemoryEffects::Read::get());
    effects.emplace_back(MemoryEffects::Write::get());
    return;
  }
  addEffects(getInputMutable(), /*read=*/true, /*written=*/false, effects);
  addEffects(getOutMutable(), /*read=*/!getInput(), /*written=*/true, effects);
}

LogicalResult WaitOp::verify() {
  if (bool(getToken()) == getPending().has_value())
    return emitOpError("expects a value or the name of a token (C1)");
  if (getToken() && !getToken().hasOneUse())
    return emitOpError("expects a token that is waited for once (C2)");
  auto start = getToken() ? getToken().getDefiningOp<StartOp>() : StartOp();
  if (bool(getResult()) != (start && !start.getOut()))
    return emitOpError("expects a result of a collective on tensors, and of no "
                       "other (C3)");
  return success();
}

LogicalResult WaitOp::verifySymbolUses(SymbolTableCollection &tables) {
  if (!getPending() ||
      tables.lookupNearestSymbolFrom<TokenOp>(*this, getPendingAttr()))
    return success();
  return emitOpError("expects a train.token (C1), got ") << getPendingAttr();
}
