//===- Object.cpp - From LLVM IR to objects and libraries -----------------===//
#include "trainc/Target/Object.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"

using namespace trainc;

/// Features of a processor, as the runtime can check them: without those that
/// only tune.
static std::string hostFeatures() {
  std::string text;
  for (const auto &[name, enabled] : llvm::sys::getHostCPUFeatures())
    if (enabled)
      text += (text.empty() ? "+" : ",+") + name.str();
  return text;
}

/// Features whose instructions no compiler chooses by itself, and which virtual
/// machines often hide: code for a processor that has them runs without.
static constexpr llvm::StringLiteral kSystemFeatures[] = {
    "cldemote", "clflushopt", "clwb",   "clzero",    "enqcmd",    "fsgsbase",
    "hreset",   "invpcid",    "kl",     "lwp",       "movdir64b", "movdiri",
    "mwaitx",   "pconfig",    "pku",    "prefetchi", "ptwrite",   "rdpid",
    "rdpru",    "rdrnd",      "rdseed", "rtm",       "serialize", "sgx",
    "shstk",    "tsxldtrk",   "uintr",  "usermsr",   "waitpkg",   "wbnoinvd",
    "widekl",   "xsave",      "xsavec", "xsaveopt",  "xsaves"};

/// Features that every processor of this name has, for code that is shipped.
static std::string namedFeatures(llvm::StringRef cpu) {
  llvm::SmallVector<llvm::StringRef> features;
  llvm::X86::getFeaturesForCPU(cpu, features, /*NeedPlus=*/true);
  llvm::erase_if(features, [](llvm::StringRef feature) {
    return llvm::is_contained(kSystemFeatures, feature.drop_front());
  });
  return llvm::join(features, ",");
}

std::unique_ptr<llvm::TargetMachine>
trainc::createTargetMachine(llvm::StringRef cpu, unsigned optimize,
                            std::string &error) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  bool native = cpu == "native";
  if (native)
    cpu = llvm::sys::getHostCPUName();
  if (!native &&
      llvm::X86::parseArchX86(cpu, /*Only64Bit=*/true) == llvm::X86::CK_None) {
    error = ("expects a processor that LLVM knows for --target-cpu, such as "
             "x86-64-v3, got '" +
             cpu + "'")
                .str();
    return nullptr;
  }
  std::string features = native ? hostFeatures() : namedFeatures(cpu);
  auto has = llvm::split(features, ",");
  if (!llvm::is_contained(has, "+fma") || !llvm::is_contained(has, "+f16c")) {
    error = ("expects a processor with fused multiply-add and F16C for "
             "--target-cpu, such as x86-64-v3, got '" +
             cpu + "'")
                .str();
    return nullptr;
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, cpu, features, options, llvm::Reloc::PIC_, std::nullopt,
      optimize == 0 ? llvm::CodeGenOptLevel::None
                    : llvm::CodeGenOptLevel::Default));
}

bool trainc::hasFeatures(const llvm::TargetMachine &machine,
                         llvm::ArrayRef<llvm::StringRef> features) {
  auto has = llvm::split(machine.getTargetFeatureString(), ",");
  return llvm::all_of(features, [&](llvm::StringRef feature) {
    return llvm::is_contained(has, ("+" + feature).str());
  });
}

std::unique_ptr<llvm::TargetMachine>
trainc::cloneTargetMachine(const llvm::TargetMachine &machine) {
  return std::unique_ptr<llvm::TargetMachine>(
      machine.getTarget().createTargetMachine(
          machine.getTargetTriple(), machine.getTargetCPU(),
          machine.getTargetFeatureString(), machine.Options,
          machine.getRelocationModel(), std::nullopt, machine.getOptLevel()));
}

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
