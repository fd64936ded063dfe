//===- PadKernel.cpp - Borders behind further-out dimensions, on a GPU -----===//
//
// Each thread has one vector of the result, which is one of the input or of the border:
// rows of the innermost dimension stay whole.
//
//===----------------------------------------------------------------------===//
#include "Threads.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

static constexpr int64_t kThreads = 256, kAccessBytes = 16;

std::optional<int64_t> trainc::emitPadOnGPU(KernelFunction &function,
                                            nn::PadOp op) {
  RankedTensorType from = nn::getTensorType(op.getInput());
  RankedTensorType to = nn::getTensorType(op.getResult());
  Type element = getStorageType(to.getElementType());
  int64_t lanes = kAccessBytes / nn::getElementBytes(element);
  int64_t rank = to.getRank();
  if (rank < 2 || op.getInterior() || to.getDimSize(rank - 1) % lanes != 0 ||
      from.getDimSize(rank - 1) != to.getDimSize(rank - 1) ||
      !isa<FloatType>(element))
    return std::nullopt;
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  ThreadBuilder t(b, op.getLoc(), kThreads);
  t.setLaunch(function);
  int64_t ofRow = to.getDimSize(rank - 1) / lanes;
  int64_t count = to.getNumElements() / lanes;
  auto type = VectorType::get({lanes}, element);
  Value number = t.add(t.mul(function.tile, kThreads), t.thread());
  t.when(t.less(number, t.index(count)), [&](ThreadBuilder &t) {
    // From the innermost dimension of rows out: the input's row, if it has one.
    Value rest = t.div(number, ofRow), row = t.index(0), inside;
    int64_t stride = 1;
    for (int64_t dim = rank - 2; dim >= 0; --dim) {
      Value at = t.mod(rest, to.getDimSize(dim));
      rest = t.div(rest, to.getDimSize(dim));
      if (int64_t low = op.getLow()[dim])
        at = arith::SubIOp::create(t.b, t.loc, at, t.index(low));
      // An index before the first is a large number.
      Value isThere = t.less(at, t.index(from.getDimSize(dim)));
      inside =
          inside
              ? arith::AndIOp::create(t.b, t.loc, inside, isThere).getResult()
              : isThere;
      row = t.add(row, t.mul(at, stride));
      stride *= from.getDimSize(dim);
    }
    row = arith::SelectOp::create(t.b, t.loc, inside, row, t.index(0));
    Value column = t.mul(ofRow == 1 ? t.index(0) : t.mod(number, ofRow), lanes);
    Value value = vector::LoadOp::create(
        t.b, t.loc, type, function.inputs.lookup(op.getInput()),
        ValueRange(t.add(t.mul(row, ofRow * lanes), column)));
    Value border =
        nn::splatConstant(t.b, t.loc, type, op.getValue().convertToDouble());
    value = arith::SelectOp::create(t.b, t.loc, inside, value, border);
    for (Value memref : function.outputs.lookup(op.getResult()))
      vector::StoreOp::create(t.b, t.loc, value, memref,
                              ValueRange(t.mul(number, lanes)));
  });
  func::ReturnOp::create(b, t.loc);
  return llvm::divideCeil(count, kThreads);
}
