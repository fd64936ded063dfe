//===- Products.cpp - Matrix products of a list ---------------------------===//
#include "Products.h"
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

/// The cast to f32 that is the only user of the product of narrower operands:
/// the GEMM accumulates in f32 and need not round. Null if there is none.
static nn::CastOp wideningCast(Operation *op) {
  Type type = nn::getTensorType(op->getResult(0)).getElementType();
  auto matmul = dyn_cast<nn::MatmulOp>(op);
  if (!op->hasOneUse() || (matmul && matmul.getBias()) ||
      nn::getComputeType(type) == type)
    return {};
  auto cast = dyn_cast<nn::CastOp>(*op->user_begin());
  return cast && cast.getType() == nn::getComputeType(type) ? cast : nullptr;
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

/// Sums of narrow elements are made in f32: one that is rounded only to be widened
/// again stays as it is, as products do.
static void keepWideSums(Block &block) {
  for (auto cast : llvm::make_early_inc_range(block.getOps<nn::CastOp>())) {
    Value rounded = cast.getInput();
    if (auto reshape = rounded.getDefiningOp<nn::ReshapeOp>())
      if (reshape->hasOneUse())
        rounded = reshape.getInput();
    auto narrowing = rounded.getDefiningOp<nn::CastOp>();
    if (!narrowing || !narrowing->hasOneUse())
      continue;
    auto sum = narrowing.getInput().getDefiningOp<nn::ReduceOp>();
    if (!sum || sum.getKind() != nn::ReduceKind::sum)
      continue;
    Type element = nn::getTensorType(sum.getResult()).getElementType();
    if (cast.getType() != element ||
        nn::getComputeType(narrowing.getType()) != element)
      continue;
    OpBuilder b(cast);
    cast.replaceAllUsesWith(nn::reshapeTo(b, cast.getLoc(), sum.getResult(),
                                          nn::getTensorType(cast).getShape()));
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
      Value replaced = widening ? widening.getResult() : matmul.getResult();
      replaced.replaceAllUsesWith(
          createGemm(b, matmul, nn::getTensorType(replaced), Value())
              .getResult());
      if (widening)
        widening.erase();
    }
    matmul.erase();
  }
}

/// Lets convolutions keep the f32 of their sums where they are only widened to it, and
/// gradients of weights be added to a slice in place.
static void formConvolutions(Block &block) {
  for (auto convolution : block.getOps<ConvolutionOp>()) {
    if (nn::CastOp widening = wideningCast(convolution)) {
      convolution.getResult().setType(nn::getTensorType(widening));
      widening.replaceAllUsesWith(convolution.getResult());
      widening.erase();
    }
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

void trainc::formProducts(Block &block) {
  foldCasts(block);
  keepWideSums(block);
  formGemms(block);
  formConvolutions(block);
  // A product that adds in place has left its cast, and that a product, unused.
  eraseDead(block);
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
