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
#include "Replicable.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/EraseDead.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallSet.h"
#include <queue>

using namespace mlir;
using namespace trainc;

namespace {
constexpr size_t kMaxOps = 96;
/// Reductions of a column group: their sums stay in registers.
constexpr int64_t kMaxColumnSums = 4;
/// Columns that blocks of a GPU have whole where kernels also store what they sum up: all
/// threads have columns of their own.
constexpr int64_t kColumnsOfBlock = 256;
/// Reductions of a whole tensor above this size do not join other work: they
/// run as one tile.
constexpr int64_t kMaxSingleTile = 1 << 16;

enum class Kind { Row, Column, Single, None };

struct Group {
  Kind kind;
  SmallVector<Operation *> ops;
  /// The indices of its first and last op.
  int64_t first = 0, last = -1;
};
} // namespace

static ArrayRef<int64_t> shapeOf(Value value) {
  return nn::getTensorType(value).getShape();
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
          train::ConvolutionOp, train::FlattenOp, train::ViewOp,
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
  Grouper(Block &block, bool fuse, bool gpu)
      : block(block), fuse(fuse), gpu(gpu) {}

  Block &block;
  bool fuse, gpu;
  std::vector<std::unique_ptr<Group>> groups;
  DenseMap<Operation *, Group *> groupOf;
  DenseMap<Operation *, int64_t> index;
  /// How many groups have ops both up to an index and behind it.
  std::vector<int64_t> spanning;
  /// Row groups that read a tensor.
  DenseMap<Value, SmallVector<Group *>> readers;

  void run();
  Group *addGroup(Kind kind);
  void add(Group *group, Operation *op);
  void absorb(Group *into, Group *other);
  std::pair<int64_t, int64_t> reachOf(Group *from, ArrayRef<Operation *> to);
  void takeReplicable();
  void addToRowGroup(Operation *op);
  void addToColumnGroup(nn::ReduceOp op);
  void joinProducer(Group *group);
  bool hasOuterPath(Group *from, ArrayRef<Operation *> to);
  bool tryJoin(Group *group, Operation *op);
  bool tryMerge(Group *into, Group *other);
  size_t countInputs(Group *group, Operation *op);
  void schedule();
};
} // namespace

Group *Grouper::addGroup(Kind kind) {
  groups.push_back(std::make_unique<Group>());
  groups.back()->kind = kind;
  return groups.back().get();
}

void Grouper::add(Group *group, Operation *op) {
  int64_t at = index.lookup(op);
  if (group->ops.empty())
    group->first = group->last = at;
  for (; at < group->first; --group->first)
    ++spanning[group->first - 1];
  for (; group->last < at; ++group->last)
    ++spanning[group->last];
  group->ops.push_back(op);
  groupOf[op] = group;
}

/// Moves the ops of `other` to the end of `into`.
void Grouper::absorb(Group *into, Group *other) {
  for (int64_t i = other->first; i < other->last; ++i)
    --spanning[i];
  for (Operation *op : other->ops)
    add(into, op);
  other->ops.clear();
}

/// The indices between which all paths from `from` to `to` are: uses lead forward,
/// and no group leads back over these.
std::pair<int64_t, int64_t> Grouper::reachOf(Group *from,
                                             ArrayRef<Operation *> to) {
  int64_t begin = from->first, end = 0;
  while (begin > 0 && spanning[begin - 1] > 0)
    --begin;
  for (Operation *op : to)
    end = std::max(end, index.lookup(op));
  while (spanning[end] > 0)
    ++end;
  return {begin, end};
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
    if (!group || readsMemoryOnly(*op.user_begin()))
      group = addGroup(Kind::Row);
    add(group, &op);
  }
}

