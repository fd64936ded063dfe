//===- trainc-run.cpp - Trains a compiled model on data -------------------===//

#include "batches.h"
#include "benchmark.h"
#include "evaluate.h"
#include "inspect.h"
#include "mapped.h"
#include "outputs.h"
#include "ranks.h"
#include "sample.h"
#include "train.h"
#include "workgroups.h"

using namespace trainc::run;

/// The exit status of a run that a signal ended.
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

/// Ends the program before a training if what follows it cannot be done.
static void checkLater(Model &model, const Options &options) {
  if (options.eval)
    Evaluator(model, options);
  if (options.sample)
    model.output(findSampled(model, options), 0);
}

/// Without training, what a user of a trained model may have forgotten.
static void noteInitial(const Options &options) {
  if ((options.eval || (options.sample && !options.steps)) && !options.resume &&
      options.init.empty())
    note("the model has its initial parameters: neither --resume nor --init is "
         "given");
}

static int work(const Options &options) {
  Model model(options);
  noteInitial(options);
  prepareOutputs(model, options);
  if (options.preflight) {
    checkReady(model, options);
    return 0;
  }
  if (options.memoryReport)
    reportMemory(model);
  if (options.steps)
    checkLater(model, options);
  Ending ending = options.steps ? train(model, options) : Ending::Done;
  bool stopped = ending == Ending::Stopped;
  if (options.eval)
    evaluateOnly(model, options);
  if (options.sample && !stopped)
    sample(model, options);
  if (options.benchmark)
    benchmark(model, options);
  if (options.serve)
    serve(model, options);
  if (options.checkWorkgroups)
    checkWorkgroups(model, options);
  if (options.convert)
    model.convert(*options.convert);
  if (!options.save.empty())
    check(trainc_save(model.trainer(), options.save.c_str()));
  if (ending == Ending::Skipped)
    fail("the last updates of this run were skipped, as a gradient was not "
         "finite (--check-finite=ops finds the operation)");
  return stopped ? stoppedStatus : incomplete ? 1 : 0;
}

int main(int argc, char **argv) {
  prepareProcess();
  watchMappedFiles();
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
