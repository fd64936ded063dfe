//===- Products.cpp - Matrix products of a list ---------------------------===//
#include "Products.h"
#include "ForwardWrites.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/Alignment.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/EraseDead.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// GEMMs and convolutions
//===----------------------------------------------------------------------===//

/// Whether `cast` takes a product or a sum before it is rounded.
static bool isUnrounding(nn::CastOp cast) {
  Type from = nn::getTensorType(cast.getInput()).getElementType();
  return cast.getUnrounded() && from != cast.getType() &&
         nn::getComputeType(from) == cast.getType();
}

/// A cast that takes the product of narrower operands before it is rounded: the GEMM
/// accumulates in f32. Null if there is none.
static nn::CastOp wideningCast(Operation *op) {
  auto matmul = dyn_cast<nn::MatmulOp>(op);
  if (matmul && matmul.getBias())
    return {};
  for (Operation *user : op->getUsers())
    if (auto cast = dyn_cast<nn::CastOp>(user); cast && isUnrounding(cast))
      return cast;
  return {};
}

/// Gives `wide` to the casts of `narrow` that take it unrounded, and to others what it is
/// rounded to.
static void replaceByWide(Value narrow, Value wide) {
  OpBuilder b(wide.getContext());
  b.setInsertionPointAfterValue(wide);
  Type element = nn::getTensorType(wide).getElementType();
  Value rounded;
  for (OpOperand &use : llvm::make_early_inc_range(narrow.getUses())) {
    auto cast = dyn_cast<nn::CastOp>(use.getOwner());
    if (cast && isUnrounding(cast) && cast.getType() == element) {
      cast.replaceAllUsesWith(wide);
      cast.erase();
      continue;
    }
    if (!rounded)
      rounded = nn::castTo(b, wide.getLoc(), wide,
                           nn::getTensorType(narrow).getElementType());
    use.set(rounded);
  }
}

/// The matrix of which `value` is the first columns, or `value`: GEMMs read them there.
static Value matrixOf(Value value) {
  auto slice = value.getDefiningOp<nn::SliceOp>();
  if (!slice)
    return value;
  RankedTensorType from = nn::getTensorType(slice.getInput());
  auto isZero = [](int64_t offset) { return offset == 0; };
  auto isOne = [](int64_t stride) { return stride == 1; };
  bool first = from.getRank() == 2 &&
               slice.getSizes()[0] == from.getDimSize(0) &&
               llvm::all_of(slice.getOffsets(), isZero) &&
               llvm::all_of(slice.getAllStrides(), isOne);
  return first ? slice.getInput() : value;
}

static GemmOp createGemm(OpBuilder &b, nn::MatmulOp op, RankedTensorType result,
                         Value init) {
  RankedTensorType lhs = nn::getTensorType(op.getLhs());
  RankedTensorType rhs = nn::getTensorType(op.getRhs());
  int64_t rank = result.getRank();
  int64_t m = result.getDimSize(rank - 2), n = result.getDimSize(rank - 1);
  int64_t k = lhs.getDimSize(rank - (op.getTransposeLhs() ? 2 : 1));
  int64_t batch = result.getNumElements() / (m * n);
  bool broadcast = rhs.getRank() == 2 && batch > 1;
  if (broadcast && !op.getTransposeLhs()) {
    // The batch joins the rows.
    m *= batch;
    batch = 1;
    broadcast = false;
  }
  return GemmOp::create(b, op.getLoc(), result, Type(), Type(),
                        matrixOf(op.getLhs()), matrixOf(op.getRhs()),
                        op.getBias(), init, Value(), ValueRange(), m, n, k,
                        batch, op.getTransposeLhs(), op.getTransposeRhs(),
                        broadcast, Epilogue::none, BiasGradient::none,
                        /*accumulate=*/false, GemmPlanAttr());
}

