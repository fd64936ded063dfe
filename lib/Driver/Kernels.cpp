//===- Kernels.cpp - The kernels of a processor as objects ----------------===//
//
// Each kernel is compiled in a module of its own, where it has the same name as all
// others have in theirs: so its code, and the key under which the cache has it,
// depend on its definition alone. The name is put into the object in the end.
//
//===----------------------------------------------------------------------===//
#include "Kernels.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/Threading.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Regex.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace trainc;
using trainc::train::KernelOp;

/// The name that every kernel has while it is compiled.
static constexpr llvm::StringLiteral kName = "kernel";

namespace {
/// A kernel as the cache has it.
struct CompiledKernel {
  /// How it is called: an AbiAttr as text.
  std::string abi;
  ObjectFile object;
};

/// What one thread compiles kernels with.
struct Worker {
  Worker(MLIRContext *context, const PipelineOptions &options,
         const llvm::TargetMachine &machine, unsigned optimize)
      : passes(context), machine(cloneTargetMachine(machine)),
        optimize(optimize) {
    buildPhase(passes, Form::Target, options);
  }

  PassManager passes;
  std::unique_ptr<llvm::TargetMachine> machine;
  unsigned optimize;

  LogicalResult compile(ModuleOp unit, CompiledKernel &result);
};
} // namespace

/// A module that holds a copy of `kernel` and nothing else.
static OwningOpRef<ModuleOp> isolate(KernelOp kernel) {
  OwningOpRef<ModuleOp> unit = ModuleOp::create(kernel.getLoc());
  auto copy = kernel.clone();
  copy.setSymName(kName);
  unit->push_back(copy);
  return unit;
}

static KernelOp kernelOf(ModuleOp unit) {
  return *unit.getOps<KernelOp>().begin();
}

train::AbiAttr trainc::parseAbi(StringRef text, MLIRContext *context) {
  static const llvm::Regex known(
      "^#train\\.abi<workgroups = [0-9]{1,18}(, threads = [0-9]{1,18})?"
      "(, scratch = [0-9]{1,18})?(, amx = (true|false))?>$");
  if (!known.match(text))
    return {};
  return dyn_cast_or_null<train::AbiAttr>(parseAttribute(text, context));
}

/// The text of `op`: all of it but the locations.
static std::string textOf(Operation *op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  op->print(os, OpPrintingFlags().printGenericOpForm());
  return text;
}

/// Makes the symbols that other objects know visible to them.
static void exportSymbols(llvm::Module &module) {
  llvm::Function *entry = module.getFunction(kName);
  entry->setLinkage(llvm::GlobalValue::ExternalLinkage);
  entry->setVisibility(llvm::GlobalValue::HiddenVisibility);
  if (auto *functions = module.getNamedGlobal(kFunctionTable)) {
    functions->setInitializer(nullptr);
    functions->setLinkage(llvm::GlobalValue::ExternalLinkage);
    functions->setVisibility(llvm::GlobalValue::HiddenVisibility);
  }
}

LogicalResult Worker::compile(ModuleOp unit, CompiledKernel &result) {
  if (failed(passes.run(unit)))
    return failure();
  llvm::raw_string_ostream(result.abi) << kernelOf(unit).getAbiAttr();
  llvm::LLVMContext context;
  auto module = translateModuleToLLVMIR(unit.lookupSymbol<ModuleOp>("kernels"),
                                        context, kName);
  if (!module)
    return unit.emitError("translation to LLVM IR failed");
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  exportSymbols(*module);
  std::string message;
  if (failed(emitObject(*module, *machine, optimize, result.object, message)))
    return unit.emitError(message);
  return success();
}

LogicalResult trainc::compileKernels(ModuleOp module,
                                     const PipelineOptions &options,
                                     const llvm::TargetMachine &machine,
                                     unsigned optimize, Cache *cache,
                                     KernelObjects &result) {
  MLIRContext *context = module.getContext();
  auto kernels = llvm::to_vector(module.getOps<KernelOp>());
  result.objects.resize(kernels.size());

  // All that decides what becomes of a kernel, but for the kernel and the compiler.
  std::string pipeline;
  {
    Worker worker(context, options, machine, optimize);
    llvm::raw_string_ostream os(pipeline);
    worker.passes.printAsTextualPipeline(os);
    os << "\n-O" << optimize << "\n"
       << machine.getTargetTriple().str() << "\n"
       << machine.getTargetCPU() << "\n"
       << machine.getTargetFeatureString();
    // Threads must not load dialects.
    DialectRegistry dialects;
    worker.passes.getDependentDialects(dialects);
    context->appendDialectRegistry(dialects);
    for (StringRef name : dialects.getDialectNames())
      context->getOrLoadDialect(name);
  }

  std::atomic<size_t> next = 0, numCached = 0;
  ParallelDiagnosticHandler diagnostics(context);
  auto work = [&](size_t) -> LogicalResult {
    std::optional<Worker> worker;
    for (size_t i; (i = next++) < kernels.size();) {
      diagnostics.setOrderIDForThread(i);
      llvm::scope_exit done([&] { diagnostics.eraseOrderIDForThread(); });
      OwningOpRef<ModuleOp> unit = isolate(kernels[i]);
      Cache::Key key;
      std::optional<std::vector<std::string>> known;
      CompiledKernel compiled;
      std::string message;
      auto rename = [&] {
        return renameSymbol(compiled.object, kName, kernels[i].getSymName(),
                            message);
      };
      if (cache) {
        key = cache->keyOf({"kernel", pipeline, textOf(*unit)});
        known = cache->load(key, 2);
      }
      if (known) {
        compiled.abi = known->front();
        compiled.object.assign(known->back().begin(), known->back().end());
        if (!parseAbi(compiled.abi, context) || failed(rename())) {
          cache->reportDamage(key);
          known.reset();
          compiled = {};
        }
      }
      if (known) {
        ++numCached;
      } else {
        if (!worker)
          worker.emplace(context, options, machine, optimize);
        if (failed(worker->compile(*unit, compiled)))
          return failure();
        if (cache)
          cache->store(key, {compiled.abi, StringRef(compiled.object.data(),
                                                     compiled.object.size())});
        if (failed(rename()))
          return kernels[i].emitError(message);
      }
      kernels[i].setAbiAttr(parseAbi(compiled.abi, context));
      result.objects[i] = std::move(compiled.object);
    }
    return success();
  };
  size_t workers = std::min<size_t>(context->getNumThreads(), kernels.size());
  LogicalResult compiled = failableParallelForEachN(context, 0, workers, work);
  result.numCached = numCached;
  return compiled;
}
