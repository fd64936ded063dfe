//===- trainc-fuzz.cpp - Compiles many modules in one process -------------===//
//
// A worker of fuzz.py. Each line of standard input is a request, each is
// answered by one line, `outcome<TAB>message`:
//
//   check FILE                       up to form 3, commands
//     ok                             compiled
//     parse                          refused when parsed or verified
//     refused                        refused by a pass
//     silent                         refused, or not, without a proper
//     diagnostic
//   compile FILE OUTPUT VARIANT [CPU]  to a shared library, by LLVM at O1 or
//   (reference) O0
//     ok, failed                     VARIANT: default, off (no optional pass),
//     reference, gpu (for the emulator, too)
//
// A crash ends the process before the answer, a hang by SIGPROF or SIGALRM.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Diagnostics.h"
#include "trainc/Driver/Compiler.h"
#include "llvm/ADT/StringExtras.h"
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

using namespace mlir;
using namespace trainc;

/// Of processor time, and, for what waits forever, of the clock: the machine
/// may be busy with other things.
static constexpr unsigned kSeconds = 20, kClockSeconds = 300;

namespace {
/// What the diagnostics of a compilation say.
struct Report {
  std::string first;
  unsigned errors = 0, withoutLocation = 0;

  void add(Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return;
    auto place =
        LocationAttr(diagnostic.getLocation()).findInstanceOf<FileLineColLoc>();
    bool located = place && place.getLine() > 0;
    if (errors++ == 0 || (!located && !withoutLocation))
      first = diagnostic.str();
    withoutLocation += !located;
  }
};
} // namespace

/// Compiles up to form 3; the name of the outcome.
static StringRef check(const std::string &path, Report &report) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { report.add(diagnostic); });
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer) {
    report.first = "cannot open " + path;
    return "silent";
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());
  OwningOpRef<ModuleOp> module = parseModule(sources, &context);
  if (!module)
    return report.errors && !report.withoutLocation ? "parse" : "silent";
  LogicalResult done = success();
  for (int form = 1; succeeded(done) && form <= int(Form::Commands); ++form) {
    PassManager passes(&context);
    buildPhase(passes, static_cast<Form>(form), PipelineOptions());
    done = passes.run(*module);
  }
  if (report.withoutLocation || succeeded(done) != (report.errors == 0))
    return "silent";
  return succeeded(done) ? "ok" : "refused";
}

static bool compile(const std::string &input, const std::string &output,
                    StringRef variant, const std::string &cpu) {
  CompileOptions options;
  options.cpu = cpu.empty() ? "native" : cpu;
  options.output = output;
  // Artifacts for more are refused where the runtime is restricted (runtime.h).
  if (const char *restricted = std::getenv("TRAINC_AVX2_ONLY");
      restricted && *restricted)
    options.cpu = "x86-64-v3";
  options.optimize = variant == "reference" ? 0 : 1; // its code is long
  options.pipeline.reference = variant == "reference";
  if (variant == "gpu") {
    options.targets = {Target::CUDA, Target::CPU};
    options.cudaArchs = {"host"};
  }
  if (variant == "off")
    for (StringRef pass : disablablePasses())
      options.pipeline.disabled.insert(pass);
  return succeeded(compileFile(input, options));
}

static void limitTime(unsigned seconds, unsigned clockSeconds) {
  itimerval timer = {{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
  alarm(clockSeconds);
}

int main() {
#if !__has_feature(address_sanitizer) // which reserves more than there is
  rlimit memory = {rlim_t{6} << 30, rlim_t{6} << 30};
  setrlimit(RLIMIT_AS, &memory);
#endif
  rlimit noCore = {0, 0};
  setrlimit(RLIMIT_CORE, &noCore);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command, input, output, variant, cpu, message;
    words >> command >> input >> output >> variant >> cpu;
    limitTime(kSeconds, kClockSeconds);
    if (command == "check") {
      Report report;
      message = check(input, report).str() + "\t" + report.first;
    } else if (command == "compile") {
      message = compile(input, output, variant, cpu) ? "ok\t" : "failed\t";
    } else {
      std::cerr << "trainc-fuzz: unknown request: " << line << "\n";
      return 1;
    }
    limitTime(0, 0);
    for (char &c : message)
      if (c == '\n')
        c = ' ';
    std::cout << message << std::endl;
  }
}
