//===- train.cpp - The training loop --------------------------------------===//

#include "train.h"
#include "evaluate.h"
#include "log.h"
#include "observer.h"
#include "progress.h"
#include "ranks.h"
#include "svg.h"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iterator>

namespace trainc::run {

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

static volatile std::sig_atomic_t stopRequested = 0;

static constexpr int stopSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP,
                                      SIGXCPU};

/// While it lives, the first of these signals asks for a stop, and the second one
/// kills. Those that were ignored stay so (nohup, a shell's background). A rank that
/// waits for others says so: launchers send SIGTERM when a rank has died.
namespace {
struct SignalCatcher {
  SignalCatcher() {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      stopRequested = 1;
      if (communicator())
        trainc_comm_interrupt(communicator());
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    for (size_t i = 0; i < std::size(stopSignals); ++i) {
      sigaction(stopSignals[i], nullptr, &before[i]);
      if (before[i].sa_handler != SIG_IGN)
        sigaction(stopSignals[i], &action, nullptr);
    }
  }
  ~SignalCatcher() {
    for (size_t i = 0; i < std::size(stopSignals); ++i)
      sigaction(stopSignals[i], &before[i], nullptr);
  }
  struct sigaction before[std::size(stopSignals)];
};
} // namespace

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

namespace {
class Training {
public:
  Training(Model &model, const Options &options);
  Ending run();

private:
  trainc_step_result runStep();
  void report(const trainc_step_result &result, double seconds);
  void evaluate();
  void setMetadata();
  void save();
  void finish();

  Model &model;
  const Options &options;
  uint32_t entry;
  Batches batches;
  std::optional<Evaluator> evaluator;
  Observer observer;

  uint64_t done;         // steps of the whole training
  uint64_t position = 0; // examples of the whole training
  uint64_t saved = UINT64_MAX, evaluated = UINT64_MAX; // at which step last
  uint64_t units = 0; // tokens or examples of this run
  double firstLoss = NAN;
  uint64_t updates = 0, skipped = 0; // of this run; skipped: since the last one
  bool warned = false, stopped = false;
  int64_t learningRate;
  LastLosses losses;
  Curve lossCurve, evaluationCurve; // with --svg
  std::optional<OutputFile> log;
  Progress progress;
};
} // namespace

/// So many updates skipped in a row are no search for a loss scale.
static constexpr uint64_t mostSkipped = 100;

/// Closed windows of `entry`: updates and those that were skipped.
static uint64_t stepsDone(const Model &model, uint32_t entry) {
  uint32_t first = model.entry(entry).window * TRAINC_NUM_FIXED_SCALARS;
  return static_cast<uint64_t>(model.scalar(first + TRAINC_SCALAR_UPDATE) +
                               model.scalar(first + TRAINC_SCALAR_SKIPPED));
}

Training::Training(Model &model, const Options &options)
    : model(model), options(options), entry(model.findStep(options.entry)),
      batches(model, entry, options.data,
              options.shuffle ? Batches::Order::Random : Batches::Order::File),
      observer(model, options), done(stepsDone(model, entry)),
      learningRate(model.learningRate()),
      progress(done, std::max(done, *options.steps),
               batches.tokens() ? "tokens" : "examples") {
  if (!options.evalData.empty())
    evaluator.emplace(model, options);
  if (options.resume) {
    const char *at = model.metadata("data.position");
    const char *loss = model.metadata("first_loss");
    if (!at || !loss)
      fail(
          "the checkpoint has no position in the data: trainc-run did not make "
          "it (--init takes its parameters alone)");
    position = std::strtoull(at, nullptr, 10);
    firstLoss = std::strtod(loss, nullptr);
    if (options.resume->empty())
      saved = done;
  }
  if (!options.log.empty())
    log.emplace(openLog(pathOfRank(options.log), done));
}

/// All micro-steps of a window.
trainc_step_result Training::runStep() {
  trainc_step_result result;
  observer.beginStep(done + 1);
  do {
    if (stopRequested)
      check(trainc_request_stop(model.trainer()));
    uint64_t rows = batches.fill(position, done + 1);
    units += rows * std::max<uint64_t>(batches.tokens(), 1);
    result = model.step(entry, done + 1);
  } while (!result.closed);
  observer.endStep();
  ++done;
  // All ranks end together, after the step at which one was asked to.
  stopped = result.stop != 0 || (!communicator() && stopRequested);
  return result;
}

