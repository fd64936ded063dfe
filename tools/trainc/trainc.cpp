//===- trainc.cpp - Compiles a training step ------------------------------===//
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "trainc/Driver/Compiler.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include <cstdlib>
#include <thread>

using namespace trainc;
namespace cl = llvm::cl;

static llvm::LogicalResult error(const llvm::Twine &message) {
  llvm::errs() << "trainc: error: " << message << "\n";
  return llvm::failure();
}

namespace {
/// The command line, as given.
struct CommandLine {
  cl::OptionCategory category{"Options"};
  cl::opt<std::string> input{cl::Positional, cl::desc("<model.mlir>"),
                             cl::cat(category)};
  cl::opt<std::string> output{
      "o", cl::desc("Write to this file (- is standard output)"),
      cl::value_desc("file"), cl::cat(category)};
  cl::opt<std::string> emit{
      "emit", cl::desc("so or obj (with a C header), llvm, mlir, header"),
      cl::value_desc("kind"), cl::init("so"), cl::cat(category)};
  cl::list<std::string> targets{
      "target", cl::desc("What the step runs on: cpu (default), cuda, or both"),
      cl::value_desc("name"), cl::CommaSeparated, cl::cat(category)};
  cl::list<std::string> cudaArchs{
      "cuda-arch", cl::desc("GPUs to make code for (sm_80,sm_90,sm_100)"),
      cl::value_desc("arch"), cl::CommaSeparated, cl::cat(category)};
  cl::opt<bool> tf32{"tf32",
                     cl::desc("Round factors of f32 products on GPUs to TF32"),
                     cl::cat(category)};
  cl::opt<bool> noSplitF32{
      "no-split-f32", cl::desc("Multiply f32 in f32 on CPUs with AMX, too"),
      cl::cat(category)};
  cl::opt<std::string> cudaPath{
      "cuda-path", cl::desc("The CUDA toolkit (CUDA_HOME, /usr/local/cuda)"),
      cl::value_desc("folder"), cl::cat(category)};
  cl::opt<std::string> triple{
      "target-triple",
      cl::desc("x86_64-linux-gnu or aarch64-linux-gnu (this machine's)"),
      cl::value_desc("triple"), cl::cat(category)};
  cl::opt<bool> portableBits{
      "portable-bits",
      cl::desc("The same bits on every CPU: no library multiplies"),
      cl::cat(category)};
  cl::opt<std::string> cpu{
      "target-cpu", cl::desc("native, x86-64-v3, x86-64-v4, neoverse-n1, ..."),
      cl::value_desc("name"), cl::init("native"), cl::cat(category)};
  cl::opt<unsigned> targetCores{
      "target-cores",
      cl::desc("CPUs that share a GEMM of oneDNN (this machine's)"),
      cl::value_desc("count"), cl::Hidden, cl::cat(category)};
  cl::opt<unsigned> optimize{"O",
                             cl::Prefix,
                             cl::init(3),
                             cl::desc("Optimization level, 0 to 3"),
                             cl::value_desc("level"),
                             cl::cat(category)};
  cl::opt<std::string> stopAfter{
      "stop-after",
      cl::desc("Write the module as source, gradients, plan, commands, target"),
      cl::value_desc("form"), cl::init("target"), cl::cat(category)};
  cl::opt<std::string> dump{"dump",
                            cl::desc("Write the module in each form here, too"),
                            cl::value_desc("folder"), cl::cat(category)};
  cl::list<std::string> disabled{
      "disable-pass", cl::desc("Leave a pass out, see --list-passes"),
      cl::value_desc("pass"), cl::CommaSeparated, cl::cat(category)};
  cl::opt<std::string> insertPasses{
      "insert-passes",
      cl::desc("Run these passes of MLIR too, after each of ours: for tests"),
      cl::value_desc("pipeline"), cl::Hidden, cl::cat(category)};
  cl::opt<std::string> insertAfter{
      "insert-after", cl::desc("Run them after this pass only"),
      cl::value_desc("pass"), cl::Hidden, cl::cat(category)};
  cl::list<std::string> swapPasses{
      "swap-passes",
      cl::desc("Run two passes in the other order: for tests"),
      cl::value_desc("pass,next"),
      cl::CommaSeparated,
      cl::Hidden,
      cl::cat(category)};
  cl::opt<bool> printPasses{
      "print-passes",
      cl::desc("Print the passes that run, a phase on a line: for tests"),
      cl::Hidden, cl::cat(category)};
  cl::opt<int64_t> alignSize{
      "align-size",
      cl::desc("Align tensors of the state to a power of two"),
      cl::value_desc("bytes"),
      cl::init(train::kBufferAlignment),
      cl::Hidden,
      cl::cat(category)};
  cl::list<std::string> mesh{
      "mesh", cl::desc("Compile for this many ranks: data=4, or host=2,data=2"),
      cl::value_desc("axis=size"), cl::CommaSeparated, cl::cat(category)};
  cl::opt<std::string> shard{
      "shard",
      cl::desc("What ranks divide: none, optimizer, gradients or parameters"),
      cl::value_desc("what"), cl::init("none"), cl::cat(category)};
  cl::opt<std::string> mergeBuffer{
      "merge-buffer",
      cl::desc(
          "A window's gradients: full, or sharded, summed each micro-step"),
      cl::value_desc("how"), cl::cat(category)};
  cl::opt<int64_t> bucketSize{
      "bucket-size",
      cl::desc("Gradients that ranks exchange at a time, about (33554432)"),
      cl::value_desc("bytes"), cl::init(32 << 20), cl::cat(category)};
  cl::opt<bool> reference{
      "reference",
      cl::desc("Kernels by plain definitions, none fused, and a plain layout: "
               "the tests' oracle of kernels, fusion and layout, not of "
               "gradients and plans"),
      cl::Hidden, cl::cat(category)};
  cl::opt<std::string> memoryLimit{
      "memory-limit",
      cl::desc("Keep the total of --memory-report below: compute values again"),
      cl::value_desc("size[K|M|G]"), cl::cat(category)};
  cl::opt<std::string> report{
      "memory-report", cl::ValueOptional,
      cl::desc("Write the memory plan, as text or json"),
      cl::value_desc("format"), cl::cat(category)};
  cl::opt<std::string> work{
      "work-report", cl::ValueOptional,
      cl::desc("Write what a step has to compute and move, as text or json"),
      cl::value_desc("format"), cl::cat(category)};
  cl::opt<std::string> estimate{
      "estimate", cl::ValueOptional,
      cl::desc("Write what a step takes, by --bandwidth, as text or json"),
      cl::value_desc("format"), cl::cat(category)};
  cl::list<std::string> bandwidth{
      "bandwidth",
      cl::desc("Rates of the machine, as trainc-run --preflight prints them"),
      cl::value_desc("rate=number"), cl::CommaSeparated, cl::cat(category)};
  cl::opt<std::string> remarks{
      "remarks", cl::ValueOptional,
      cl::desc("Print the decisions of passes, of all or of some"),
      cl::value_desc("regex"), cl::cat(category)};
  cl::opt<std::string> cacheDirectory{
      "cache-dir", cl::desc("Keep compiled kernels here, and use those kept"),
      cl::value_desc("folder"), cl::cat(category)};
  cl::opt<uint64_t> cacheSize{
      "cache-size",
      cl::desc("What the cache may grow to (1073741824)"),
      cl::value_desc("bytes"),
      cl::init(1 << 30),
      cl::Hidden,
      cl::cat(category)};
  cl::opt<unsigned> threads{
      "threads", cl::desc("Compile on this many threads (one per processor)"),
      cl::value_desc("number"), cl::init(0), cl::cat(category)};
  cl::opt<bool> time{"time", cl::desc("Print the time of each phase"),
                     cl::cat(category)};
  cl::opt<bool> listPasses{"list-passes",
                           cl::desc("Print what --disable-pass takes"),
                           cl::cat(category)};
  cl::opt<bool> listDependencies{"list-dependencies",
                                 cl::desc("Print what a target machine needs"),
                                 cl::Hidden, cl::cat(category)};

