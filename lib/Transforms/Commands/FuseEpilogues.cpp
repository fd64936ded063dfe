//===- FuseEpilogues.cpp - Biases, gelu and bias gradients into GEMMs -----===//
//
// This pass gives GEMMs what can be computed along with a product: the
// bias, gelu and its slope, and the sums of an operand or of the result, which are a
// bias's gradient. It stands between the forming of GEMMs and that of kernels: then
// these ops are still apart, and kernels are formed of what is left.
//
//===----------------------------------------------------------------------===//
#include "Products.h"
#include "mlir/IR/Remarks.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/EraseDead.h"

#define DEBUG_TYPE "train-fuse-epilogues"

namespace trainc {
#define GEN_PASS_DEF_FUSEEPILOGUESPASS
#include "trainc/Transforms/Commands/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// What the ops are
//===----------------------------------------------------------------------===//

static Value skipReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
    value = reshape.getInput();
  return value;
}

/// The GEMM whose result `value` is, through reshapes, if it computes a product and
/// nothing else, except that it may have a bias. Null if there is none.
static GemmOp getPlainGemm(Value value) {
  Value product = skipReshapes(value);
  auto gemm = product.getDefiningOp<GemmOp>();
  bool plain = gemm && gemm.getResult() == product && gemm.getBatch() == 1 &&
               !gemm.getInit() && gemm.getEpilogue() == Epilogue::none &&
               gemm.getBiasGradient() == BiasGradient::none;
  return plain ? gemm : GemmOp();
}

/// Whether all that `value` is made of, back to `gemm`, has this one user.
static bool isOnlyUse(Value value, GemmOp gemm) {
  while (value.hasOneUse()) {
    if (value == gemm.getResult())
      return true;
    value = value.getDefiningOp<nn::ReshapeOp>().getInput();
  }
  return false;
}

/// Appends `value` and all reshapes of it.
static void appendReshapes(Value value, SmallVectorImpl<Value> &values) {
  values.push_back(value);
  for (Operation *user : value.getUsers())
    if (auto reshape = dyn_cast<nn::ReshapeOp>(user))
      appendReshapes(reshape.getResult(), values);
}

static Type elementOf(Value value) {
  return nn::getTensorType(value).getElementType();
}

static int64_t sizeOf(Value value) {
  return nn::getTensorType(value).getNumElements();
}

/// Whether two scalar values are the same expression of the arguments of their
/// blocks, whatever the order of ops and of operands that commute.
static bool isSameExpression(Value a, Value b) {
  auto argument = dyn_cast<BlockArgument>(a);
  auto other = dyn_cast<BlockArgument>(b);
  if (argument || other)
    return argument && other && argument.getArgNumber() == other.getArgNumber();
  Operation *one = a.getDefiningOp(), *two = b.getDefiningOp();
  if (one->getName() != two->getName() ||
      one->getAttrDictionary() != two->getAttrDictionary() ||
      one->getPropertiesAsAttribute() != two->getPropertiesAsAttribute() ||
      one->getNumOperands() != two->getNumOperands() ||
      a.getType() != b.getType())
    return false;
  if (llvm::all_of_zip(one->getOperands(), two->getOperands(),
                       isSameExpression))
    return true;
  return one->hasTrait<OpTrait::IsCommutative>() &&
         one->getNumOperands() == 2 &&
         isSameExpression(one->getOperand(0), two->getOperand(1)) &&
         isSameExpression(one->getOperand(1), two->getOperand(0));
}