/// Removes casts to a wider type and back: whether a product is rounded depends on
/// its users, so they must be the same with and without canonicalization.
static void foldCasts(Block &block) {
  for (auto cast : llvm::make_early_inc_range(block.getOps<nn::CastOp>())) {
    Value value = cast.getInput().getType() == cast.getResult().getType()
                      ? cast.getInput()
                      : nn::getUnwidened(cast);
    if (!value)
      continue;
    cast.getResult().replaceAllUsesWith(value);
    cast.erase();
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isa<nn::CastOp>(op) && op.use_empty())
      op.erase();
}

/// Whether neither operand is broadcast.
static bool addsEqualShapes(nn::AddOp add) {
  return add.getLhs().getType() == add.getRhs().getType();
}

/// The products of which `sum` is the sum, in the order in which they are added, or of each
/// its widening cast; nothing if it is no sum of products, or one of them has other users.
static SmallVector<Value> productsOf(Value sum) {
  SmallVector<Value> products;
  auto isProduct = [](Value value) {
    auto widening = value.getDefiningOp<nn::CastOp>();
    auto matmul = widening ? widening.getInput().getDefiningOp<nn::MatmulOp>()
                           : value.getDefiningOp<nn::MatmulOp>();
    return value.hasOneUse() && matmul && matmul->hasOneUse() &&
           wideningCast(matmul) == widening;
  };
  while (auto add = sum.getDefiningOp<nn::AddOp>()) {
    if (!addsEqualShapes(add) || !isProduct(add.getRhs()))
      return {};
    products.push_back(add.getRhs());
    sum = add.getLhs();
    if (isProduct(sum)) {
      products.push_back(sum);
      return llvm::to_vector(llvm::reverse(products));
    }
    if (!sum.hasOneUse())
      return {};
  }
  return {};
}

/// The sum that `value` is rounded from; null if it is none.
static nn::ReduceOp roundedSum(Value value) {
  auto rounding = value.getDefiningOp<nn::CastOp>();
  auto sum = rounding ? rounding.getInput().getDefiningOp<nn::ReduceOp>()
                      : nn::ReduceOp();
  bool isWide = sum && nn::getTensorType(sum.getResult()).getElementType() ==
                           nn::getComputeType(rounding.getType());
  return isWide && sum.getKind() == nn::ReduceKind::sum ? sum : nn::ReduceOp();
}

/// Casts that take what is not rounded yet stand right behind the product, before what moves
/// its elements.
static void raiseUnrounding(Block &block) {
  for (auto cast : llvm::make_early_inc_range(block.getOps<nn::CastOp>())) {
    if (!isUnrounding(cast))
      continue;
    SmallVector<Operation *> moves;
    Value moved = cast.getInput();
    while (Operation *op = moved.getDefiningOp()) {
      if (!isa<nn::ReshapeOp, nn::TransposeOp>(op))
        break;
      moves.push_back(op);
      moved = op->getOperand(0);
    }
    bool isProduct =
        isa_and_nonnull<nn::MatmulOp, ConvolutionOp>(moved.getDefiningOp());
    if (moves.empty() || !(isProduct || roundedSum(moved)))
      continue;
    OpBuilder b(cast);
    Value wide = nn::castUnrounded(b, cast.getLoc(), moved, cast.getType());
    for (Operation *op : llvm::reverse(moves)) {
      Operation *made = b.clone(*op);
      made->setOperand(0, wide);
      wide = made->getResult(0);
      wide.setType(nn::getTensorType(wide).clone(cast.getType()));
    }
    cast.replaceAllUsesWith(wide);
    cast.erase();
    for (Operation *op : moves)
      if (op->use_empty())
        op->erase();
  }
}

/// Sums of narrow elements are made in f32, too.
static void keepWideSums(Block &block) {
  for (auto cast : llvm::make_early_inc_range(block.getOps<nn::CastOp>())) {
    nn::ReduceOp sum = roundedSum(cast.getInput());
    if (!sum || !isUnrounding(cast))
      continue;
    cast.replaceAllUsesWith(sum.getResult());
    cast.erase();
  }
}

