//===- Object.cpp - From LLVM IR to objects and libraries -----------------===//
#include "trainc/Target/Object.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"

using namespace trainc;

/// The one lane that a constant mask has, if it has one.
static std::optional<unsigned> onlyLane(llvm::Value *mask) {
  auto *constant = llvm::dyn_cast<llvm::Constant>(mask);
  auto *type = llvm::dyn_cast<llvm::FixedVectorType>(mask->getType());
  std::optional<unsigned> lane;
  for (unsigned i = 0; constant && type && i < type->getNumElements(); ++i) {
    llvm::Constant *bit = constant->getAggregateElement(i);
    if (bit && bit->isNullValue())
      continue;
    if (lane || !bit || !bit->isOneValue())
      return std::nullopt;
    lane = i;
  }
  return lane;
}

/// Stores of one lane by a constant mask become stores of a number. LLVM 22 does the same
/// for x86, but stores 32 bits where the lanes are narrower and were truncated: of
/// `masked.store(trunc(<16 x i32> %x), %p, <1, 0, ...>)` also what lies behind the lane.
static void storeSingleLanes(llvm::Module &module) {
  llvm::SmallVector<std::pair<llvm::IntrinsicInst *, unsigned>> stores;
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
          call && call->getIntrinsicID() == llvm::Intrinsic::masked_store)
        if (auto lane = onlyLane(call->getArgOperand(2)))
          stores.push_back({call, *lane});
  for (auto [call, lane] : stores) {
    llvm::IRBuilder<> builder(call);
    llvm::Value *value =
        builder.CreateExtractElement(call->getArgOperand(0), uint64_t(lane));
    uint64_t offset =
        lane * module.getDataLayout().getTypeStoreSize(value->getType());
    llvm::Value *address = builder.CreateConstGEP1_64(
        builder.getInt8Ty(), call->getArgOperand(1), offset);
    builder
        .CreateAlignedStore(
            value, address,
            llvm::commonAlignment(call->getParamAlign(1).valueOrOne(), offset))
        ->setAAMetadata(call->getAAMetadata());
    call->eraseFromParent();
  }
}

llvm::LogicalResult trainc::emitObject(llvm::Module &module,
                                       llvm::TargetMachine &machine,
                                       unsigned optimize, ObjectFile &object,
                                       std::string &error) {
  if (failed(replaceNarrowTypes(module, error)))
    return llvm::failure();
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    // Loops must not become calls of a C library.
    function.addFnAttr("no-builtins");
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("prefer-vector-width", "512");
  }
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  const llvm::OptimizationLevel levels[] = {
      llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1,
      llvm::OptimizationLevel::O2, llvm::OptimizationLevel::O3};
  llvm::OptimizationLevel level = levels[std::min(optimize, 3u)];
  llvm::ModulePassManager passes =
      optimize == 0 ? builder.buildO0DefaultPipeline(level)
                    : builder.buildPerModuleDefaultPipeline(level);
  passes.run(module, modules);
  storeSingleLanes(module);

  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager codegen;
  if (machine.addPassesToEmitFile(codegen, stream, nullptr,
                                  llvm::CodeGenFileType::ObjectFile)) {
    error = "the target cannot write object files";
    return llvm::failure();
  }
  codegen.run(module);
  return llvm::success();
}
