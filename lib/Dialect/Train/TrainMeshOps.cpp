//===- TrainMeshOps.cpp - Ranks and collectives ---------------------------===//
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Dialect/Train/TrainSyntax.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// The mesh
//===----------------------------------------------------------------------===//

static constexpr int64_t kMostRanks = 65536;

MeshOp train::getMesh(ModuleOp module) {
  auto meshes = module.getOps<MeshOp>();
  return meshes.empty() ? MeshOp() : *meshes.begin();
}

std::string train::meshScalar(StringRef axis) { return ("mesh." + axis).str(); }

ArrayAttr train::getReducedAxes(StepOp step) {
  MeshOp mesh = getMesh(step->getParentOfType<ModuleOp>());
  SmallVector<Attribute> axes;
  if (ArrayAttr over = step.getOverAttr(); over && mesh)
    for (auto axis : over.getAsRange<StringAttr>())
      if (mesh.getSize(axis.getValue()) > 1)
        axes.push_back(axis);
  return axes.empty() ? ArrayAttr() : ArrayAttr::get(step.getContext(), axes);
}

Exchange train::getExchange(StepOp step, ArenaOp arena) {
  auto module = step->getParentOfType<ModuleOp>();
  ArrayAttr own = ArrayAttr::get(step.getContext(), {});
  if (auto slices = arena.getSlices(); !slices.empty())
    if (auto param =
            module.lookupSymbol<ParamOp>((*slices.begin()).getSymNameAttr()))
      own = param.getPartAxes();
  DenseSet<Attribute> ofParts;
  for (auto param : module.getOps<ParamOp>())
    for (Attribute axis : param.getPartAxes())
      ofParts.insert(axis);
  SmallVector<Attribute> others;
  Attribute last;
  for (Attribute axis : getReducedAxes(step)) {
    if (llvm::is_contained(own, axis))
      continue;
    others.push_back(axis);
    if (!last || !ofParts.contains(axis) || ofParts.contains(last))
      last = axis;
  }
  SmallVector<Attribute> axes;
  if (last) {
    llvm::erase(others, last);
    axes.push_back(last);
  }
  Builder b(step.getContext());
  ArrayAttr pieceAxes = b.getArrayAttr(axes);
  return {pieceAxes, b.getArrayAttr(others),
          getMesh(module).getCount(pieceAxes)};
}

int64_t MeshOp::getSize(StringRef axis) {
  for (auto [name, size] : llvm::zip(getAxes(), getSizes()))
    if (cast<StringAttr>(name).getValue() == axis)
      return size;
  return 0;
}

int64_t MeshOp::getCount(ArrayAttr axes) {
  int64_t count = 1;
  for (auto axis : axes.getAsRange<StringAttr>())
    count *= getSize(axis.getValue());
  return count;
}

/// `@mesh(host = 2, data = 4)`.
ParseResult MeshOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &b = parser.getBuilder();
  StringAttr name;
  SmallVector<Attribute> axes;
  SmallVector<int64_t> sizes;
  auto parseAxis = [&]() -> ParseResult {
    std::string axis;
    if (parser.parseKeywordOrString(&axis) || parser.parseEqual() ||
        parser.parseInteger(sizes.emplace_back()))
      return failure();
    axes.push_back(b.getStringAttr(axis));
    return success();
  };
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseAxis) ||
      parseAttributes(parser, result, /*keyword=*/false))
    return failure();
  result.addAttribute(getAxesAttrName(result.name), b.getArrayAttr(axes));
  result.addAttribute(getSizesAttrName(result.name),
                      b.getDenseI64ArrayAttr(sizes));
  return success();
}

void MeshOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  p << "(";
  llvm::interleaveComma(llvm::zip(getAxes(), getSizes()), p, [&](auto axis) {
    p.printKeywordOrString(cast<StringAttr>(std::get<0>(axis)).getValue());
    p << " = " << std::get<1>(axis);
  });
  p << ")";
  p.printOptionalAttrDict((*this)->getAttrs(), {"sym_name", "axes", "sizes"});
}