/// What is added to a slice that it is read from and written to.
struct Addend {
  nn::AddOp add;
  ReadOp read;
  Value other; // without a reshape that is its only user
};

/// What is written, or what gradients of embeddings are added to that are.
static Value writtenFirst(WriteOp write) {
  Value written = write.getValue();
  while (auto embedding = written.getDefiningOp<nn::EmbeddingGradOp>()) {
    if (!embedding.getInit() || !embedding->hasOneUse())
      break;
    written = embedding.getInit();
  }
  return written;
}

/// Whether anything else uses what `read` reads.
static bool isReadElsewhere(ReadOp read) {
  return !read->hasOneUse() ||
         llvm::any_of(read->getBlock()->getOps<ReadOp>(), [&](ReadOp other) {
           return other != read && other.getSource() == read.getSource() &&
                  !other.use_empty();
         });
}

/// Finds the addend of `slice + product`, written to that slice at once or after a gradient
/// of an embedding; nothing if that slice or the product has other users.
static std::optional<Addend> findAddend(WriteOp write) {
  auto add = writtenFirst(write).getDefiningOp<nn::AddOp>();
  if (!add || !add->hasOneUse() || !addsEqualShapes(add))
    return std::nullopt;
  auto read = add.getLhs().getDefiningOp<ReadOp>();
  if (!read || read.getSource() != write.getTarget() || isReadElsewhere(read))
    return std::nullopt;
  Value other = add.getRhs();
  if (auto reshape = other.getDefiningOp<nn::ReshapeOp>())
    if (reshape->hasOneUse())
      other = reshape.getInput();
  return Addend{add, read, other};
}

/// Replaces the sum by what `create` makes of the slice, which has the addend's shape then.
static void addInPlace(Addend addend,
                       llvm::function_ref<Value(OpBuilder &, Value)> create) {
  OpBuilder b(addend.add);
  Location loc = addend.add.getLoc();
  Value init = nn::reshapeTo(b, loc, addend.read,
                             nn::getTensorType(addend.other).getShape());
  addend.add.replaceAllUsesWith(nn::reshapeTo(
      b, loc, create(b, init), nn::getTensorType(addend.add).getShape()));
  addend.add.erase();
}

/// Turns `products` into GEMMs, each of which adds to the one before, the first to `last`, if
/// there is one, where that stands; the last result. They stand in the order of the sum, which
/// need not be that of the products.
static Value chain(ArrayRef<Value> products, Value last) {
  for (Value product : products) {
    auto matmul = product.getDefiningOp<nn::MatmulOp>();
    if (!matmul)
      matmul =
          product.getDefiningOp()->getOperand(0).getDefiningOp<nn::MatmulOp>();
    OpBuilder b(matmul);
    if (Operation *before = last ? last.getDefiningOp() : nullptr;
        before && matmul->isBeforeInBlock(before))
      b.setInsertionPointAfter(before);
    last = createGemm(b, matmul, nn::getTensorType(product), last).getResult();
  }
  return last;
}

/// Turns a sum of products that is written to a slice, and added to it if it is an addend,
/// into GEMMs, each of which adds to the one before where that stands.
static bool chainGemms(WriteOp write, std::optional<Addend> addend) {
  Value sum = addend ? addend->other : writtenFirst(write);
  SmallVector<Value> products = productsOf(sum);
  if (products.empty() || (addend && !sum.hasOneUse()))
    return false;
  Value last;
  if (addend) {
    for (auto other : write->getBlock()->getOps<WriteOp>())
      if (other != write && other.getTarget() == write.getTarget())
        return false;
    addend->read->moveBefore(&write->getBlock()->front());
    OpBuilder b(addend->read->getNextNode());
    last = nn::reshapeTo(b, addend->read.getLoc(), addend->read,
                         nn::getTensorType(sum).getShape());
  }
  last = chain(products, last);
  if (addend)
    sum = addend->add;
  OpBuilder b(sum.getDefiningOp());
  sum.replaceAllUsesWith(
      nn::reshapeTo(b, sum.getLoc(), last, nn::getTensorType(sum).getShape()));
  return true;
}