/// Whether a path from `from` to one of `to` passes an op outside both. Groups are
/// walked through as one op. The search goes from both ends in turns, as one of them
/// is often near its end; else its time would grow with the square of the depth.
bool Grouper::hasOuterPath(Group *from, ArrayRef<Operation *> to) {
  DenseSet<Operation *> targets(to.begin(), to.end()), after, before;
  SmallVector<Operation *> down, up;
  auto [begin, end] = reachOf(from, to);
  auto pushUsers = [&, end = end](ArrayRef<Operation *> ops) {
    for (Operation *op : ops)
      for (Operation *user : op->getUsers())
        if (index.lookup(user) <= end && after.insert(user).second)
          down.push_back(user);
  };
  auto pushProducers = [&, begin = begin](ArrayRef<Operation *> ops) {
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          if (index.lookup(producer) >= begin && before.insert(producer).second)
            up.push_back(producer);
  };
  auto membersOf = [](Group *group, Operation *&op) {
    return group ? ArrayRef<Operation *>(group->ops)
                 : ArrayRef<Operation *>(op);
  };
  // What leads from one to the other at once is no path.
  auto startOutside = [&](SmallVector<Operation *> &ops,
                          DenseSet<Operation *> &seen) {
    llvm::erase_if(ops, [&](Operation *op) {
      return groupOf.lookup(op) == from || targets.contains(op);
    });
    seen.clear();
    seen.insert_range(ops);
  };
  pushUsers(from->ops);
  startOutside(down, after);
  pushProducers(to);
  startOutside(up, before);
  while (!down.empty() && !up.empty()) {
    Operation *op = down.pop_back_val();
    if (targets.contains(op))
      return true;
    pushUsers(membersOf(groupOf.lookup(op), op));
    op = up.pop_back_val();
    Group *group = groupOf.lookup(op);
    if (group == from)
      return true;
    if (!targets.contains(op))
      pushProducers(membersOf(group, op));
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
  add(group, op);
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
  for (Operation *op : other->ops)
    for (Value operand : op->getOperands())
      readers[operand].push_back(into);
  absorb(into, other);
  llvm::sort(into->ops, [&](Operation *a, Operation *b) {
    return index.lookup(a) < index.lookup(b);
  });
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
    joined = addGroup(Kind::Row);
    add(joined, op);
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
  Group *group = addGroup(Kind::Column);
  OpBuilder b(op);
  IRMapping mapping;
  for (Operation *producer : ordered) {
    Operation *copy = b.clone(*producer, mapping);
    index[copy] = index.lookup(op);
    add(group, copy);
  }
  op.getInputMutable().assign(mapping.lookupOrDefault(op.getInput()));
  add(group, op);
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
    absorb(other.get(), group);
    return;
  }
  if (gpu && fuse)
    joinProducer(group);
}

/// Lets the pointwise kernel that makes what a column group sums up sum it up, too.
void Grouper::joinProducer(Group *group) {
  ArrayRef<int64_t> shape = shapeOf(group->ops.back()->getOperand(0));
  if (shape.empty() || shape.back() % kColumnsOfBlock != 0)
    return;
  auto isPointwise = [&](Operation *op) {
    return isReplicable(op) || (isa<nn::PointwiseOpInterface>(op) &&
                                shapeOf(op->getResult(0)) == shape);
  };
  for (Operation *member : group->ops)
    for (Value operand : member->getOperands()) {
      Group *maker = groupOf.lookup(operand.getDefiningOp());
      if (!maker || maker == group || maker->kind != Kind::Row ||
          shapeOf(operand) != shape ||
          maker->ops.size() + group->ops.size() > kMaxOps ||
          !llvm::all_of(maker->ops, isPointwise) ||
          hasOuterPath(maker, group->ops) || hasOuterPath(group, maker->ops))
        continue;
      SmallVector<Operation *> both(maker->ops);
      both.append(group->ops);
      if (failed(IterationSpace::compute(both, /*column=*/true)))
        continue;
      absorb(maker, group);
      maker->kind = Kind::Column;
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
  cloneIndices(block);
  cloneReplicable(block);
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    index[&op] = ops.size();
    ops.push_back(&op);
  }
  spanning.assign(ops.size() + 1, 0);
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
    case Kind::Single:
      add(addGroup(Kind::Single), op);
      break;
    case Kind::None:
      break;
    }
  }
  for (nn::ReduceOp op : columns)
    addToColumnGroup(op);
  takeReplicable();
  // Producers that only column groups used are gone.
  eraseDead(block, [&](Operation *op) {
    if (Group *group = groupOf.lookup(op)) {
      llvm::erase(group->ops, op);
      groupOf.erase(op);
    }
  });
  schedule();
}

SmallVector<SmallVector<Operation *>> trainc::formGroups(Block &block,
                                                         bool fuse, bool gpu) {
  Grouper grouper(block, fuse, gpu);
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