LogicalResult MeshOp::verify() {
  if (getAxes().empty() || getAxes().size() != getSizes().size())
    return emitOpError("expects at least one axis, and a size for each (C1), "
                       "got ")
           << getAxes().size() << " axes and " << getSizes().size() << " sizes";
  llvm::StringSet<> names;
  int64_t ranks = 1;
  for (auto [axis, size] : llvm::zip(getAxes(), getSizes())) {
    StringRef name = cast<StringAttr>(axis).getValue();
    if (name.empty() || !names.insert(name).second)
      return emitOpError("expects axes of distinct names (C1), got '")
             << name << "'";
    if (name.contains('$'))
      return emitOpError("expects axes' names without '$' (C1), got '")
             << name << "'";
    if (failed(verifyName(*this, name, "C1")))
      return failure();
    if (size < 1 || size > kMostRanks || (ranks *= size) > kMostRanks)
      return emitOpError("expects sizes of at least 1 and at most ")
             << kMostRanks << " ranks in all (C2), got " << name << " = "
             << size;
  }
  auto module = dyn_cast<ModuleOp>((*this)->getParentOp());
  if (module && getMesh(module) != *this)
    return emitOpError("expects to be the only mesh of the module (C3)");
  return success();
}

//===----------------------------------------------------------------------===//
// Splits
//===----------------------------------------------------------------------===//

ParseResult train::parseSplit(OpAsmParser &parser, ArrayAttr &split) {
  Builder &b = parser.getBuilder();
  SmallVector<Attribute> dims;
  auto parseDim = [&]() -> ParseResult {
    SmallVector<Attribute> axes;
    auto parseAxis = [&]() -> ParseResult {
      std::string axis;
      if (parser.parseKeywordOrString(&axis))
        return failure();
      axes.push_back(b.getStringAttr(axis));
      return success();
    };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseAxis))
      return failure();
    dims.push_back(b.getArrayAttr(axes));
    return success();
  };
  if (parser.parseCommaSeparatedList(parseDim))
    return failure();
  split = b.getArrayAttr(dims);
  return success();
}

void train::printSplit(OpAsmPrinter &p, Operation *, ArrayAttr split) {
  llvm::interleaveComma(split.getAsRange<ArrayAttr>(), p, [&](ArrayAttr axes) {
    p << "[";
    llvm::interleaveComma(
        axes.getAsRange<StringAttr>(), p,
        [&](StringAttr axis) { p.printKeywordOrString(axis.getValue()); });
    p << "]";
  });
}

/// As many as trainc_port::splits has bytes for.
static constexpr int kMaxAxesOfDimension = 8;

