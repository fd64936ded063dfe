//===- OverlapReduce.cpp - Start to sum gradients while others are made ---===//
//
// This pass starts the reduce-scatter of a bucket in the lists that make its
// gradients, behind the last command that writes or reads one of them; the list `merge` or, in
// windows of one micro-step, `apply` then waits for it.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainPlaces.h"
#include "trainc/Transforms/Commands/Passes.h"

#define DEBUG_TYPE "train-overlap-reduce"

namespace trainc {
#define GEN_PASS_DEF_OVERLAPREDUCEPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// A collective that is waited for where it starts.
struct Exchange {
  StartOp start;
  WaitOp wait;
};
} // namespace

/// The arena in which `buffer` stands, or null.
static StringAttr arenaOf(Value buffer) {
  auto symbol = getAddress(buffer).getSymbol();
  return symbol ? symbol->getRootReference() : StringAttr();
}

/// The exchanges in place of ranges of one arena, before anything else of `list` touches it.
static SmallVector<Exchange> findChain(ListOp list, StringAttr arena,
                                       SymbolTable &symbols) {
  SmallVector<Exchange> chain;
  for (auto command : list.getBody().getOps<CommandOpInterface>()) {
    auto accesses = command.getAccesses(symbols);
    if (llvm::none_of(accesses, [&](const Access &access) {
          return arenaOf(access.buffer) == arena;
        }))
      continue;
    auto start = dyn_cast<StartOp>(*command);
    if (!start || start.getInput() || !start.getToken())
      break;
    chain.push_back({start, cast<WaitOp>(*start.getToken().user_begin())});
  }
  return chain;
}

/// The last command of `block` that touches `place`, of a collective its wait; null if none
/// writes there, or if the last is a copy to an output.
static Operation *findLastUser(Block &block, const Place &place,
                               SymbolTable &symbols, Layouts &layouts) {
  Operation *last = nullptr;
  bool written = false;
  for (auto command : block.getOps<CommandOpInterface>())
    for (const Access &access : command.getAccesses(symbols))
      if (getPlace(access.buffer, layouts).overlaps(place)) {
        written |= access.write;
        last = command;
      }
  if (auto start = dyn_cast_or_null<StartOp>(last); start && start.getToken())
    last = *start.getToken().user_begin();
  auto copy = dyn_cast_or_null<CopyOp>(last);
  bool returned =
      copy && getAddress(copy.getTarget()).getMemory() == Memory::output;
  return written && !returned ? last : nullptr;
}

