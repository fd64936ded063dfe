//===- HoistCasts.cpp - Keep parameters in the compute type ---------------===//
//
// This pass takes the casts of parameters out of a plan's entries: each parameter
// that the step casts to a narrower type gets a copy of that type in an arena, which
// entries read and updates write. Between a parameter and its cast there may be ops
// that only move elements.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "train-hoist-casts"

namespace trainc {
#define GEN_PASS_DEF_HOISTCASTSPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

/// Ops whose result has the elements of the first operand, and only these.
static bool isMovement(Operation *op) {
  return isa<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::BroadcastOp,
             BarrierOp>(op);
}

namespace {
/// A cast to a narrower type, what it is a cast of, and the ops between.
struct ParameterCast {
  nn::CastOp cast;
  ReadOp read;
  SmallVector<Operation *> moves; // from the read to the cast

  Type type() { return nn::getTensorType(cast->getResult(0)).getElementType(); }
  StringAttr param() { return read.getSource().getLeafReference(); }
};
} // namespace

/// Casts of parameters to narrower types in `body`.
static SmallVector<ParameterCast> findCasts(Block &body, SymbolTable &symbols) {
  SmallVector<ParameterCast> found;
  for (auto cast : body.getOps<nn::CastOp>()) {
    ParameterCast entry{cast, {}, {}};
    Type from = nn::getTensorType(cast.getInput()).getElementType();
    if (!from.isF32() || !(entry.type().isBF16() || entry.type().isF16()))
      continue;
    Operation *op = cast.getInput().getDefiningOp();
    while (op && isMovement(op)) {
      entry.moves.insert(entry.moves.begin(), op);
      op = op->getOperand(0).getDefiningOp();
    }
    entry.read = dyn_cast_or_null<ReadOp>(op);
    if (!entry.read)
      continue;
    auto arena =
        symbols.lookup<ArenaOp>(entry.read.getSource().getRootReference());
    if (arena && arena.getRole() == TRAINC_ROLE_MASTER)
      found.push_back(entry);
  }
  return found;
}

namespace {
struct HoistCastsPass : trainc::impl::HoistCastsPassBase<HoistCastsPass> {
  using Copies = SmallVector<ArenaOp>;

  Copies declareCopies(ModuleOp module, MutableArrayRef<ParameterCast> casts) {
    llvm::MapVector<Type, DenseSet<StringAttr>> wanted;
    for (ParameterCast &cast : casts)
      wanted[cast.type()].insert(cast.param());
    OpBuilder b(module.getContext());
    ArenaOp last;
    for (auto arena : module.getOps<ArenaOp>())
      if (arena.getRole() == TRAINC_ROLE_MASTER)
        last = arena;
    b.setInsertionPointAfter(last);
    Copies copies;
    llvm::StringMap<ArenaOp> arenas;
    for (auto &[type, names] : wanted)
      for (auto param : module.getOps<ParamOp>()) {
        if (!names.contains(param.getSymNameAttr()))
          continue;
        std::string name = arenaName(kComputeArena, type, param);
        ArenaOp &arena = arenas[name];
        if (!arena) {
          arena =
              ArenaOp::create(b, module.getLoc(), name, TRAINC_ROLE_COMPUTE);
          copies.push_back(arena);
        }
        SliceOp copy = arena.addSlice(param.getSymNameAttr(),
                                      param.getTensorType().clone(type));
        ++numCopies;
        copyBytes += nn::countBytes(copy.getTensorType());
      }
    return copies;
  }

  /// Reads the copy in place of `entry`'s cast, if there is one.
  void hoist(ParameterCast &entry, Copies &copies) {
    auto *it = llvm::find_if(copies, [&](ArenaOp arena) {
      return arena.getElementType() == entry.type() &&
             arena.findSlice(entry.param().getValue());
    });
    if (it == copies.end())
      return;
    OpBuilder b(entry.read);
    Value value = ReadOp::create(
        b, entry.read.getLoc(), entry.read.getType().clone(entry.type()),
        sliceRef(b.getContext(), it->getSymName(), entry.param()));
    for (Operation *move : entry.moves) {
      b.setInsertionPoint(move);
      IRMapping mapping;
      mapping.map(move->getOperand(0), value);
      value = b.clone(*move, mapping)->getResult(0);
      value.setType(nn::getTensorType(move->getResult(0)).clone(entry.type()));
    }
    remark::passed(
        entry.cast->getLoc(),
        remark::RemarkOpts::name("Hoisted").category("train-hoist-casts"))
        << remark::metric("Parameter", entry.param().getValue())
        << remark::metric("Arena", it->getSymName())
        << remark::metric(
               "Elements",
               nn::getTensorType(entry.read.getResult()).getNumElements());
    nn::CastOp cast = entry.cast;
    cast.getResult().replaceAllUsesWith(value);
    cast.erase();
    for (Operation *move : llvm::reverse(entry.moves))
      if (move->use_empty())
        move->erase();
    ++numCasts;
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!getStep(module))
      return signalPassFailure();
    SymbolTable symbols(module);
    // Copies are for the step; evals read those that there are.
    SmallVector<ParameterCast> casts;
    for (auto each : module.getOps<StepOp>())
      llvm::append_range(casts, findCasts(each.getBody().front(), symbols));
    if (casts.empty())
      return;
    for (auto arena : module.getOps<ArenaOp>()) {
      if (arena.getRole() == TRAINC_ROLE_COMPUTE) {
        arena.emitOpError("exists already; expected a module without copies");
        return signalPassFailure();
      }
      if (!arena.getSpans().empty()) {
        arena.emitOpError("expects no buckets yet; run train-hoist-casts "
                          "before train-form-buckets");
        return signalPassFailure();
      }
    }
    Copies copies = declareCopies(module, casts);
    for (auto eval : module.getOps<EvalOp>())
      llvm::append_range(casts, findCasts(eval.getBody().front(), symbols));
    for (ParameterCast &cast : casts)
      hoist(cast, copies);
    for (Operation &entry : module.getOps())
      if (isa<StepOp, EvalOp>(entry))
        for (auto read : llvm::make_early_inc_range(
                 entry.getRegion(0).front().getOps<ReadOp>()))
          if (read->use_empty())
            read.erase();
    SmallVector<Attribute> names;
    for (ArenaOp arena : copies)
      names.push_back(FlatSymbolRefAttr::get(arena.getSymNameAttr()));
    module.walk([&](UpdateOp update) {
      update.setCopiesAttr(ArrayAttr::get(module.getContext(), names));
    });
  }
};
} // namespace
