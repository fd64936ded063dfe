//===- VerifyPlaces.cpp - Memory of commands that run at once -------------===//
#include "VerifyPlaces.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "llvm/ADT/TypeSwitch.h"
#include <map>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// The memory that an access touches.
struct Touched {
  Touched(Value buffer, Layouts &layouts, bool read, bool write)
      : place(getPlace(buffer, layouts)),
        memory(getAddress(buffer).getMemory()), read(read), write(write) {}

  Place place;
  Memory memory;
  bool read, write;
};

/// What stands in memory: through which address it was written, and by what; both null
/// at first.
struct Content {
  AddressOp address;
  Operation *writer = nullptr;
};

/// Contents of a base, by the first byte of each range.
struct Range {
  int64_t end;
  Content content;
};
using Ranges = std::map<int64_t, Range>;

/// A collective in flight.
struct Started {
  StartOp op;
  SmallVector<Touched> touched;
};

struct Verifier {
  Verifier(ListOp list, SymbolTable &symbols, Layouts &layouts)
      : list(list), symbols(symbols), layouts(layouts) {}

  LogicalResult run(ArrayRef<StartOp> inFlight);

private:
  SmallVector<Touched> touchedBy(ArrayRef<Access> accesses);
  SmallVector<std::pair<Place, Content>> contentsOf(const Place &bytes);
  void setContent(const Place &bytes, Content content);
  bool isSame(AddressOp written, AddressOp read);
  LogicalResult checkRead(Operation *op, Value buffer);
  LogicalResult checkTouched(Operation *op, ArrayRef<Touched> touched);
  LogicalResult checkStarted(Operation *op, ArrayRef<Touched> touched);
  LogicalResult checkOutputs();
  LogicalResult runOn(FlattenOp flat);
  LogicalResult runOn(WaitOp wait);
  LogicalResult runOn(CommandOpInterface command);

  ListOp list;
  SymbolTable &symbols;
  Layouts &layouts;
  llvm::DenseMap<Attribute, Ranges> memory;
  SmallVector<Started> started;
};
} // namespace

static std::string describe(const Place &place) {
  std::string text;
  llvm::raw_string_ostream(text) << place;
  return text;
}

SmallVector<Touched> Verifier::touchedBy(ArrayRef<Access> accesses) {
  SmallVector<Touched> touched;
  for (const Access &access : accesses)
    touched.emplace_back(access.buffer, layouts, access.read, access.write);
  return touched;
}

//===----------------------------------------------------------------------===//
// What stands in memory
//===----------------------------------------------------------------------===//