  llvm::LogicalResult toOptions(CompileOptions &options) const;
  llvm::LogicalResult setForm(CompileOptions &options) const;
  llvm::LogicalResult setPipeline(PipelineOptions &pipeline) const;
  llvm::LogicalResult setInserted(PipelineOptions &pipeline) const;
  llvm::LogicalResult setSwapped(CompileOptions &options) const;
  llvm::LogicalResult setWork(CompileOptions &options) const;
  llvm::LogicalResult setOutput(CompileOptions &options) const;
  llvm::LogicalResult setTargets(CompileOptions &options) const;
  llvm::LogicalResult setMemoryLimit(CompileOptions &options) const;
  llvm::LogicalResult setReports(CompileOptions &options, Form form) const;
};
} // namespace

/// Sets what the artifact runs on.
llvm::LogicalResult CommandLine::setTargets(CompileOptions &options) const {
  if (!targets.empty())
    options.targets.clear();
  for (llvm::StringRef name : targets) {
    Target target = name == "cpu" ? Target::CPU : Target::CUDA;
    if (name != targetName(target) ||
        llvm::is_contained(options.targets, target))
      return error("expects --target=cpu, cuda or cpu,cuda, got '" +
                   llvm::join(targets, ",") + "'");
    options.targets.push_back(target);
  }
  if (!llvm::is_contained(options.targets, Target::CUDA) &&
      (!cudaArchs.empty() || !cudaPath.empty()))
    return error("--cuda-arch and --cuda-path need --target=cuda");
  if (!cudaArchs.empty())
    options.cudaArchs.assign(cudaArchs.begin(), cudaArchs.end());
  options.cudaPath = cudaPath;
  if (portableBits && llvm::is_contained(options.targets, Target::CUDA))
    return error("--portable-bits is of CPUs: it cannot be combined with "
                 "--target=cuda");
  if (tf32 && !llvm::is_contained(options.targets, Target::CUDA))
    return error("--tf32 needs --target=cuda");
  if (options.pipeline.reference &&
      llvm::is_contained(options.targets, Target::CUDA))
    return error("--reference is for --target=cpu");
  if (options.pipeline.alignSize < 16 &&
      llvm::is_contained(options.targets, Target::CUDA))
    return error("expects an --align-size of at least 16 with --target=cuda, "
                 "whose kernels read 16 bytes at once, got " +
                 llvm::Twine(options.pipeline.alignSize));
  if (options.targets.size() > 1 && options.stopAfter > Form::Plan &&
      (options.emit == Emit::MLIR || options.report == ReportKind::Memory ||
       options.report == ReportKind::Estimate))
    return error("the module after form plan, and reports, are of one target: "
                 "expects one --target, got '" +
                 llvm::join(targets, ",") + "'");
  return llvm::success();
}

