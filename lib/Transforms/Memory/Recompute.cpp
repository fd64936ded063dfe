//===- Recompute.cpp - Compute values again instead of keeping them -------===//
//
// This pass makes the workspace of each list so small that arenas and workspace stay
// below a limit: launches and GEMMs are repeated before later users of their results.
// The repeated command is the same one, with the same inputs, or does those operations
// of its kernel that lead to the result: no bits change. Rematerialize.h chooses.
//
//===----------------------------------------------------------------------===//
#include "Rematerialize.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Analysis/Cost.h"
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainLayout.h"
#include "trainc/Transforms/Memory/Passes.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "train-recompute"

namespace trainc {
#define GEN_PASS_DEF_RECOMPUTEPASS
#include "trainc/Transforms/Memory/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Parts of kernels
//===----------------------------------------------------------------------===//

namespace {
/// The operations of a kernel from its arguments, or some of its results, to one
/// result.
struct Part {
  SmallVector<Operation *> ops;
  /// Arguments and results that these operations read.
  SmallVector<unsigned> arguments, stops;
};
} // namespace

static Part findPart(KernelOp kernel, unsigned result,
                     ArrayRef<unsigned> stops) {
  Block &body = kernel.getBody().front();
  OperandRange returned = body.getTerminator()->getOperands();
  DenseSet<Operation *> needed;
  llvm::SetVector<unsigned> arguments, reached;
  SmallVector<Value> stack{returned[result]};
  while (!stack.empty()) {
    Value value = stack.pop_back_val();
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      arguments.insert(argument.getArgNumber());
      continue;
    }
    const auto *stop =
        llvm::find_if(stops, [&](unsigned i) { return returned[i] == value; });
    if (stop != stops.end() && value != returned[result]) {
      reached.insert(*stop);
      continue;
    }
    if (needed.insert(value.getDefiningOp()).second)
      llvm::append_range(stack, value.getDefiningOp()->getOperands());
  }
  Part part;
  for (Operation &op : body)
    if (needed.contains(&op))
      part.ops.push_back(&op);
  part.arguments = arguments.takeVector();
  part.stops = reached.takeVector();
  llvm::sort(part.arguments);
  llvm::sort(part.stops);
  return part;
}

/// Whether `part` is rows of pointwise ops and reductions: any such ops are a kernel.
static bool isKernel(const Part &part) {
  if (!llvm::all_of(part.ops, [](Operation *op) {
        return isa<nn::PointwiseOpInterface, nn::ReduceOp, nn::ConstantOp,
                   nn::IotaOp>(op);
      }))
    return false;
  auto space = IterationSpace::compute(part.ops, /*column=*/false);
  return succeeded(space) && (space->outerSize() > 1 || !space->hasReductions);
}

//===----------------------------------------------------------------------===//
// What can be computed again
//===----------------------------------------------------------------------===//

namespace {
/// The values of a list as items, and how to make them again.
struct Values {
  Values(ListOp list, SymbolTable &symbols, const Rates &rates);

  ListOp list;
  SymbolTable &symbols;
  const Rates &rates;
  Buffers buffers;
  SmallVector<Buffer *> values; // of item i
  DenseMap<Value, unsigned> indices;
  SmallVector<Item> items;
  double seconds = 0; // of the list

private:
  void addRecipes(unsigned index);
  void addParts(unsigned index, LaunchOp launch);
  bool isKept(Value value);
  std::optional<Recipe> recipeOf(ValueRange inputs);
  SmallVector<SymbolRefAttr> written;
};
} // namespace

/// The slices that the list changes.
static SmallVector<SymbolRefAttr> findWritten(ListOp list, Buffers &buffers) {
  SmallVector<SymbolRefAttr> written;
  for (auto write : list.getBody().getOps<WriteOp>())
    written.push_back(write.getTarget());
  for (auto &[value, buffer] : buffers.buffers)
    if (buffer.place && buffer.place->memory == Memory::arena)
      written.push_back(buffer.place->symbol);
  return written;
}

static bool mayOverlap(SymbolRefAttr a, SymbolRefAttr b) {
  return a == b ||
         (a.getRootReference() == b.getRootReference() &&
          (a.getNestedReferences().empty() || b.getNestedReferences().empty()));
}

