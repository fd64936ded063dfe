//===- EmbeddingKernel.cpp - Embeddings and their gradients on a GPU ------===//
//
// The gradient of the table: a block owns some rows. Its threads mark which of the ids are
// theirs, and then, each for its own columns, add the gradients of those in a fixed
// order. Sums in a narrow type stand in a wide one until the end.
//
//===----------------------------------------------------------------------===//
#include "Threads.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

static constexpr int64_t kThreads = 256;
/// Ids that a block looks at between two barriers: each thread as many as a word has bits.
static constexpr int64_t kMarks = 32, kIdsAtOnce = kMarks * kThreads;
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

/// The id of the first bit of word `number`, whose other bits are of every 32nd id behind
/// it: the lanes of a warp read ids that stand side by side.
static Value firstIdOf(LoopBuilder &l, Value chunk, Value number) {
  Value ofWarp = l.mul(l.div(number, kWarp), kWarp * kMarks);
  return l.add(chunk, l.add(ofWarp, l.mod(number, kWarp)));
}

/// Sets in the thread's word of `marks` the bits of the ids whose rows are in
/// [begin, end).
static void markOwn(ThreadBuilder &t, Value chunk, int64_t count, Value begin,
                    Value end,
                    function_ref<Value(LoopBuilder &, Value)> loadRow,
                    Value marks) {
  constexpr int64_t atOnce = 8; // loads in flight
  Value firstId = firstIdOf(t, chunk, t.thread());
  Value size = arith::SubIOp::create(t.b, t.loc, end, begin);
  Type word = t.b.getI32Type();
  Value none = arith::ConstantIntOp::create(t.b, t.loc, 0, 32);
  Value bits =
      t.loop(
           t.index(0), t.index(kMarks), atOnce, ValueRange(none),
           [&](LoopBuilder &l, Value bit, ValueRange carried) {
             Value bits = carried[0];
             for (int64_t k = 0; k < atOnce; ++k) {
               Value at = l.add(bit, l.index(k));
               Value i = l.add(firstId, l.mul(at, kWarp));
               Value row = loadRow(l, l.min(i, l.index(count - 1)));
               // A row before the block's is a large number.
               Value within = arith::SubIOp::create(l.b, l.loc, row, begin);
               Value owns = arith::AndIOp::create(
                   l.b, l.loc,
                   arith::CmpIOp::create(l.b, l.loc, arith::CmpIPredicate::ult,
                                         i, l.index(count))
                       .getResult(),
                   arith::CmpIOp::create(l.b, l.loc, arith::CmpIPredicate::ult,
                                         within, size)
                       .getResult());
               Value set = arith::ShLIOp::create(
                   l.b, l.loc,
                   arith::ExtUIOp::create(l.b, l.loc, word, owns).getResult(),
                   arith::IndexCastOp::create(l.b, l.loc, word, at)
                       .getResult());
               bits = arith::OrIOp::create(l.b, l.loc, bits, set);
             }
             return SmallVector<Value>{bits};
           })
          .front();
  memref::StoreOp::create(t.b, t.loc, bits, marks, ValueRange(t.thread()));
}

/// Calls `body` with each id that is marked, in a fixed order.
static void forMarked(LoopBuilder &l, Value chunk, Value marks,
                      function_ref<void(LoopBuilder &, Value)> body) {
  l.loop(l.index(0), l.index(kThreads), 1, [&](LoopBuilder &l, Value number) {
    Type word = l.b.getI32Type();
    Value bits = memref::LoadOp::create(l.b, l.loc, marks, ValueRange(number));
    Value count = arith::IndexCastOp::create(
        l.b, l.loc, l.b.getIndexType(),
        LLVM::CtPopOp::create(l.b, l.loc, word, bits).getResult());
    Value firstId = firstIdOf(l, chunk, number);
    l.loop(l.index(0), count, 1, ValueRange(bits),
           [&](LoopBuilder &l, Value, ValueRange carried) {
             Value bits = carried[0];
             Value bit = arith::IndexCastOp::create(
                 l.b, l.loc, l.b.getIndexType(),
                 LLVM::CountTrailingZerosOp::create(l.b, l.loc, word, bits,
                                                    /*is_zero_poison=*/true)
                     .getResult());
             body(l, l.add(firstId, l.mul(bit, kWarp)));
             Value one = arith::ConstantIntOp::create(l.b, l.loc, 1, 32);
             Value less = arith::SubIOp::create(l.b, l.loc, bits, one);
             return SmallVector<Value>{
                 arith::AndIOp::create(l.b, l.loc, bits, less)};
           });
  });
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
  Value marks = t.shared(b.getI32Type(), kThreads);
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
  auto loadRow = [&](LoopBuilder &l, Value i) {
    Value id = memref::LoadOp::create(l.b, l.loc, ids, ValueRange(i));
    return nn::idAsRow(l.b, l.loc, id, op.countRows(), first);
  };
  t.loop(t.index(0), t.index(count), kIdsAtOnce,
         [&](LoopBuilder &l, Value chunk) {
           ThreadBuilder t(l.b, l.loc, kThreads);
           markOwn(t, chunk, count, begin, end, loadRow, marks);
           t.barrier();
           t.loop(t.mul(id, lanes), t.index(columns), kThreads * lanes,
                  [&](LoopBuilder &l, Value column) {
                    forMarked(l, chunk, marks, [&](LoopBuilder &l, Value i) {
                      Value to = l.add(l.mul(loadRow(l, i), columns), column);
                      Value from = l.add(l.mul(i, columns), column);
                      Value sum = l.combine(
                          nn::ReduceKind::sum,
                          l.loadVector(sums, to, compute, Value(), lanes),
                          l.loadVector(grad, from, element, Value(), lanes));
                      l.storeVector(sum, sums, to, compute, Value(), lanes);
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
