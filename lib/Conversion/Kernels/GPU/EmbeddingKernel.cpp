//===- EmbeddingKernel.cpp - Embeddings and their gradients on a GPU ------===//
//
// The gradient of the table: a block owns some rows. Its threads look in turns which
// of the ids are theirs, and then, each for its own columns, add the gradients of
// those in their order. Sums in a narrow type stand in a wide one until the end.
//
//===----------------------------------------------------------------------===//
#include "Threads.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

static constexpr int64_t kThreads = 256;
/// Ids that a block looks at between two barriers.
static constexpr int64_t kIdsAtOnce = 1024;
/// Most blocks, each of which reads all ids.
static constexpr int64_t kMostBlocks = 1024;

/// Vectors of 16 bytes that divide rows of `columns` elements.
static int64_t chooseRowLanes(Type element, int64_t columns) {
  int64_t lanes = std::max<int64_t>(1, 16 / nn::getElementBytes(element));
  while (columns % lanes != 0)
    lanes /= 2;
  return lanes;
}

/// The row where a part of a table begins; null without one.
static Value loadFirst(ThreadBuilder &t, const KernelFunction &function,
                       Value first) {
  if (!first)
    return {};
  return memref::LoadOp::create(t.b, t.loc, function.inputs.lookup(first),
                                ValueRange(t.index(0)));
}

int64_t trainc::emitEmbeddingOnGPU(KernelFunction &function,
                                   nn::EmbeddingOp op) {
  RankedTensorType table = nn::getTensorType(op.getTable());
  Type element = getStorageType(table.getElementType());
  int64_t columns = table.getDimSize(1);
  int64_t lanes = chooseRowLanes(element, columns), ofRow = columns / lanes;
  int64_t count = nn::getTensorType(op.getResult()).getNumElements() / lanes;
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  ThreadBuilder t(b, op.getLoc(), kThreads);
  t.setLaunch(function);
  Value number = t.add(t.mul(function.tile, kThreads), t.thread());
  t.when(t.less(number, t.index(count)), [&](ThreadBuilder &t) {
    Value id =
        memref::LoadOp::create(t.b, t.loc, function.inputs.lookup(op.getIds()),
                               ValueRange(t.div(number, ofRow)));
    Value first = loadFirst(t, function, op.getFirst());
    Value row = nn::idAsRow(t.b, t.loc, id, op.countRows(), first), isOwn;
    if (first) {
      isOwn = nn::isRow(t.b, t.loc, row, table.getDimSize(0));
      row = arith::SelectOp::create(t.b, t.loc, isOwn, row, t.index(0));
    }
    Value column = t.mul(ofRow == 1 ? t.index(0) : t.mod(number, ofRow), lanes);
    Value value =
        vector::LoadOp::create(t.b, t.loc, VectorType::get({lanes}, element),
                               function.inputs.lookup(op.getTable()),
                               ValueRange(t.add(t.mul(row, columns), column)));
    if (isOwn) {
      Value zero = arith::ConstantOp::create(t.b, t.loc,
                                             t.b.getZeroAttr(value.getType()));
      value = arith::SelectOp::create(t.b, t.loc, isOwn, value, zero);
    }
    vector::StoreOp::create(t.b, t.loc, value,
                            function.outputs.lookup(op.getResult()).front(),
                            ValueRange(t.mul(number, lanes)));
  });
  func::ReturnOp::create(b, t.loc);
  return llvm::divideCeil(count, kThreads);
}