/// Sets how much memory the artifact may take.
llvm::LogicalResult CommandLine::setMemoryLimit(CompileOptions &options) const {
  if (!memoryLimit.getNumOccurrences())
    return llvm::success();
  llvm::StringRef number = memoryLimit;
  int shift = 0;
  for (auto [suffix, bits] : {std::pair("K", 10), {"M", 20}, {"G", 30}})
    if (number.consume_back(suffix)) {
      shift = bits;
      break;
    }
  int64_t size;
  if (number.getAsInteger(10, size) || size < 1 || size > INT64_MAX >> shift)
    return error("expects --memory-limit=size, in bytes or with K, M or G, got "
                 "'" +
                 memoryLimit + "'");
  if (options.pipeline.reference ||
      options.pipeline.disabled.contains("reuse-memory"))
    return error("--memory-limit needs values that share memory: expects no "
                 "--reference and no --disable-pass=reuse-memory");
  options.pipeline.memoryLimit = size << shift;
  return llvm::success();
}

/// Sets what is written instead of an artifact, and the rates.
llvm::LogicalResult CommandLine::setReports(CompileOptions &options,
                                            Form form) const {
  const std::tuple<const cl::opt<std::string> *, ReportKind, Form> reports[] = {
      {&report, ReportKind::Memory, Form::Commands},
      {&estimate, ReportKind::Estimate, Form::Commands},
      {&work, ReportKind::Work, Form::Gradients}};
  std::string before;
  for (auto [option, kind, needed] : reports) {
    std::string name = ("--" + option->ArgStr).str();
    if (!option->getNumOccurrences())
      continue;
    if (!option->empty() && *option != "text" && *option != "json")
      return error("expects " + name + ", " + name + "=text or " + name +
                   "=json, got '" + *option + "'");
    if (form < needed)
      return error(name + " needs form " + formName(needed) +
                   ", got --stop-after=" + stopAfter);
    if (options.report != ReportKind::None)
      return error("expects " + before + " or " + name + ", got both");
    options.report = kind;
    options.reportJson = *option == "json";
    before = name;
  }
  bool estimates = options.report == ReportKind::Estimate;
  bool hasRates = bandwidth.getNumOccurrences() > 0;
  if (estimates && !hasRates)
    return error("--estimate needs --bandwidth=rate=number,..., as "
                 "trainc-run --preflight prints them");
  if (hasRates && !estimates && memoryLimit.empty())
    return error("--bandwidth needs --estimate or --memory-limit");
  for (llvm::StringRef given : bandwidth)
    if (failed(options.pipeline.rates.parse(given)))
      return error("expects --bandwidth=rate=number,..., of " +
                   Rates::listNames() + ", got '" + given + "'");
  return llvm::success();
}

