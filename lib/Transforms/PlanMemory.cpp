//===- PlanMemory.cpp - Give every value of a list an address -------------===//
//
// This pass decides where each result of a launch or GEMM lives: in the slice it
// is written to or the output it is returned as, where nothing still needs what
// stands there, or else in the workspace. Workspace offsets are found offline from
// the lifetimes: largest value first, at the lowest offset that is free for as
// long as it lives. Copies that remain become copy commands.
//
//===----------------------------------------------------------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-plan-memory"

namespace trainc {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "trainc/Transforms/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Every workspace buffer starts at a multiple of this many bytes.
static constexpr int64_t kAlignment = 256;

namespace {
/// Memory that one producing op fills: its value and all reshapes of it.
struct Buffer {
  Value value;
  int64_t bytes;
  int64_t first, last; // positions of the producer and of the last user
  Attribute place;     // decided, or null: workspace
};

struct Planner {
  Planner(ListOp list, bool reuse) : list(list), reuse(reuse) {}

  ListOp list;
  bool reuse;
  /// Of results that stand where a value that is no slice stood: that value.
  DenseMap<Value, Value> replaced;
  DenseMap<Operation *, int64_t> position;
  llvm::MapVector<Value, Buffer> buffers;
  int64_t copies = 0, avoided = 0;

  void run(SymbolTable &symbols);

private:
  Value source(Value value);
  int64_t lastUse(Value value);
  void findReplaced(SymbolTable &symbols);
  void findBuffers();
  void bindInPlace(SymbolTable &symbols);
  void bindWrites();
  void bindOutputs();
  bool bind(Value value, Attribute place);
  int64_t assignOffsets();
  void annotate();
};
} // namespace

/// The value whose memory `value` is: through reshapes and what is done in place.
Value Planner::source(Value value) {
  while (true) {
    if (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
      value = reshape.getInput();
    else if (Value before = replaced.lookup(value))
      value = before;
    else
      return value;
  }
}

static int64_t bytesOf(Value value) {
  RankedTensorType type = nn::getTensorType(value);
  return type.getNumElements() * nn::getElementBytes(type.getElementType());
}

/// Position of the last user of the memory of `value`.
int64_t Planner::lastUse(Value value) {
  int64_t last = position.lookup(value.getDefiningOp());
  for (Operation *user : value.getUsers()) {
    last = std::max(last, position.lookup(user));
    for (Value result : user->getResults())
      if (isa<nn::ReshapeOp>(user) || replaced.lookup(result) == value)
        last = std::max(last, lastUse(result));
  }
  return last;
}

void Planner::findReplaced(SymbolTable &symbols) {
  for (auto launch : list.getBody().getOps<LaunchOp>()) {
    auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
    for (auto [result, argument] :
         llvm::zip(launch.getResults(), kernel.getInplace()))
      if (argument >= 0 &&
          !source(launch.getInputs()[argument]).getDefiningOp<ReadOp>())
        replaced[result] = launch.getInputs()[argument];
  }
  for (Operation &op : list.getBody().front())
    if (isCollective(&op))
      if (Value operand = getInPlaceOperand(&op);
          operand && !source(operand).getDefiningOp<ReadOp>())
        replaced[op.getResult(0)] = operand;
}

/// Whether `op` produces values in memory.
static bool isCommand(Operation *op) {
  return isa<LaunchOp, GemmOp>(op) || isCollective(op);
}

void Planner::findBuffers() {
  int64_t count = 0;
  for (Operation &op : list.getBody().front()) {
    position[&op] = count++;
  }
  for (Operation &op : list.getBody().front())
    if (isCommand(&op))
      for (Value result : op.getResults())
        if (!replaced.contains(result))
          buffers.insert({result,
                          {result, bytesOf(result), position[&op],
                           lastUse(result), Attribute()}});
}

/// `base`, or `base` with a number.
static Attribute placeOf(OpBuilder &b, Attribute base, int64_t offset = 0) {
  return b.getArrayAttr({base, b.getI64IntegerAttr(offset)});
}

/// Results that a kernel or GEMM writes over one of its operands live where that
/// lives.
void Planner::bindInPlace(SymbolTable &symbols) {
  OpBuilder b(list);
  auto bindTo = [&](Value result, Value operand) {
    if (auto read = source(operand).getDefiningOp<ReadOp>())
      buffers.find(result)->second.place = placeOf(b, read.getSource());
  };
  for (Operation &op : list.getBody().front()) {
    if (auto launch = dyn_cast<LaunchOp>(op)) {
      auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
      for (auto [result, argument] :
           llvm::zip(launch.getResults(), kernel.getInplace()))
        if (argument >= 0)
          bindTo(result, launch.getInputs()[argument]);
    } else if (auto gemm = dyn_cast<GemmOp>(op)) {
      if (gemm.getInit())
        bindTo(gemm.getResult(), gemm.getInit());
    } else if (isCollective(&op)) {
      if (Value operand = getInPlaceOperand(&op);
          operand && !replaced.contains(op.getResult(0)))
        bindTo(op.getResult(0), operand);
    }
  }
}

/// Writes produced by a launch or GEMM go to their slice directly if no command
/// at or after the producer reads the old value. Others are copies.
void Planner::bindWrites() {
  OpBuilder b(list);
  DenseMap<Attribute, int64_t> lastRead;
  for (auto read : list.getBody().getOps<ReadOp>()) {
    int64_t &last = lastRead.try_emplace(read.getSource(), -1).first->second;
    last = std::max(last, lastUse(read.getResult()));
  }
  for (auto write :
       llvm::make_early_inc_range(list.getBody().getOps<WriteOp>())) {
    auto it = buffers.find(source(write.getValue()));
    Attribute place = placeOf(b, write.getTarget());
    if (it != buffers.end()) {
      Buffer &buffer = it->second;
      auto read = lastRead.find(write.getTarget());
      bool old = read != lastRead.end() && read->second >= buffer.first;
      if (!buffer.place && !old)
        buffer.place = place;
      if (buffer.place == place) {
        write.erase();
        ++avoided;
        continue;
      }
    }
    ++copies;
  }
}

void Planner::bindOutputs() {
  OpBuilder b(list);
  Operation *end = list.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands())) {
    auto it = buffers.find(source(value));
    Attribute place = placeOf(b, b.getStringAttr("output"), i);
    if (it != buffers.end() && !it->second.place)
      it->second.place = place;
    else
      ++copies;
  }
}

