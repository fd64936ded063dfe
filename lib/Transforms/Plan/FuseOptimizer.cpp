//===- FuseOptimizer.cpp - One norm and one update for all parameters -----===//
//
// This pass joins the norms of a plan, which become one pass over the gradients, and
// the updates, which become one pass per kind of rule over everything that it touches.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "trainc/Transforms/Plan/UpdateRule.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "train-fuse-optimizer"

namespace trainc {
#define GEN_PASS_DEF_FUSEOPTIMIZERPASS
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

namespace {
/// Parameters of one group of an update whose elements are stored in one type and copied
/// to the same arenas.
struct Member {
  UpdateOp update;
  OptimizerOp optimizer;
  UpdateGroup group;
  SmallVector<int64_t> positions; // in the group
  SmallVector<StringAttr> copies; // names of arenas
  ParamOp param;                  // the first one
};

struct FuseOptimizerPass
    : trainc::impl::FuseOptimizerPassBase<FuseOptimizerPass> {
  void fuseNorms(Block &block, SymbolTable &symbols);
  void fuseUpdates(Block &block, SymbolTable &symbols);
  void runOnOperation() override;
};
} // namespace

void FuseOptimizerPass::fuseNorms(Block &block, SymbolTable &symbols) {
  // Ranks that have different parts of parameters share the blocks of others.
  llvm::MapVector<ArrayAttr, SmallVector<NormSquaredOp>> kinds;
  for (auto norm : block.getOps<NormSquaredOp>()) {
    auto params = cast<ArrayAttr>(norm.getParams()[0]);
    kinds[lookupParam(params[0], symbols).getPartAxes()].push_back(norm);
  }
  for (auto &[axes, norms] : kinds) {
    OpBuilder b(norms.front());
    SmallVector<Attribute> params;
    SmallVector<Type> types;
    for (NormSquaredOp norm : norms) {
      llvm::append_range(params, norm.getParams());
      llvm::append_range(types, norm.getResultTypes());
    }
    auto fused = NormSquaredOp::create(b, norms.front().getLoc(), types,
                                       b.getArrayAttr(params), ArrayAttr(),
                                       /*fused=*/true);
    ResultRange rest = fused.getResults();
    for (NormSquaredOp norm : norms) {
      size_t count = norm->getNumResults();
      norm->replaceAllUsesWith(rest.take_front(count));
      rest = rest.drop_front(count);
      norm.erase();
      ++numNorms;
    }
  }
}

/// The parameters of `update` by group, by the type in which they are stored, and by copies.
static SmallVector<Member> membersOf(UpdateOp update, SymbolTable &symbols) {
  SmallVector<Member> members;
  for (const UpdateGroup &group : getGroups(update)) {
    auto optimizer = symbols.lookup<OptimizerOp>(group.optimizer.getValue());
    for (auto [i, ref] : llvm::enumerate(group.params)) {
      ParamOp param = lookupParam(ref, symbols);
      SmallVector<StringAttr> copies = copiesOf(update, param, symbols);
      Member *member = llvm::find_if(members, [&](Member &other) {
        return other.group.scale == group.scale &&
               other.optimizer == optimizer && other.copies == copies &&
               hasPadding(other.param) == hasPadding(param) &&
               other.param.getTensorType().getElementType() ==
                   param.getTensorType().getElementType();
      });
      if (member == members.end())
        member = &members.emplace_back(
            Member{update, optimizer, group, {}, copies, param});
      member->positions.push_back(i);
    }
  }
  return members;
}

/// Whether the updates of `a` and `b` are the same code on other numbers.
static bool sameCode(Member &a, Member &b) {
  auto sameRegion = [](Region &x, Region &y) {
    return OperationEquivalence::isRegionEquivalentTo(
        &x, &y, OperationEquivalence::IgnoreLocations);
  };
  OptimizerOp x = a.optimizer, y = b.optimizer;
  auto rankOfScale = [](Member &m) {
    return nn::getTensorType(m.group.scale).getRank();
  };
  return a.param.getTensorType().getElementType() ==
             b.param.getTensorType().getElementType() &&
         a.param.getPartAxes() == b.param.getPartAxes() &&
         hasPadding(a.param) == hasPadding(b.param) &&
         x.getStateNames() == y.getStateNames() &&
         x.getEma().has_value() == y.getEma().has_value() &&
         !a.group.limit == !b.group.limit && a.copies == b.copies &&
         a.update.getStochastic() == b.update.getStochastic() &&
         a.update.getFinite() == b.update.getFinite() &&
         a.update.getT() == b.update.getT() &&
         rankOfScale(a) == rankOfScale(b) &&
         x.getOrthogonalAttr() == y.getOrthogonalAttr() &&
         sameRegion(x.getBody(), y.getBody()) &&
         x.getScaled().empty() == y.getScaled().empty() &&
         (x.getScaled().empty() || sameRegion(x.getScaled(), y.getScaled()));
}

void FuseOptimizerPass::fuseUpdates(Block &block, SymbolTable &symbols) {
  SmallVector<UpdateOp> updates(block.getOps<UpdateOp>());
  SmallVector<SmallVector<Member>> kinds;
  for (UpdateOp update : updates)
    for (Member &member : membersOf(update, symbols)) {
      auto kind = llvm::find_if(
          kinds, [&](auto &kind) { return sameCode(kind.front(), member); });
      if (kind == kinds.end())
        kinds.push_back({member});
      else
        kind->push_back(member);
    }
  for (auto &kind : kinds) {
    UpdateOp last = kind.front().update;
    for (Member &member : kind)
      if (last->isBeforeInBlock(member.update))
        last = member.update;
    OpBuilder b(last);
    SmallVector<UpdateGroup> groups;
    int64_t params = 0;
    for (Member &member : kind) {
      groups.push_back(
          pickParams(b, last.getLoc(), member.group, member.positions));
      params += member.positions.size();
    }
    createUpdate(b, kind.front().update, groups).setFused(true);
    remark::passed(last.getLoc(), remark::RemarkOpts::name("Fused").category(
                                      "train-fuse-optimizer"))
        << remark::metric("Parameters", params)
        << remark::metric("Groups", static_cast<int64_t>(kind.size()));
  }
  numUpdates += updates.size();
  numPasses += kinds.size();
  for (UpdateOp update : updates)
    update.erase();
}

void FuseOptimizerPass::runOnOperation() {
  SetVector<Block *> blocks;
  SymbolTable symbols(getOperation());
  WalkResult verified = getOperation().walk([&](Operation *op) {
    auto norm = dyn_cast<NormSquaredOp>(op);
    auto update = dyn_cast<UpdateOp>(op);
    if (norm || update)
      blocks.insert(op->getBlock());
    return WalkResult(
        failure((norm && failed(verifyNorm(norm, symbols))) ||
                (update && failed(verifyUpdate(update, symbols)))));
  });
  if (verified.wasInterrupted())
    return signalPassFailure();
  for (Block *block : blocks) {
    fuseNorms(*block, symbols);
    fuseUpdates(*block, symbols);
  }
}
