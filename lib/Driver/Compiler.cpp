//===- Compiler.cpp - From a module's text to an artifact -----------------===//
#include "trainc/Driver/Compiler.h"
#include "CheckText.h"
#include "Descriptor.h"
#include "Header.h"
#include "Images.h"
#include "Kernels.h"
#include "Reports.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/Transforms/AllInterfaces.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Target/GPU/Serialize.h"
#include "trainc/Target/Object.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Target/TargetMachine.h"
#include <chrono>
#include <unistd.h>

using namespace mlir;
using namespace trainc;

void trainc::registerDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                  nn::NNDialect, train::TrainDialect>();
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  linalg::registerAllDialectInterfaceImplementations(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  // By these convert-gpu-to-nvvm knows what to do with other dialects.
  arith::registerConvertArithToLLVMInterface(registry);
  cf::registerConvertControlFlowToLLVMInterface(registry);
  registerConvertFuncToLLVMInterface(registry);
  index::registerConvertIndexToLLVMInterface(registry);
  registerConvertMathToLLVMInterface(registry);
  registerConvertMemRefToLLVMInterface(registry);
  registerConvertNVVMToLLVMInterface(registry);
  ub::registerConvertUBToLLVMInterface(registry);
  vector::registerConvertVectorToLLVMInterface(registry);
  registerGPUTranslations(registry);
}

namespace {
/// One compilation: the context and what is reported.
struct Compilation {
  const CompileOptions &options;
  llvm::DefaultThreadPool threads;
  MLIRContext context;
  std::unique_ptr<Cache> cache;
  /// The processor to make code for.
  std::unique_ptr<llvm::TargetMachine> machine;
  /// The parts of the artifact: kernels, then tables.
  std::vector<ObjectFile> objects;
  /// The file that is compiled.
  std::optional<llvm::sys::fs::UniqueID> input;
  /// The code of GPUs to make, and made.
  std::optional<ImageOptions> imageOptions;
  std::vector<ImageRow> images;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();

  Compilation(const DialectRegistry &registry, const CompileOptions &options)
      : options(options), threads(llvm::hardware_concurrency(options.threads)),
        context(registry, MLIRContext::Threading::DISABLED) {
    if (options.threads != 1)
      context.setThreadPool(threads);
  }

  void lap(StringRef what, const Twine &more = "") {
    auto now = std::chrono::steady_clock::now();
    if (options.time)
      llvm::errs() << llvm::format(
                          "%-12s %8.3f s", what.str().c_str(),
                          std::chrono::duration<double>(now - last).count())
                   << more << "\n";
    last = now;
  }
  LogicalResult error(const Twine &message) {
    llvm::errs() << "trainc: error: " << message << "\n";
    return failure();
  }
  LogicalResult checkOutput(StringRef path);
  LogicalResult write(StringRef path, StringRef text);
  LogicalResult dump(ModuleOp module, Form form, Target target);
  LogicalResult runPhases(ModuleOp module, Form first, Form last,
                          Target target);
  PipelineOptions pipelineFor(Target target) const;
  LogicalResult createMachine();
  LogicalResult prepareCode();
  LogicalResult makeCode(ModuleOp module, Target target);
  LogicalResult checkSymbols(MutableArrayRef<OwningOpRef<ModuleOp>> modules);
  LogicalResult emit(MutableArrayRef<OwningOpRef<ModuleOp>> modules,
                     StringRef name);
  LogicalResult compile(OwningOpRef<ModuleOp> module, StringRef name);
};
} // namespace

/// Checks that `path` is not the module's own file.
LogicalResult Compilation::checkOutput(StringRef path) {
  llvm::sys::fs::UniqueID output;
  if (path == "-" || !input || llvm::sys::fs::getUniqueID(path, output) ||
      output != *input)
    return success();
  return error("cannot write '" + path +
               "': it is the module that is compiled");
}

LogicalResult Compilation::write(StringRef path, StringRef text) {
  std::string message;
  if (failed(checkOutput(path)))
    return failure();
  auto file = openOutputFile(path, &message);
  if (!file)
    return error(message);
  file->os() << text;
  file->keep();
  return success();
}

StringRef trainc::targetName(Target target) {
  return target == Target::CPU ? "cpu" : "cuda";
}

/// Writes the module to the folder of dumps, if there is one.
LogicalResult Compilation::dump(ModuleOp module, Form form, Target target) {
  if (options.dumpDirectory.empty())
    return success();
  if (std::error_code code =
          llvm::sys::fs::create_directories(options.dumpDirectory))
    return error("cannot make folder " + options.dumpDirectory + ": " +
                 code.message());
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  std::string name =
      std::to_string(static_cast<int>(form)) + "-" + formName(form).str();
  if (form > Form::Plan && options.targets.size() > 1)
    name += "." + targetName(target).str();
  return write(options.dumpDirectory + "/" + name + ".mlir", text);
}

