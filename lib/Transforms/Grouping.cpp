//===- Grouping.cpp - Which ops become one kernel -------------------------===//
//
// Groups are found greedily in program order. A row group computes pointwise ops
// and reductions over an innermost run on one iteration space; an op joins the
// group of a producer, or of a reader of the same large tensor, if no path between
// them leaves the group. A column group computes reductions over further-out
// dimensions, with the cheap pointwise ops that feed them.
//
//===----------------------------------------------------------------------===//
#include "Grouping.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/IterationSpace.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallSet.h"
#include <queue>

using namespace mlir;
using namespace trainc;

namespace {
constexpr size_t kMaxOps = 96;
constexpr size_t kMaxInputs = 48;
/// Reductions of a column group: their sums stay in registers.
constexpr int64_t kMaxColumnSums = 4;
/// Reductions of a whole tensor above this size do not join other work: they
/// run as one tile.
constexpr int64_t kMaxSingleTile = 1 << 16;

enum class Kind { Row, Column, Single, None };

struct Group {
  Kind kind;
  SmallVector<Operation *> ops;
};
} // namespace

static ArrayRef<int64_t> shapeOf(Value value) {
  return nn::getTensorType(value).getShape();
}

static bool isReplicable(Operation *op) {
  return isa<nn::ConstantOp, nn::IotaOp>(op);
}

/// Whether `reduce` (in normal form) is over an innermost run.
static bool isRowReduce(nn::ReduceOp reduce) {
  ArrayRef<int64_t> shape = shapeOf(reduce.getInput());
  if (reduce.getDims().empty())
    return true;
  int64_t last = *llvm::max_element(reduce.getDims());
  return llvm::all_of(shape.drop_front(last + 1),
                      [](int64_t size) { return size == 1; });
}

static Kind classify(Operation *op) {
  if (isa<nn::PointwiseOpInterface>(op))
    return Kind::Row;
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return isRowReduce(reduce) ? Kind::Row : Kind::Column;
  if (isa<train::ReadOp, train::WriteOp, train::LaunchOp, train::GemmOp,
          train::ReturnOp, train::BarrierOp, nn::ReshapeOp>(op) ||
      train::isCollective(op) || isReplicable(op))
    return Kind::None;
  return Kind::Single;
}

