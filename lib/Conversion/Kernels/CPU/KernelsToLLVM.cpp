//===- KernelsToLLVM.cpp - From loops on memrefs to the LLVM dialect ------===//
//
// This pass lowers the functions of @kernels to LLVM functions on bare pointers
// and adds, per kernel, the function that the runtime calls: it loads the operand
// addresses from an array and passes them on. f32 functions become polynomials
// (numerics.def); f64 functions become calls through the table that the runtime sets.
//
//===----------------------------------------------------------------------===//
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "trainc/Conversion/Passes.h"
#include "trainc/Dialect/NN/Numerics.h"
#include "trainc/step_abi.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "train-kernels-to-llvm"

namespace trainc {
#define GEN_PASS_DEF_KERNELSTOLLVMPASS
#include "trainc/Conversion/Passes.h.inc"
} // namespace trainc

using namespace mlir;
using namespace trainc;

/// Position of `name` in trainc_functions, after `size`.
static int64_t functionSlot(StringRef name) {
  int64_t slot = 1;
#define TRAINC_MATH1(function)                                                 \
  if (name == #function)                                                       \
    return slot;                                                               \
  ++slot;
#define TRAINC_MATH2(function) TRAINC_MATH1(function)
#include "trainc/step_abi.def"
  assert((name == "allocate" || name == "release") && "not in the table");
  return name == "allocate" ? slot : slot + 1;
}

/// The libm function that computes an op; empty if it needs none.
static StringRef libmName(Operation *op) {
  return llvm::StringSwitch<StringRef>(op->getName().getStringRef())
      .Case("math.exp", "exp")
      .Case("math.exp2", "exp2")
      .Case("math.expm1", "expm1")
      .Case("math.log", "log")
      .Case("math.log1p", "log1p")
      .Case("math.log2", "log2")
      .Case("math.sin", "sin")
      .Case("math.cos", "cos")
      .Case("math.tanh", "tanh")
      .Case("math.erf", "erf")
      .Case("math.powf", "pow")
      .Case("arith.remf", "fmod")
      .Default("");
}

/// Gives `function` the body that calls slot `name` of the function table.
static void defineByTable(LLVM::LLVMFuncOp function, StringRef name) {
  auto module = function->getParentOfType<ModuleOp>();
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  Location loc = module.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  if (!module.lookupSymbol("trainc.functions"))
    LLVM::GlobalOp::create(b, loc, pointer, /*isConstant=*/false,
                           LLVM::Linkage::Internal, "trainc.functions",
                           LLVM::ZeroAttr::get(b.getContext()));
  function.setLinkage(LLVM::Linkage::Internal);
  b.setInsertionPointToStart(function.addEntryBlock(b));
  Value slot = LLVM::AddressOfOp::create(b, loc, pointer, "trainc.functions");
  Value table = LLVM::LoadOp::create(b, loc, pointer, slot);
  Value entry = LLVM::GEPOp::create(
      b, loc, pointer, pointer, table,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(functionSlot(name))});
  SmallVector<Value> operands{LLVM::LoadOp::create(b, loc, pointer, entry)};
  llvm::append_range(operands, function.getArguments());
  auto call =
      LLVM::CallOp::create(b, loc, function.getFunctionType(), operands);
  LLVM::ReturnOp::create(b, loc, call.getResults());
}

/// A private function in `module` that calls the math function `name`.
static LLVM::LLVMFuncOp getTrampoline(ModuleOp module, StringRef name,
                                      unsigned arguments) {
  std::string symbol = ("trainc.math." + name).str();
  if (auto existing = module.lookupSymbol<LLVM::LLVMFuncOp>(symbol))
    return existing;
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  Type f64 = b.getF64Type();
  auto type =
      LLVM::LLVMFunctionType::get(f64, SmallVector<Type>(arguments, f64));
  auto function = LLVM::LLVMFuncOp::create(b, module.getLoc(), symbol, type);
  defineByTable(function, name);
  return function;
}