PipelineOptions Compilation::pipelineFor(Target target) const {
  PipelineOptions pipeline = options.pipeline;
  pipeline.target = target;
  if (machine) {
    auto has = [&](ArrayRef<StringRef> features) {
      return hasFeatures(*machine, features);
    };
    GemmTarget &gemm = pipeline.gemm;
    bool isX86 = machine->getTargetTriple().isX86_64();
    gemm.own = !isX86 || pipeline.portableBits;
    gemm.vector = !isX86 || has({"avx2", "fma"});
    gemm.avx512 = has({"avx512f"});
    gemm.doublePumped = machine->getTargetCPU() == "znver4";
    gemm.amx = has({"amx-bf16", "amx-tile", "avx512bw", "avx512vl"});
    gemm.bf16 = gemm.amx || has({"avx512bf16"});
  }
  // Without optimization LLVM does not get tile registers right.
  pipeline.amx =
      pipeline.gemm.amx && !pipeline.portableBits && options.optimize > 0;
  // What has fused multiply-add has AVX; of NEON it is 32 x 16.
  if (machine && !hasFeatures(*machine, {"avx512vl"}))
    pipeline.registerBytes = 16 * 32;
  return pipeline;
}

LogicalResult Compilation::runPhases(ModuleOp module, Form first, Form last,
                                     Target target) {
  PipelineOptions pipeline = pipelineFor(target);
  for (int form = static_cast<int>(first); form <= static_cast<int>(last);
       ++form) {
    PassManager pm(&context);
    buildPhase(pm, static_cast<Form>(form), pipeline);
    if (failed(pm.run(module)) ||
        failed(dump(module, static_cast<Form>(form), target)))
      return failure();
    lap(formName(static_cast<Form>(form)));
  }
  return success();
}

LogicalResult Compilation::createMachine() {
  std::string message;
  machine = createTargetMachine(options.triple, options.cpu, options.optimize,
                                message);
  return machine ? success() : error(message);
}

/// Finds out what code is made for, and with what.
LogicalResult Compilation::prepareCode() {
  std::string message;
  if (llvm::is_contained(options.targets, Target::CUDA)) {
    imageOptions = chooseImages(options.cudaArchs, options.cudaPath,
                                options.optimize, message);
    if (!imageOptions)
      return error(message);
  }
  if (failed(createMachine()))
    return failure();
  if (options.cacheDirectory.empty())
    return success();
  cache = Cache::open(options.cacheDirectory, message);
  return message.empty() ? success() : error(message);
}

/// Makes the code of the kernels of `module`, which is in form 3 of `target`.
LogicalResult Compilation::makeCode(ModuleOp module, Target target) {
  if (!options.dumpDirectory.empty()) {
    // Form 4, which only kernels go through, of the whole module.
    OwningOpRef<ModuleOp> copy = module.clone();
    if (failed(runPhases(*copy, Form::Target, Form::Target, target)))
      return failure();
  }
  PipelineOptions pipeline = pipelineFor(target);
  if (target == Target::CUDA) {
    bool cached = false;
    if (failed(compileImages(module, pipeline, *imageOptions, cache.get(),
                             images, cached)))
      return failure();
    lap("images", cached ? "  from the cache" : "");
    return success();
  }
  KernelObjects kernels;
  if (failed(compileKernels(module, pipeline, *machine, options.optimize,
                            cache.get(), kernels)))
    return failure();
  objects = std::move(kernels.objects);
  if (cache)
    lap("kernels", "  " + Twine(kernels.numCached) + " of " +
                       Twine(objects.size()) + " from the cache");
  else
    lap("kernels");
  return success();
}

/// `path` with its extension replaced by `extension`.
static std::string withExtension(StringRef path, StringRef extension) {
  SmallString<128> result(path);
  llvm::sys::path::replace_extension(result, extension);
  return std::string(result);
}

