//===- trainc.cpp - Compiles a training step ------------------------------===//
#include "trainc/Driver/Compiler.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"

using namespace trainc;
namespace cl = llvm::cl;

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // LLVM's libraries register options of their own, some with our names.
  cl::ResetCommandLineParser();
  cl::OptionCategory category("trainc options");
  cl::opt<std::string> input(cl::Positional, cl::desc("<model.mlir>"),
                             cl::init("-"), cl::cat(category));
  cl::opt<std::string> output("o", cl::desc("Write to this file"),
                              cl::value_desc("file"), cl::cat(category));
  cl::opt<Emit> emit(
      "emit", cl::desc("What to write:"), cl::init(Emit::SharedLibrary),
      cl::values(clEnumValN(Emit::SharedLibrary, "so", "shared library + header"),
                 clEnumValN(Emit::Object, "obj", "object file + header"),
                 clEnumValN(Emit::LLVM, "llvm", "LLVM IR"),
                 clEnumValN(Emit::MLIR, "mlir", "the module, see --stop-after"),
                 clEnumValN(Emit::Header, "header", "the C header")),
      cl::cat(category));
  cl::opt<std::string> cpu("target-cpu", cl::init("native"),
                           cl::desc("Processor: native, x86-64-v3, x86-64-v4, ..."),
                           cl::value_desc("name"), cl::cat(category));
  cl::opt<unsigned> optimize("O", cl::Prefix, cl::init(3),
                             cl::desc("Optimization level, 0 to 3"),
                             cl::cat(category));
  cl::opt<std::string> stopAfter(
      "stop-after", cl::desc("Last form: source, gradients, plan, commands, target"),
      cl::value_desc("form"), cl::init("target"), cl::cat(category));
  cl::opt<std::string> dump("dump", cl::desc("Write the module in each form here"),
                            cl::value_desc("folder"), cl::cat(category));
  cl::list<std::string> disabled("disable-pass",
                                 cl::desc("Leave a pass out; see --list-passes"),
                                 cl::value_desc("pass"), cl::CommaSeparated,
                                 cl::cat(category));
  cl::opt<bool> reference("reference",
                          cl::desc("Plain code by definitions: the tests' oracle"),
                          cl::cat(category));
  cl::opt<std::string> report("memory-report", cl::ValueOptional,
                              cl::desc("Print the memory plan (=json)"),
                              cl::init("off"), cl::cat(category));
  cl::opt<bool> time("time", cl::desc("Print the time of each phase"),
                     cl::cat(category));
  cl::opt<bool> listPasses("list-passes", cl::desc("Print what --disable-pass takes"),
                           cl::cat(category));
  cl::opt<bool> listDependencies(
      "list-dependencies", cl::desc("Print what a target machine needs"),
      cl::cat(category));
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << "trainc " TRAINC_VERSION ", LLVM " LLVM_VERSION_STRING "\n";
  });
  cl::ParseCommandLineOptions(
      argc, argv, "Compiles one training step into native code.\n");

  if (listPasses) {
    for (llvm::StringRef pass : disablablePasses())
      llvm::outs() << pass << "\n";
    return 0;
  }
  if (listDependencies) {
    llvm::outs() << "libtrainc_runtime.so (or .a)  the runtime\n"
                    "libopenblas0-pthread          matrix products (Debian package)\n"
                    "libdnnl2                      bf16 matrix products, optional "
                    "(Debian package)\n";
    return 0;
  }
  CompileOptions options;
  auto form = formFromName(stopAfter);
  if (!form) {
    llvm::errs() << "trainc: error: expects --stop-after=source, gradients, plan, "
                    "commands or target, got '"
                 << stopAfter << "'\n";
    return 1;
  }
  for (const std::string &pass : disabled) {
    if (!llvm::is_contained(disablablePasses(), pass)) {
      llvm::errs() << "trainc: error: unknown pass '" << pass
                   << "' in --disable-pass; --list-passes lists them\n";
      return 1;
    }
    options.pipeline.disabled.insert(pass);
  }
  options.emit = *form == Form::Target ? emit : Emit::MLIR;
  options.stopAfter = *form;
  options.dumpDirectory = dump;
  options.cpu = cpu;
  options.optimize = optimize;
  options.pipeline.reference = reference;
  options.memoryReport = report != "off";
  options.memoryReportJson = report == "json";
  options.time = time;
  options.output = output;
  if (options.memoryReport || options.emit == Emit::Header)
    options.stopAfter = std::min(options.stopAfter, Form::Commands);
  if (options.output.empty()) {
    bool text = options.emit != Emit::SharedLibrary && options.emit != Emit::Object;
    llvm::SmallString<128> name(llvm::sys::path::filename(input));
    llvm::sys::path::replace_extension(
        name, options.emit == Emit::Object ? "o" : "so");
    options.output = text ? "-" : std::string(name);
  }
  return failed(compileFile(input, options)) ? 1 : 0;
}
