//===- Buffers.cpp - The values of a list in memory -----------------------===//
#include "Buffers.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/Alignment.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

static int64_t alignedBytes(const Lifetime &life) {
  return llvm::alignTo(std::max<int64_t>(life.bytes, 1), kBufferAlignment);
}

/// Gives each lifetime, in the order of `order`, the lowest offset that is free for as
/// long as it lasts.
static Layout placeInOrder(ArrayRef<Lifetime> lifetimes, ArrayRef<size_t> order,
                           bool reuse) {
  struct Placed {
    int64_t offset, end, first, last;
  };
  std::vector<Placed> placed; // by offset
  Layout layout;
  layout.offsets.resize(lifetimes.size());
  for (size_t i : order) {
    const Lifetime &life = lifetimes[i];
    int64_t size = alignedBytes(life), offset = 0;
    for (const Placed &other : placed) {
      if (reuse && (other.first > life.last || life.first > other.last))
        continue;
      if (offset + size <= other.offset)
        break;
      offset = std::max(offset, other.end);
    }
    Placed entry{offset, offset + size, life.first, life.last};
    placed.insert(llvm::upper_bound(placed, entry,
                                    [](const Placed &a, const Placed &b) {
                                      return a.offset < b.offset;
                                    }),
                  entry);
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + size);
  }
  return layout;
}

/// The largest sum of bytes, as `size` counts them, that are needed at one command.
static int64_t mostAtOnce(ArrayRef<Lifetime> lifetimes,
                          function_ref<int64_t(const Lifetime &)> size) {
  std::map<int64_t, int64_t> changes;
  for (const Lifetime &life : lifetimes) {
    changes[life.first] += size(life);
    changes[life.last + 1] -= size(life);
  }
  int64_t alive = 0, most = 0;
  for (auto [position, change] : changes)
    most = std::max(most, alive += change);
  return most;
}

int64_t trainc::mostAlive(ArrayRef<Lifetime> lifetimes) {
  return mostAtOnce(lifetimes, [](const Lifetime &life) { return life.bytes; });
}

/// The same with positions counted by where lives begin and end: what else stands
/// between them does not matter.
static SmallVector<Lifetime> normalized(ArrayRef<Lifetime> lifetimes) {
  std::vector<int64_t> ends;
  for (const Lifetime &life : lifetimes) {
    ends.push_back(life.first);
    ends.push_back(life.last);
  }
  llvm::sort(ends);
  ends.erase(llvm::unique(ends), ends.end());
  auto rank = [&](int64_t position) -> int64_t {
    return llvm::lower_bound(ends, position) - ends.begin();
  };
  SmallVector<Lifetime> result;
  for (const Lifetime &life : lifetimes)
    result.push_back({life.bytes, rank(life.first), rank(life.last)});
  return result;
}

