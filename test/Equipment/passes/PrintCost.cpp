//===- PrintCost.cpp - What the cost model says of operations -------------===//
//
// test-print-cost prints a line for each nn and train op of the module's
// functions, and for each kernel: where it stands, its name, its nn::Work, and
// the flops and the unit by which it is rated. Of nn ops it counts, by the same
// rules, the loops that nn-to-linalg makes of them, too.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "trainc/Analysis/Cost.h"
#include "trainc/Conversion/Passes.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace trainc;

/// Whether `generic` combines the lanes of a reduction by halving: nn.reduce
/// counts one combination of each element, not these.
static bool combinesLanes(linalg::GenericOp generic) {
  if (generic.getNumReductionLoops() > 0 || generic.getInputs().size() != 2)
    return false;
  auto low = generic.getInputs()[0].getDefiningOp<tensor::ExtractSliceOp>();
  auto high = generic.getInputs()[1].getDefiningOp<tensor::ExtractSliceOp>();
  return low && high && low.getSource() == high.getSource();
}

/// Of a loop of constant bounds.
static double countTrips(scf::ForOp loop) {
  double low = *getConstantIntValue(loop.getLowerBound());
  double high = *getConstantIntValue(loop.getUpperBound());
  return (high - low) / *getConstantIntValue(loop.getStep());
}

static double countIterations(linalg::GenericOp generic) {
  double count = 1;
  for (int64_t range : generic.getStaticLoopRanges())
    count *= range;
  return count;
}

/// The arithmetic of the loops in `block`.
static nn::Work countLoops(Block &block) {
  nn::Work work;
  for (Operation &op : block) {
    if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
      if (combinesLanes(generic))
        continue;
      nn::Work body = countLoops(generic.getRegion().front());
      if (generic.getNumReductionLoops() > 0 && generic.getInputs().size() == 2)
        std::swap(body.matrix, body.vector); // multiply-adds of two inputs
      work += countIterations(generic) * body;
    } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
      work += countTrips(loop) * countLoops(*loop.getBody());
    } else {
      work += nn::countScalarWork(&op);
    }
  }
  return work;
}

/// How often `op` runs.
static double countRuns(Operation *op) {
  double count = 1;
  while ((op = op->getParentOp()))
    if (auto loop = dyn_cast<scf::ForOp>(op))
      count *= countTrips(loop);
    else if (auto generic = dyn_cast<linalg::GenericOp>(op))
      count *= countIterations(generic);
  return count;
}

/// The bytes of the tensor `value` that loops read: of slices their own, of elements that
/// are taken by their indices one per run, else all.
static double countRead(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  double whole = nn::countBytes(value), read = 0;
  for (Operation *user : value.getUsers()) {
    if (isa<tensor::ExtractSliceOp>(user))
      read += countRuns(user) * countRead(user->getResult(0));
    else if (isa<tensor::ExtractOp>(user))
      read += countRuns(user) * whole / type.getNumElements();
    else
      return whole;
  }
  return std::min(whole, read);
}

static void print(const nn::Work &work) {
  llvm::outs() << llvm::format("matrix %.15g vector %.15g functions %.15g "
                               "read %.15g written %.15g",
                               work.matrix, work.vector, work.functions,
                               work.read, work.written);
}

/// Prints all but the end of a line on `op`, which stands in `where`.
static void printCost(StringRef where, Operation *op) {
  static constexpr StringRef units[] = {"vector", "matrix", "attention",
                                        "convolution"};
  nn::Work work = workOf(op);
  nn::Unit unit = unitOf(op);
  llvm::outs() << where << ": " << op->getName() << " ";
  print(work);
  llvm::outs() << llvm::format(" flops %.15g ", flopsOf(work, unit))
               << units[static_cast<unsigned>(unit)];
}

namespace {
struct PrintCost : PassWrapper<PrintCost, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrintCost)

  StringRef getArgument() const final { return "test-print-cost"; }
  StringRef getDescription() const final {
    return "Print what operations compute and move, and their loops";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry
        .insert<arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect,
                math::MathDialect, scf::SCFDialect, tensor::TensorDialect>();
  }
  void runOnOperation() override {
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      for (Operation &op : function.getBody().front().without_terminator()) {
        bool isNN = isa<nn::NNDialect>(op.getDialect());
        if (!isNN && !isa<train::TrainDialect>(op.getDialect()))
          continue;
        printCost(function.getSymName(), &op);
        if (isNN && failed(printLoops(&op)))
          return signalPassFailure();
        llvm::outs() << "\n";
      }
    for (auto kernel : getOperation().getOps<train::KernelOp>()) {
      printCost(kernel.getSymName(), kernel);
      llvm::outs() << "\n";
    }
  }

  LogicalResult printLoops(Operation *op) {
    OpBuilder b = OpBuilder::atBlockEnd(getOperation().getBody());
    auto nested = ModuleOp::create(b, op->getLoc(), "loops");
    b.setInsertionPointToStart(nested.getBody());
    auto function = func::FuncOp::create(
        b, op->getLoc(), "f",
        b.getFunctionType(op->getOperandTypes(), op->getResultTypes()));
    Block *entry = function.addEntryBlock();
    b.setInsertionPointToStart(entry);
    Operation *copy = b.clone(*op);
    copy->setOperands(entry->getArguments()); // one value may be several
    func::ReturnOp::create(b, op->getLoc(), copy->getResults());
    OpPassManager pipeline(ModuleOp::getOperationName());
    pipeline.addPass(createNNToLinalgPass());
    LogicalResult result = runPipeline(pipeline, nested);
    if (succeeded(result)) {
      nn::Work work = countLoops(*entry);
      for (Value argument : entry->getArguments())
        work.read += countRead(argument);
      for (Value made : entry->getTerminator()->getOperands())
        if (!isa<BlockArgument>(made))
          work.written += nn::countBytes(made);
      llvm::outs() << ", loops ";
      print(work);
    }
    nested.erase();
    return result;
  }
};
} // namespace

namespace trainc {
void registerTestPasses() { PassRegistration<PrintCost>(); }
} // namespace trainc