/// The ranges of `bytes`, in order, and what stands there.
SmallVector<std::pair<Place, Content>>
Verifier::contentsOf(const Place &bytes) {
  SmallVector<std::pair<Place, Content>> result;
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

void Verifier::setContent(const Place &bytes, Content content) {
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

/// Whether what was written through `written` is what stands at `read`: an arena as a whole,
/// or a bucket of it, is whatever stands in its slices.
bool Verifier::isSame(AddressOp written, AddressOp read) {
  auto isFlat = [&](AddressOp address) {
    return address.getMemory() == Memory::arena &&
           (address.getSymbol()->getNestedReferences().empty() ||
            symbols.lookup<BucketOp>(address.getSymbol()->getLeafReference()));
  };
  return written == read || isFlat(written) || isFlat(read);
}

/// (P2).
LogicalResult Verifier::checkRead(Operation *op, Value buffer) {
  AddressOp address = getAddress(buffer);
  Place place = getPlace(buffer, layouts);
  for (auto [part, content] : contentsOf(place)) {
    bool isOld =
        !content.writer &&
        llvm::is_contained({Memory::arena, Memory::input}, address.getMemory());
    if (isOld || (content.writer && isSame(content.address, address)))
      continue;
    InFlightDiagnostic error =
        op->emitOpError("expects its operand in ")
        << describe(place) << ", where "
        << (content.writer ? "something else stands" : "nothing was written")
        << " (P2)";
    if (content.writer)
      error.attachNote(content.writer->getLoc()) << "written here";
    return error;
  }
  return success();
}

/// (P1) and (P3).
LogicalResult Verifier::checkTouched(Operation *op, ArrayRef<Touched> touched) {
  for (auto [i, one] : llvm::enumerate(touched)) {
    if (one.write && one.memory == Memory::input)
      return op->emitOpError("writes to ")
             << describe(one.place) << ", which is the caller's (P1)";
    if (one.memory == Memory::workspace &&
        one.place.end > int64_t(*list.getWorkspace()))
      return op->emitOpError("expects a workspace of ")
             << *list.getWorkspace() << " bytes to hold " << describe(one.place)
             << " (P1)";
    for (const Touched &other : touched.take_front(i))
      if ((one.write || other.write) && one.place.overlaps(other.place))
        return op->emitOpError("writes what else it touches: ")
               << describe(other.place) << " and " << describe(one.place)
               << " overlap (P3)";
  }
  return success();
}

/// (P4).
LogicalResult Verifier::checkStarted(Operation *op, ArrayRef<Touched> touched) {
  for (const Started &running : started)
    for (const Touched &theirs : running.touched)
      for (const Touched &one : touched)
        if ((one.write || theirs.write) && one.place.overlaps(theirs.place))
          return (op->emitOpError("touches ")
                  << describe(one.place) << " while a collective works on "
                  << describe(theirs.place) << " (P4)")
                     .attachNote(running.op->getLoc())
                 << "started here";
  return success();
}

/// (P2) of the caller, who reads the outputs behind a list that computes them.
LogicalResult Verifier::checkOutputs() {
  Operation *entry = symbols.lookup(list.getEntry());
  if (!entry ||
      (list.getKind() != ListKind::first && list.getKind() != ListKind::next))
    return success();
  ValueRange values =
      cast<train::YieldOp>(entry->getRegion(0).front().getTerminator())
          .getValues();
  for (auto [i, value] : llvm::enumerate(values)) {
    Place whole{getPortBase(value.getContext(), Memory::output, i), 0,
                nn::countBytes(value)};
    for (auto [part, content] : contentsOf(whole))
      if (!content.writer)
        return list.emitOpError("expects a command that writes ")
               << describe(part) << " (P2)";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Commands in order
//===----------------------------------------------------------------------===//

/// Copies of what was not made in its place.
LogicalResult Verifier::runOn(FlattenOp flat) {
  Touched whole(flat.getOut(), layouts, /*read=*/false, /*write=*/true);
  int64_t width = nn::getElementBytes(flat.getOut().getType().getElementType());
  for (auto [input, offset] : llvm::zip(flat.getInputs(), flat.getOffsets())) {
    Touched from(input, layouts, /*read=*/true, /*write=*/false), to = whole;
    to.place.begin += offset * width;
    to.place.end = to.place.begin + from.place.end - from.place.begin;
    SmallVector<Touched> copy{from};
    if (!(from.place == to.place))
      copy.push_back(to);
    if (failed(checkRead(flat, input)) || failed(checkTouched(flat, copy)) ||
        failed(checkStarted(flat, copy)))
      return failure();
    if (!(from.place == to.place))
      setContent(to.place, {getAddress(flat.getOut()), flat});
  }
  setContent(whole.place, {getAddress(flat.getOut()), flat});
  return success();
}

LogicalResult Verifier::runOn(WaitOp wait) {
  auto *found = llvm::find_if(started, [&](Started &running) {
    return wait.getToken()
               ? running.op.getToken() == wait.getToken()
               : running.op.getPendingAttr() == wait.getPendingAttr();
  });
  if (found == started.end())
    return wait.emitOpError("expects a collective in flight (P5)");
  if (found != started.begin() && !isWaitedForAtOnce(found->op))
    return (wait.emitOpError("expects waits in the order of the starts (P5)")
                .attachNote(started.front().op->getLoc())
            << "started before it");
  started.erase(found);
  return success();
}

LogicalResult Verifier::runOn(CommandOpInterface command) {
  SmallVector<Access> accesses = command.getAccesses(symbols);
  for (const Access &access : accesses)
    if (access.read && failed(checkRead(command, access.buffer)))
      return failure();
  SmallVector<Touched> touched = touchedBy(accesses);
  if (failed(checkTouched(command, touched)) ||
      failed(checkStarted(command, touched)))
    return failure();
  for (auto [access, one] : llvm::zip(accesses, touched))
    if (access.write)
      setContent(one.place, {getAddress(access.buffer), command});
  if (auto start = dyn_cast<StartOp>(*command)) {
    started.push_back({start, touched});
    if (started.size() > TRAINC_MAX_IN_FLIGHT)
      return start.emitOpError("expects at most ")
             << TRAINC_MAX_IN_FLIGHT << " collectives in flight (P5)";
  }
  return success();
}

LogicalResult Verifier::run(ArrayRef<StartOp> inFlight) {
  for (StartOp start : inFlight)
    started.push_back({start, touchedBy(start.getAccesses(symbols))});
  for (Operation &op : list.getBody().front()) {
    LogicalResult result = llvm::TypeSwitch<Operation *, LogicalResult>(&op)
                               .Case<FlattenOp, WaitOp, CommandOpInterface>(
                                   [&](auto command) { return runOn(command); })
                               .Default(success());
    if (failed(result))
      return failure();
  }
  for (Started &running : started) {
    if (running.op.getToken())
      return running.op.emitOpError("expects a train.wait in its list (P5)");
    if (running.op->getParentOp() != list)
      return running.op.emitOpError("is left in flight, and ")
             << "@" << list.getSymName() << " does not wait for it (P5)";
  }
  return checkOutputs();
}

LogicalResult trainc::verifyPlaces(ListOp list, ArrayRef<StartOp> inFlight,
                                   SymbolTable &symbols, Layouts &layouts) {
  return Verifier(list, symbols, layouts).run(inFlight);
}