/// Whether `map` multiplies its first input by the derivative of gelu (tanh) at its
/// second: as gelu's own rule makes it.
static bool isGeluGradient(nn::MapOp map) {
  if (map.getInputs().size() != 2 || map.getOutputs().size() != 1)
    return false;
  Value gradient = map.getInputs()[0], at = map.getInputs()[1];
  if (gradient.getType() != at.getType() ||
      map.getOutputs()[0].getType() != at.getType())
    return false;
  Block scratch;
  OpBuilder b(map.getContext());
  b.setInsertionPointToStart(&scratch);
  BlockArgument x = scratch.addArgument(at.getType(), map.getLoc());
  BlockArgument g = scratch.addArgument(at.getType(), map.getLoc());
  auto gelu = nn::GeluOp::create(b, map.getLoc(), x, nn::GeluForm::tanh);
  SmallVector<Value> made(1);
  if (failed(gelu.buildGradients(b, ValueRange(Value(g)), made)))
    return false;
  auto rule = made[0].getDefiningOp<nn::MapOp>();
  auto yielded = [](nn::MapOp op) {
    return op.getBody().front().getTerminator()->getOperand(0);
  };
  return rule &&
         llvm::equal(rule.getInputs(), ValueRange{Value(g), Value(x)}) &&
         isSameExpression(yielded(rule), yielded(map));
}

namespace {
/// A sum of all rows of a matrix in memory, and what it becomes.
struct ColumnSum {
  Value matrix; // through reshapes
  int64_t rows, columns;
  Value sum; // of the type of `element`
};
} // namespace

/// The sum over all but the innermost dimensions of something that is widened first
/// at most. It is f32; one that is only narrowed is what that makes.
static std::optional<ColumnSum> getColumnSum(nn::ReduceOp reduce,
                                             Type element) {
  if (reduce.getKind() != nn::ReduceKind::sum || reduce.getDims().empty())
    return std::nullopt;
  ArrayRef<int64_t> shape = nn::getTensorType(reduce.getInput()).getShape();
  ColumnSum sum{reduce.getInput(), 1, 1, reduce.getResult()};
  int64_t count = reduce.getDims().size();
  for (auto [i, size] : llvm::enumerate(shape)) {
    bool summed = llvm::is_contained(reduce.getDims(), int64_t(i));
    if (summed != (int64_t(i) < count))
      return std::nullopt;
    (summed ? sum.rows : sum.columns) *= size;
  }
  if (auto cast = sum.matrix.getDefiningOp<nn::CastOp>())
    if (nn::getComputeType(elementOf(cast.getInput())) ==
        elementOf(cast.getResult()))
      sum.matrix = cast.getInput();
  sum.matrix = skipReshapes(sum.matrix);
  while (elementOf(sum.sum) != element) {
    if (!sum.sum.hasOneUse() ||
        !isa<nn::CastOp, nn::ReshapeOp>(*sum.sum.user_begin()))
      return std::nullopt;
    sum.sum = (*sum.sum.user_begin())->getResult(0);
  }
  if (sum.sum.hasOneUse())
    if (auto reshape = dyn_cast<nn::ReshapeOp>(*sum.sum.user_begin()))
      sum.sum = reshape.getResult();
  return sum;
}

//===----------------------------------------------------------------------===//
// Fusion
//===----------------------------------------------------------------------===//

namespace {
/// What a GEMM gets.
struct Extras {
  Value bias, at;
  Epilogue epilogue = Epilogue::none;
  bool keepsInput = false;
  BiasGradient gradient = BiasGradient::none;
};

struct Fuser {
  Fuser(Block &block, bool geluOnly, bool gradients)
      : block(block), geluOnly(geluOnly), gradients(gradients) {}

  void run();
  int64_t biases = 0, gelus = 0, geluGrads = 0, slopes = 0, biasGradients = 0;

private:
  GemmOp getProduct(Value value) const;
  void fuseBias(nn::AddOp add);
  void fuseGelu(nn::GeluOp gelu);
  void fuseGeluGradient(nn::MapOp map);
  void keepSlope(GemmOp gemm);
  void fuseBiasGradient(nn::ReduceOp reduce);
  bool sumsOperand(GemmOp gemm, nn::ReduceOp reduce);
  bool sumsResult(GemmOp gemm, nn::ReduceOp reduce);
  bool replaceSum(GemmOp gemm, Value sum, const Extras &extras);

  StringRef refuseGelu(GemmOp gemm, bool keepsInput) const;

  Block &block;
  bool geluOnly, gradients;
};
} // namespace

