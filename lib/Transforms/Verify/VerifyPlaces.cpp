//===- VerifyPlaces.cpp - Memory of commands that run at once -------------===//
#include "VerifyPlaces.h"
#include "trainc/Dialect/NN/NNOps.h"
#include <map>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// Bytes from `begin` to before `end` of an arena, the workspace, an input or output.
struct Bytes {
  Attribute base;
  int64_t begin = 0, end = 0;

  bool overlaps(const Bytes &other) const {
    return base == other.base && begin < other.end && other.begin < end;
  }
  bool operator==(const Bytes &other) const {
    return base == other.base && begin == other.begin && end == other.end;
  }
};

/// Bytes that a command reads, or writes, or both.
struct Access {
  Bytes bytes;
  bool read, write;
};

/// What stands in memory: a value, and who has written it; both null at first.
struct Content {
  Value value;
  Operation *writer = nullptr;

  bool operator==(const Content &other) const {
    return value == other.value && writer == other.writer;
  }
};

/// Contents of a base, by the first byte of each range.
struct Range {
  int64_t end;
  Content content;
};
using Ranges = std::map<int64_t, Range>;

/// A collective that has been started.
struct Started {
  Operation *op;
  SmallVector<Access> accesses;
};

struct Verifier {
  Verifier(ListOp list, SymbolTable &symbols)
      : list(list), symbols(symbols), b(list.getContext()) {}

  LogicalResult run();

private:
  Bytes bytesAt(Attribute place, Value value);
  Bytes bytesOf(Value value);
  SmallVector<Access> accessesOf(Operation *op);
  void addKernel(Operation *op, SmallVectorImpl<Access> &accesses);
  SmallVector<std::pair<Value, Value>> inPlace(Operation *op);
  void addCollective(Operation *op, SmallVectorImpl<Access> &accesses);

  SmallVector<std::pair<Bytes, Content>> contentsOf(const Bytes &bytes);
  void setContent(const Bytes &bytes, Content content);
  LogicalResult checkOperand(Operation *op, Value value);
  LogicalResult checkAccesses(Operation *op, ArrayRef<Access> accesses);
  LogicalResult checkStarted(Operation *op, ArrayRef<Access> accesses);
  LogicalResult runOn(Operation *op);

  ListOp list;
  SymbolTable &symbols;
  Builder b;
  llvm::DenseMap<Attribute, Ranges> memory;
  /// Of values that are read from arenas: what stood there then.
  DenseMap<Value, SmallVector<std::pair<Bytes, Content>>> readFrom;
  SmallVector<Started> started;
};
} // namespace

static int64_t bytesOfType(Value value) {
  RankedTensorType type = nn::getTensorType(value);
  return type.getNumElements() * nn::getElementBytes(type.getElementType());
}

static std::string describe(const Bytes &bytes) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "bytes " << bytes.begin << " to " << bytes.end << " of ";
  if (auto name = dyn_cast<StringAttr>(bytes.base))
    stream << "the " << name.getValue();
  else
    stream << bytes.base;
  return text;
}

