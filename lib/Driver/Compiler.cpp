//===- Compiler.cpp - From a module's text to an artifact -----------------===//
#include "trainc/Driver/Compiler.h"
#include "Tables.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Transforms/AllInterfaces.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Target/Object.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Target/TargetMachine.h"
#include <chrono>

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
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

namespace {
/// One compilation: the context and what is reported.
struct Compilation {
  const CompileOptions &options;
  MLIRContext context;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();

  Compilation(const DialectRegistry &registry, const CompileOptions &options)
      : options(options), context(registry) {}

  void lap(StringRef what) {
    auto now = std::chrono::steady_clock::now();
    if (options.time)
      llvm::errs() << llvm::format(
          "%-12s %8.3f s\n", what.str().c_str(),
          std::chrono::duration<double>(now - last).count());
    last = now;
  }
  LogicalResult error(const Twine &message) {
    llvm::errs() << "trainc: error: " << message << "\n";
    return failure();
  }
  LogicalResult write(StringRef path, StringRef text);
  LogicalResult dump(ModuleOp module, Form form);
  LogicalResult runPhases(ModuleOp module);
  LogicalResult emit(ModuleOp module, StringRef name);
};
} // namespace

LogicalResult Compilation::write(StringRef path, StringRef text) {
  std::string message;
  auto file = openOutputFile(path, &message);
  if (!file)
    return error(message);
  file->os() << text;
  file->keep();
  return success();
}

/// Writes the module to the folder of dumps, if there is one.
LogicalResult Compilation::dump(ModuleOp module, Form form) {
  if (options.dumpDirectory.empty())
    return success();
  if (std::error_code code =
          llvm::sys::fs::create_directories(options.dumpDirectory))
    return error("cannot make folder " + options.dumpDirectory + ": " +
                 code.message());
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  return write(options.dumpDirectory + "/" +
                   std::to_string(static_cast<int>(form)) + "-" +
                   formName(form).str() + ".mlir",
               text);
}

LogicalResult Compilation::runPhases(ModuleOp module) {
  if (failed(dump(module, Form::Source)))
    return failure();
  for (int form = 1; form <= static_cast<int>(options.stopAfter); ++form) {
    PassManager pm(&context);
    buildPhase(pm, static_cast<Form>(form), options.pipeline);
    if (failed(pm.run(module)) || failed(dump(module, static_cast<Form>(form))))
      return failure();
    lap(formName(static_cast<Form>(form)));
  }
  return success();
}

/// `path` with its extension replaced by `extension`.
static std::string withExtension(StringRef path, StringRef extension) {
  SmallString<128> result(path);
  llvm::sys::path::replace_extension(result, extension);
  return std::string(result);
}

LogicalResult Compilation::emit(ModuleOp module, StringRef name) {
  if (options.emit == Emit::MLIR) {
    std::string text;
    llvm::raw_string_ostream os(text);
    module.print(os);
    return write(options.output, text);
  }
  Tables tables = gatherTables(module, name);
  if (options.memoryReport)
    return write(options.output,
                 buildMemoryReport(tables, options.memoryReportJson));
  if (options.emit == Emit::Header)
    return write(options.output, buildHeader(tables));

  std::string message;
  auto machine = createTargetMachine(options.cpu, options.optimize, message);
  if (!machine)
    return error(message);
  llvm::LLVMContext llvmContext;
  auto llvmModule = translateModuleToLLVMIR(
      module.lookupSymbol<ModuleOp>("kernels"), llvmContext, name);
  if (!llvmModule)
    return error("translation to LLVM IR failed");
  llvmModule->setTargetTriple(machine->getTargetTriple());
  llvmModule->setDataLayout(machine->createDataLayout());
  emitDescriptor(*llvmModule, tables, *machine);
  lap("llvm ir");
  if (options.emit == Emit::LLVM) {
    std::string text;
    llvm::raw_string_ostream os(text);
    llvmModule->print(os, nullptr);
    return write(options.output, text);
  }
  bool shared = options.emit == Emit::SharedLibrary;
  std::string object =
      shared ? withExtension(options.output, "tmp.o") : options.output;
  if (failed(
          emitObject(*llvmModule, *machine, options.optimize, object, message)))
    return error(message);
  lap("object");
  if (shared) {
    LogicalResult linked =
        linkSharedLibrary(object, options.output, "trainc_descriptor",
                          std::string(name) + "_descriptor", message);
    llvm::sys::fs::remove(object);
    if (failed(linked))
      return error(message);
    lap("link");
  }
  return write(withExtension(options.output, "h"), buildHeader(tables));
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
  if (name.empty() || isdigit(static_cast<unsigned char>(name[0])))
    name = "_" + name;
  return name;
}

OwningOpRef<ModuleOp> trainc::parseModule(llvm::SourceMgr &sources,
                                          MLIRContext *context) {
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
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  SourceMgrDiagnosticHandler handler(sources, &compilation.context);
  OwningOpRef<ModuleOp> module = parseModule(sources, &compilation.context);
  if (!module)
    return failure();
  std::string name = artifactName(*module, options, input);
  compilation.lap("parse");
  if (failed(compilation.runPhases(*module)))
    return failure();
  return compilation.emit(*module, name);
}