int64_t trainc::emitEmbeddingGradOnGPU(KernelFunction &function,
                                       nn::EmbeddingGradOp op) {
  RankedTensorType type = nn::getTensorType(op.getResult());
  Type element = type.getElementType();
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  int64_t share = llvm::divideCeil(rows, std::min(rows, kMostBlocks));
  int64_t lanes = chooseRowLanes(element, columns);
  int64_t count = nn::getTensorType(op.getIds()).getNumElements();
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  ThreadBuilder t(b, op.getLoc(), kThreads);
  t.setLaunch(function);
  Value ids = function.inputs.lookup(op.getIds());
  Value grad = function.inputs.lookup(op.getGrad());
  Value init = op.getInit() ? function.inputs.lookup(op.getInit()) : Value();
  Value result = function.outputs.lookup(op.getResult()).front();
  Type i32 = b.getI32Type();
  Value mine = t.shared(i32, kIdsAtOnce); // the row within the block's, or -1
  Value id = t.thread();
  Value first = loadFirst(t, function, op.getFirst());
  Value begin = t.mul(function.tile, share);
  Value end = t.min(t.add(begin, t.index(share)), t.index(rows));
  Type compute = computeTypeOf(op.getResult());
  Value sums = compute == element
                   ? result
                   : t.shareAmongBlocks(function, compute, rows * columns);
  // Runs `body` with each of the thread's vectors of the block's rows.
  auto forOwn = [&](function_ref<void(LoopBuilder &, Value)> body) {
    t.loop(t.add(t.mul(begin, columns), t.mul(id, lanes)), t.mul(end, columns),
           kThreads * lanes, body);
  };
  if (init != sums) {
    forOwn([&](LoopBuilder &l, Value at) {
      Value value = init ? l.loadVector(init, at, element, Value(), lanes)
                         : l.identity(nn::ReduceKind::sum,
                                      VectorType::get({lanes}, compute));
      l.storeVector(value, sums, at, compute, Value(), lanes);
    });
    t.barrier();
  }
  t.loop(
      t.index(0), t.index(count), kIdsAtOnce, [&](LoopBuilder &l, Value chunk) {
        ThreadBuilder t(l.b, l.loc, kThreads);
        Value last = t.min(t.add(chunk, t.index(kIdsAtOnce)), t.index(count));
        t.loop(t.add(chunk, id), last, kThreads, [&](LoopBuilder &l, Value i) {
          Value row = nn::idAsRow(
              l.b, l.loc,
              memref::LoadOp::create(l.b, l.loc, ids, ValueRange(i)),
              op.countRows(), first);
          // A row before the block's is a large number.
          Value within = arith::SubIOp::create(l.b, l.loc, row, begin);
          Value size = arith::SubIOp::create(l.b, l.loc, end, begin);
          Value owns = arith::CmpIOp::create(
              l.b, l.loc, arith::CmpIPredicate::ult, within, size);
          Value number = arith::IndexCastOp::create(l.b, l.loc, i32, within);
          Value none = arith::ConstantIntOp::create(l.b, l.loc, -1, 32);
          memref::StoreOp::create(
              l.b, l.loc,
              arith::SelectOp::create(l.b, l.loc, owns, number, none), mine,
              ValueRange(
                  arith::SubIOp::create(l.b, l.loc, i, chunk).getResult()));
        });
        t.barrier();
        t.loop(t.mul(id, lanes), t.index(columns), kThreads * lanes,
               [&](LoopBuilder &l, Value column) {
                 l.loop(chunk, last, 1, [&](LoopBuilder &l, Value i) {
                   Value number = memref::LoadOp::create(
                       l.b, l.loc, mine,
                       ValueRange(arith::SubIOp::create(l.b, l.loc, i, chunk)
                                      .getResult()));
                   Value zero = arith::ConstantIntOp::create(l.b, l.loc, 0, 32);
                   Value owns = arith::CmpIOp::create(
                       l.b, l.loc, arith::CmpIPredicate::sge, number, zero);
                   ThreadBuilder t(l.b, l.loc, kThreads);
                   t.when(owns, [&](ThreadBuilder &t) {
                     Value row = t.add(
                         begin, arith::IndexCastOp::create(
                                    t.b, t.loc, t.b.getIndexType(), number));
                     Value to = t.add(t.mul(row, columns), column);
                     Value from = t.add(t.mul(i, columns), column);
                     Value sum = t.combine(
                         nn::ReduceKind::sum,
                         t.loadVector(sums, to, compute, Value(), lanes),
                         t.loadVector(grad, from, element, Value(), lanes));
                     t.storeVector(sum, sums, to, compute, Value(), lanes);
                   });
                 });
               });
        t.barrier();
      });
  if (sums != result)
    forOwn([&](LoopBuilder &l, Value at) {
      l.storeVector(l.loadVector(sums, at, compute, Value(), lanes), result, at,
                    element, Value(), lanes);
    });
  func::ReturnOp::create(b, t.loc);
  return llvm::divideCeil(rows, share);
}