/// Replaces `op` on f64 (or a vector of it) by calls of libm.
static void callLibm(Operation *op, ModuleOp module) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  auto function = getTrampoline(module, libmName(op), op->getNumOperands());
  auto call = [&](ValueRange arguments) -> Value {
    return LLVM::CallOp::create(b, loc, function, arguments).getResult();
  };
  auto vector = dyn_cast<VectorType>(op->getResult(0).getType());
  Value result;
  if (!vector) {
    result = call(op->getOperands());
  } else {
    result = arith::ConstantOp::create(b, loc, b.getZeroAttr(vector));
    for (int64_t i = 0; i < vector.getNumElements(); ++i) {
      SmallVector<Value> arguments;
      for (Value operand : op->getOperands())
        arguments.push_back(
            vector::ExtractOp::create(b, loc, operand, ArrayRef<int64_t>{i}));
      result = vector::InsertOp::create(b, loc, call(arguments), result,
                                        ArrayRef<int64_t>{i});
    }
  }
  op->getResult(0).replaceAllUsesWith(result);
  op->erase();
}

static bool isF64(Operation *op) {
  return getElementTypeOrSelf(op->getResult(0).getType()).isF64();
}

/// Widens an f32 op that numerics.def does not define to f64, where libm computes it.
static void widenToF64(Operation *op) {
  OpBuilder b(op);
  auto wide = [&](Type type) -> Type {
    if (auto vector = dyn_cast<VectorType>(type))
      return vector.clone(b.getF64Type());
    return b.getF64Type();
  };
  for (OpOperand &operand : op->getOpOperands())
    operand.set(arith::ExtFOp::create(
        b, op->getLoc(), wide(operand.get().getType()), operand.get()));
  Type narrow = op->getResult(0).getType();
  op->getResult(0).setType(wide(narrow));
  b.setInsertionPointAfter(op);
  auto rounded =
      arith::TruncFOp::create(b, op->getLoc(), narrow, op->getResult(0));
  op->getResult(0).replaceAllUsesExcept(rounded, rounded);
}

/// The definition of a function; null if numerics.def has none.
static Value expand(Operation *op) {
  OpBuilder b(op);
  nn::Arithmetic m{b, op->getLoc(), op->getResult(0).getType()};
  Value x = op->getOperand(0);
  if (m.isF64())
    return TypeSwitch<Operation *, Value>(op)
        .Case([&](math::ExpOp) { return numerics::f64::exp(m, x); })
        .Case([&](math::Exp2Op) {
          return numerics::f64::exp(m, m.mul(x, m.number(llvm::numbers::ln2)));
        })
        .Case([&](math::LogOp) { return numerics::f64::log(m, x); })
        .Case([&](math::SinOp) { return numerics::f64::sin(m, x); })
        .Case([&](math::CosOp) { return numerics::f64::cos(m, x); })
        .Case([&](math::PowFOp) {
          return numerics::f32::pow(m, x, op->getOperand(1));
        })
        .Default(Value());
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](math::ExpOp) { return numerics::f32::exp(m, x); })
      .Case([&](math::ExpM1Op) { return numerics::f32::expm1(m, x); })
      .Case([&](math::LogOp) { return numerics::f32::log(m, x); })
      .Case([&](math::Log1pOp) { return numerics::f32::log1p(m, x); })
      .Case([&](math::Log2Op) { return numerics::f32::log2(m, x); })
      .Case([&](math::TanhOp) { return numerics::f32::tanh(m, x); })
      .Case([&](math::ErfOp) { return numerics::f32::erf(m, x); })
      .Case([&](math::SinOp) { return numerics::f32::sin(m, x); })
      .Case([&](math::CosOp) { return numerics::f32::cos(m, x); })
      .Default(Value());
}