/// Whether `value` is the same all through the list, wherever it is read.
bool Values::isKept(Value value) {
  value = buffers.source(value);
  if (isa<BlockArgument>(value))
    return true;
  auto read = value.getDefiningOp<ReadOp>();
  return read && llvm::none_of(written, [&](SymbolRefAttr slice) {
           return mayOverlap(slice, read.getSource());
         });
}

/// A recipe that reads `inputs`, or none if they may have changed meanwhile.
std::optional<Recipe> Values::recipeOf(ValueRange inputs) {
  Recipe recipe{};
  for (Value input : inputs) {
    if (isKept(input))
      continue;
    auto it = indices.find(buffers.source(input));
    if (it == indices.end() || values[it->second]->changed)
      return std::nullopt;
    if (!llvm::is_contained(recipe.items, it->second))
      recipe.items.push_back(it->second);
  }
  return recipe;
}

/// Ways that do some of the operations of the kernel.
void Values::addParts(unsigned index, LaunchOp launch) {
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  auto result = cast<OpResult>(values[index]->value);
  unsigned number = result.getResultNumber();
  SmallVector<SmallVector<unsigned>> choices{{}};
  SmallVector<unsigned> others;
  for (unsigned i = 0; i < launch.getNumResults(); ++i)
    if (i != number && indices.contains(launch.getResult(i)))
      others.push_back(i);
  choices.push_back(others);
  for (unsigned other : others)
    choices.push_back({other});
  SmallVector<Recipe> &recipes = items[index].recipes;
  for (ArrayRef<unsigned> stops : choices) {
    Part part = findPart(kernel, number, stops);
    bool known = llvm::any_of(recipes, [&](const Recipe &recipe) {
      return ArrayRef(recipe.stops) == ArrayRef(part.stops);
    });
    if (known || !isKernel(part))
      continue;
    SmallVector<Value> inputs;
    for (unsigned i : part.arguments)
      inputs.push_back(launch.getInputs()[i]);
    for (unsigned i : part.stops)
      inputs.push_back(launch.getResult(i));
    auto recipe = recipeOf(inputs);
    if (!recipe)
      continue;
    recipe->stops = part.stops;
    double bytes = nn::countBytes(inputs) + nn::countBytes(result);
    Type element = nn::getTensorType(result).getElementType();
    recipe->seconds = *secondsOf(loadOf(part.ops, bytes, element), rates);
    recipes.push_back(*recipe);
  }
}

void Values::addRecipes(unsigned index) {
  Buffer &buffer = *values[index];
  Operation *op = buffer.value.getDefiningOp();
  if (buffer.changed || !isa<LaunchOp, GemmOp, ConvolutionOp>(op) ||
      op->use_empty())
    return;
  if (auto launch = dyn_cast<LaunchOp>(op)) {
    auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
    if (llvm::any_of(kernel.getInplace(), [](int64_t i) { return i >= 0; }))
      return;
    if (launch.getNumResults() > 1)
      addParts(index, launch);
    if (!items[index].recipes.empty())
      return;
  } else if (auto gemm = dyn_cast<GemmOp>(op); gemm && gemm.getInit()) {
    return;
  } else if (auto convolution = dyn_cast<ConvolutionOp>(op);
             convolution && convolution.getInit()) {
    return;
  }
  // The command as it is.
  auto recipe = recipeOf(op->getOperands());
  if (!recipe)
    return;
  recipe->whole = true;
  recipe->extra = nn::countBytes(op->getResults()) - buffer.bytes;
  recipe->seconds = *secondsOf(loadOf(op, symbols), rates);
  items[index].recipes.push_back(*recipe);
}

/// Positions of what reads the memory of `value`.
static void collectUses(const Buffers &buffers, Value value,
                        SmallVectorImpl<int64_t> &uses) {
  for (Operation *user : value.getUsers()) {
    bool view = isa<nn::ReshapeOp, ViewOp>(user);
    if (!view)
      uses.push_back(buffers.position.lookup(user));
    // What is in flight works on it until it is waited for.
    if (Value result = Buffers::resultOf(user)) {
      uses.push_back(buffers.position.lookup(result.getDefiningOp()));
      if (isa<StartOp>(user) && buffers.source(result) == buffers.source(value))
        collectUses(buffers, result, uses);
    }
    for (Value result : user->getResults())
      if (view || buffers.source(result) == buffers.source(value))
        collectUses(buffers, result, uses);
  }
}