LogicalResult train::verifySplit(Operation *op, Attribute split, Type type,
                                 StringRef tag) {
  auto fail = [&]() -> LogicalResult {
    return op->emitOpError("expects at most one list per dimension of axes of "
                           "the mesh, each once (")
           << tag << "), got " << split << " for " << type;
  };
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto dims = dyn_cast<ArrayAttr>(split);
  if (!tensor || !dims || static_cast<int64_t>(dims.size()) > tensor.getRank())
    return fail();
  auto module = op->getParentOfType<ModuleOp>();
  MeshOp mesh = module ? getMesh(module) : MeshOp();
  llvm::StringSet<> names;
  for (Attribute dim : dims) {
    auto axes = dyn_cast<ArrayAttr>(dim);
    if (!axes)
      return fail();
    int numCut = 0; // axes of more than one rank
    for (Attribute axis : axes) {
      auto name = dyn_cast<StringAttr>(axis);
      if (!name || !mesh || mesh.getSize(name.getValue()) == 0 ||
          !names.insert(name.getValue()).second)
        return fail();
      numCut += mesh.getSize(name.getValue()) > 1;
    }
    if (numCut > kMaxAxesOfDimension)
      return op->emitOpError("expects at most ")
             << kMaxAxesOfDimension
             << " axes of more than one rank per dimension (" << tag
             << "), got " << dim;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

bool train::isCollective(Operation *op) {
  return isa<AllReduceOp, ReduceScatterOp, AllGatherOp>(op);
}

Value train::getInPlaceOperand(Operation *op) {
  auto sum = dyn_cast<AllReduceOp>(op);
  auto scatter = dyn_cast<ReduceScatterOp>(op);
  auto gather = dyn_cast<AllGatherOp>(op);
  auto start = dyn_cast<StartOp>(op);
  if ((sum && sum.getInPlace()) || (scatter && scatter.getInPlace()) ||
      (gather && gather.getInPlace()) || (start && start.getInPlace()))
    return op->getOperand(0);
  return {};
}

/// (C1) of what names axes.
LogicalResult train::verifyAxes(Operation *op, ArrayAttr axes) {
  auto module = op->getParentOfType<ModuleOp>();
  MeshOp mesh = module ? getMesh(module) : MeshOp();
  if (!mesh)
    return op->emitOpError("expects a train.mesh in the module (C1)");
  llvm::StringSet<> names;
  for (auto axis : axes.getAsRange<StringAttr>())
    if (mesh.getSize(axis.getValue()) == 0 ||
        !names.insert(axis.getValue()).second)
      return op->emitOpError("expects distinct axes of the mesh (C1), got ")
             << axes;
  return success();
}

/// (C1) of what has pieces in the order of its ranks.
LogicalResult train::verifyOrderedAxes(Operation *op, ArrayAttr axes) {
  if (failed(verifyAxes(op, axes)))
    return failure();
  ArrayRef<Attribute> order =
      getMesh(op->getParentOfType<ModuleOp>()).getAxes().getValue();
  if (llvm::is_sorted(axes, [&](Attribute a, Attribute b) {
        return llvm::find(order, a) < llvm::find(order, b);
      }))
    return success();
  return op->emitOpError("expects axes in the order of the mesh (C1), got ")
         << axes;
}

/// Of what has one piece for each rank over `axes`, `whole` holds all and `piece` one of
/// them along dimension 0; of what is done in place they are alike.
LogicalResult train::verifyPieces(Operation *op, Value piece, Value whole,
                                  ArrayAttr axes, bool inPlace, StringRef tag) {
  RankedTensorType type = nn::getTensorType(piece);
  if (!inPlace) {
    SmallVector<int64_t> shape(type.getShape());
    if (shape.empty())
      return op->emitOpError("expects pieces of rank 1 or more (")
             << tag << "), got " << type;
    if (!type.isDynamicDim(0))
      shape[0] *= getMesh(op->getParentOfType<ModuleOp>()).getCount(axes);
    type = type.clone(shape);
  }
  if (whole.getType() == type)
    return success();
  return op->emitOpError("expects ")
         << (whole.getDefiningOp() == op ? "a result" : "an operand")
         << " of type " << type << " (" << tag << "), got " << whole.getType();
}

/// (C3) of what is done in place on one shard for each rank over `axes`.
LogicalResult train::verifyShards(Operation *op, ArrayAttr axes) {
  auto type = cast<RankedTensorType>(op->getOperand(0).getType());
  int64_t shards = getMesh(op->getParentOfType<ModuleOp>()).getCount(axes);
  if (type.getRank() == 1 &&
      (type.isDynamicDim(0) || type.getNumElements() % shards == 0))
    return success();
  return op->emitOpError("expects a tensor of rank 1, of a multiple of ")
         << shards << " elements, in place (C3), got " << type;
}

static LogicalResult verifyFloats(Operation *op) {
  auto type = cast<RankedTensorType>(op->getOperand(0).getType());
  if (isa<FloatType>(type.getElementType()))
    return success();
  return op->emitOpError("expects elements of a float type (C2), got ") << type;
}

LogicalResult ProcessIndexOp::verifySymbolUses(SymbolTableCollection &) {
  return verifyAxes(*this, getAxes());
}

LogicalResult ConstrainOp::verifySymbolUses(SymbolTableCollection &) {
  return verifySplit(*this, getSplit(), getInput().getType(), "C1");
}

LogicalResult AllReduceOp::verify() {
  if (getPieceOf() && !getInPlace())
    return emitOpError("expects in_place with piece_of (C3)");
  return verifyFloats(*this);
}

LogicalResult
AllReduceOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  if (getInPlace())
    return emitOpError("has no gradient in place");
  operandGrads[0] =
      AllReduceOp::create(b, getLoc(), resultGrads[0], getAxesAttr());
  return success();
}

LogicalResult AllReduceOp::verifySymbolUses(SymbolTableCollection &) {
  if (failed(verifyAxes(*this, getAxes())))
    return failure();
  ArrayAttr pieces = getPieceOf().value_or(ArrayAttr::get(getContext(), {}));
  if (failed(verifyAxes(*this, pieces)))
    return failure();
  return getInPlace() ? verifyShards(*this, pieces) : success();
}

LogicalResult ReduceScatterOp::verify() { return verifyFloats(*this); }

LogicalResult ReduceScatterOp::verifySymbolUses(SymbolTableCollection &) {
  if (failed(verifyOrderedAxes(*this, getAxes())))
    return failure();
  if (failed(verifyPieces(*this, getResult(), getInput(), getAxes(),
                          getInPlace(), "C4")))
    return failure();
  return getInPlace() ? verifyShards(*this, getAxes()) : success();
}

LogicalResult
ReduceScatterOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                SmallVectorImpl<Value> &operandGrads) {
  if (getInPlace())
    return emitOpError("has no gradient in place");
  operandGrads[0] = AllGatherOp::create(b, getLoc(), getInput().getType(),
                                        resultGrads[0], getAxesAttr());
  return success();
}

