//===- EmbeddingKernel.cpp - Gradient of the table of an embedding --------===//
//
// A tile owns a range of the table's rows. It clears or copies them, then goes
// over all ids and adds the gradients of those in its range: in their order,
// whatever the number of threads.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "Common/GenericKernel.h"
#include "Common/KernelEmitter.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Bytes of a workgroup's rows, and the most workgroups: each reads all ids.
static constexpr int64_t kBytes = 1 << 18, kMaxWorkgroups = 64;

FailureOr<int64_t> trainc::emitEmbeddingGrad(KernelFunction &function,
                                             nn::EmbeddingGradOp op) {
  RankedTensorType type = nn::getTensorType(op.getResult());
  Type element = type.getElementType();
  if (nn::getComputeType(element) != element || type.getNumElements() == 0)
    return emitGeneric(function);
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  int64_t bytes = nn::countBytes(type);
  int64_t share = llvm::divideCeil(
      rows, std::clamp<int64_t>(bytes / kBytes, 1, kMaxWorkgroups));
  Location loc = op.getLoc();
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  Value ids = function.inputs.lookup(op.getIds());
  Value grad = function.inputs.lookup(op.getGrad());
  Value init = op.getInit() ? function.inputs.lookup(op.getInit()) : Value();
  Value result = function.outputs.lookup(op.getResult()).front();
  Value begin = l.mul(function.tile, share);
  Value end = l.min(l.add(begin, l.index(share)), l.index(rows));
  Value first;
  if (op.getFirst())
    first = memref::LoadOp::create(
        b, loc, function.inputs.lookup(op.getFirst()), ValueRange(l.index(0)));

  // Runs `body` on vectors of a row: column and mask.
  auto inRow = [&](LoopBuilder &l,
                   function_ref<void(LoopBuilder &, Value, Value)> body) {
    l.loop(l.index(0), l.index(columns), kLanes, [&](LoopBuilder &l, Value at) {
      Value mask;
      if (columns % kLanes != 0)
        mask =
            l.maskBelow(arith::SubIOp::create(l.b, loc, l.index(columns), at));
      body(l, at, mask);
    });
  };
  if (init != result)
    l.loop(begin, end, 1, [&](LoopBuilder &l, Value row) {
      Value base = l.mul(row, columns);
      inRow(l, [&](LoopBuilder &l, Value at, Value mask) {
        at = l.add(base, at);
        Value value = init ? l.loadVector(init, at, element, mask)
                           : l.identity(nn::ReduceKind::sum,
                                        VectorType::get({kLanes}, element));
        l.storeVector(value, result, at, element, mask);
      });
    });
  int64_t count = nn::getTensorType(op.getIds()).getNumElements();
  l.loop(l.index(0), l.index(count), 1, [&](LoopBuilder &l, Value i) {
    Value id = memref::LoadOp::create(l.b, loc, ids, ValueRange(i));
    // A row before the first of a part is a large number.
    Value row = nn::idAsRow(l.b, loc, id, op.countRows(), first);
    Value above =
        arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::uge, row, begin);
    Value below =
        arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::ult, row, end);
    Value owns = arith::AndIOp::create(l.b, loc, above, below);
    auto branch = scf::IfOp::create(l.b, loc, owns, /*withElse=*/false);
    OpBuilder then = branch.getThenBodyBuilder();
    LoopBuilder t{then, loc};
    Value from = t.mul(i, columns), to = t.mul(row, columns);
    inRow(t, [&](LoopBuilder &l, Value at, Value mask) {
      Value sum = l.combine(nn::ReduceKind::sum,
                            l.loadVector(result, l.add(to, at), element, mask),
                            l.loadVector(grad, l.add(from, at), element, mask));
      l.storeVector(sum, result, l.add(to, at), element, mask);
    });
  });
  func::ReturnOp::create(b, loc);
  return llvm::divideCeil(rows, share);
}
