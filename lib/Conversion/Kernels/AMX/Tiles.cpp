//===- Tiles.cpp - Products by tile registers -----------------------------===//
//
// The eight registers hold 2 x 2 sums, two tiles of A and two of B. They are given
// here: LLVM would spill some.
//
//===----------------------------------------------------------------------===//
#include "Tiles.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace trainc;

/// Sums in registers along rows and columns.
static constexpr int64_t kRegisterSide = 2;
/// Registers of A and of B, after those of the sums.
static constexpr int64_t kLeft = 4, kRight = 6;

static int64_t sumOf(int64_t i, int64_t j) { return i * kRegisterSide + j; }

static Value constant(LoopBuilder &l, unsigned bits, int64_t value) {
  return arith::ConstantIntOp::create(l.b, l.loc, value, bits);
}

/// An instruction on registers.
static void callTile(LoopBuilder &l, StringRef name,
                     ArrayRef<int64_t> registers, ValueRange operands = {}) {
  SmallVector<Value> arguments;
  for (int64_t tile : registers)
    arguments.push_back(constant(l, 8, tile));
  llvm::append_range(arguments, operands);
  LLVM::CallIntrinsicOp::create(
      l.b, l.loc, l.b.getStringAttr("llvm.x86." + name), arguments);
}

static Value pointerTo(LoopBuilder &l, Value address) {
  auto pointer = LLVM::LLVMPointerType::get(l.b.getContext());
  return LLVM::IntToPtrOp::create(l.b, l.loc, pointer, address);
}

static void loadTile(LoopBuilder &l, int64_t tile, Value address,
                     int64_t stride) {
  callTile(l, "tileloadd64", tile,
           {pointerTo(l, address), constant(l, 64, stride)});
}

static void storeTile(LoopBuilder &l, int64_t tile, Value address,
                      int64_t stride) {
  callTile(l, "tilestored64", tile,
           {pointerTo(l, address), constant(l, 64, stride)});
}

void trainc::configureTiles(LoopBuilder &l, Value memref) {
  // Byte 0: the palette; 16-bit words from byte 16 on: bytes of a row; bytes from
  // 48 on: rows; of eight registers each.
  SmallVector<int32_t> words(kTileSide, 0);
  words[0] = 1;
  std::fill_n(words.begin() + 4, 4, kTileRow << 16 | kTileRow);
  std::fill_n(words.begin() + 12, 2, kTileSide * 0x01010101);
  auto type = VectorType::get({kTileSide}, l.b.getI32Type());
  Value vector = arith::ConstantOp::create(
      l.b, l.loc, DenseElementsAttr::get(type, ArrayRef(words)));
  vector::StoreOp::create(l.b, l.loc, vector, memref, ValueRange(l.index(0)));
  callTile(l, "ldtilecfg", {}, pointerTo(l, addressOf(l, memref, l.index(0))));
}

void trainc::releaseTiles(LoopBuilder &l) { callTile(l, "tilerelease", {}); }

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

namespace {
/// What is multiplied at once: the step of k, the piece of A and that of B.
struct Product {
  int64_t step, left, right;
};
} // namespace

/// The small ones first.
static SmallVector<Product> productsOf(int64_t steps, bool inPieces) {
  constexpr std::pair<int64_t, int64_t> pairs[] = {{2, 0}, {1, 0}, {1, 1},
                                                   {0, 1}, {0, 2}, {0, 0}};
  SmallVector<Product> products;
  for (int64_t step = 0; step < steps; ++step)
    for (auto [left, right] : ArrayRef(pairs).take_back(inPieces ? 6 : 1))
      products.push_back({step, left, right});
  return products;
}

/// Up to kRegisterSide x kRegisterSide tiles of C. A register is loaded again
/// right after its last use.
static void multiplyInRegisters(LoopBuilder &l, const TileGrid &a,
                                const TileGrid &b, const TileGrid &c,
                                int64_t rows, int64_t columns, int64_t steps,
                                bool accumulate) {
  auto inSums = [&](function_ref<void(int64_t, Value)> body) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        body(sumOf(i, j),
             move(l, c.address, i * kTileSide * c.stride + j * kTileRow));
  };
  auto loadOf = [&](int64_t tile, const TileGrid &grid, int64_t at,
                    int64_t step, int64_t piece) {
    int64_t bytes = at * grid.across + step * grid.deeper + piece * grid.piece;
    loadTile(l, tile, move(l, grid.address, bytes), grid.stride);
  };
  inSums([&](int64_t tile, Value address) {
    if (accumulate)
      loadTile(l, tile, address, c.stride);
    else
      callTile(l, "tilezero", tile);
  });
  SmallVector<Product> products = productsOf(steps, a.piece != 0);
  for (int64_t i = 0; i < rows; ++i)
    loadOf(kLeft + i, a, i, 0, products[0].left);
  for (int64_t j = 0; j < columns; ++j)
    loadOf(kRight + j, b, j, 0, products[0].right);
  for (auto [at, product] : llvm::enumerate(products)) {
    Product next = at + 1 < products.size() ? products[at + 1] : product;
    bool otherStep = next.step != product.step;
    bool otherLeft = otherStep || next.left != product.left;
    bool otherRight = otherStep || next.right != product.right;
    for (int64_t k = 0; k < rows * columns; ++k) {
      int64_t i = otherLeft ? k / columns : k % rows;
      int64_t j = otherLeft ? k % columns : k / rows;
      callTile(l, "tdpbf16ps", {sumOf(i, j), kLeft + i, kRight + j});
      if (otherLeft && j == columns - 1)
        loadOf(kLeft + i, a, i, next.step, next.left);
      if (otherRight && i == rows - 1)
        loadOf(kRight + j, b, j, next.step, next.right);
    }
  }
  inSums([&](int64_t tile, Value address) {
    storeTile(l, tile, address, c.stride);
  });
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
