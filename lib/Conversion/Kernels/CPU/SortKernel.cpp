//===- SortKernel.cpp - Sorting by merging --------------------------------===//
//
// A workgroup sorts some rows, each in scratch: runs of 1, 2, 4, ... elements, keys with
// their indices, are merged from one half of the scratch into the other.
//
//===----------------------------------------------------------------------===//
#include "CPUKernels.h"
#include "Common/KernelEmitter.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Elements that a workgroup sorts at least, if there are so many.
static constexpr int64_t kSortedElements = 4096;

namespace {
struct SortEmitter {
  KernelFunction &function;
  nn::SortOp op;
  Location loc;
  Type element;
  int64_t size, inner; // elements of a row, and from one to the next
  Value keys, indices; // scratch of two rows

  int64_t emit();

private:
  Value resultOf(Value result) {
    auto it = function.outputs.find(result);
    return it == function.outputs.end() ? Value() : it->second.front();
  }
  Value load(LoopBuilder &l, Value memref, Value at) {
    return memref::LoadOp::create(l.b, loc, memref, ValueRange(at));
  }
  Value subtract(LoopBuilder &l, Value x, Value y) {
    return arith::SubIOp::create(l.b, loc, x, y);
  }
  Value select(LoopBuilder &l, Value condition, Value x, Value y) {
    return arith::SelectOp::create(l.b, loc, condition, x, y);
  }
  Value compare(LoopBuilder &l, arith::CmpIPredicate kind, Value x, Value y) {
    return arith::CmpIOp::create(l.b, loc, kind, x, y);
  }
  /// Whether x comes before y if both are not equal.
  Value comesBefore(LoopBuilder &l, Value x, Value y);
  void sortRow(LoopBuilder &l, Value row);
  /// Merges two runs of the row in scratch at `from` into that at `to`: from `low` on,
  /// each of `width` elements or what there is.
  void merge(LoopBuilder &l, Value from, Value to, Value low, Value width);
};
} // namespace

Value SortEmitter::comesBefore(LoopBuilder &l, Value x, Value y) {
  if (op.getDescending())
    std::swap(x, y); // whether y is smaller
  if (!isa<FloatType>(x.getType()))
    return compare(l, arith::CmpIPredicate::slt, x, y);
  // A NaN is larger than any number.
  Value isLess =
      arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::ULT, x, y);
  Value isNumber =
      arith::CmpFOp::create(l.b, loc, arith::CmpFPredicate::ORD, x, x);
  return arith::AndIOp::create(l.b, loc, isLess, isNumber);
}

void SortEmitter::merge(LoopBuilder &l, Value from, Value to, Value low,
                        Value width) {
  Value end = l.index(size), last = l.index(size - 1);
  Value middle = l.min(l.add(low, width), end);
  Value high = l.min(l.add(middle, width), end);
  l.loop(
      low, high, 1, {low, middle},
      [&](LoopBuilder &l, Value k, ValueRange at) -> SmallVector<Value> {
        Value left = l.add(from, l.min(at[0], last));
        Value right = l.add(from, l.min(at[1], last));
        Value x = load(l, keys, left), y = load(l, keys, right);
        Value leftEnds = compare(l, arith::CmpIPredicate::sge, at[0], middle);
        Value rightIsThere = compare(l, arith::CmpIPredicate::slt, at[1], high);
        Value takesRight =
            arith::OrIOp::create(l.b, loc, leftEnds,
                                 arith::AndIOp::create(l.b, loc, rightIsThere,
                                                       comesBefore(l, y, x)));
        Value target = l.add(to, k);
        memref::StoreOp::create(l.b, loc, select(l, takesRight, y, x), keys,
                                ValueRange(target));
        Value index = load(l, indices, select(l, takesRight, right, left));
        memref::StoreOp::create(l.b, loc, index, indices, ValueRange(target));
        Value one = l.index(1), zero = l.index(0);
        return {l.add(at[0], select(l, takesRight, zero, one)),
                l.add(at[1], select(l, takesRight, one, zero))};
      });
}

void SortEmitter::sortRow(LoopBuilder &l, Value row) {
  Value input = function.inputs.lookup(op.getInput());
  Value base = l.add(l.mul(l.div(row, inner), size * inner), l.mod(row, inner));
  auto placeOf = [&](LoopBuilder &l, Value i) {
    return l.add(base, l.mul(i, inner));
  };
  Type i32 = l.b.getI32Type();
  auto number = [&](LoopBuilder &l, Value index) -> Value {
    return arith::IndexCastOp::create(l.b, loc, i32, index);
  };
  l.loop(l.index(0), l.index(size), 1, [&](LoopBuilder &l, Value i) {
    Value key = l.loadScalar(input, placeOf(l, i), element);
    memref::StoreOp::create(l.b, loc, key, keys, ValueRange(i));
    memref::StoreOp::create(l.b, loc, number(l, i), indices, ValueRange(i));
  });
  auto state = l.loop(
      l.index(0), l.index(llvm::Log2_64_Ceil(size)), 1,
      {l.index(1), l.index(0)},
      [&](LoopBuilder &l, Value, ValueRange state) -> SmallVector<Value> {
        Value width = state[0], from = state[1];
        Value to = subtract(l, l.index(size), from), pair = l.mul(width, 2);
        Value runs = arith::CeilDivUIOp::create(l.b, loc, l.index(size), pair);
        l.loop(l.index(0), runs, 1, [&](LoopBuilder &l, Value run) {
          Value low = arith::MulIOp::create(l.b, loc, run, pair);
          merge(l, from, to, low, width);
        });
        return {pair, to};
      });
  Value from = state[1];
  Value values = resultOf(op.getValues()), places = resultOf(op.getIndices()),
        positions = resultOf(op.getPositions());
  l.loop(l.index(0), l.index(size), 1, [&](LoopBuilder &l, Value k) {
    Value source = l.add(from, k);
    if (values)
      l.storeScalar(load(l, keys, source), values, placeOf(l, k), element);
    Value index = load(l, indices, source);
    if (places)
      memref::StoreOp::create(l.b, loc, index, places,
                              ValueRange(placeOf(l, k)));
    if (positions) {
      Value i = arith::IndexCastOp::create(l.b, loc, l.b.getIndexType(), index);
      memref::StoreOp::create(l.b, loc, number(l, k), positions,
                              ValueRange(placeOf(l, i)));
    }
  });
}

int64_t SortEmitter::emit() {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  int64_t rows = nn::getTensorType(op.getInput()).getNumElements() / size;
  int64_t ofGroup = std::max<int64_t>(kSortedElements / size, 1);
  keys = function.allocateScratch(l, nn::getComputeType(element), 2 * size);
  indices = function.allocateScratch(l, b.getI32Type(), 2 * size);
  Value first = l.mul(function.tile, ofGroup);
  l.loop(first, l.min(l.add(first, l.index(ofGroup)), l.index(rows)), 1,
         [&](LoopBuilder &l, Value row) { sortRow(l, row); });
  func::ReturnOp::create(b, loc);
  return llvm::divideCeil(rows, ofGroup);
}

int64_t trainc::emitSort(KernelFunction &function, nn::SortOp op) {
  RankedTensorType type = nn::getTensorType(op.getInput());
  int64_t inner = 1;
  for (int64_t size : type.getShape().drop_front(op.getDim() + 1))
    inner *= size;
  return SortEmitter{function,
                     op,
                     op.getLoc(),
                     type.getElementType(),
                     type.getDimSize(op.getDim()),
                     inner,
                     {},
                     {}}
      .emit();
}