/// Turns every function that `math` has no instruction for into arithmetic or a call of
/// libm: f32 by numerics.def, f64 by libm. With `portable` none is called, and f64 is of
/// numerics.def, too.
static LogicalResult lowerMath(ModuleOp kernels, bool portable) {
  SmallVector<Operation *> ops;
  auto collect = [&]() {
    ops.clear();
    kernels.walk([&](Operation *op) {
      if (!libmName(op).empty())
        ops.push_back(op);
    });
    return !ops.empty();
  };
  // A function may be made of others.
  while (collect())
    for (Operation *op : ops) {
      // A remainder is exact, in each library and in f32 by f64.
      if (!isF64(op) || (portable && !isa<arith::RemFOp>(op))) {
        if (Value value = expand(op)) {
          op->getResult(0).replaceAllUsesWith(value);
          op->erase();
          continue;
        }
        if (!isF64(op)) {
          widenToF64(op);
          continue;
        }
        return op->emitError("expects no function of f64 that only a libm "
                             "computes, with portable bits, got '")
               << op->getName() << "'";
      }
      callLibm(op, kernels);
    }
  return success();
}

/// Adds `void name(ptr operands, i64 tile, ptr scratch)`, which calls `body`.
static void addEntry(LLVM::LLVMFuncOp body, StringRef name, bool hasScratch) {
  OpBuilder b(body);
  Location loc = body.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                  {pointer, b.getI64Type(), pointer});
  auto entry =
      LLVM::LLVMFuncOp::create(b, loc, name, type, LLVM::Linkage::Internal);
  b.setInsertionPointToStart(entry.addEntryBlock(b));
  SmallVector<Value> arguments;
  int32_t operands = body.getNumArguments() - (hasScratch ? 2 : 1);
  for (int32_t i = 0; i < operands; ++i) {
    Value slot =
        LLVM::GEPOp::create(b, loc, pointer, pointer, entry.getArgument(0),
                            ArrayRef<LLVM::GEPArg>{i});
    arguments.push_back(LLVM::LoadOp::create(b, loc, pointer, slot));
  }
  if (hasScratch)
    arguments.push_back(entry.getArgument(2));
  arguments.push_back(entry.getArgument(1));
  LLVM::CallOp::create(b, loc, body, arguments);
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

static void buildPipeline(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  OpPassManager &function = pm.nest<func::FuncOp>();
  function.addPass(createConvertVectorToSCFPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  FinalizeMemRefToLLVMConversionPassOptions memrefOptions;
  memrefOptions.useGenericFunctions = true;
  pm.addPass(createFinalizeMemRefToLLVMConversionPass(memrefOptions));
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  ConvertFuncToLLVMPassOptions functionOptions;
  functionOptions.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(functionOptions));
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createUBToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

namespace {
struct KernelsToLLVMPass
    : trainc::impl::KernelsToLLVMPassBase<KernelsToLLVMPass> {
  using KernelsToLLVMPassBase::KernelsToLLVMPassBase;

  void runOnOperation() override {
    auto kernels = getOperation().lookupSymbol<ModuleOp>("kernels");
    if (!kernels) {
      getOperation().emitError(
          "expects lowered kernels; run train-lower-kernels first");
      return signalPassFailure();
    }
    if (failed(lowerMath(kernels, portableBits)))
      return signalPassFailure();
    SmallVector<std::pair<std::string, bool>> entries;
    for (auto function : kernels.getOps<func::FuncOp>()) {
      std::string name = function.getSymName().str();
      entries.emplace_back(name, function->hasAttr("scratch"));
      function.setSymName(name + ".body");
    }
    OpPassManager pipeline(ModuleOp::getOperationName());
    buildPipeline(pipeline);
    if (failed(runPipeline(pipeline, kernels)))
      return signalPassFailure();
    for (auto [generic, name] :
         {std::pair("_mlir_memref_to_llvm_alloc", "allocate"),
          std::pair("_mlir_memref_to_llvm_free", "release")})
      if (auto function = kernels.lookupSymbol<LLVM::LLVMFuncOp>(generic))
        defineByTable(function, name);
    for (const auto &[name, hasScratch] : entries) {
      auto body = kernels.lookupSymbol<LLVM::LLVMFuncOp>(name + ".body");
      body.setLinkage(LLVM::Linkage::Internal);
      addEntry(body, name, hasScratch);
    }
  }
};
} // namespace
