//===- trainc-run.cpp - Trains a compiled model on data -------------------===//

#include "batches.h"
#include "benchmark.h"
#include "evaluate.h"
#include "inspect.h"
#include "ranks.h"
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

/// Checks all that a training needs, as far as it can be known before.
static void checkReady(Model &model, const Options &options) {
  if (!options.data.empty())
    Batches(model, model.findStep(options.entry), options.data,
            Batches::Order::File);
  if (!options.evalData.empty())
    Evaluator(model, options);
  preflight(model, options);
}

static int work(const Options &options) {
  Model model(options);
  if (options.preflight) {
    checkReady(model, options);
    return 0;
  }
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

int main(int argc, char **argv) {
  Options options = parseOptions(argc, argv);
  if (!options.inspect.empty()) {
    inspect(options.inspect);
    return 0;
  }
  joinRanks(options, argc, argv);
  int status = work(options);
  leaveRanks();
  return status;
}