/// Refuses kernels whose code needs a function that an artifact does not have.
LogicalResult
Compilation::checkSymbols(MutableArrayRef<OwningOpRef<ModuleOp>> modules) {
  llvm::SmallVector<UndefinedSymbol> undefined;
  std::string message;
  if (failed(findUndefined(objects, undefined, message)))
    return error(message);
  if (undefined.empty())
    return success();
  // The objects of kernels come first, in their order.
  SmallVector<train::KernelOp> kernels;
  for (auto [module, target] : llvm::zip(modules, options.targets))
    if (target == Target::CPU)
      llvm::append_range(kernels, module->getOps<train::KernelOp>());
  for (const UndefinedSymbol &symbol : undefined) {
    if (symbol.object >= kernels.size()) {
      (void)error("the artifact's tables need '" + symbol.name + "'");
      continue;
    }
    train::KernelOp kernel = kernels[symbol.object];
    llvm::SetVector<StringRef> operations;
    for (Operation &op : kernel.getBody().front().without_terminator())
      operations.insert(op.getName().getStringRef());
    kernel.emitError() << "kernel '" << kernel.getSymName() << "' ("
                       << llvm::join(operations, ", ") << ") needs function '"
                       << symbol.name << "', which artifacts do not have";
  }
  return failure();
}

LogicalResult Compilation::emit(MutableArrayRef<OwningOpRef<ModuleOp>> modules,
                                StringRef name) {
  if (options.emit == Emit::MLIR) {
    std::string text;
    llvm::raw_string_ostream os(text);
    modules[0]->print(os);
    return write(options.output, text);
  }
  std::vector<Tables> targets;
  for (auto [module, target] : llvm::zip(modules, options.targets)) {
    targets.push_back(gatherTables(*module, name,
                                   target == Target::CUDA ? TRAINC_TARGET_CUDA
                                                          : TRAINC_TARGET_CPU));
  }
  if (options.report == ReportKind::Memory)
    return write(options.output,
                 buildMemoryReport(targets[0], options.reportJson));
  if (options.report == ReportKind::Estimate) {
    std::string message;
    auto text = buildEstimate(targets[0], options.pipeline.rates,
                              options.reportJson, message);
    return failed(text) ? error(message) : write(options.output, *text);
  }
  if (options.emit == Emit::Header)
    return write(options.output, buildHeader(targets[0]));

  llvm::LLVMContext llvmContext;
  auto llvmModule = std::make_unique<llvm::Module>(name, llvmContext);
  for (auto [module, tables] : llvm::zip(modules, targets)) {
    if (tables.target == TRAINC_TARGET_CUDA) {
      tables.images = std::move(images);
    } else if (options.emit == Emit::LLVM) {
      llvmModule = translateModuleToLLVMIR(
          module->lookupSymbol<ModuleOp>("kernels"), llvmContext, name);
      if (!llvmModule)
        return error("translation to LLVM IR failed");
      std::string text;
      llvm::raw_string_ostream os(text);
      llvmModule->print(os, nullptr);
      tables.code =
          llvm::toHex(llvm::BLAKE3::hash<>(llvm::arrayRefFromStringRef(text)));
    } else {
      llvm::BLAKE3 hasher;
      for (const ObjectFile &object : objects)
        hasher.update(StringRef(object.data(), object.size()));
      tables.code = llvm::toHex(hasher.final<>());
    }
  }
  llvmModule->setTargetTriple(machine->getTargetTriple());
  llvmModule->setDataLayout(machine->createDataLayout());
  emitDescriptors(*llvmModule, targets, *machine);
  lap("tables");
  if (options.emit == Emit::LLVM) {
    std::string text, message;
    if (failed(replaceNarrowTypes(*llvmModule, message)))
      return error(message);
    llvm::raw_string_ostream os(text);
    llvmModule->print(os, nullptr);
    return write(options.output, text);
  }
  if (options.emit == Emit::SharedLibrary)
    addChecksumNote(*llvmModule);
  std::string message;
  objects.emplace_back();
  if (failed(emitObject(*llvmModule, *machine, options.optimize, objects.back(),
                        message)))
    return error(message);
  lap("object");
  if (failed(checkSymbols(modules)))
    return failure();
  if (failed(
          options.emit == Emit::Object
              ? linkObject(objects, options.output, message)
              : linkSharedLibrary(objects, options.output, "trainc_descriptor",
                                  std::string(name) + "_descriptor", message)))
    return error(message);
  lap("link");
  return write(withExtension(options.output, "h"), buildHeader(targets[0]));
}

