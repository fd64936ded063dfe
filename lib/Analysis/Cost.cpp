//===- Cost.cpp - Arithmetic, bytes and time of ops and commands ----------===//
#include "trainc/Analysis/Cost.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;
using namespace trainc::train;

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

static Work countArithmetic(Operation *op);

template <typename Range> static Work sumOf(Range &&ops) {
  Work work;
  for (Operation *op : ops)
    work += countArithmetic(op);
  return work;
}

static SmallVector<Operation *> opsOf(Block &block) {
  return llvm::to_vector(llvm::make_pointer_range(block));
}

/// The scalar function, for each element of the results.
static Work countPointwise(PointwiseOpInterface op) {
  Block scratch;
  OpBuilder b(op->getContext());
  b.setInsertionPointToEnd(&scratch);
  SmallVector<Value> arguments, results;
  for (Value operand : op->getOperands())
    arguments.push_back(scratch.addArgument(
        getComputeType(getTensorType(operand).getElementType()), op->getLoc()));
  op.buildScalar(b, op->getLoc(), arguments, results);
  double elements = getTensorType(op->getResult(0)).getNumElements();
  return elements * countScalarWork(scratch);
}

/// The ops of the decomposition.
static Work countDecomposition(DecomposableOpInterface op) {
  Block scratch;
  OpBuilder b(op->getContext());
  b.setInsertionPointToEnd(&scratch);
  // Who needs the definition says that there is none.
  ScopedDiagnosticHandler silent(op->getContext(),
                                 [](Diagnostic &) { return success(); });
  if (failed(op.decompose(b)))
    return {};
  return sumOf(opsOf(scratch));
}

static Work countArithmetic(Operation *op) {
  if (auto cost = dyn_cast<CostOpInterface>(op))
    return cost.countWork();
  if (auto pointwise = dyn_cast<PointwiseOpInterface>(op))
    return countPointwise(pointwise);
  if (auto composite = dyn_cast<DecomposableOpInterface>(op))
    return countDecomposition(composite);
  return {};
}

Work trainc::workOf(Operation *op) {
  auto kernel = dyn_cast<KernelOp>(op);
  if (!kernel) {
    Work work = countArithmetic(op);
    work.read = countBytes(op->getOperands());
    work.written = countBytes(op->getResults());
    return work;
  }
  Block &body = kernel.getBody().front();
  Work work = sumOf(opsOf(body));
  work.read = countBytes(body.getArguments());
  work.written = countBytes(body.getTerminator()->getOperands());
  return work;
}

static Unit unitOf(ArrayRef<Operation *> ops) {
  for (Operation *op : ops)
    if (auto cost = dyn_cast<CostOpInterface>(op))
      if (Unit unit = cost.getUnit(); unit != Unit::Vector)
        return unit;
  return Unit::Vector;
}

Unit trainc::unitOf(Operation *op) {
  if (auto kernel = dyn_cast<KernelOp>(op))
    return ::unitOf(opsOf(kernel.getBody().front()));
  return ::unitOf(ArrayRef(op));
}

double trainc::flopsOf(const Work &work, Unit unit) {
  constexpr double perFunction = 10;
  if (unit != Unit::Vector)
    return work.matrix;
  return work.matrix + work.vector + perFunction * work.functions;
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

trainc_rate trainc::rateOf(Unit unit, trainc_dtype dtype, bool update) {
  switch (unit) {
  case Unit::Vector:
    return update ? TRAINC_RATE_UPDATE : TRAINC_RATE_MEMORY;
  case Unit::Matrix:
    return rateOfType(dtype);
  case Unit::Attention:
    return TRAINC_RATE_ATTENTION;
  case Unit::Convolution:
    return TRAINC_RATE_CONVOLUTION;
  }
  llvm_unreachable("unknown unit");
}

Load trainc::loadOf(ArrayRef<Operation *> ops, double bytes, Type element) {
  Unit unit = ::unitOf(ops);
  trainc_dtype dtype = getDType(element);
  return {rateOf(unit, dtype, /*update=*/false), rateOfType(dtype),
          flopsOf(sumOf(ops), unit), bytes};
}

Load trainc::loadOf(Operation *command, SymbolTable &symbols) {
  double bytes =
      countBytes(command->getOperands()) + countBytes(command->getResults());
  auto launch = dyn_cast<LaunchOp>(command);
  if (!launch)
    return loadOf(ArrayRef(command), bytes,
                  getElementTypeOrSelf(command->getOperand(0)));
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  return loadOf(opsOf(kernel.getBody().front()), bytes,
                getElementTypeOrSelf(launch.getResult(0)));
}