LogicalResult AllGatherOp::verifySymbolUses(SymbolTableCollection &) {
  if (failed(verifyOrderedAxes(*this, getAxes())) ||
      failed(verifyPieces(*this, getInput(), getResult(), getAxes(),
                          getInPlace(), "C2")))
    return failure();
  return getInPlace() ? verifyShards(*this, getAxes()) : success();
}

LogicalResult
AllGatherOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  if (getInPlace())
    return emitOpError("has no gradient in place");
  operandGrads[0] = ReduceScatterOp::create(b, getLoc(), getInput().getType(),
                                            resultGrads[0], getAxesAttr());
  return success();
}

LogicalResult ViewOp::verify() {
  ShapedType type = getFlat().getType(), part = getResult().getType();
  bool isTensor = isa<RankedTensorType>(type);
  if (isTensor != isa<RankedTensorType>(part) ||
      (isTensor && type.getRank() != 1) ||
      type.getElementType() != part.getElementType())
    return emitOpError("expects a tensor of rank 1 or a buffer, and a result "
                       "of its element type (C1), got ")
           << type << " and " << part;
  if (getSlice() && isUnplacedBucket(type) && getOffset() == 0)
    return success();
  int64_t offset = getOffset();
  if (isUnplacedBucket(type) || getSlice() || offset < 0 ||
      offset > type.getNumElements() - part.getNumElements())
    return emitOpError("expects a part within its operand (C2), got ")
           << part << " from " << offset << " of " << type;
  return success();
}

LogicalResult FlattenOp::verify() {
  if (bool(getResult()) == bool(getOut()))
    return emitOpError("expects a result or 'outs', not both (C3)");
  bool onBuffers = bool(getOut());
  auto type = cast<ShapedType>(
      (onBuffers ? Value(getOut()) : Value(getResult())).getType());
  if (type.getRank() != 1)
    return emitOpError("expects a result of rank 1 (C1), got ") << type;
  bool named = getSlices().has_value();
  size_t places = named ? getSlices()->size() : getOffsets().size();
  if (places != getInputs().size() || (named && !getOffsets().empty()) ||
      named != isUnplacedBucket(type))
    return emitOpError("expects one slice per operand of a bucket that is not "
                       "laid out, or one offset per operand (C2), got ")
           << places << " for " << getInputs().size();
  for (Type part : getInputs().getTypes())
    if (cast<ShapedType>(part).getElementType() != type.getElementType() ||
        isa<MemRefType>(part) != onBuffers)
      return emitOpError("expects operands of the result's element type (C1), "
                         "got ")
             << part;
  int64_t end = 0;
  for (auto [input, offset] : llvm::zip(getInputs(), getOffsets())) {
    auto part = cast<ShapedType>(input.getType());
    if (offset < end || part.getNumElements() > type.getNumElements() - offset)
      return emitOpError("expects ascending offsets of operands that do not "
                         "overlap within the result (C2), got ")
             << offset << " after " << end;
    end = offset + part.getNumElements();
  }
  return success();
}

SmallVector<Access> FlattenOp::getAccesses(SymbolTable &) {
  SmallVector<Access> accesses;
  for (Value input : getInputs())
    accesses.push_back({input, true, false});
  accesses.push_back({getOut(), false, true});
  return accesses;
}

void FlattenOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  addEffects(getInputsMutable(), /*read=*/true, /*written=*/false, effects);
  addEffects(getOutMutable(), /*read=*/false, /*written=*/true, effects);
}