/// The forms up to the plan are of all targets; then each has its own.
LogicalResult Compilation::compile(OwningOpRef<ModuleOp> module,
                                   StringRef name) {
  bool code = options.emit != Emit::MLIR && options.emit != Emit::Header &&
              options.report == ReportKind::None;
  if (code && failed(prepareCode()))
    return failure();
  if (options.report == ReportKind::Work) {
    if (failed(
            runPhases(*module, Form::Gradients, Form::Gradients, Target::CPU)))
      return failure();
    return write(options.output,
                 buildWorkReport(*module, name, options.reportJson));
  }
  // Form 3 of GEMMs depends on the CPU, form 4 of kernels, too.
  if (!machine && options.stopAfter >= Form::Commands &&
      failed(createMachine()))
    return failure();
  Form shared = std::min(options.stopAfter, Form::Plan);
  if (failed(dump(*module, Form::Source, Target::CPU)) ||
      failed(runPhases(*module, Form::Gradients, shared, Target::CPU)))
    return failure();
  SmallVector<OwningOpRef<ModuleOp>> modules;
  for (Target target : options.targets) {
    bool last = modules.size() + 1 == options.targets.size();
    modules.push_back(last ? std::move(module)
                           : OwningOpRef<ModuleOp>(module->clone()));
    // Kernels leave the module after form 3, but for the text of LLVM IR, which holds
    // those of the CPU.
    bool leave = code && (target == Target::CUDA || options.emit != Emit::LLVM);
    if (options.stopAfter > shared &&
        failed(runPhases(*modules.back(), Form::Commands,
                         leave ? Form::Commands : options.stopAfter, target)))
      return failure();
    if (leave && failed(makeCode(*modules.back(), target)))
      return failure();
  }
  if (failed(emit(modules, name)))
    return failure();
  if (cache)
    cache->prune(options.cacheSize);
  return success();
}

/// The artifact's name: of the module, or of the output or input file.
static std::string artifactName(ModuleOp module, const CompileOptions &options,
                                StringRef input) {
  std::string name;
  if (auto symbol = module.getSymName())
    name = symbol->str();
  else
    name = llvm::sys::path::stem(options.output.empty() || options.output == "-"
                                     ? input
                                     : StringRef(options.output))
               .str();
  for (char &c : name)
    if (!isalnum(static_cast<unsigned char>(c)))
      c = '_';
  // Functions of the runtime begin with trainc_.
  if (name.empty() || isdigit(static_cast<unsigned char>(name[0])) ||
      name == "trainc" || StringRef(name).starts_with("trainc_"))
    name = "_" + name;
  return name;
}

OwningOpRef<ModuleOp> trainc::parseModule(llvm::SourceMgr &sources,
                                          MLIRContext *context) {
  if (failed(checkText(sources, context)))
    return {};
  auto module = parseSourceFile<ModuleOp>(sources, context);
  // The parser places the module itself at line 0, which no editor knows.
  if (module)
    if (auto start = dyn_cast<FileLineColLoc>(module->getLoc()))
      (*module)->setLoc(FileLineColLoc::get(start.getFilename(), 1, 1));
  return module;
}

LogicalResult trainc::compileFile(StringRef input,
                                  const CompileOptions &options) {
  DialectRegistry registry;
  registerDialects(registry);
  Compilation compilation(registry, options);
  // A location is enough: an op may be a whole step.
  compilation.context.printOpOnDiagnostic(false);
  StringRef folder = llvm::sys::path::parent_path(options.output);
  if (!folder.empty() && !llvm::sys::fs::is_directory(folder))
    return compilation.error("cannot write '" + options.output +
                             "': there is no folder '" + folder + "'");
  if (!options.remarks.empty()) {
    const std::string &all = options.remarks;
    remark::RemarkCategories categories{all, all, all, all, all};
    if (failed(remark::enableOptimizationRemarks(
            compilation.context, /*streamer=*/nullptr,
            std::make_unique<remark::RemarkEmittingPolicyAll>(), categories,
            /*printAsEmitRemarks=*/true)))
      return compilation.error("cannot print remarks");
  }
  std::string message;
  auto file = openInputFile(input, &message);
  if (!file)
    return compilation.error(message);
  llvm::sys::fs::file_status status;
  if (!(input == "-" ? llvm::sys::fs::status(STDIN_FILENO, status)
                     : llvm::sys::fs::status(input, status)))
    compilation.input = status.getUniqueID();
  bool hasHeader =
      options.emit == Emit::SharedLibrary || options.emit == Emit::Object;
  if (failed(compilation.checkOutput(options.output)) ||
      (hasHeader &&
       failed(compilation.checkOutput(withExtension(options.output, "h")))))
    return failure();
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  SourceMgrDiagnosticHandler handler(sources, &compilation.context);
  OwningOpRef<ModuleOp> module = parseModule(sources, &compilation.context);
  if (!module)
    return failure();
  std::string name = artifactName(*module, options, input);
  compilation.lap("parse");
  return failure(failed(compilation.compile(std::move(module), name)));
}