/// Turns products into GEMMs; what is added to a slice adds in place.
static void formGemms(Block &block) {
  for (auto write : llvm::make_early_inc_range(block.getOps<WriteOp>())) {
    auto addend = findAddend(write);
    if (chainGemms(write, addend) || !addend)
      continue;
    auto widening = addend->other.getDefiningOp<nn::CastOp>();
    auto matmul = widening && widening->hasOneUse()
                      ? widening.getInput().getDefiningOp<nn::MatmulOp>()
                      : addend->other.getDefiningOp<nn::MatmulOp>();
    if (!matmul || wideningCast(matmul) != widening || !matmul->hasOneUse())
      continue;
    addInPlace(*addend, [&](OpBuilder &b, Value init) {
      return createGemm(b, matmul, nn::getTensorType(init), init).getResult();
    });
  }
  for (auto concat : block.getOps<nn::ConcatOp>())
    for (OpOperand &part : concat->getOpOperands())
      if (SmallVector<Value> products = productsOf(part.get());
          !products.empty() && part.get().hasOneUse())
        part.set(chain(products, Value()));
  for (auto matmul : llvm::make_early_inc_range(block.getOps<nn::MatmulOp>())) {
    if (!matmul.use_empty()) {
      OpBuilder b(matmul);
      nn::CastOp widening = wideningCast(matmul);
      Value kept = widening ? widening.getResult() : matmul.getResult();
      Value product =
          createGemm(b, matmul, nn::getTensorType(kept), Value()).getResult();
      replaceByWide(matmul.getResult(), product);
    }
    matmul.erase();
  }
}

/// Lets convolutions keep the f32 of their sums where they are only widened to it, and
/// gradients of weights be added to a slice in place.
static void formConvolutions(Block &block) {
  for (auto narrow :
       llvm::make_early_inc_range(block.getOps<ConvolutionOp>())) {
    nn::CastOp widening = wideningCast(narrow);
    if (!widening)
      continue;
    OpBuilder b(narrow);
    auto wide = cast<ConvolutionOp>(b.clone(*narrow));
    wide.getResult().setType(nn::getTensorType(widening));
    replaceByWide(narrow.getResult(), wide.getResult());
    narrow.erase();
  }
  for (auto write : llvm::make_early_inc_range(block.getOps<WriteOp>())) {
    auto addend = findAddend(write);
    auto convolution =
        addend ? addend->other.getDefiningOp<ConvolutionOp>() : nullptr;
    if (!convolution || !convolution->hasOneUse() ||
        convolution.getKind() != ConvolutionKind::weight_gradient ||
        convolution.getInit())
      continue;
    Type element = nn::getTensorType(convolution.getResult()).getElementType();
    if (nn::getComputeType(element) != element)
      continue;
    addInPlace(*addend, [&](OpBuilder &b, Value init) {
      auto made = cast<ConvolutionOp>(b.clone(*convolution));
      made.getInitMutable().assign(init);
      return Value(made.getResult());
    });
  }
}

LogicalResult trainc::formProducts(ListOp list, SymbolTable &symbols) {
  if (failed(forwardWrites(list, symbols)))
    return failure();
  Block &block = list.getBody().front();
  // What is dead has no say in how often a product is used.
  eraseDead(block);
  foldCasts(block);
  raiseUnrounding(block);
  keepWideSums(block);
  formGemms(block);
  formConvolutions(block);
  // A product that adds in place has left its cast, and that a product, unused.
  eraseDead(block);
  for (auto cast : block.getOps<nn::CastOp>())
    cast.setUnrounded(false);
  return success();
}

//===----------------------------------------------------------------------===//
// Parts and wholes
//===----------------------------------------------------------------------===//

/// Whether element `position` of a tensor is aligned as buffers are.
static bool isAligned(int64_t position, RankedTensorType type) {
  return position * nn::getElementBytes(type.getElementType()) %
             kBufferAlignment ==
         0;
}