namespace {
struct OverlapReducePass
    : trainc::impl::OverlapReducePassBase<OverlapReducePass> {
  /// Starts in each of `makers` what `waiter`, which comes next, does.
  void overlap(ArrayRef<ListOp> makers, ListOp waiter, SymbolTable &symbols,
               Layouts &layouts) {
    SmallVector<Exchange> chain;
    for (auto start : waiter.getBody().getOps<StartOp>()) {
      if (start.getCollective() != Collective::reduce_scatter ||
          start.getInput() || !arenaOf(start.getOut()))
        continue;
      if (chain.empty())
        chain = findChain(waiter, arenaOf(start.getOut()), symbols);
      // Those of two types would have to be waited for in one order.
      else if (arenaOf(start.getOut()) != arenaOf(chain[0].start.getOut()))
        return;
    }
    auto userIn = [&](ListOp maker, StartOp start) {
      return findLastUser(maker.getBody().front(),
                          getPlace(start.getOut(), layouts), symbols, layouts);
    };
    SmallVector<std::pair<Operation *, Exchange>> early;
    for (const Exchange &exchange : chain)
      if (StartOp start = exchange.start;
          start.getCollective() == Collective::reduce_scatter &&
          early.size() < kMostInFlight &&
          llvm::all_of(makers,
                       [&](ListOp maker) { return userIn(maker, start); }))
        early.push_back({userIn(makers.front(), start), exchange});
    if (early.empty())
      return;
    llvm::sort(early, [](auto &a, auto &b) {
      return a.first == b.first
                 ? a.second.start->isBeforeInBlock(b.second.start)
                 : a.first->isBeforeInBlock(b.first);
    });

    // They are waited for in the order of their starts, before the others.
    Operation *end = chain.back().wait->getNextNode();
    for (auto &[user, exchange] : early)
      exchange.wait->moveBefore(end);
    for (Exchange &exchange : chain)
      if (llvm::none_of(early, [&](auto &one) {
            return one.second.start == exchange.start;
          })) {
        exchange.start->moveBefore(end);
        exchange.wait->moveBefore(end);
      }

    SmallVector<FlatSymbolRefAttr> tokens;
    for (size_t i = 0; i < early.size(); ++i)
      tokens.push_back(addToken(waiter, symbols));
    // All lists start them in one order.
    for (ListOp maker : makers) {
      Operation *previous = nullptr;
      for (auto [one, token] : llvm::zip(early, tokens))
        previous = start(maker, userIn(maker, one.second.start), previous,
                         one.second.start, token);
    }
    for (auto [one, token] : llvm::zip(early, tokens)) {
      WaitOp wait = one.second.wait;
      wait.getTokenMutable().clear();
      wait.setPendingAttr(token);
      one.second.start.erase();
    }
    numStarted += early.size();
  }

  /// A new train.token before the lists.
  FlatSymbolRefAttr addToken(ListOp waiter, SymbolTable &symbols) {
    OpBuilder b(waiter.getContext());
    auto token = TokenOp::create(b, waiter.getLoc(),
                                 (waiter.getSymName() + ".reduced").str());
    symbols.insert(token,
                   waiter->getParentOfType<ModuleOp>().getBody()->begin());
    return FlatSymbolRefAttr::get(token.getSymNameAttr());
  }

  /// Starts what `given` does in `maker`, behind `user` and `previous`.
  Operation *start(ListOp maker, Operation *user, Operation *previous,
                   StartOp given, FlatSymbolRefAttr token) {
    if (previous && user->isBeforeInBlock(previous))
      user = previous;
    OpBuilder b(maker.getContext());
    b.setInsertionPointAfter(user);
    Value out = copyBuffer(b, given.getOut());
    return StartOp::create(b, given.getLoc(), given.getCollective(), out,
                           given.getAxesAttr(), token);
  }

  /// `buffer`, an address or a view, again.
  Value copyBuffer(OpBuilder &b, Value buffer) {
    Operation *op = buffer.getDefiningOp();
    IRMapping mapping;
    if (auto view = dyn_cast<ViewOp>(op))
      mapping.map(view.getFlat(), copyBuffer(b, view.getFlat()));
    return b.clone(*op, mapping)->getResult(0);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    Layouts layouts(module);
    for (auto list : llvm::to_vector(module.getOps<ListOp>())) {
      auto step = symbols.lookup<StepOp>(list.getEntry());
      if (!step)
        continue;
      if (!list.getWorkspace()) {
        list.emitOpError("expects planned memory; run train-plan-memory "
                         "before train-overlap-reduce");
        return signalPassFailure();
      }
      // What several micro-steps have accumulated is complete at the end of the last.
      SmallVector<ListOp> makers = getPredecessors(list);
      if (makers.empty() || makers.front().getKind() == ListKind::merge ||
          (list.getKind() == ListKind::apply && step.getAccumulate() > 1))
        continue;
      // Parameters are gathered meanwhile.
      if (llvm::none_of(makers, [](ListOp maker) {
            return llvm::any_of(maker.getBody().getOps<StartOp>(), isApart);
          }))
        overlap(makers, list, symbols, layouts);
    }
  }

  /// Whether commands stand between a start and its wait.
  static bool isApart(StartOp start) {
    return start.getToken() && !isWaitedForAtOnce(start);
  }
};
} // namespace