Layout trainc::layOut(ArrayRef<Lifetime> given, bool reuse) {
  SmallVector<Lifetime> lifetimes = normalized(given);
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  auto length = [](const Lifetime &life) { return life.last - life.first + 1; };
  // What is large finds room best while there is much; what lives long is best put
  // where it does not cut the room of others in pieces.
  const std::function<Key(const Lifetime &)> keys[] = {
      [](const Lifetime &life) {
        return Key(-life.bytes, life.first, life.last, 0);
      },
      [&](const Lifetime &life) {
        return Key(-length(life), -life.bytes, life.first, 0);
      },
      [&](const Lifetime &life) {
        return Key(-llvm::Log2_64_Ceil(life.bytes + 1), -length(life),
                   -life.bytes, life.first);
      },
      [&](const Lifetime &life) {
        return Key(-life.bytes, -length(life), life.first, 0);
      },
      [](const Lifetime &life) {
        return Key(life.first, -life.bytes, life.last, 0);
      },
      [](const Lifetime &life) {
        return Key(-life.last, -life.bytes, life.first, 0);
      },
  };
  int64_t bound = mostAtOnce(lifetimes, alignedBytes);
  Layout best;
  for (const auto &key : keys) {
    SmallVector<size_t> order(
        llvm::to_vector(llvm::seq<size_t>(0, lifetimes.size())));
    llvm::sort(order, [&](size_t a, size_t b) {
      return std::pair(key(lifetimes[a]), a) < std::pair(key(lifetimes[b]), b);
    });
    Layout layout = placeInOrder(lifetimes, order, reuse);
    if (&key == keys || layout.bytes < best.bytes)
      best = std::move(layout);
    if (!reuse || best.bytes == bound)
      break;
  }
  return best;
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

bool trainc::isCommand(Operation *op) {
  return isa<LaunchOp, GemmOp, ConvolutionOp, FlattenOp, StartOp>(op) ||
         isCollective(op);
}

Value Buffers::viewed(Value value) {
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<nn::ReshapeOp, ViewOp>(op) ? op->getOperand(0)
                                                    : Value();
}

Value Buffers::source(Value value) const {
  while (true) {
    Value before = viewed(value);
    if (!before && !(before = former(value)))
      return value;
    value = before;
  }
}

Value Buffers::resultOf(Operation *op) {
  if (auto start = dyn_cast<StartOp>(op))
    return cast<WaitOp>(*start.getToken().user_begin()).getResult();
  return isCollective(op) ? op->getResult(0) : Value();
}

static Origin originOf(SymbolRefAttr slice) { return {Memory::arena, slice}; }

/// Position of the last user of the memory of `value`.
int64_t Buffers::lastUse(Value value) const {
  int64_t last = position.lookup(value.getDefiningOp());
  for (Operation *user : value.getUsers()) {
    last = std::max(last, position.lookup(user));
    for (Value result : user->getResults())
      if (isa<nn::ReshapeOp, ViewOp>(user) || replaced.lookup(result) == value)
        last = std::max(last, lastUse(result));
    // What is in flight works on its operand until it is waited for.
    if (Value result = Buffers::resultOf(user)) {
      last = std::max(last, position.lookup(result.getDefiningOp()));
      if (replaced.lookup(result) == value)
        last = std::max(last, lastUse(result));
    }
  }
  return last;
}

/// What `op` adds its product to, or null.
static Value initOf(Operation &op) {
  if (auto gemm = dyn_cast<GemmOp>(op))
    return gemm.getInit();
  if (auto convolution = dyn_cast<ConvolutionOp>(op))
    return convolution.getInit();
  return {};
}

void Buffers::findReplaced(ListOp list, SymbolTable &symbols) {
  for (auto launch : list.getBody().getOps<LaunchOp>()) {
    auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
    for (auto [result, argument] :
         llvm::zip(launch.getResults(), kernel.getInplace()))
      if (argument >= 0 &&
          !source(launch.getInputs()[argument]).getDefiningOp<ReadOp>())
        replaced[result] = launch.getInputs()[argument];
  }
  for (Operation &op : list.getBody().front()) {
    if (Value init = initOf(op)) {
      Operation *maker = source(init).getDefiningOp();
      if (maker && isCommand(maker))
        replaced[op.getResult(0)] = init;
    }
    if (Value result = resultOf(&op))
      if (Value operand = getInPlaceOperand(&op);
          operand && !source(operand).getDefiningOp<ReadOp>())
        replaced[result] = operand;
  }
}

void Buffers::findBuffers(ListOp list) {
  int64_t count = 0;
  for (Operation &op : list.getBody().front())
    position[&op] = count++;
  for (Operation &op : list.getBody().front()) {
    if (!isCommand(&op))
      continue;
    SmallVector<Value> results(op.getResults());
    if (isa<StartOp>(op))
      results = {resultOf(&op)};
    for (Value result : results)
      if (!replaced.contains(result))
        buffers.insert({result,
                        {result, nn::countBytes(result), position[&op],
                         lastUse(result), std::nullopt, false}});
  }
  for (auto [result, before] : replaced)
    if (auto it = buffers.find(source(before)); it != buffers.end())
      it->second.changed = true;
}

/// Peers read what a collective works on in place until they have begun the next one of
/// their group behind it, which a rank knows when that is done, or until the list ends.
void Buffers::keepForPeers(ListOp list) {
  SmallVector<Operation *> collectives;
  for (Operation &op : list.getBody().front())
    if (resultOf(&op))
      collectives.push_back(&op);
  auto axesOf = [](Operation *op) {
    return op->getAttrOfType<ArrayAttr>("axes");
  };
  // Of what is in flight: where it is waited for.
  auto doneAt = [&](Operation *op) {
    return position.lookup(isa<StartOp>(op) ? resultOf(op).getDefiningOp()
                                            : op);
  };
  for (Operation *op : collectives) {
    if (!getInPlaceOperand(op))
      continue;
    auto it = buffers.find(source(resultOf(op)));
    if (it == buffers.end())
      continue;
    auto next = llvm::find_if(collectives, [&](Operation *other) {
      return position.lookup(other) > doneAt(op) &&
             llvm::all_of(axesOf(op), [&](Attribute axis) {
               return llvm::is_contained(axesOf(other), axis);
             });
    });
    int64_t until =
        next == collectives.end()
            ? position.lookup(list.getBody().front().getTerminator())
            : doneAt(*next);
    it->second.last = std::max(it->second.last, until);
  }
}

/// What only a flat tensor needs is made where it stands in it.
void Buffers::bindFlat(ListOp list) {
  for (auto flat : list.getBody().getOps<FlattenOp>()) {
    Buffer &whole = buffers.find(flat.getResult())->second;
    int64_t width = nn::getElementBytes(
        nn::getTensorType(flat.getResult()).getElementType());
    for (auto [input, offset] :
         llvm::zip(flat.getInputs(), flat.getOffsets())) {
      auto it = buffers.find(source(input));
      if (it == buffers.end())
        continue;
      Buffer &part = it->second;
      if (part.place || part.flat || part.bytes != nn::countBytes(input) ||
          part.value.getDefiningOp<FlattenOp>() || part.last > position[flat])
        continue;
      part.flat = flat.getResult();
      part.offset = offset * width;
      whole.first = std::min(whole.first, part.first);
    }
  }
}

/// Results that a kernel or GEMM writes over one of its operands live where that
/// lives.
void Buffers::bindInPlace(ListOp list, SymbolTable &symbols) {
  auto bindTo = [&](Value result, Value operand) {
    if (auto read = source(operand).getDefiningOp<ReadOp>())
      buffers.find(result)->second.place = originOf(read.getSource());
  };
  for (Operation &op : list.getBody().front()) {
    if (auto launch = dyn_cast<LaunchOp>(op)) {
      auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
      for (auto [result, argument] :
           llvm::zip(launch.getResults(), kernel.getInplace()))
        if (argument >= 0)
          bindTo(result, launch.getInputs()[argument]);
    } else if (Value init = initOf(op)) {
      if (!replaced.contains(op.getResult(0)))
        bindTo(op.getResult(0), init);
    } else if (Value result = resultOf(&op)) {
      if (Value operand = getInPlaceOperand(&op);
          operand && !replaced.contains(result))
        bindTo(result, operand);
    }
  }
}

/// Writes produced by a launch or GEMM go to their slice directly if no command
/// at or after the producer reads the old value. Others are copies.
void Buffers::bindWrites(ListOp list) {
  DenseMap<Attribute, int64_t> lastRead;
  for (auto read : list.getBody().getOps<ReadOp>()) {
    int64_t &last = lastRead.try_emplace(read.getSource(), -1).first->second;
    last = std::max(last, lastUse(read.getResult()));
  }
  for (auto write : list.getBody().getOps<WriteOp>()) {
    auto it = buffers.find(source(write.getValue()));
    Origin place = originOf(write.getTarget());
    if (it != buffers.end() &&
        it->second.bytes == nn::countBytes(write.getValue())) {
      Buffer &buffer = it->second;
      auto read = lastRead.find(write.getTarget());
      bool old = read != lastRead.end() && read->second >= buffer.first;
      if (!buffer.place && !buffer.flat && !old &&
          !buffer.value.getDefiningOp<FlattenOp>())
        buffer.place = place;
      if (buffer.place == place) {
        direct.push_back(write);
        continue;
      }
    }
    ++copies;
  }
}

void Buffers::bindOutputs(ListOp list) {
  Operation *end = list.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands())) {
    auto it = buffers.find(source(value));
    if (it != buffers.end() && it->second.bytes == nn::countBytes(value) &&
        !it->second.place && !it->second.flat &&
        !it->second.value.getDefiningOp<FlattenOp>())
      it->second.place = {Memory::output, {}, static_cast<int64_t>(i)};
    else
      ++copies;
  }
}

SmallVector<Buffer *> Buffers::inWorkspace() {
  SmallVector<Buffer *> result;
  for (auto &[value, buffer] : buffers)
    if (!buffer.place && !buffer.flat)
      result.push_back(&buffer);
  return result;
}

Buffers::Buffers(ListOp list, SymbolTable &symbols) {
  findReplaced(list, symbols);
  findBuffers(list);
  keepForPeers(list);
  bindInPlace(list, symbols);
  bindFlat(list);
  bindWrites(list);
  bindOutputs(list);
}