/// Sets what is written, and the form after which to stop.
llvm::LogicalResult CommandLine::setForm(CompileOptions &options) const {
  auto kind = llvm::StringSwitch<std::optional<Emit>>(emit)
                  .Case("so", Emit::SharedLibrary)
                  .Case("obj", Emit::Object)
                  .Case("llvm", Emit::LLVM)
                  .Case("mlir", Emit::MLIR)
                  .Case("header", Emit::Header)
                  .Default(std::nullopt);
  if (!kind)
    return error("expects --emit=so, obj, llvm, mlir or header, got '" + emit +
                 "'");
  auto form = formFromName(stopAfter);
  if (!form)
    return error("expects --stop-after=source, gradients, plan, commands or "
                 "target, got '" +
                 stopAfter + "'");
  bool printsForm = stopAfter.getNumOccurrences() > 0;
  if (printsForm && *kind != Emit::MLIR && emit.getNumOccurrences())
    return error("--stop-after=" + stopAfter +
                 " writes the module: expects --emit=mlir, got --emit=" + emit);
  options.emit = printsForm ? Emit::MLIR : *kind;
  if (failed(setReports(options, *form)))
    return llvm::failure();
  bool stopsEarly =
      options.report != ReportKind::None || options.emit == Emit::Header;
  options.stopAfter = stopsEarly ? std::min(*form, Form::Commands) : *form;
  options.dumpDirectory = dump;
  return llvm::success();
}

/// Sets what decides which passes run, and how.
llvm::LogicalResult CommandLine::setInserted(PipelineOptions &pipeline) const {
  if (insertPasses.empty())
    return llvm::success();
  mlir::registerTransformsPasses();
  std::string message;
  llvm::raw_string_ostream os(message);
  mlir::OpPassManager passes("builtin.module");
  if (failed(mlir::parsePassPipeline(insertPasses, passes, os)))
    return error("--insert-passes: " + llvm::StringRef(message).rtrim());
  pipeline.inserted = insertPasses;
  pipeline.insertAfter = insertAfter;
  return llvm::success();
}