static GemmOp rebuild(OpBuilder &b, GemmOp gemm, const Extras &extras) {
  Type result = gemm.getResult().getType();
  Type kept = extras.keepsInput ? result : Type();
  Type sums;
  if (extras.gradient != BiasGradient::none)
    sums = RankedTensorType::get({extras.gradient == BiasGradient::lhs
                                      ? int64_t(gemm.getM())
                                      : int64_t(gemm.getN())},
                                 elementOf(gemm.getResult()));
  return GemmOp::create(
      b, gemm.getLoc(), result, kept, sums, gemm.getLhs(), gemm.getRhs(),
      extras.bias, gemm.getInit(), extras.at, ValueRange(), gemm.getM(),
      gemm.getN(), gemm.getK(), gemm.getBatch(), gemm.getTransposeLhs(),
      gemm.getTransposeRhs(), gemm.getBroadcastRhs(), extras.epilogue,
      extras.gradient, /*accumulate=*/false, gemm.getPlanAttr());
}

static void replaceReshaped(OpBuilder &b, Value old, Value by) {
  old.replaceAllUsesWith(
      nn::reshapeTo(b, old.getLoc(), by, nn::getTensorType(old).getShape()));
}

/// Says what became of `op`; without a reason it was fused.
static void remarkOn(Operation *op, StringRef what, StringRef reason = "") {
  auto options = remark::RemarkOpts::name(what).category(DEBUG_TYPE);
  if (reason.empty())
    remark::passed(op->getLoc(), options);
  else
    remark::missed(op->getLoc(), options) << remark::reason("{0}", reason);
}

/// Removes `op` and the reshapes before it that nobody else uses, up to the product.
static void eraseWithReshapes(Operation *op) {
  SmallVector<Value> operands(op->getOperands());
  op->erase();
  for (Value operand : operands)
    if (auto reshape = operand.getDefiningOp<nn::ReshapeOp>())
      if (reshape->use_empty())
        eraseWithReshapes(reshape);
}

/// The plain GEMM that `value` is, if an epilogue leaves its sums as they are: on a processor
/// a plain product of lhs' may have another back end, or its k cut in two (Gemm.cpp).
GemmOp Fuser::getProduct(Value value) const {
  GemmOp gemm = getPlainGemm(value);
  return gemm && geluOnly && gemm.getTransposeLhs() ? GemmOp() : gemm;
}

/// gemm + bias -> gemm with that bias.
void Fuser::fuseBias(nn::AddOp add) {
  for (bool swapped : {false, true}) {
    Value product = swapped ? add.getRhs() : add.getLhs();
    Value bias = swapped ? add.getLhs() : add.getRhs();
    GemmOp gemm = getProduct(product);
    if (!gemm || gemm.getBias() || !isOnlyUse(product, gemm))
      continue;
    RankedTensorType type = nn::getTensorType(bias);
    RankedTensorType sum = nn::getTensorType(add.getResult());
    // The product of a narrow type is rounded before it is added to.
    if (geluOnly && sum.getElementType().getIntOrFloatBitWidth() < 32)
      continue;
    if (type.getRank() != 1 || type.getDimSize(0) != int64_t(gemm.getN()) ||
        sum != nn::getTensorType(product) ||
        sum.getShape().back() != type.getDimSize(0))
      continue;
    OpBuilder b(add);
    replaceReshaped(b, add.getResult(),
                    rebuild(b, gemm, {bias, Value()}).getResult());
    remarkOn(add, "Bias");
    eraseWithReshapes(add);
    gemm.erase();
    ++biases;
    return;
  }
}

/// Why the GEMM cannot have gelu or its slope; empty if it can.
StringRef Fuser::refuseGelu(GemmOp gemm, bool keepsInput) const {
  Type element = elementOf(gemm.getResult());
  if (element.isF64())
    return "f64";
  if (element.isF32() && !geluOnly)
    return "f32: the library's gelu has fewer bits";
  if (keepsInput && gemm.getN() % 8)
    return "rows of no multiple of 8 elements";
  return "";
}

