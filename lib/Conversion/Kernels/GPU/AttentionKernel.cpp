//===- AttentionKernel.cpp - Attention on a GPU ---------------------------===//
#include "AttentionBlock.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Threads of a multiprocessor at once: 168 registers for each, and all that one can have
/// for scores that need more beside long rows.
static constexpr int64_t kForwardThreads = 384, kLeastForwardThreads = 256;

AttentionOperands AttentionBlock::queryBlock(ThreadBuilder &t, Value number) {
  int64_t blocks = llvm::divideCeil(e.rows, sizes.rows);
  AttentionOperands o;
  o.own = {e.q};
  o.tiles = {e.k, e.v};
  o.rowsAreQueries = true;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  Value block = t.mod(number, blocks);
  if (e.causal) // the last queries, which see most, begin first
    block = arith::SubIOp::create(t.b, loc, t.index(blocks - 1), block);
  o.first = t.mul(block, sizes.rows);
  o.ofAll = t.div(number, blocks);
  o.ownHead = t.mod(o.ofAll, e.heads);
  o.tileHead = t.div(o.ownHead, e.heads / e.kvHeads);
  o.batchIndex = t.div(number, blocks * e.heads);
  o.begin = visibleBegin(t, o.first);
  o.end = visibleEnd(t, e, o.first, sizes.rows);
  return o;
}

void AttentionBlock::emitForward(ThreadBuilder &t, Value out, Value lse) {
  AttentionOperands o = queryBlock(t, e.function.tile);
  // Without memory for the next tiles keys are copied while the tile before is finished,
  // values while scores are made.
  bool isStaged = !sizes.doubled && sizes.parts == 1;
  if (isStaged)
    stageTile(t, o, 0, {o.tileHead, o.begin, Value(), Value()}, t.index(0));

  // The maximum of both rows so far, the lane's sum of exponentials, then the sums.
  Fragment initial{infinity(t), infinity(t), constant(t, 0.0),
                   constant(t, 0.0)};
  initial.append(products.zeros(t, sizes.width));
  auto body = [&](ThreadBuilder &t, const AttentionTile &tile,
                  ValueRange carried) {
    Fragment state(carried);
    Fragment scores =
        isStaged ? multiplyStaged(t, o, tile) : multiplyTiles(t, o, tile);
    finishScores(t, o, tile, scores);
    Value shifts[2], sums[2];
    for (int64_t half : {0, 1}) {
      Value max = state[half], local = max;
      for (auto [i, score] : llvm::enumerate(scores))
        if (int64_t(i / 2 % 2) == half)
          local = t.combine(nn::ReduceKind::max, local, score);
      state[half] = t.combineThreads(nn::ReduceKind::max, local, 4);
      shifts[half] = mul(t, finite(t, state[half]), constant(t, -shiftUnits()));
      Value decay = exp(t, max, shifts[half]);
      sums[half] = mul(t, state[2 + half], decay);
      for (size_t i = 4; i < state.size(); ++i)
        if (int64_t(i / 2 % 2) == half)
          state[i] = mul(t, state[i], decay);
    }
    for (auto [i, score] : llvm::enumerate(scores)) {
      int64_t half = i / 2 % 2;
      score = exp(t, score, shifts[half]);
      sums[half] = t.combine(nn::ReduceKind::sum, sums[half], score);
    }
    for (auto [score, words] :
         llvm::zip(scores, drawScores(t, o, tile, scores.size())))
      score = e.dropOut(t, score, words);
    Fragment next{state[0], state[1], sums[0], sums[1]};
    next.append(products.accumulate(t, scores, tileRows(t, 1, tile),
                                    ArrayRef<Value>(state).drop_front(4)));
    return next;
  };
  Fragment state = forTiles(t, o, initial, body);
  for (int64_t half : {2, 3})
    state[half] = t.combineThreads(nn::ReduceKind::sum, state[half], 4);

  if (lse)
    for (int64_t half : {0, 1}) {
      Value log = math::LogOp::create(t.b, loc, state[2 + half]);
      double units = scalesLate ? e.scale : 1.0;
      log = math::FmaOp::create(t.b, loc, finite(t, state[half]),
                                constant(t, units), log);
      Value row = ownRow(t, o, half);
      // One of the 4 lanes of one part's block writes.
      Value other = t.add(products.column, o.part);
      Value stores = arith::AndIOp::create(
          t.b, loc, t.less(row, t.index(e.rows)),
          compare(t, arith::CmpIPredicate::eq, other, t.index(0)));
      t.when(stores, [&](ThreadBuilder &t) {
        t.storeScalar(log, lse, t.add(t.mul(o.ofAll, e.rows), row), e.compute);
      });
    }
  if (!out)
    return;
  Fragment sums(ArrayRef<Value>(state).drop_front(4));
  Value quotients[2];
  for (int64_t half : {0, 1}) {
    Value isZero = arith::CmpFOp::create(t.b, loc, arith::CmpFPredicate::OEQ,
                                         state[2 + half], constant(t, 0.0));
    Value divisor = select(t, isZero, constant(t, 1.0), state[2 + half]);
    quotients[half] =
        arith::DivFOp::create(t.b, loc, constant(t, 1.0), divisor);
  }
  for (auto [i, sum] : llvm::enumerate(sums))
    sum = mul(t, sum, quotients[i / 2 % 2]);
  storeRows(t, o, sums, {out, e.rows, e.heads * e.headSize, 0}, o.ownHead);
}

static int64_t emitForward(AttentionEmitter &e, Value out, Value lse) {
  AttentionSizes sizes = chooseAttentionSizes(e, 1);
  OpBuilder b = OpBuilder::atBlockEnd(&e.function.function.getBody().front());
  ThreadBuilder t(b, e.loc, sizes.threads());
  int64_t threads = kForwardThreads;
  if (sizes.doubled && sizes.width > kShortRow && !hasSimpleScores(e))
    threads = kLeastForwardThreads;
  t.setLaunch(e.function, /*resident=*/threads / t.threads);
  AttentionBlock(e, t, sizes, 1).emitForward(t, out, lse);
  func::ReturnOp::create(b, e.loc);
  return e.batch * e.heads * llvm::divideCeil(e.rows, sizes.rows) * sizes.parts;
}

int64_t trainc::emitAttentionOnGPU(KernelFunction &function, Operation *op) {
  return dispatchAttention(function, op, emitForward, emitAttentionGradOnGPU);
}