/// The value in whose memory `value` stands.
static Value rootOf(Value value) {
  while (isa_and_nonnull<nn::ReshapeOp, ViewOp, AwaitOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// The bytes of `value` from `place` on.
Bytes Verifier::bytesAt(Attribute place, Value value) {
  auto pair = cast<ArrayAttr>(place);
  int64_t number = cast<IntegerAttr>(pair[1]).getInt();
  int64_t size = bytesOfType(value);
  if (auto slice = dyn_cast<SymbolRefAttr>(pair[0])) {
    auto arena = symbols.lookup<ArenaOp>(slice.getRootReference());
    int64_t offset =
        slice.getNestedReferences().empty()
            ? 0
            : arena.getLocalOffset(arena.findSlice(slice.getLeafReference()));
    return {FlatSymbolRefAttr::get(slice.getRootReference()), offset,
            offset + size};
  }
  if (cast<StringAttr>(pair[0]).getValue() == "workspace")
    return {pair[0], number, number + size};
  return {b.getStringAttr("output " + Twine(number)), 0, size};
}

Bytes Verifier::bytesOf(Value value) {
  int64_t before = 0, size = bytesOfType(value);
  Operation *op = value.getDefiningOp();
  for (; isa_and_nonnull<nn::ReshapeOp, ViewOp, AwaitOp>(op);
       op = value.getDefiningOp()) {
    if (auto view = dyn_cast<ViewOp>(op))
      before += view.getOffset() *
                nn::getElementBytes(nn::getTensorType(value).getElementType());
    value = op->getOperand(0);
  }
  Bytes bytes;
  if (auto argument = dyn_cast<BlockArgument>(value))
    bytes.base = b.getStringAttr("input " + Twine(argument.getArgNumber()));
  else if (auto read = dyn_cast<ReadOp>(op))
    bytes = bytesAt(b.getArrayAttr({read.getSource(), b.getI64IntegerAttr(0)}),
                    value);
  else
    bytes = bytesAt(op->getAttrOfType<ArrayAttr>(
                        "places")[cast<OpResult>(value).getResultNumber()],
                    value);
  return {bytes.base, bytes.begin + before, bytes.begin + before + size};
}

//===----------------------------------------------------------------------===//
// What commands touch
//===----------------------------------------------------------------------===//

/// The results of a launch or GEMM that stand where an operand does, and that.
SmallVector<std::pair<Value, Value>> Verifier::inPlace(Operation *op) {
  SmallVector<std::pair<Value, Value>> pairs;
  if (auto gemm = dyn_cast<GemmOp>(op); gemm && gemm.getInit())
    pairs.push_back({gemm.getResult(), gemm.getInit()});
  if (auto launch = dyn_cast<LaunchOp>(op)) {
    auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
    for (auto [result, argument] :
         llvm::zip(launch.getResults(), kernel.getInplace()))
      if (argument >= 0)
        pairs.push_back({result, launch.getInputs()[argument]});
  }
  return pairs;
}

/// The operands and results of a launch or GEMM; one in place is one with its operand.
void Verifier::addKernel(Operation *op, SmallVectorImpl<Access> &accesses) {
  auto pairs = inPlace(op);
  for (Value operand : op->getOperands()) {
    bool changed =
        llvm::any_of(pairs, [&](auto &pair) { return pair.second == operand; });
    accesses.push_back({bytesOf(operand), true, changed});
  }
  for (Value result : op->getResults())
    if (llvm::none_of(pairs, [&](auto &pair) { return pair.first == result; }))
      accesses.push_back({bytesOf(result), false, true});
}

/// The elements that a collective works on in place, or null.
static std::optional<ArrayRef<int64_t>> rangeOf(Operation *op) {
  if (auto sum = dyn_cast<AllReduceOp>(op))
    return sum.getRange();
  if (auto scatter = dyn_cast<ReduceScatterOp>(op))
    return scatter.getRange();
  return cast<AllGatherOp>(op).getRange();
}

void Verifier::addCollective(Operation *op, SmallVectorImpl<Access> &accesses) {
  Value operand = op->getOperand(0);
  Access access = {bytesOf(operand), true, false};
  std::optional<ArrayRef<int64_t>> range = rangeOf(op);
  if (range) {
    int64_t width =
        nn::getElementBytes(nn::getTensorType(operand).getElementType());
    access.bytes.begin += (*range)[0] * width;
    access.bytes.end = access.bytes.begin + (*range)[1] * width;
    access.write = true;
  }
  accesses.push_back(access);
  if (!range)
    accesses.push_back({bytesOf(op->getResult(0)), false, true});
}

SmallVector<Access> Verifier::accessesOf(Operation *op) {
  SmallVector<Access> accesses;
  if (isa<LaunchOp, GemmOp>(op)) {
    addKernel(op, accesses);
  } else if (isCollective(op)) {
    addCollective(op, accesses);
  } else if (auto write = dyn_cast<WriteOp>(op)) {
    accesses.push_back({bytesOf(write.getValue()), true, false});
    accesses.push_back(
        {bytesAt(b.getArrayAttr({write.getTarget(), b.getI64IntegerAttr(0)}),
                 write.getValue()),
         false, true});
  } else if (auto start = dyn_cast<StartOp>(op)) {
    auto arena = symbols.lookup<ArenaOp>(start.getArena());
    int64_t width = nn::getElementBytes(arena.getFlatType().getElementType());
    int64_t begin = start.getRange()[0] * width;
    accesses.push_back({{FlatSymbolRefAttr::get(start.getArenaAttr().getAttr()),
                         begin, begin + start.getRange()[1] * width},
                        true,
                        true});
  }
  return accesses;
}

//===----------------------------------------------------------------------===//
// What stands in memory
//===----------------------------------------------------------------------===//

/// The ranges of `bytes`, in order, and what stands there.
SmallVector<std::pair<Bytes, Content>>
Verifier::contentsOf(const Bytes &bytes) {
  SmallVector<std::pair<Bytes, Content>> result;
  Ranges &ranges = memory[bytes.base];
  int64_t at = bytes.begin;
  auto add = [&](int64_t end, Content content) {
    if (at < end)
      result.push_back({{bytes.base, at, end}, content});
    at = std::max(at, end);
  };
  auto it = ranges.upper_bound(at);
  if (it != ranges.begin())
    --it;
  for (; it != ranges.end() && it->first < bytes.end; ++it) {
    if (it->second.end <= at)
      continue;
    add(std::min(it->first, bytes.end), {});
    add(std::min(it->second.end, bytes.end), it->second.content);
  }
  add(bytes.end, {});
  return result;
}

void Verifier::setContent(const Bytes &bytes, Content content) {
  Ranges &ranges = memory[bytes.base];
  // What stays on both sides.
  auto it = ranges.lower_bound(bytes.begin);
  if (it != ranges.begin())
    --it;
  while (it != ranges.end() && it->first < bytes.end) {
    int64_t begin = it->first;
    Range old = it->second;
    if (old.end <= bytes.begin) {
      ++it;
      continue;
    }
    it = ranges.erase(it);
    if (begin < bytes.begin)
      ranges[begin] = {bytes.begin, old.content};
    if (bytes.end < old.end)
      it =
          ranges.insert_or_assign(bytes.end, Range{old.end, old.content}).first;
  }
  ranges[bytes.begin] = {bytes.end, content};
}

/// (P2).
LogicalResult Verifier::checkOperand(Operation *op, Value value) {
  Value root = rootOf(value);
  if (isa<BlockArgument>(root))
    return success();
  Bytes bytes = bytesOf(value);
  auto known = readFrom.find(root);
  for (auto [part, content] : contentsOf(bytes)) {
    if (known == readFrom.end() ? content.value == root
                                : llvm::any_of(known->second, [&](auto &was) {
                                    return was.first.begin <= part.begin &&
                                           part.end <= was.first.end &&
                                           was.second == content;
                                  }))
      continue;
    InFlightDiagnostic error = op->emitOpError("expects its operand in ")
                               << describe(bytes)
                               << ", where something else stands (P2)";
    if (content.writer)
      error.attachNote(content.writer->getLoc()) << "written here";
    return error;
  }
  return success();
}

/// (P1) and (P3).
LogicalResult Verifier::checkAccesses(Operation *op,
                                      ArrayRef<Access> accesses) {
  for (auto [result, operand] : inPlace(op))
    if (!(bytesOf(result) == bytesOf(operand)))
      return op->emitOpError("expects its result in place in ")
             << describe(bytesOf(operand)) << ", got "
             << describe(bytesOf(result)) << " (P3)";
  for (auto [i, access] : llvm::enumerate(accesses)) {
    auto name = dyn_cast<StringAttr>(access.bytes.base);
    if (name && name.getValue() == "workspace" &&
        (access.bytes.begin < 0 ||
         access.bytes.end > int64_t(*list.getWorkspace())))
      return op->emitOpError("expects a workspace of ")
             << *list.getWorkspace() << " bytes to hold "
             << describe(access.bytes) << " (P1)";
    for (const Access &other : accesses.take_front(i))
      if ((access.write || other.write) && access.bytes.overlaps(other.bytes))
        return op->emitOpError("writes what else it touches: ")
               << describe(other.bytes) << " and " << describe(access.bytes)
               << " overlap (P3)";
  }
  return success();
}

/// (P4).
LogicalResult Verifier::checkStarted(Operation *op, ArrayRef<Access> accesses) {
  for (const Started &running : started)
    for (const Access &theirs : running.accesses)
      for (const Access &access : accesses)
        if ((access.write || theirs.write) &&
            access.bytes.overlaps(theirs.bytes))
          return (op->emitOpError("touches ")
                  << describe(access.bytes) << " while a collective works on "
                  << describe(theirs.bytes) << " (P4)")
                     .attachNote(running.op->getLoc())
                 << "started here";
  return success();
}

//===----------------------------------------------------------------------===//
// Commands in order
//===----------------------------------------------------------------------===//

LogicalResult Verifier::runOn(Operation *op) {
  if (auto read = dyn_cast<ReadOp>(op)) {
    readFrom[read.getResult()] = contentsOf(bytesOf(read.getResult()));
    return success();
  }
  if (isa<nn::ReshapeOp, ViewOp>(op))
    return success();
  if (auto wait = dyn_cast<AwaitOp>(op)) {
    Operation *gather = rootOf(wait.getInput()).getDefiningOp();
    llvm::erase_if(started, [&](Started &s) { return s.op == gather; });
    return success();
  }
  auto scatter = dyn_cast<ReduceScatterOp>(op);
  if (scatter && scatter.getStarted() && !started.empty()) {
    // Collectives end in the order of their starts.
    auto *first =
        llvm::find_if(started, [](Started &s) { return isa<StartOp>(s.op); });
    if (first != started.end())
      started.erase(first);
  }
  if (auto flat = dyn_cast<FlattenOp>(op)) {
    // Copies of what was not made in its place.
    Bytes whole = bytesOf(flat.getResult());
    int64_t width = nn::getElementBytes(
        nn::getTensorType(flat.getResult()).getElementType());
    for (auto [input, offset] :
         llvm::zip(flat.getInputs(), flat.getOffsets())) {
      Bytes from = bytesOf(input), to = whole;
      to.begin += offset * width;
      to.end = to.begin + from.end - from.begin;
      if (failed(checkOperand(op, input)))
        return failure();
      SmallVector<Access> copy{{from, true, false}};
      if (!(from == to))
        copy.push_back({to, false, true});
      if (failed(checkAccesses(op, copy)) || failed(checkStarted(op, copy)))
        return failure();
      if (!(from == to))
        setContent(to, {{}, op});
    }
    setContent(whole, {flat.getResult(), op});
    return success();
  }
  if (isa<train::ReturnOp>(op)) {
    for (Value value : op->getOperands())
      if (failed(checkOperand(op, value)))
        return failure();
    return success();
  }

  SmallVector<Access> accesses = accessesOf(op);
  for (Value operand : op->getOperands())
    if (failed(checkOperand(op, operand)))
      return failure();
  auto write = dyn_cast<WriteOp>(op);
  if (write && accesses[0].bytes == accesses[1].bytes)
    return success(); // there is nothing to do
  if (failed(checkAccesses(op, accesses)) || failed(checkStarted(op, accesses)))
    return failure();
  for (Value result : op->getResults())
    setContent(bytesOf(result), {result, op});
  if (write)
    setContent(accesses[1].bytes, {{}, op});
  auto gather = dyn_cast<AllGatherOp>(op);
  if (isa<StartOp>(op) || (gather && gather.getApart()))
    started.push_back({op, accesses});
  return success();
}

LogicalResult Verifier::run() {
  for (Operation &op : list.getBody().front())
    if (failed(runOn(&op)))
      return failure();
  return success();
}

LogicalResult trainc::verifyPlaces(ListOp list, SymbolTable &symbols) {
  return Verifier(list, symbols).run();
}