/// Where the kernel of a launch computes `result`, which may be from others before it.
static int64_t orderInKernel(Value result, SymbolTable &symbols) {
  auto launch = result.getDefiningOp<LaunchOp>();
  if (!launch)
    return 0;
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  Block &body = kernel.getBody().front();
  Operation *op = body.getTerminator()
                      ->getOperand(cast<OpResult>(result).getResultNumber())
                      .getDefiningOp();
  return op ? std::distance(body.begin(), op->getIterator()) : 0;
}

Values::Values(ListOp list, SymbolTable &symbols, const Rates &rates)
    : list(list), symbols(symbols), rates(rates), buffers(list, symbols),
      values(buffers.inWorkspace()), written(findWritten(list, buffers)) {
  // Each after what it can be made from.
  auto key = [&](Buffer *buffer) {
    return std::tuple(buffer->first, orderInKernel(buffer->value, symbols),
                      cast<OpResult>(buffer->value).getResultNumber());
  };
  llvm::sort(values, [&](Buffer *a, Buffer *b) { return key(a) < key(b); });
  for (auto [i, buffer] : llvm::enumerate(values)) {
    indices[buffer->value] = i;
    items.push_back({buffer->bytes, buffer->first, {}, {}});
    SmallVector<int64_t> &uses = items.back().uses;
    collectUses(buffers, buffer->value, uses);
    llvm::sort(uses);
    uses.erase(llvm::unique(uses), uses.end());
    if (!uses.empty() && uses.back() < buffer->last)
      uses.push_back(buffer->last); // by peers
  }
  for (unsigned i = 0; i < items.size(); ++i)
    addRecipes(i);
  for (Operation &op : list.getBody().front())
    if (isCommand(&op))
      seconds += *secondsOf(loadOf(&op, symbols), rates);
}

//===----------------------------------------------------------------------===//
// Doing it
//===----------------------------------------------------------------------===//

namespace {
/// Kernels of parts: by kernel, result and stops.
using PartMap =
    std::map<std::tuple<Operation *, unsigned, SmallVector<unsigned>>,
             KernelOp>;

/// Puts the recomputations into a list.
struct Writer {
  Values &values;
  PartMap &parts;

  Writer(Values &values, PartMap &parts) : values(values), parts(parts) {}

  void write(const Again &again);

private:
  /// What stands for a value that was computed again, and the reverse: operands of the
  /// commands that were passed are not the values that they were.
  DenseMap<Value, Value> current, original;

  Value lookUp(OpBuilder &b, Value value);
  KernelOp partOf(LaunchOp launch, unsigned result, const Recipe &recipe);
  Operation *computeAgain(OpBuilder &b, unsigned item, const Recipe &recipe);
};
} // namespace

/// What stands for `value` now, through the same reshapes and views.
Value Writer::lookUp(OpBuilder &b, Value value) {
  if (Value viewed = Buffers::viewed(value)) {
    Value input = lookUp(b, viewed);
    if (input == viewed)
      return value;
    IRMapping mapping;
    mapping.map(viewed, input);
    return b.clone(*value.getDefiningOp(), mapping)->getResult(0);
  }
  Value first = original.lookup(value);
  Value now = current.lookup(first ? first : value);
  return now ? now : value;
}

KernelOp Writer::partOf(LaunchOp launch, unsigned result,
                        const Recipe &recipe) {
  auto kernel = values.symbols.lookup<KernelOp>(launch.getKernel());
  KernelOp &made = parts[{kernel, result, recipe.stops}];
  if (made)
    return made;
  Part part = findPart(kernel, result, recipe.stops);
  Block &body = kernel.getBody().front();
  OperandRange returned = body.getTerminator()->getOperands();
  OpBuilder b(kernel->getContext());
  b.setInsertionPointAfter(kernel);
  made = KernelOp::create(b, kernel.getLoc(),
                          (kernel.getSymName() + "_again").str(),
                          ArrayRef<int64_t>{-1}, AbiAttr());
  Block &block = made.getBody().emplaceBlock();
  IRMapping mapping;
  auto addArgument = [&](Value value) {
    mapping.map(value, block.addArgument(value.getType(), value.getLoc()));
  };
  for (unsigned i : part.arguments)
    addArgument(body.getArgument(i));
  for (unsigned i : part.stops)
    addArgument(returned[i]);
  b.setInsertionPointToEnd(&block);
  for (Operation *op : part.ops)
    b.clone(*op, mapping);
  train::ReturnOp::create(b, kernel.getLoc(), mapping.lookup(returned[result]));
  values.symbols.insert(made);
  return made;
}