int64_t Planner::assignOffsets() {
  SmallVector<Buffer *> open;
  for (auto &[value, buffer] : buffers)
    if (!buffer.place)
      open.push_back(&buffer);
  llvm::sort(open, [](Buffer *a, Buffer *b) {
    return std::tuple(-a->bytes, a->first, a->last) <
           std::tuple(-b->bytes, b->first, b->last);
  });
  struct Placed {
    int64_t offset, end, first, last;
  };
  std::vector<Placed> placed; // by offset
  OpBuilder b(list);
  int64_t total = 0;
  for (Buffer *buffer : open) {
    int64_t size =
        llvm::alignTo(std::max<int64_t>(buffer->bytes, 1), kAlignment);
    int64_t offset = 0;
    size_t at = 0;
    for (; at < placed.size(); ++at) {
      const Placed &other = placed[at];
      bool overlaps = !reuse || (other.first <= buffer->last &&
                                 buffer->first <= other.last);
      if (!overlaps)
        continue;
      if (offset + size <= other.offset)
        break;
      offset = std::max(offset, other.end);
    }
    Placed entry{offset, offset + size, buffer->first, buffer->last};
    placed.insert(llvm::upper_bound(placed, entry,
                                    [](const Placed &a, const Placed &b) {
                                      return a.offset < b.offset;
                                    }),
                  entry);
    buffer->place = placeOf(b, b.getStringAttr("workspace"), offset);
    total = std::max(total, offset + size);
  }
  return total;
}

void Planner::annotate() {
  OpBuilder b(list);
  for (Operation &op : list.getBody().front()) {
    if (!isCommand(&op))
      continue;
    SmallVector<Attribute> places;
    for (Value result : op.getResults())
      places.push_back(buffers.find(source(result))->second.place);
    op.setAttr("places", b.getArrayAttr(places));
  }
}

void Planner::run(SymbolTable &symbols) {
  findReplaced(symbols);
  findBuffers();
  bindInPlace(symbols);
  bindWrites();
  bindOutputs();
  int64_t bytes = assignOffsets();
  annotate();
  list.setWorkspace(bytes);
}

/// Checks that only commands are left in `list`.
static LogicalResult verifyNeeds(ListOp list) {
  for (Operation &op : list.getBody().front())
    if (!isCommand(&op) &&
        !isa<ReadOp, WriteOp, nn::ReshapeOp, train::ReturnOp>(op))
      return op.emitOpError(
          "is no command; run train-form-kernels before train-plan-memory");
  return success();
}

namespace {
struct PlanMemoryPass : trainc::impl::PlanMemoryPassBase<PlanMemoryPass> {
  using PlanMemoryPassBase::PlanMemoryPassBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto list : getOperation().getOps<ListOp>()) {
      if (list.getWorkspace())
        continue;
      if (failed(verifyNeeds(list)))
        return signalPassFailure();
      Planner planner(list, reuse);
      planner.run(symbols);
      numCopies += planner.copies;
      numAvoided += planner.avoided;
    }
  }
};
} // namespace