static int64_t product(ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

/// Whether `ops` can be one row kernel. A reduction that is one tile must not hold
/// large pointwise work, and scalars are computed once, not in every tile.
static bool canBeRowKernel(ArrayRef<Operation *> ops) {
  auto space = IterationSpace::compute(ops, /*column=*/false);
  if (failed(space))
    return false;
  if (space->hasReductions && space->outerSize() == 1 &&
      space->inner > kMaxSingleTile)
    return llvm::hasSingleElement(ops);
  if (space->outerSize() * space->inner == 1)
    return true;
  return llvm::all_of(ops, [&](Operation *op) {
    const IterationSpace::Extent &extent = space->extentOf(op->getResult(0));
    return extent.inner || llvm::is_contained(extent.outer, true);
  });
}

/// Elements of the largest tensor of `op`.
static int64_t workOf(Operation *op) {
  int64_t work = product(shapeOf(op->getResult(0)));
  for (Value operand : op->getOperands())
    work = std::max(work, product(shapeOf(operand)));
  return work;
}

namespace {
struct Grouper {
  Grouper(Block &block, bool fuse) : block(block), fuse(fuse) {}

  Block &block;
  bool fuse;
  std::vector<std::unique_ptr<Group>> groups;
  DenseMap<Operation *, Group *> groupOf;
  DenseMap<Operation *, int64_t> index;
  /// Row groups that read a tensor.
  DenseMap<Value, SmallVector<Group *>> readers;

  void run();
  void cloneReplicable();
  void takeReplicable();
  void addToRowGroup(Operation *op);
  void addToColumnGroup(nn::ReduceOp op);
  bool hasOuterPath(Group *from, ArrayRef<Operation *> to);
  void appendContracted(Operation *op, SmallVectorImpl<Operation *> &stack);
  bool tryJoin(Group *group, Operation *op);
  bool tryMerge(Group *into, Group *other);
  size_t countInputs(Group *group, Operation *op);
  void schedule();
};
} // namespace

/// Gives every user of a constant or index ramp its own copy beside it.
void Grouper::cloneReplicable() {
  SmallVector<Operation *> originals;
  for (Operation &op : block)
    if (isReplicable(&op))
      originals.push_back(&op);
  for (Operation *op : originals) {
    for (OpOperand &use :
         llvm::make_early_inc_range(op->getResult(0).getUses())) {
      OpBuilder b(use.getOwner());
      use.set(b.clone(*op)->getResult(0));
    }
    op->erase();
  }
}

/// Whether the kernel of `op` takes all operands from memory.
static bool readsMemoryOnly(Operation *op) {
  return isa<nn::AttentionOp, nn::AttentionGradOp, nn::PackedAttentionOp,
             nn::PackedAttentionGradOp>(op);
}

/// Puts each constant or index ramp into the group of its user; one whose user is
/// no kernel, or takes no constant, is a kernel of its own.
void Grouper::takeReplicable() {
  for (Operation &op : block) {
    if (!isReplicable(&op) || groupOf.contains(&op) || op.use_empty())
      continue;
    Group *group = groupOf.lookup(*op.user_begin());
    if (!group || readsMemoryOnly(*op.user_begin())) {
      groups.push_back(std::make_unique<Group>());
      group = groups.back().get();
      group->kind = Kind::Row;
    }
    group->ops.push_back(&op);
    groupOf[&op] = group;
  }
}

/// Pushes the ops that use what `op`, and all of its group, computes.
void Grouper::appendContracted(Operation *op,
                               SmallVectorImpl<Operation *> &stack) {
  Group *group = groupOf.lookup(op);
  ArrayRef<Operation *> members =
      group ? ArrayRef<Operation *>(group->ops) : ArrayRef<Operation *>(op);
  for (Operation *member : members)
    for (Operation *user : member->getUsers())
      stack.push_back(user);
}

/// Whether a path from `from` to one of `to` passes an op outside both.
bool Grouper::hasOuterPath(Group *from, ArrayRef<Operation *> to) {
  DenseSet<Operation *> targets(to.begin(), to.end()), seen;
  SmallVector<Operation *> stack;
  for (Operation *member : from->ops)
    for (Operation *user : member->getUsers())
      if (groupOf.lookup(user) != from && !targets.contains(user))
        stack.push_back(user);
  while (!stack.empty()) {
    Operation *op = stack.pop_back_val();
    if (targets.contains(op))
      return true;
    if (!seen.insert(op).second)
      continue;
    appendContracted(op, stack);
  }
  return false;
}

size_t Grouper::countInputs(Group *group, Operation *op) {
  llvm::SmallDenseSet<Value> inputs;
  auto add = [&](Operation *member) {
    for (Value operand : member->getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (!producer || (groupOf.lookup(producer) != group && producer != op &&
                        !isReplicable(producer)))
        inputs.insert(operand);
    }
  };
  for (Operation *member : group->ops)
    add(member);
  if (op)
    add(op);
  return inputs.size();
}

bool Grouper::tryJoin(Group *group, Operation *op) {
  if (group->kind != Kind::Row || group->ops.size() >= kMaxOps)
    return false;
  SmallVector<Operation *> ops(group->ops);
  ops.push_back(op);
  if (!canBeRowKernel(ops) || countInputs(group, op) > kMaxInputs ||
      hasOuterPath(group, op))
    return false;
  group->ops.push_back(op);
  groupOf[op] = group;
  return true;
}

bool Grouper::tryMerge(Group *into, Group *other) {
  if (other->kind != Kind::Row ||
      into->ops.size() + other->ops.size() > kMaxOps)
    return false;
  SmallVector<Operation *> ops(into->ops);
  llvm::append_range(ops, other->ops);
  if (!canBeRowKernel(ops) ||
      countInputs(into, nullptr) + countInputs(other, nullptr) > kMaxInputs ||
      hasOuterPath(into, other->ops) || hasOuterPath(other, into->ops))
    return false;
  for (Operation *op : other->ops) {
    groupOf[op] = into;
    into->ops.push_back(op);
    for (Value operand : op->getOperands())
      readers[operand].push_back(into);
  }
  llvm::sort(into->ops, [&](Operation *a, Operation *b) {
    return index.lookup(a) < index.lookup(b);
  });
  other->ops.clear();
  return true;
}

void Grouper::addToRowGroup(Operation *op) {
  Group *joined = nullptr;
  int64_t work = workOf(op);
  if (fuse) {
    // Producers' groups, then groups that read the same large tensor.
    SmallVector<Group *> candidates;
    for (Value operand : op->getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (producer)
        if (Group *group = groupOf.lookup(producer))
          candidates.push_back(group);
    }
    for (Value operand : op->getOperands())
      if (product(shapeOf(operand)) == work && work > 1)
        llvm::append_range(candidates, readers.lookup(operand));
    for (Group *candidate : candidates) {
      if (candidate == joined || candidate->ops.empty())
        continue;
      if (!joined) {
        if (tryJoin(candidate, op))
          joined = candidate;
      } else if (candidate->kind == Kind::Row) {
        tryMerge(joined, candidate);
      }
    }
  }
  if (!joined) {
    groups.push_back(std::make_unique<Group>());
    joined = groups.back().get();
    joined->kind = Kind::Row;
    joined->ops.push_back(op);
    groupOf[op] = joined;
  }
  for (Value operand : op->getOperands()) {
    SmallVector<Group *> &list = readers[operand];
    if (!llvm::is_contained(list, joined))
      list.push_back(joined);
  }
}

void Grouper::addToColumnGroup(nn::ReduceOp op) {
  ArrayRef<int64_t> shape = shapeOf(op.getInput());
  // The cone of cheap producers that are not in memory anyway: for other row groups
  // or what is no kernel.
  llvm::SetVector<Operation *> cone;
  SmallVector<Value> stack{op.getInput()};
  while (fuse && !stack.empty()) {
    Operation *producer = stack.pop_back_val().getDefiningOp();
    if (!producer || !isCheap(producer) || cone.contains(producer))
      continue;
    if (!isReplicable(producer) && shapeOf(producer->getResult(0)) != shape)
      continue;
    bool stored = llvm::any_of(producer->getUsers(), [&](Operation *user) {
      Kind kind = classify(user);
      return kind == Kind::None || kind == Kind::Single ||
             (kind == Kind::Row && groupOf.lookup(user)->kind == Kind::Row &&
              groupOf.lookup(user) != groupOf.lookup(producer));
    });
    if (stored && !isReplicable(producer))
      continue;
    cone.insert(producer);
    llvm::append_range(stack, producer->getOperands());
  }
  SmallVector<Operation *> ordered = cone.takeVector();
  llvm::sort(ordered,
             [&](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  groups.push_back(std::make_unique<Group>());
  Group *group = groups.back().get();
  group->kind = Kind::Column;
  OpBuilder b(op);
  IRMapping mapping;
  for (Operation *producer : ordered) {
    Operation *copy = b.clone(*producer, mapping);
    index[copy] = index.lookup(op);
    group->ops.push_back(copy);
    groupOf[copy] = group;
  }
  op.getInputMutable().assign(mapping.lookupOrDefault(op.getInput()));
  group->ops.push_back(op);
  groupOf[op] = group;
  // Join an earlier column group with the same space that reads the same.
  for (auto &other : groups) {
    if (other.get() == group || other->kind != Kind::Column ||
        other->ops.empty())
      continue;
    auto reduce = cast<nn::ReduceOp>(other->ops.back());
    if (shapeOf(reduce.getInput()) != shape ||
        reduce.getDims() != op.getDims() ||
        other->ops.size() + group->ops.size() > kMaxOps ||
        llvm::count_if(other->ops, llvm::IsaPred<nn::ReduceOp>) ==
            kMaxColumnSums)
      continue;
    bool shares = llvm::any_of(group->ops, [&](Operation *member) {
      return llvm::any_of(member->getOperands(), [&](Value operand) {
        return shapeOf(operand) == shape &&
               groupOf.lookup(operand.getDefiningOp()) != group &&
               llvm::any_of(other->ops, [&](Operation *theirs) {
                 return llvm::is_contained(theirs->getOperands(), operand);
               });
      });
    });
    // One loop computes both: neither may need the other's result.
    bool needs = llvm::any_of(group->ops, [&](Operation *member) {
      return llvm::any_of(member->getOperands(), [&](Value operand) {
        Operation *producer = operand.getDefiningOp();
        return producer && groupOf.lookup(producer) == other.get();
      });
    });
    if (!shares || needs || hasOuterPath(other.get(), group->ops) ||
        hasOuterPath(group, other->ops))
      continue;
    for (Operation *member : group->ops) {
      groupOf[member] = other.get();
      other->ops.push_back(member);
    }
    group->ops.clear();
    return;
  }
}

/// Orders the block: groups contiguous, every op after its operands, otherwise
/// as it was.
void Grouper::schedule() {
  // Units: a group, or an op alone. Writes stay after everything that their
  // original position follows, so that they copy at worst.
  DenseMap<Operation *, int64_t> unitOf;
  std::vector<SmallVector<Operation *>> units;
  DenseMap<Group *, int64_t> unitOfGroup;
  for (Operation &op : block.without_terminator()) {
    Group *group = groupOf.lookup(&op);
    if (!group) {
      unitOf[&op] = units.size();
      units.push_back({&op});
      continue;
    }
    auto [it, inserted] = unitOfGroup.try_emplace(group, units.size());
    if (inserted)
      units.push_back({});
    unitOf[&op] = it->second;
    units[it->second].push_back(&op);
  }
  std::vector<SmallVector<int64_t>> successors(units.size());
  std::vector<int64_t> waiting(units.size(), 0);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    llvm::SmallSet<int64_t, 8> before;
    for (Operation *op : units[unit])
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          if (unitOf.lookup(producer) != int64_t(unit) &&
              before.insert(unitOf.lookup(producer)).second) {
            successors[unitOf.lookup(producer)].push_back(unit);
            ++waiting[unit];
          }
  }
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> ready;
  for (size_t unit = 0; unit < units.size(); ++unit)
    if (waiting[unit] == 0)
      ready.push(unit);
  Operation *end = block.getTerminator();
  size_t placed = 0;
  while (!ready.empty()) {
    int64_t unit = ready.top();
    ready.pop();
    ++placed;
    for (Operation *op : units[unit])
      op->moveBefore(end);
    for (int64_t successor : successors[unit])
      if (--waiting[successor] == 0)
        ready.push(successor);
  }
  assert(placed == units.size() && "groups form a cycle");
  (void)placed;
}

void Grouper::run() {
  cloneReplicable();
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    index[&op] = ops.size();
    ops.push_back(&op);
  }
  SmallVector<nn::ReduceOp> columns;
  for (Operation *op : ops) {
    switch (classify(op)) {
    case Kind::Row:
      addToRowGroup(op);
      break;
    case Kind::Column:
      // Row groups are formed around it: as an op outside them.
      columns.push_back(cast<nn::ReduceOp>(op));
      break;
    case Kind::Single: {
      groups.push_back(std::make_unique<Group>());
      groups.back()->kind = Kind::Single;
      groups.back()->ops.push_back(op);
      groupOf[op] = groups.back().get();
      break;
    }
    case Kind::None:
      break;
    }
  }
  for (nn::ReduceOp op : columns)
    addToColumnGroup(op);
  takeReplicable();
  // Producers that only column groups used are gone.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op)) {
      if (Group *group = groupOf.lookup(&op)) {
        llvm::erase(group->ops, &op);
        groupOf.erase(&op);
      }
      op.erase();
    }
  schedule();
}

SmallVector<SmallVector<Operation *>> trainc::formGroups(Block &block,
                                                         bool fuse) {
  Grouper grouper(block, fuse);
  grouper.run();
  SmallVector<SmallVector<Operation *>> result;
  DenseMap<Group *, size_t> positions;
  for (Operation &op : block) {
    Group *group = grouper.groupOf.lookup(&op);
    if (!group)
      continue;
    auto [it, inserted] = positions.try_emplace(group, result.size());
    if (inserted)
      result.push_back({});
    result[it->second].push_back(&op);
  }
  return result;
}