/// gelu(gemm) -> gemm with gelu, and with its input if others use that.
void Fuser::fuseGelu(nn::GeluOp gelu) {
  GemmOp gemm = getProduct(gelu.getInput());
  if (!gemm || gelu.getForm() != nn::GeluForm::tanh)
    return;
  bool keepsInput = !isOnlyUse(gelu.getInput(), gemm);
  StringRef reason = refuseGelu(gemm, keepsInput);
  remarkOn(gelu, "Gelu", reason);
  if (!reason.empty())
    return;
  OpBuilder b(gemm);
  Extras extras{gemm.getBias(), Value(), Epilogue::gelu, keepsInput};
  GemmOp fused = rebuild(b, gemm, extras);
  b.setInsertionPoint(gelu);
  replaceReshaped(b, gelu.getResult(), fused.getResult());
  eraseWithReshapes(gelu);
  if (keepsInput)
    gemm.getResult().replaceAllUsesWith(fused.getKept());
  gemm.erase();
  ++gelus;
}

/// gemm * derivative of gelu at x -> gemm with that slope.
void Fuser::fuseGeluGradient(nn::MapOp map) {
  if (map.getInputs().size() != 2)
    return;
  Value gradient = map.getInputs()[0], at = map.getInputs()[1];
  GemmOp gemm = getProduct(gradient);
  if (!gemm || gemm.getBias() || !isOnlyUse(gradient, gemm) ||
      !isGeluGradient(map))
    return;
  StringRef reason = refuseGelu(gemm, /*keepsInput=*/true);
  remarkOn(map, "GeluGradient", reason);
  if (!reason.empty())
    return;
  OpBuilder b(map);
  at = nn::reshapeTo(b, map.getLoc(), at,
                     nn::getTensorType(gemm.getResult()).getShape());
  GemmOp fused = rebuild(b, gemm, {Value(), at, Epilogue::gelu_grad});
  replaceReshaped(b, map.getOutputs()[0], fused.getResult());
  eraseWithReshapes(map);
  gemm.erase();
  ++geluGrads;
}

/// Lets a product with gelu in f32 keep its slope instead of its input, if that is all
/// that others take of it: most of both is one computation.
void Fuser::keepSlope(GemmOp gemm) {
  if (!gemm.getKept() || gemm.getEpilogue() != Epilogue::gelu ||
      !elementOf(gemm.getKept()).isF32())
    return;
  SmallVector<Value> values;
  appendReshapes(gemm.getKept(), values);
  SmallVector<GemmOp> products;
  for (Value value : values)
    for (OpOperand &use : value.getUses()) {
      if (isa<nn::ReshapeOp>(use.getOwner()))
        continue;
      auto product = dyn_cast<GemmOp>(use.getOwner());
      if (!product || product.getEpilogue() != Epilogue::gelu_grad ||
          &use != &product.getAtMutable()[0])
        return;
      products.push_back(product);
    }
  gemm.setEpilogue(Epilogue::gelu_and_slope);
  for (GemmOp product : products)
    product.setEpilogue(Epilogue::multiply);
  remarkOn(gemm, "Slope");
  ++slopes;
}

/// Replaces `sum` by the bias gradient of a GEMM with `extras`, if all that use it
/// come after the GEMM.
bool Fuser::replaceSum(GemmOp gemm, Value sum, const Extras &extras) {
  auto comesAfter = [&](Operation *user) {
    return gemm->isBeforeInBlock(block.findAncestorOpInBlock(*user));
  };
  if (!llvm::all_of(sum.getUsers(), comesAfter))
    return false;
  OpBuilder b(gemm);
  GemmOp fused = rebuild(b, gemm, extras);
  if (gemm.getKept())
    gemm.getKept().replaceAllUsesWith(fused.getKept());
  gemm.getResult().replaceAllUsesWith(fused.getResult());
  replaceReshaped(b, sum, fused.getBiasSums());
  remarkOn(fused, "BiasGradient");
  gemm.erase();
  ++biasGradients;
  return true;
}

