//===- AttentionKernel.cpp - Attention on a GPU ---------------------------===//
#include "AttentionBlock.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Threads of a multiprocessor at once: 168 registers for each.
static constexpr int64_t kForwardThreads = 384;

void AttentionBlock::emitForward(ThreadBuilder &t, Value out, Value lse) {
  int64_t blocks = llvm::divideCeil(e.rows, sizes.rows);
  AttentionOperands o;
  o.own = {e.q};
  o.tiles = {e.k, e.v};
  o.rowsAreQueries = true;
  Value number = e.function.tile;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  o.first = t.mul(t.mod(number, blocks), sizes.rows);
  o.ownHead = t.mod(t.div(number, blocks), e.heads);
  o.tileHead = t.div(o.ownHead, e.heads / e.kvHeads);
  o.batchIndex = t.div(number, blocks * e.heads);
  // Keys are copied while the tile before is finished, values while scores are made.
  bool isWhole = sizes.parts == 1;
  Value begin = visibleBegin(t, o.first);
  if (isWhole) {
    stageOwn(t, o, t.index(0));
    stageTile(t, o, 0, begin, t.index(0));
  }

  // The maximum and the sum of exponentials so far of both rows, then the sums.
  Fragment initial{infinity(t), infinity(t), constant(t, 0.0),
                   constant(t, 0.0)};
  initial.append(products.zeros(t, sizes.width));
  Value end = visibleEnd(t, e, o.first, sizes.rows);
  Fragment state = t.loop(
      begin, end, sizes.tile, initial,
      [&](LoopBuilder &l, Value low, ValueRange carried) {
        ThreadBuilder t(l.b, loc, sizes.threads());
        Fragment state(carried);
        Fragment scores =
            isWhole ? multiplyStaged(t, o, low, end) : multiplyTile(t, o, low);
        finishScores(t, o, low, o.ownHead, scores);
        Value shifts[2], sums[2];
        for (int64_t half : {0, 1}) {
          Value max = state[half];
          Value local;
          for (auto [i, score] : llvm::enumerate(scores))
            if (int64_t(i / 2 % 2) == half)
              local =
                  local ? t.combine(nn::ReduceKind::max, local, score) : score;
          local = t.combineThreads(nn::ReduceKind::max, local, 4);
          state[half] = t.combine(nn::ReduceKind::max, max, local);
          shifts[half] = finite(t, state[half]);
          Value factor = exp(t, max, shifts[half]);
          state[2 + half] =
              arith::MulFOp::create(t.b, loc, state[2 + half], factor);
          for (size_t i = 4; i < state.size(); ++i)
            if (int64_t(i / 2 % 2) == half)
              state[i] = arith::MulFOp::create(t.b, loc, state[i], factor);
        }
        for (auto [i, score] : llvm::enumerate(scores)) {
          int64_t half = i / 2 % 2;
          score = exp(t, score, shifts[half]);
          sums[half] = sums[half]
                           ? t.combine(nn::ReduceKind::sum, sums[half], score)
                           : score;
        }
        for (int64_t half : {0, 1}) {
          Value sum = t.combineThreads(nn::ReduceKind::sum, sums[half], 4);
          state[2 + half] =
              t.combine(nn::ReduceKind::sum, state[2 + half], sum);
        }
        for (auto [score, words] :
             llvm::zip(scores, drawScores(t, o, low, o.ownHead, scores.size())))
          score = e.dropOut(t, score, words);
        Fragment next(ArrayRef<Value>(state).take_front(4));
        next.append(products.accumulate(t, scores, tiles[1],
                                        ArrayRef<Value>(state).drop_front(4)));
        return next;
      });

  if (lse)
    for (int64_t half : {0, 1}) {
      Value log = math::LogOp::create(t.b, loc, state[2 + half]);
      log = arith::AddFOp::create(t.b, loc, finite(t, state[half]), log);
      Value row = ownRow(t, o, half);
      // One of the 4 lanes of one part's block writes.
      Value other = t.add(products.column, o.part);
      Value stores = arith::AndIOp::create(
          t.b, loc, t.less(row, t.index(e.rows)),
          arith::CmpIOp::create(t.b, loc, arith::CmpIPredicate::eq, other,
                                t.index(0)));
      t.when(stores, [&](ThreadBuilder &t) {
        Value head = t.add(t.mul(o.batchIndex, e.heads), o.ownHead);
        t.storeScalar(log, lse, t.add(t.mul(head, e.rows), row), e.compute);
      });
    }
  if (!out)
    return;
  Fragment sums(ArrayRef<Value>(state).drop_front(4));
  Value divisors[2];
  for (int64_t half : {0, 1}) {
    Value isZero = arith::CmpFOp::create(t.b, loc, arith::CmpFPredicate::OEQ,
                                         state[2 + half], constant(t, 0.0));
    divisors[half] = select(t, isZero, constant(t, 1.0), state[2 + half]);
  }
  for (auto [i, sum] : llvm::enumerate(sums))
    sum = arith::DivFOp::create(t.b, loc, sum, divisors[i / 2 % 2]);
  storeRows(t, o, sums, {out, e.rows, e.heads * e.headSize, 0}, o.ownHead);
}

static int64_t emitForward(AttentionEmitter &e, Value out, Value lse) {
  AttentionSizes sizes = chooseAttentionSizes(e.element, e.headSize, 1);
  OpBuilder b = OpBuilder::atBlockEnd(&e.function.function.getBody().front());
  ThreadBuilder t(b, e.loc, sizes.threads());
  t.setLaunch(e.function, /*resident=*/kForwardThreads / t.threads);
  AttentionBlock(e, t, sizes, 1).emitForward(t, out, lse);
  func::ReturnOp::create(b, e.loc);
  return e.batch * e.heads * llvm::divideCeil(e.rows, sizes.rows) * sizes.parts;
}

int64_t trainc::emitAttentionOnGPU(KernelFunction &function, Operation *op) {
  return dispatchAttention(function, op, emitForward, emitAttentionGradOnGPU);
}