/// Repeats what makes an item.
Operation *Writer::computeAgain(OpBuilder &b, unsigned item,
                                const Recipe &recipe) {
  auto result = cast<OpResult>(values.values[item]->value);
  Operation *op = result.getOwner(), *made;
  if (recipe.whole) {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, lookUp(b, operand));
    made = b.clone(*op, mapping);
  } else {
    auto launch = cast<LaunchOp>(op);
    auto kernel = values.symbols.lookup<KernelOp>(launch.getKernel());
    Part part = findPart(kernel, result.getResultNumber(), recipe.stops);
    SmallVector<Value> inputs;
    for (unsigned i : part.arguments)
      inputs.push_back(lookUp(b, launch.getInputs()[i]));
    for (unsigned i : part.stops)
      inputs.push_back(lookUp(b, launch.getResult(i)));
    KernelOp again = partOf(launch, result.getResultNumber(), recipe);
    made = LaunchOp::create(b, op->getLoc(), result.getType(),
                            FlatSymbolRefAttr::get(again.getSymNameAttr()),
                            inputs);
  }
  remark::passed(
      op->getLoc(),
      remark::RemarkOpts::name("Recomputed").category("train-recompute"))
      << remark::metric("List", values.list.getSymName())
      << remark::metric("Command", isa<LaunchOp>(op)
                                       ? cast<LaunchOp>(made).getKernel()
                                       : op->getName().stripDialect())
      << remark::metric("Bytes", values.items[item].bytes)
      << remark::metric("Microseconds", int64_t(recipe.seconds * 1e6));
  return made;
}

void Writer::write(const Again &again) {
  SmallVector<Operation *> ops;
  for (Operation &op : values.list.getBody().front())
    ops.push_back(&op);
  auto it = again.begin();
  for (auto [position, op] : llvm::enumerate(ops)) {
    // A command that was repeated as a whole gives all of its results.
    DenseMap<Operation *, Operation *> wholes;
    for (; it != again.end() && it->first.first == int64_t(position); ++it) {
      unsigned item = it->first.second;
      const Recipe &recipe = values.items[item].recipes[it->second];
      auto result = cast<OpResult>(values.values[item]->value);
      OpBuilder b(op);
      Operation *made =
          recipe.whole ? wholes.lookup(result.getOwner()) : nullptr;
      if (!made)
        made = computeAgain(b, item, recipe);
      if (recipe.whole)
        wholes[result.getOwner()] = made;
      Value now = made->getResult(recipe.whole ? result.getResultNumber() : 0);
      current[result] = now;
      original[now] = result;
    }
    if (isa<nn::ReshapeOp, ViewOp, ReadOp>(op))
      continue;
    OpBuilder b(op);
    for (OpOperand &operand : op->getOpOperands())
      operand.set(lookUp(b, operand.get()));
  }
  for (Operation *op : llvm::reverse(ops))
    if (isa<nn::ReshapeOp, ViewOp, ReadOp>(op) && op->use_empty())
      op->erase();
}

//===----------------------------------------------------------------------===//
// The limit
//===----------------------------------------------------------------------===//

static int64_t planned(ArrayRef<Item> items, const Again &again) {
  return layOut(lifetimesOf(items, again), /*reuse=*/true).bytes;
}

/// The workspace that train-plan-memory gives `list`.
static int64_t planned(ListOp list, SymbolTable &symbols) {
  Buffers buffers(list, symbols);
  SmallVector<Lifetime> lifetimes;
  for (Buffer *buffer : buffers.inWorkspace())
    lifetimes.push_back(buffer->lifetime());
  return layOut(lifetimes, /*reuse=*/true).bytes;
}

/// The most that one command reads and makes: no workspace is smaller.
static int64_t mostAtOneCommand(ArrayRef<Item> items) {
  std::map<int64_t, int64_t> bytes;
  for (const Item &item : items) {
    bytes[item.first] += item.bytes;
    for (int64_t use : item.uses)
      bytes[use] += item.bytes;
  }
  int64_t most = 0;
  for (auto [position, sum] : bytes)
    most = std::max(most, sum);
  return most;
}

