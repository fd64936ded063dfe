//===- trainc-run.cpp - Trains a compiled model on data -------------------===//

#include "benchmark.h"
#include "evaluate.h"
#include "inspect.h"
#include "sample.h"
#include "train.h"

using namespace trainc::run;

/// The exit status of a run that SIGINT or SIGTERM ended.
static constexpr int stoppedStatus = 130;

static void reportMemory(Model &model) {
  const char *text;
  check(trainc_memory_report(model.trainer(), &text));
  std::fputs(text, stdout);
}

int main(int argc, char **argv) {
  Options options = parseOptions(argc, argv);
  if (!options.inspect.empty()) {
    inspect(options.inspect);
    return 0;
  }
  Model model(options);
  if (options.memoryReport)
    reportMemory(model);
  bool stopped = options.steps && !train(model, options);
  if (options.eval)
    evaluateOnly(model, options);
  if (options.sample && !stopped)
    sample(model, options);
  if (options.benchmark)
    benchmark(model, options);
  if (options.serve)
    serve(model, options);
  if (options.convert)
    model.convert(*options.convert);
  if (!options.save.empty())
    check(trainc_save(model.trainer(), options.save.c_str()));
  return stopped ? stoppedStatus : 0;
}
