//===- PaddedPlane.cpp - A plane with its padding in scratch --------------===//
#include "PaddedPlane.h"

using namespace mlir;
using namespace trainc;

void PaddedPlane::allocate(LoopBuilder &l, KernelFunction &function) {
  Type compute = nn::getComputeType(element);
  memref = function.allocateScratch(l, compute, elements());
  Value value =
      nn::splatConstant(l.b, loc, VectorType::get({kLanes}, compute), padding);
  l.loop(l.index(0), l.index(elements()), kLanes,
         [&](LoopBuilder &l, Value at) {
           l.storeVector(value, memref, at, compute, Value());
         });
}

/// Copies a row of `input`, or padding if `input` is null. What vectors write past its end
/// is padding, too, and before what is copied next.
void PaddedPlane::copyRow(LoopBuilder &l, Value input, Value from, Value to) {
  Type compute = nn::getComputeType(element);
  if (stride != 1) {
    Value none = nn::splatConstant(l.b, loc, compute, padding);
    l.loop(l.index(0), l.index(size[1]), 1, [&](LoopBuilder &l, Value x) {
      Value value = input ? l.loadScalar(input, l.add(from, x), element) : none;
      Value at = placeOf(l, l.add(x, l.index(low[1])));
      l.storeScalar(value, memref, l.add(to, at), compute);
    });
    return;
  }
  int64_t width = std::min<int64_t>(kLanes, llvm::PowerOf2Ceil(size[1]));
  Value none =
      nn::splatConstant(l.b, loc, VectorType::get({width}, compute), padding);
  auto copy = [&](LoopBuilder &l, Value x, int64_t count) {
    Value vector = none;
    if (input) {
      Value mask =
          count == width ? Value() : l.maskBelow(l.index(count), width);
      vector = l.loadVector(input, l.add(from, x), element, mask, width);
      if (mask && padding != 0)
        vector = arith::SelectOp::create(l.b, loc, mask, vector, none);
    }
    l.storeVector(vector, memref, l.add(l.add(to, x), l.index(low[1])), compute,
                  Value(), width);
  };
  int64_t rest = size[1] % width;
  l.loop(l.index(0), l.index(size[1] - rest), width,
         [&](LoopBuilder &l, Value x) { copy(l, x, width); });
  if (rest)
    copy(l, l.index(size[1] - rest), rest);
}

void PaddedPlane::fill(LoopBuilder &l, Value input, Value plane,
                       Value firstRow) {
  Value base = l.mul(plane, size[0] * size[1]);
  l.loop(l.index(0), l.index(rows), 1, [&](LoopBuilder &l, Value r) {
    Value row =
        arith::SubIOp::create(l.b, loc, l.add(firstRow, r), l.index(low[0]));
    Value from = l.add(base, l.mul(row, size[1]));
    Value to = l.mul(r, rowElements());
    // A row above the input is a large number here.
    Value inside = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::ult,
                                         row, l.index(size[0]));
    auto branch = scf::IfOp::create(l.b, loc, inside, /*withElse=*/true);
    OpBuilder thenBuilder = branch.getThenBodyBuilder();
    OpBuilder elseBuilder = branch.getElseBodyBuilder();
    LoopBuilder then{thenBuilder, loc}, otherwise{elseBuilder, loc};
    copyRow(then, input, from, to);
    copyRow(otherwise, Value(), Value(), to);
  });
}