/// The smallest workspace above `least` for which a choice is found, about.
static int64_t findLeast(ArrayRef<Item> items, int64_t least) {
  int64_t most = planned(items, {}), bound = mostAtOneCommand(items);
  int64_t next = std::max(least, bound + bound / 256);
  while (most - least > most / 64 + 256) {
    if (next > least && next < most) {
      if (auto again = chooseAgain(items, next)) {
        // What it takes is enough, if the search finds its way there, too.
        int64_t bytes = planned(items, *again);
        most = bytes > least && chooseAgain(items, bytes) ? bytes : next;
      } else {
        least = next;
      }
    }
    next = least + (most - least) / 2;
  }
  return most;
}

namespace {
/// The recomputations of a module.
struct Plan {
  Plan(ModuleOp module, int64_t limit, const Rates &rates);

  ModuleOp module;
  SymbolTable symbols;
  int64_t limit, arenas = 0;
  struct List {
    std::unique_ptr<Values> values;
    int64_t kept; // workspace without recomputation
    std::optional<Again> again;
  };
  std::vector<List> lists;

  LogicalResult decide();
  LogicalResult write();
};
} // namespace

Plan::Plan(ModuleOp module, int64_t limit, const Rates &rates)
    : module(module), symbols(module), limit(limit) {
  Layouts layouts(module);
  for (auto arena : module.getOps<ArenaOp>())
    arenas += layouts.of(arena).getBytes();
  for (auto list : module.getOps<ListOp>()) {
    if (list.getWorkspace())
      continue;
    auto values = std::make_unique<Values>(list, symbols, rates);
    int64_t kept = planned(values->items, {});
    lists.push_back({std::move(values), kept, std::nullopt});
  }
}

/// Chooses for all lists; an error says what they need at least.
LogicalResult Plan::decide() {
  int64_t room = std::max<int64_t>(0, limit - arenas);
  int64_t least = 0, kept = 0;
  ListOp failed;
  for (List &list : lists) {
    kept = std::max(kept, list.kept);
    if (list.kept <= room)
      list.again.emplace();
    else
      list.again = chooseAgain(list.values->items, room);
    if (list.again)
      continue;
    int64_t needed = findLeast(list.values->items, room);
    if (needed > least)
      failed = list.values->list;
    least = std::max(least, needed);
  }
  if (!failed && arenas <= limit)
    return success();
  Location loc = failed ? failed->getLoc() : module.getLoc();
  auto error = mlir::emitError(loc)
               << "expects a memory limit of at least " << arenas + least
               << " bytes, " << arenas << " of arenas and " << least
               << " of workspace, got " << limit;
  error.attachNote() << "without recomputation the workspace has " << kept
                     << " bytes; a smaller batch with accumulate(k), "
                        "precision(compute = bf16) or more ranks with "
                        "--shard=optimizer need less memory; trainc-run "
                        "--memory-limit also counts outputs and scratch";
  return failure();
}

LogicalResult Plan::write() {
  PartMap parts;
  Builder b(module.getContext());
  for (List &list : lists) {
    if (list.again->empty())
      continue;
    Values &values = *list.values;
    double seconds = secondsOf(values.items, *list.again);
    Writer(values, parts).write(*list.again);
    int64_t bytes = planned(values.list, symbols);
    if (arenas + bytes > limit)
      return values.list.emitError()
             << "expects a plan of " << planned(values.items, *list.again)
             << " bytes with recomputation, got " << bytes;
    values.list->setAttr(
        "recomputed",
        b.getDictionaryAttr(
            {b.getNamedAttr("values", b.getI64IntegerAttr(list.again->size())),
             b.getNamedAttr("bytes_saved",
                            b.getI64IntegerAttr(list.kept - bytes)),
             b.getNamedAttr("time",
                            b.getF64FloatAttr(seconds / values.seconds))}));
  }
  return success();
}

namespace {
struct RecomputePass : trainc::impl::RecomputePassBase<RecomputePass> {
  using RecomputePassBase::RecomputePassBase;

  void runOnOperation() override {
    if (!limit)
      return;
    if (failed(verifyLayout(getOperation(), "train-recompute")))
      return signalPassFailure();
    Rates measured;
    for (const std::string &given : rates)
      if (failed(measured.parse(given))) {
        getOperation().emitError("expects rates of name=number, got '")
            << given << "'";
        return signalPassFailure();
      }
    Rates assumed = Rates::assume(gpu, measured);
    Plan plan(getOperation(), limit, assumed);
    if (failed(plan.decide()) || failed(plan.write()))
      return signalPassFailure();
    for (const Plan::List &list : plan.lists)
      numRecomputed += list.again->size();
  }
};
} // namespace