/// The position from which on the elements of `slice` stand next to each other in its input,
/// aligned as buffers are; nothing if they do not.
static std::optional<int64_t> findRange(nn::SliceOp slice) {
  RankedTensorType from = nn::getTensorType(slice.getInput());
  ArrayRef<int64_t> sizes = slice.getSizes();
  int64_t position = 0;
  bool whole = false; // a further-out dimension has several indices
  for (auto [dim, size, offset, stride] :
       llvm::enumerate(sizes, slice.getOffsets(), slice.getAllStrides())) {
    if (whole && size != from.getDimSize(dim))
      return std::nullopt;
    if (size > 1 && stride != 1)
      return std::nullopt;
    whole |= size > 1;
    position = position * from.getDimSize(dim) + offset;
  }
  return isAligned(position, from) ? std::optional(position) : std::nullopt;
}

/// Whether every command only reads `value`, or a reshape of it.
static bool isOnlyRead(Value value) {
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isa<nn::ReshapeOp>(user))
      return isOnlyRead(user->getResult(0));
    if (auto gemm = dyn_cast<GemmOp>(user))
      return gemm.getInit() != use.get();
    return isa<nn::PointwiseOpInterface, nn::ReduceOp>(user);
  });
}

void trainc::viewSlices(Block &block) {
  for (auto slice : llvm::make_early_inc_range(block.getOps<nn::SliceOp>())) {
    std::optional<int64_t> position = findRange(slice);
    if (!position || !isOnlyRead(slice.getResult()))
      continue;
    OpBuilder b(slice);
    Value flat =
        nn::reshapeTo(b, slice.getLoc(), slice.getInput(),
                      {nn::getTensorType(slice.getInput()).getNumElements()});
    slice.replaceAllUsesWith(
        ViewOp::create(b, slice.getLoc(), slice.getType(), flat, *position)
            .getResult());
    slice.erase();
  }
}

/// Whether `value` is written, at once or with gradients of embeddings added to it.
static bool isOnlyAddedTo(Value value) {
  if (!value.hasOneUse())
    return false;
  Operation *user = *value.user_begin();
  auto embedding = dyn_cast<nn::EmbeddingGradOp>(user);
  return isa<WriteOp>(user) || (embedding && embedding.getInit() == value &&
                                isOnlyAddedTo(embedding.getResult()));
}

/// Whether `value` is a product, or a reshape of one, with one user.
static bool isProduct(Value value) {
  while (auto reshape = value.getDefiningOp<nn::ReshapeOp>()) {
    if (!value.hasOneUse())
      return false;
    value = reshape.getInput();
  }
  return value.hasOneUse() &&
         isa_and_nonnull<GemmOp, ConvolutionOp>(value.getDefiningOp());
}

void trainc::flattenConcats(Block &block) {
  for (auto concat : llvm::make_early_inc_range(block.getOps<nn::ConcatOp>())) {
    RankedTensorType type = nn::getTensorType(concat.getResult());
    if (llvm::any_of(type.getShape().take_front(concat.getDim()),
                     [](int64_t size) { return size != 1; }) ||
        !(isOnlyRead(concat.getResult()) || isOnlyAddedTo(concat.getResult())))
      continue;
    SmallVector<int64_t> positions;
    int64_t position = 0;
    bool fits = true;
    for (Value input : concat.getInputs()) {
      fits &= isAligned(position, type) && isProduct(input);
      positions.push_back(position);
      position += nn::getTensorType(input).getNumElements();
    }
    if (!fits)
      continue;
    OpBuilder b(concat);
    Value flat = FlattenOp::create(
                     b, concat.getLoc(),
                     RankedTensorType::get({position}, type.getElementType()),
                     concat.getInputs(), positions)
                     .getResult();
    concat.replaceAllUsesWith(
        nn::reshapeTo(b, concat.getLoc(), flat, type.getShape()));
    concat.erase();
  }
}