void Training::report(const trainc_step_result &result, double seconds) {
  if (!losses.count() && std::isnan(firstLoss))
    firstLoss = result.window_loss;
  losses.add(result.window_loss);
  if (!options.svg.empty())
    lossCurve.add(done, result.window_loss);
  updates += result.updated != 0;
  skipped = result.updated ? 0 : skipped + 1;
  std::optional<double> rate;
  if (learningRate >= 0)
    rate = model.scalar(static_cast<uint32_t>(learningRate));
  if (!result.finite && !warned) {
    warned = true;
    note("step %llu: a gradient is not finite, its update is skipped "
         "(--check-finite=ops finds the operation)",
         static_cast<unsigned long long>(done));
  }
  progress.update(done, units, result, rate);
  if (!log)
    return;
  log->write(format(
      R"({"step":%llu,"loss":%s,"grad_norm":%s,"clip_factor":%s,)"
      R"("loss_scale":%s,"lr":%s,"updated":%s,"examples":%llu,"ms":%.3f})"
      "\n",
      static_cast<unsigned long long>(done),
      jsonNumber(result.window_loss).c_str(),
      jsonNumber(result.grad_norm).c_str(),
      jsonNumber(result.clip_factor).c_str(),
      jsonNumber(result.loss_scale).c_str(),
      rate ? jsonNumber(*rate).c_str() : "null",
      result.updated ? "true" : "false",
      static_cast<unsigned long long>(position), 1e3 * seconds));
  log->flush();
}

void Training::evaluate() {
  // Several ranks evaluate together, and stop together after the next step.
  Evaluation result =
      evaluator->run(done, "", communicator() ? nullptr : &stopRequested);
  if (result.stopped) {
    stopped = true;
    return;
  }
  evaluated = done;
  if (result.loss && !options.svg.empty())
    evaluationCurve.add(done, *result.loss);
  progress.finish();
  if (done != *options.steps)
    std::printf("step %llu: ", static_cast<unsigned long long>(done));
  print(result);
  if (!log)
    return;
  auto number = [](const std::optional<double> &value) {
    return value ? jsonNumber(*value) : "null";
  };
  log->write(format("{\"step\":%llu,\"eval_loss\":%s,\"accuracy\":%s}\n",
                    static_cast<unsigned long long>(done),
                    number(result.loss).c_str(),
                    number(result.accuracy).c_str()));
  log->flush();
}

/// What a checkpoint needs to go on from.
void Training::setMetadata() {
  model.setMetadata("data.position", std::to_string(position));
  model.setMetadata("data.seed", std::to_string(model.seed()));
  model.setMetadata("first_loss", format("%a", firstLoss));
}

void Training::save() {
  setMetadata();
  check(trainc_save_checkpoint(model.trainer(), options.checkpointDir.c_str(),
                               static_cast<uint32_t>(options.keep), nullptr));
  saved = done;
}

/// "first loss" and "final loss", the mean of the last steps.
static void printLosses(double first, const LastLosses &losses,
                        uint64_t steps) {
  size_t count = std::min<size_t>(LastLosses::most, steps / 10 + 1);
  std::printf("first loss %.6f\nfinal loss %.6f\n", first, losses.mean(count));
  std::fflush(stdout);
}

void Training::finish() {
  progress.finish();
  bool saving = !options.checkpointDir.empty();
  setMetadata();
  if (saving && saved != done)
    save();
  if (stopped)
    note(saving || !options.save.empty()
             ? "stopped after step %llu, which is saved"
             : "stopped after step %llu; nothing is saved without "
               "--checkpoint-dir or --save",
         static_cast<unsigned long long>(done));
  else if (evaluator && evaluated != done)
    evaluate();
  observer.finish();
  if (!options.svg.empty() && isFirst())
    writeLossCurve(options.svg, std::string(model.descriptor().name), lossCurve,
                   evaluationCurve);
  if (log)
    log->close();
  if (!losses.count())
    note("step %llu of %llu is already done",
         static_cast<unsigned long long>(done),
         static_cast<unsigned long long>(*options.steps));
  else
    printLosses(firstLoss, losses, done);
}

Ending Training::run() {
  SignalCatcher signals;
  while (done < *options.steps && !stopped && skipped < mostSkipped) {
    double start = now();
    trainc_step_result result = runStep();
    report(result, now() - start);
    if (!stopped && options.evalEvery && done % options.evalEvery == 0)
      evaluate();
    if (options.checkpointEvery && done % options.checkpointEvery == 0)
      save();
  }
  finish();
  if (stopped)
    return Ending::Stopped;
  return skipped == mostSkipped || (skipped && !updates) ? Ending::Skipped
                                                         : Ending::Done;
}

Ending train(Model &model, const Options &options) {
  return Training(model, options).run();
}

} // namespace trainc::run