/// The sums of an operand of `gemm` over its k.
bool Fuser::sumsOperand(GemmOp gemm, nn::ReduceOp reduce) {
  if (gemm != getPlainGemm(gemm.getResult()) || gemm.getBias())
    return false;
  auto sum = getColumnSum(reduce, elementOf(gemm.getResult()));
  if (!sum || sum->rows != int64_t(gemm.getK()))
    return false;
  Extras extras;
  if (gemm.getTransposeLhs() && skipReshapes(gemm.getLhs()) == sum->matrix &&
      sum->columns == int64_t(gemm.getM()))
    extras.gradient = BiasGradient::lhs;
  else if (!gemm.getTransposeRhs() &&
           skipReshapes(gemm.getRhs()) == sum->matrix &&
           sum->columns == int64_t(gemm.getN()))
    extras.gradient = BiasGradient::rhs;
  else
    return false;
  return replaceSum(gemm, sum->sum, extras);
}

/// The sums of the columns of what `gemm` computes with the derivative of gelu.
bool Fuser::sumsResult(GemmOp gemm, nn::ReduceOp reduce) {
  if (!gemm || gemm.getEpilogue() != Epilogue::gelu_grad ||
      gemm.getBiasGradient() != BiasGradient::none)
    return false;
  auto sum = getColumnSum(reduce, elementOf(gemm.getResult()));
  if (!sum || sum->matrix != gemm.getResult() ||
      sum->columns != int64_t(gemm.getN()))
    return false;
  return replaceSum(gemm, sum->sum,
                    {Value(), gemm.getAt(), Epilogue::gelu_grad,
                     /*keepsInput=*/false, BiasGradient::result});
}

/// A sum of rows that a GEMM reads or makes.
void Fuser::fuseBiasGradient(nn::ReduceOp reduce) {
  // The matrix does not depend on the type of the sum.
  auto sum = getColumnSum(reduce, elementOf(reduce.getResult()));
  if (!sum || sizeOf(sum->matrix) != sum->rows * sum->columns)
    return;
  SmallVector<Value> values;
  appendReshapes(sum->matrix, values);
  for (Value value : values)
    for (Operation *user : value.getUsers())
      if (auto gemm = dyn_cast<GemmOp>(user))
        if (sumsOperand(gemm, reduce))
          return;
  sumsResult(sum->matrix.getDefiningOp<GemmOp>(), reduce);
}

void Fuser::run() {
  // A bias before the gelu of what it is added to, a derivative of gelu before the sums of
  // what it is multiplied with.
  for (auto add : llvm::make_early_inc_range(block.getOps<nn::AddOp>()))
    fuseBias(add);
  for (auto gelu : llvm::make_early_inc_range(block.getOps<nn::GeluOp>()))
    fuseGelu(gelu);
  if (gradients)
    for (auto map : llvm::make_early_inc_range(block.getOps<nn::MapOp>()))
      fuseGeluGradient(map);
  if (geluOnly)
    for (auto gemm : block.getOps<GemmOp>())
      keepSlope(gemm);
  else if (gradients)
    for (auto reduce : llvm::make_early_inc_range(block.getOps<nn::ReduceOp>()))
      fuseBiasGradient(reduce);
  eraseDead(block);
}

namespace {
struct FuseEpiloguesPass
    : trainc::impl::FuseEpiloguesPassBase<FuseEpiloguesPass> {
  using FuseEpiloguesPassBase::FuseEpiloguesPassBase;

  void runOnOperation() override {
    for (auto list : getOperation().getOps<ListOp>()) {
      Block &block = list.getBody().front();
      if (list.getWorkspace() || !block.getOps<LaunchOp>().empty()) {
        list.emitOpError("expects primitives; run train-fuse-epilogues before "
                         "train-form-kernels");
        return signalPassFailure();
      }
    }
    SymbolTable symbols(getOperation());
    for (auto list : getOperation().getOps<ListOp>()) {
      Block &block = list.getBody().front();
      if (failed(formProducts(list, symbols)))
        return signalPassFailure();
      Fuser fuser(block, geluOnly, gradients);
      fuser.run();
      numBiases += fuser.biases;
      numGelus += fuser.gelus;
      numGeluGrads += fuser.geluGrads;
      numSlopes += fuser.slopes;
      numBiasGradients += fuser.biasGradients;
    }
  }
};
} // namespace