llvm::LogicalResult CommandLine::setPipeline(PipelineOptions &pipeline) const {
  for (const std::string &pass : disabled) {
    if (!llvm::is_contained(disablablePasses(), pass))
      return error("unknown pass '" + pass +
                   "' in --disable-pass; --list-passes lists them");
    pipeline.disabled.insert(pass);
  }
  if (llvm::failed(setInserted(pipeline)))
    return llvm::failure();
  for (llvm::StringRef axis : mesh) {
    auto [name, size] = axis.split('=');
    int64_t number;
    if (name.empty() || size.getAsInteger(10, number))
      return error("expects --mesh=axis=size,..., got '" + axis + "'");
    pipeline.mesh.emplace_back(name, number);
  }
  pipeline.reference = reference;
  pipeline.alignSize = alignSize;
  pipeline.gemm.tf32 = tf32;
  if (targetCores.getNumOccurrences() && targetCores == 0)
    return error("expects --target-cores of at least 1, got 0");
  if (targetCores != 0)
    pipeline.gemm.cores = targetCores;
  else if (cpu == "native")
    pipeline.gemm.cores = std::max(1u, std::thread::hardware_concurrency());
  pipeline.gemm.splitF32 = !noSplitF32;
  pipeline.portableBits = portableBits;
  if (!llvm::is_contained({"none", "optimizer", "gradients", "parameters"},
                          shard))
    return error("expects --shard=none, optimizer, gradients or parameters, "
                 "got '" +
                 shard + "'");
  if (!llvm::is_contained({"", "full", "sharded"}, mergeBuffer))
    return error("expects --merge-buffer=full or sharded, got '" + mergeBuffer +
                 "'");
  if (bucketSize < 1)
    return error("expects a --bucket-size of at least 1, got " +
                 llvm::Twine(bucketSize));
  pipeline.shard = shard;
  pipeline.mergeBuffer = mergeBuffer;
  pipeline.bucketSize = bucketSize;
  return llvm::success();
}

/// The passes of each phase of the first target.
static llvm::SmallVector<llvm::SmallVector<llvm::StringRef>>
listPhases(const CompileOptions &options) {
  llvm::SmallVector<llvm::SmallVector<llvm::StringRef>> phases;
  PipelineOptions pipeline = options.pipeline;
  pipeline.target = options.targets.front();
  for (Form form : {Form::Gradients, Form::Plan, Form::Commands, Form::Target})
    phases.push_back(listPasses(form, pipeline));
  return phases;
}

/// Sets which passes change places, when all that decides which run is known.
llvm::LogicalResult CommandLine::setSwapped(CompileOptions &options) const {
  if (swapPasses.empty())
    return llvm::success();
  for (llvm::ArrayRef<llvm::StringRef> passes : listPhases(options))
    for (size_t i = 1; i < passes.size() && swapPasses.size() == 2; ++i)
      if (passes[i - 1] == swapPasses[0] && passes[i] == swapPasses[1]) {
        options.pipeline.swapped = {swapPasses[0], swapPasses[1]};
        return llvm::success();
      }
  return error("expects --swap-passes=pass,next of two that follow each other, "
               "got '" +
               llvm::join(swapPasses, ",") + "'");
}

/// Sets how the compiler works, and what it says of that.
llvm::LogicalResult CommandLine::setWork(CompileOptions &options) const {
  if (optimize > 3)
    return error("expects -O0, -O1, -O2 or -O3, got -O" +
                 llvm::Twine(optimize));
  // Artifacts for more are refused where the runtime is restricted (runtime.h).
  const char *restricted = std::getenv("TRAINC_AVX2_ONLY");
  options.triple = triple;
  options.cpu = cpu;
  if (cpu == "native" && triple.empty() && restricted && *restricted)
    options.cpu = "x86-64-v3";
  options.optimize = optimize;
  options.cacheDirectory = cacheDirectory;
  options.cacheSize = cacheSize;
  if (cacheSize.getNumOccurrences() && cacheDirectory.empty())
    return error("--cache-size needs --cache-dir");
  constexpr unsigned mostThreads = 1024;
  if (threads > mostThreads)
    return error("expects --threads of at most " + llvm::Twine(mostThreads) +
                 ", got " + llvm::Twine(threads));
  options.threads = threads;
  options.time = time;
  if (!remarks.getNumOccurrences())
    return llvm::success();
  options.remarks = remarks.empty() ? ".*" : std::string(remarks);
  std::string message;
  if (!llvm::Regex(options.remarks).isValid(message))
    return error("expects a regular expression in --remarks, got '" + remarks +
                 "': " + message);
  return llvm::success();
}

