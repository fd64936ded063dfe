//===- FormKernels.cpp - Group ops into kernels, share equal ones ---------===//
//
// This pass turns the ops of a list into launches and GEMMs. Grouping.h decides
// which ops become one kernel; here the groups are scheduled, outlined, and equal
// kernels are shared. Afterwards a list holds reads, writes, reshapes, launches
// and GEMMs only.
//
//===----------------------------------------------------------------------===//
#include "Grouping.h"
#include "Products.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/EraseDead.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

#define DEBUG_TYPE "train-form-kernels"

namespace trainc {
#define GEN_PASS_DEF_FORMKERNELSPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Before grouping
//===----------------------------------------------------------------------===//

/// A read after a write of the same slice is the value written. Writes then stand
/// at the end: whatever is not written in place is copied there.
static void forwardWrites(Block &block) {
  DenseMap<Attribute, Value> written;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (auto write = dyn_cast<WriteOp>(op)) {
      written[write.getTarget()] = write.getValue();
    } else if (auto read = dyn_cast<ReadOp>(op)) {
      auto it = written.find(read.getSource());
      if (it == written.end())
        continue;
      read.replaceAllUsesWith(it->second);
      read.erase();
    }
  }
  for (auto write : llvm::to_vector(block.getOps<WriteOp>()))
    write->moveBefore(block.getTerminator());
}

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
  return GemmOp::create(b, op.getLoc(), result, Type(), Type(), op.getLhs(),
                        op.getRhs(), op.getBias(), init, Value(), ValueRange(),
                        m, n, k, batch, op.getTransposeLhs(),
                        op.getTransposeRhs(), broadcast, Epilogue::none,
                        BiasGradient::none,
                        /*accumulate=*/false, GemmPlanAttr());
}

