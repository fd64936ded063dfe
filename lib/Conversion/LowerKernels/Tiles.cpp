//===- Tiles.cpp - Products by tile registers -----------------------------===//
//
// LLVM assigns the registers and configures them where a function begins. No
// tile lives longer than a basic block: its eight registers hold 2 x 2 sums, two
// tiles of A and two of B.
//
//===----------------------------------------------------------------------===//
#include "Tiles.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace trainc;

/// Sums in registers along rows and columns.
static constexpr int64_t kRegisterSide = 2;

static Value constant(LoopBuilder &l, unsigned bits, int64_t value) {
  return arith::ConstantIntOp::create(l.b, l.loc, value, bits);
}

/// An instruction on tiles of full size.
static Value callTile(LoopBuilder &l, StringRef name, bool hasResult,
                      unsigned sizes, ValueRange operands) {
  SmallVector<Value> arguments{constant(l, 16, kTileSide)};
  arguments.resize(sizes, constant(l, 16, kTileRow));
  llvm::append_range(arguments, operands);
  auto intrinsic = l.b.getStringAttr("llvm.x86." + name + ".internal");
  if (!hasResult) {
    LLVM::CallIntrinsicOp::create(l.b, l.loc, intrinsic, arguments);
    return Value();
  }
  Type tile = LLVM::LLVMX86AMXType::get(l.b.getContext());
  return LLVM::CallIntrinsicOp::create(l.b, l.loc, tile, intrinsic, arguments)
      .getResults();
}

static Value pointerTo(LoopBuilder &l, Value address) {
  auto pointer = LLVM::LLVMPointerType::get(l.b.getContext());
  return LLVM::IntToPtrOp::create(l.b, l.loc, pointer, address);
}

static Value loadTile(LoopBuilder &l, Value address, int64_t stride) {
  return callTile(l, "tileloadd64", true, 2,
                  {pointerTo(l, address), constant(l, 64, stride)});
}

static void storeTile(LoopBuilder &l, Value tile, Value address,
                      int64_t stride) {
  callTile(l, "tilestored64", false, 2,
           {pointerTo(l, address), constant(l, 64, stride), tile});
}

static Value move(LoopBuilder &l, Value address, int64_t bytes) {
  return bytes ? l.add(address, constant(l, 64, bytes)) : address;
}

static Value move(LoopBuilder &l, Value address, Value count, int64_t bytes) {
  count = arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), count);
  return l.add(address, arith::MulIOp::create(l.b, l.loc, count,
                                              constant(l, 64, bytes)));
}

Value trainc::addressOf(LoopBuilder &l, Value memref, Value at) {
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  Value base =
      memref::ExtractAlignedPointerAsIndexOp::create(l.b, l.loc, memref);
  Value address = l.add(base, l.mul(at, nn::getElementBytes(element)));
  return arith::IndexCastOp::create(l.b, l.loc, l.b.getI64Type(), address);
}

/// Up to kRegisterSide x kRegisterSide tiles of C.
static void multiplyInRegisters(LoopBuilder &l, const TileGrid &a,
                                const TileGrid &b, const TileGrid &c,
                                int64_t rows, int64_t columns, int64_t steps,
                                bool accumulate) {
  Value sums[kRegisterSide][kRegisterSide], right[kRegisterSide];
  auto place = [&](int64_t i, int64_t j) {
    return move(l, c.address, i * kTileSide * c.stride + j * kTileRow);
  };
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      sums[i][j] = accumulate ? loadTile(l, place(i, j), c.stride)
                              : callTile(l, "tilezero", true, 2, {});
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t i = 0; i < rows; ++i) {
      Value left = loadTile(
          l, move(l, a.address, i * a.across + step * a.deeper), a.stride);
      for (int64_t j = 0; j < columns; ++j) {
        if (i == 0)
          right[j] = loadTile(
              l, move(l, b.address, j * b.across + step * b.deeper), b.stride);
        sums[i][j] =
            callTile(l, "tdpbf16ps", true, 3, {sums[i][j], left, right[j]});
      }
    }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      storeTile(l, sums[i][j], place(i, j), c.stride);
}

/// Runs `body` on 0 to `count` with how many it shall do at once.
static void inSides(LoopBuilder &l, int64_t count,
                    function_ref<void(LoopBuilder &, Value, int64_t)> body) {
  int64_t middle = count / kRegisterSide * kRegisterSide;
  if (middle)
    l.loop(l.index(0), l.index(middle), kRegisterSide,
           [&](LoopBuilder &l, Value at) { body(l, at, kRegisterSide); });
  if (middle < count)
    body(l, l.index(middle), count - middle);
}

void trainc::multiplyTiles(LoopBuilder &l, TileGrid a, TileGrid b, TileGrid c,
                           int64_t rows, int64_t columns, int64_t steps,
                           bool accumulate) {
  inSides(l, rows, [&](LoopBuilder &l, Value row, int64_t m) {
    TileGrid left = a, sums = c;
    left.address = move(l, a.address, row, a.across);
    sums.address = move(l, c.address, row, kTileSide * c.stride);
    inSides(l, columns, [&](LoopBuilder &l, Value column, int64_t n) {
      TileGrid right = b, here = sums;
      right.address = move(l, b.address, column, b.across);
      here.address = move(l, sums.address, column, kTileRow);
      multiplyInRegisters(l, left, right, here, m, n, steps, accumulate);
    });
  });
}