/// Sets where the output goes: a name that fits what is written.
llvm::LogicalResult CommandLine::setOutput(CompileOptions &options) const {
  bool wantsReport = options.report != ReportKind::None;
  bool binary = !wantsReport && (options.emit == Emit::SharedLibrary ||
                                 options.emit == Emit::Object);
  options.output = output;
  if (output.empty() && binary) {
    llvm::SmallString<128> name(
        input == "-" ? "step" : llvm::sys::path::filename(input));
    llvm::sys::path::replace_extension(
        name, options.emit == Emit::Object ? "o" : "so");
    options.output = name.str();
  } else if (output.empty()) {
    options.output = "-";
  }
  llvm::StringRef extension = llvm::sys::path::extension(options.output);
  if (!binary && llvm::is_contained({".so", ".o", ".a"}, extension))
    return error("cannot write text to '" + options.output +
                 "', which is the name of a library or an object: expects -o "
                 "with another extension, or no -o for standard output");
  if (binary && (options.output == "-" || extension == ".h"))
    return error("cannot write a library or an object to '" + options.output +
                 "'" + (extension == ".h" ? ", where its header goes" : ""));
  return llvm::success();
}

/// Checks what was given, alone and in combination.
llvm::LogicalResult CommandLine::toOptions(CompileOptions &options) const {
  if (input.empty())
    return error("expects a module: trainc model.mlir (- is standard input)");
  if (failed(setForm(options)) || failed(setPipeline(options.pipeline)) ||
      failed(setWork(options)) || failed(setMemoryLimit(options)) ||
      failed(setTargets(options)) || failed(setSwapped(options)))
    return llvm::failure();
  return setOutput(options);
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // LLVM's libraries register options of their own, some with our names.
  cl::ResetCommandLineParser();
  CommandLine line;
  cl::HideUnrelatedOptions(line.category);
  // It would say the same as --help.
  cl::getRegisteredOptions().erase("help-list");
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << "trainc " TRAINC_VERSION ", LLVM " LLVM_VERSION_STRING "\n";
  });
  cl::ParseCommandLineOptions(argc, argv,
                              "Compiles one training step into native code.\n");

  if (line.listPasses) {
    for (llvm::StringRef pass : disablablePasses())
      llvm::outs() << pass << "\n";
    return 0;
  }
  if (line.listDependencies) {
    llvm::outs()
        << "libtrainc_runtime.so.0  the runtime (or libtrainc_runtime.a, "
           "linked in)\n"
           "libopenblas.so.0        matrix products (Debian: "
           "libopenblas0-pthread)\n"
           "libdnnl.so.2            the same where it is faster, optional "
           "(Debian: "
           "libdnnl2)\n"
           "libcuda.so.1            of artifacts for GPUs: NVIDIA's driver\n"
           "libcublasLt.so          the same: matrix products\n"
           "libnccl.so.2            the same, of several ranks\n";
    return 0;
  }
  CompileOptions options;
  if (failed(line.toOptions(options)))
    return 1;
  if (line.printPasses) {
    for (llvm::ArrayRef<llvm::StringRef> passes : listPhases(options))
      llvm::outs() << llvm::join(passes, " ") << "\n";
    return 0;
  }
  return failed(compileFile(line.input, options));
}