/// Removes casts to a wider type and back: whether a product is rounded depends on
/// its users, so they must be the same with and without canonicalization.
static void foldCasts(Block &block) {
  for (auto cast : llvm::make_early_inc_range(block.getOps<nn::CastOp>())) {
    SmallVector<OpFoldResult> folded;
    if (failed(cast->fold(folded)) || folded.empty())
      continue;
    cast.getResult().replaceAllUsesWith(llvm::cast<Value>(folded.front()));
    cast.erase();
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isa<nn::CastOp>(op) && op.use_empty())
      op.erase();
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
    if (!isProduct(add.getRhs()))
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
    if (!sum || sum.getKind() != nn::ReduceKind::sum ||
        nn::getTensorType(sum.getResult()).getElementType() != cast.getType())
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

/// Finds the addend of `slice + product`, written to that slice at once or after a gradient
/// of an embedding; nothing if that slice or the product has other users.
static std::optional<Addend> findAddend(WriteOp write) {
  auto add = writtenFirst(write).getDefiningOp<nn::AddOp>();
  if (!add || !add->hasOneUse())
    return std::nullopt;
  auto read = add.getLhs().getDefiningOp<ReadOp>();
  if (!read || read.getSource() != write.getTarget() || !read->hasOneUse())
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
  for (Value product : products) {
    auto matmul = product.getDefiningOp<nn::MatmulOp>();
    if (!matmul)
      matmul = product.getDefiningOp()->getOperand(0).getDefiningOp<nn::MatmulOp>();
    OpBuilder b(matmul);
    last = createGemm(b, matmul, nn::getTensorType(product), last).getResult();
  }
  if (addend)
    sum = addend->add;
  OpBuilder b(sum.getDefiningOp());
  sum.replaceAllUsesWith(nn::reshapeTo(b, sum.getLoc(), last,
                                       nn::getTensorType(sum).getShape()));
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

/// Whether element `position` of a tensor is aligned as buffers are.
static bool isAligned(int64_t position, RankedTensorType type) {
  constexpr int64_t alignment = 64;
  return position * nn::getElementBytes(type.getElementType()) % alignment == 0;
}

/// The position from which on the elements of `slice` stand next to each other in its input,
/// aligned as buffers are; nothing if they do not.
static std::optional<int64_t> findRange(nn::SliceOp slice) {
  RankedTensorType from = nn::getTensorType(slice.getInput());
  ArrayRef<int64_t> sizes = slice.getSizes();
  int64_t position = 0;
  bool whole = false; // a further-out dimension has several indices
  for (auto [dim, size, offset, stride] : llvm::enumerate(
           sizes, slice.getOffsets(), slice.getAllStrides())) {
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
    return isa<nn::MatmulOp, nn::PointwiseOpInterface, nn::ReduceOp>(user);
  });
}

/// Slices whose elements stand next to each other are views of what they are of.
static void viewSlices(Block &block) {
  for (auto slice : llvm::make_early_inc_range(block.getOps<nn::SliceOp>())) {
    std::optional<int64_t> position = findRange(slice);
    if (!position || !isOnlyRead(slice.getResult()))
      continue;
    OpBuilder b(slice);
    Value flat = nn::reshapeTo(
        b, slice.getLoc(), slice.getInput(),
        {nn::getTensorType(slice.getInput()).getNumElements()});
    slice.replaceAllUsesWith(
        ViewOp::create(b, slice.getLoc(), slice.getType(), flat, *position)
            .getResult());
    slice.erase();
  }
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

/// Products that are joined one behind the other are made where they stand in the whole.
static void flattenConcats(Block &block) {
  for (auto concat : llvm::make_early_inc_range(block.getOps<nn::ConcatOp>())) {
    RankedTensorType type = nn::getTensorType(concat.getResult());
    if (llvm::any_of(type.getShape().take_front(concat.getDim()),
                     [](int64_t size) { return size != 1; }) ||
        !isOnlyRead(concat.getResult()))
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

//===----------------------------------------------------------------------===//
// Outlining
//===----------------------------------------------------------------------===//

namespace {
/// Makes kernels and shares equal ones.
struct Outliner {
  ModuleOp module;
  SymbolTable symbols;
  llvm::StringMap<KernelOp> byText;
  int64_t launches = 0;

  explicit Outliner(ModuleOp module) : module(module), symbols(module) {}

  void outline(Block &block, ArrayRef<Operation *> group);

private:
  KernelOp getOrCreate(KernelOp candidate);
};
} // namespace

/// The name of what `group` computes: the source's op names, first three.
static std::string kernelName(ArrayRef<Operation *> group) {
  llvm::SetVector<StringRef> parts;
  for (Operation *op : group) {
    if (isa<nn::ConstantOp>(op) && group.size() > 1)
      continue;
    if (auto loc = dyn_cast<NameLoc>(op->getLoc()))
      parts.insert(loc.getName().getValue());
    else
      parts.insert(op->getName().stripDialect());
  }
  std::string name = "k";
  for (StringRef part : parts.getArrayRef().take_front(3))
    name += ("_" + part).str();
  return name;
}

KernelOp Outliner::getOrCreate(KernelOp candidate) {
  std::string name = candidate.getSymName().str();
  candidate.setSymName("k");
  std::string text;
  llvm::raw_string_ostream stream(text);
  candidate->print(stream,
                   OpPrintingFlags().printGenericOpForm().useLocalScope());
  auto [it, inserted] = byText.try_emplace(text, candidate);
  if (!inserted) {
    candidate.erase();
    return it->second;
  }
  candidate.setSymName(name);
  symbols.insert(candidate);
  return candidate;
}

/// Whether nothing after `position` needs the value read from `slice`, users in
/// `group` aside.
static bool isLastReader(Block &block, SymbolRefAttr slice,
                         const DenseSet<Operation *> &group,
                         Operation *position) {
  for (auto read : block.getOps<ReadOp>()) {
    if (read.getSource() != slice)
      continue;
    SmallVector<Value> values{read.getResult()};
    while (!values.empty())
      for (Operation *user : values.pop_back_val().getUsers()) {
        if (isa<nn::ReshapeOp, ViewOp, BarrierOp>(user))
          values.push_back(user->getResult(0));
        else if (!group.contains(user) && position->isBeforeInBlock(user))
          return false;
      }
  }
  return true;
}

/// The slice in which `value` stands from the list's begin on, or null.
static SymbolRefAttr sliceOf(Value value) {
  while (isa_and_nonnull<nn::ReshapeOp, ViewOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto read = value.getDefiningOp<ReadOp>();
  return read ? read.getSource() : SymbolRefAttr();
}

/// Whether each of the workgroups that share the space of `group` computes a part of
/// `result` of its own, and none needs the others'.
static bool spansAll(ArrayRef<Operation *> group, Value result) {
  auto space = IterationSpace::compute(group, /*column=*/false);
  return succeeded(space) && space->outerSize() * space->inner ==
                                 nn::getTensorType(result).getNumElements();
}

void Outliner::outline(Block &block, ArrayRef<Operation *> group) {
  DenseSet<Operation *> members(group.begin(), group.end());
  llvm::SetVector<Value> inputs, outputs;
  bool pointwise = true;
  for (Operation *op : group) {
    pointwise &= isa<nn::PointwiseOpInterface, nn::ConstantOp>(op);
    for (Value operand : op->getOperands())
      if (!members.contains(operand.getDefiningOp()))
        inputs.insert(operand);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) {
            return !members.contains(block.findAncestorOpInBlock(*user));
          }))
        outputs.insert(result);
  }
  // A result that replaces the slice an input was read from is written there; a
  // gradient of an embedding adds to what it is given, if nobody else needs it.
  SmallVector<int64_t> inplace(outputs.size(), -1);
  auto embedding = dyn_cast<nn::EmbeddingGradOp>(group.front());
  if (embedding && embedding.getInit() && embedding.getInit().hasOneUse() &&
      isa_and_nonnull<GemmOp, LaunchOp>(embedding.getInit().getDefiningOp()))
    inplace[0] = llvm::find(inputs, embedding.getInit()) - inputs.begin();
  pointwise |= embedding != nullptr;
  // Elements outside of the segments stay: the result must stand where they are.
  if (auto map = dyn_cast<SegmentMapOp>(group.back()))
    for (auto [i, target] : llvm::enumerate(map.getTargets()))
      inplace[llvm::find(outputs, map.getOutputs()[i]) - outputs.begin()] =
          llvm::find(inputs, map.getArrays()[target]) - inputs.begin();
  DenseSet<int64_t> taken;
  for (auto [i, output] : llvm::enumerate(outputs)) {
    if (!pointwise || inplace[i] >= 0)
      break;
    for (Operation *user : output.getUsers()) {
      auto write = dyn_cast<WriteOp>(user);
      if (!write)
        continue;
      for (auto [j, input] : llvm::enumerate(inputs)) {
        auto read = input.getDefiningOp<ReadOp>();
        if (read && read.getSource() == write.getTarget() &&
            input.getType() == output.getType() && !taken.contains(j) &&
            llvm::count_if(inputs,
                           [&](Value other) {
                             return sliceOf(other) == read.getSource();
                           }) == 1 &&
            spansAll(group, output) &&
            isLastReader(block, read.getSource(), members, group.back())) {
          inplace[i] = j;
          taken.insert(j);
        }
      }
      break;
    }
  }

  OpBuilder b(module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  auto kernel = KernelOp::create(b, group.front()->getLoc(), kernelName(group),
                                 inplace, AbiAttr());
  Block &body = kernel.getBody().emplaceBlock();
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, body.addArgument(input.getType(), input.getLoc()));
  b.setInsertionPointToEnd(&body);
  for (Operation *op : group)
    b.clone(*op, mapping);
  SmallVector<Value> returned;
  for (Value output : outputs)
    returned.push_back(mapping.lookup(output));
  train::ReturnOp::create(b, kernel.getLoc(), returned);
  kernel = getOrCreate(kernel);

  b.setInsertionPointAfter(group.back());
  SmallVector<Type> types;
  for (Value output : outputs)
    types.push_back(output.getType());
  auto launch = LaunchOp::create(
      b, group.front()->getLoc(), types,
      FlatSymbolRefAttr::get(kernel.getSymNameAttr()), inputs.getArrayRef());
  for (auto [output, result] :
       llvm::zip(outputs.takeVector(), launch.getResults()))
    output.replaceAllUsesWith(result);
  for (Operation *op : llvm::reverse(group))
    op->erase();
  ++launches;
}

/// Whether `array` stands in an arena, of which `result`, or what collectives make
/// of it in place, is written there alone.
static bool replacesArena(Value array, Value result) {
  while (Operation *op = array.getDefiningOp()) {
    if (!isCollective(op) || !getInPlaceOperand(op))
      break;
    array = getInPlaceOperand(op);
  }
  while (result.hasOneUse() && isCollective(*result.user_begin()) &&
         getInPlaceOperand(*result.user_begin()))
    result = (*result.user_begin())->getResult(0);
  auto read = array.getDefiningOp<ReadOp>();
  if (!read || !result.hasOneUse())
    return false;
  auto write = dyn_cast<WriteOp>(*result.user_begin());
  return write && write.getTarget() == read.getSource();
}

/// Checks that what `list` reads after a write is not named otherwise there: a bucket and its
/// arena or one of its slices have no value in common, by which they would keep their order.
static LogicalResult verifyNames(ListOp list, SymbolTable &symbols) {
  auto isPartOf = [&](SymbolRefAttr part, SymbolRefAttr all) {
    if (all.getNestedReferences().empty())
      return true;
    auto bucket = symbols.lookup<BucketOp>(all.getLeafReference());
    return bucket && !part.getNestedReferences().empty() &&
           llvm::is_contained(bucket.getParams(),
                              FlatSymbolRefAttr::get(part.getLeafReference()));
  };
  DenseMap<StringAttr, llvm::SetVector<SymbolRefAttr>> written; // by arena
  for (Operation &op : list.getBody().front()) {
    if (auto write = dyn_cast<WriteOp>(op))
      written[write.getTarget().getRootReference()].insert(write.getTarget());
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      continue;
    SymbolRefAttr source = read.getSource();
    for (SymbolRefAttr target : written[source.getRootReference()])
      if (target != source &&
          (isPartOf(source, target) || isPartOf(target, source)))
        return op.emitOpError("reads ")
               << source << " after " << target
               << " was written; expects one name for both";
  }
  return success();
}

/// Checks that `list` holds only what a kernel computes or a command does.
static LogicalResult verifyNeeds(ListOp list) {
  for (Operation &op : list.getBody().front())
    if (!isa<nn::NNDialect>(op.getDialect()) && !isCollective(&op) &&
        !isa<ReadOp, WriteOp, LaunchOp, GemmOp, ConvolutionOp, SquareSumOp,
             SegmentMapOp, SegmentSquareSumOp, SumBlocksOp, FlattenOp, ViewOp,
             BarrierOp, train::ReturnOp>(op))
      return op.emitOpError("cannot be made a command");
  for (auto map : list.getBody().getOps<SegmentMapOp>())
    for (auto [target, result] : llvm::zip(map.getTargets(), map.getOutputs()))
      if (!replacesArena(map.getArrays()[target], result))
        return map.emitOpError(
                   "expects targets that are read from an arena, and "
                   "results that are written back there, got ")
               << map.getArrays()[target];
  return success();
}

namespace {
struct FormKernelsPass : trainc::impl::FormKernelsPassBase<FormKernelsPass> {
  using FormKernelsPassBase::FormKernelsPassBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto list : getOperation().getOps<ListOp>())
      if (failed(verifyNeeds(list)) || failed(verifyNames(list, symbols)))
        return signalPassFailure();
    Outliner outliner(getOperation());
    for (auto list : llvm::to_vector(getOperation().getOps<ListOp>())) {
      Block &block = list.getBody().front();
      forwardWrites(block);
      formProducts(block);
      if (fuse) {
        viewSlices(block);
        flattenConcats(block);
      }
      numGemms += llvm::range_size(block.getOps<GemmOp>());
      for (ArrayRef<Operation *> group : formGroups(block, fuse))
        outliner.outline(block, group);
      // Barriers kept kernels apart; now there are kernels.
      for (auto barrier :
           llvm::make_early_inc_range(block.getOps<BarrierOp>())) {
        barrier.replaceAllUsesWith(barrier.getInput());
        barrier.erase();
      }
      eraseDead(block);
    }
    numLaunches += outliner.launches;
    numKernels += outliner.byText.size();
  }
};
} // namespace
