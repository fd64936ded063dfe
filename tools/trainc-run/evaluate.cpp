//===- evaluate.cpp - Running an eval entry over a data set ---------------===//

#include "evaluate.h"
#include "core/convert.h"
#include "ranks.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/stat.h>

namespace trainc::run {

/// Index of the output `name` if it is one float, else -1.
static int64_t findSum(const trainc_entry &entry, std::string_view name) {
  for (uint32_t i = 0; i < entry.num_outputs; ++i)
    if (entry.outputs[i].name == name && isFloat(entry.outputs[i].dtype) &&
        entry.outputs[i].bytes == trainc_dtype_size(entry.outputs[i].dtype))
      return i;
  return -1;
}

/// Is it an eval that reports a loss or an accuracy?
static bool reports(const trainc_entry &entry) {
  return entry.kind == TRAINC_ENTRY_EVAL && findSum(entry, "count") >= 0 &&
         (findSum(entry, "loss") >= 0 || findSum(entry, "correct") >= 0);
}

static constexpr char expectation[] =
    "outputs 'count' and 'loss' or 'correct' of one float each";

static uint32_t findEntry(const Model &model, const Options &options) {
  const trainc_descriptor &d = model.descriptor();
  // Outputs alone are worth a run if they are written.
  bool writing = options.eval && !options.out.empty();
  bool some = std::any_of(d.entries, d.entries + d.num_entries, reports);
  uint32_t index = model.findEval(
      options.evalEntry,
      [&](const trainc_entry &entry) {
        return reports(entry) || (writing && !some);
      },
      expectation);
  if (!writing && !reports(model.entry(index)))
    fail("eval entry '%s' has nothing to report: expects %s%s",
         model.entry(index).name, expectation,
         options.eval ? ", or --out DIR" : "");
  return index;
}

Evaluator::Evaluator(Model &model, const Options &options)
    : model(model), entry(findEntry(model, options)),
      batches(model, entry,
              options.evalData.empty() ? options.data : options.evalData,
              Batches::Order::File) {
  // Memory for its outputs is there, or missing, before a training.
  if (model.entry(entry).num_outputs)
    model.output(entry, 0);
}

namespace {
/// The outputs of all batches, as .npy files.
class OutputFolder {
public:
  OutputFolder(const std::string &folder, const trainc_entry &entry,
               uint64_t batch)
      : entry(entry) {
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      fail("cannot make '%s': %s", folder.c_str(), std::strerror(errno));
    for (uint32_t i = 0; i < entry.num_outputs; ++i) {
      const trainc_port &port = entry.outputs[i];
      files.push_back(std::make_unique<NpyWriter>(
          folder + "/" + port.name + ".npy", port.dtype));
      byExample.push_back(port.rank > 0 &&
                          static_cast<uint64_t>(port.dims[0]) == batch);
    }
  }

  void add(const Model &model, uint32_t index, uint64_t rows) {
    ++batches;
    examples += rows;
    for (uint32_t i = 0; i < entry.num_outputs; ++i) {
      const trainc_port &port = entry.outputs[i];
      uint64_t count = port.bytes / trainc_dtype_size(port.dtype);
      if (byExample[i])
        count = count / static_cast<uint64_t>(port.dims[0]) * rows;
      files[i]->append(model.output(index, i), count);
    }
  }

  void finish() {
    for (uint32_t i = 0; i < entry.num_outputs; ++i) {
      const trainc_port &port = entry.outputs[i];
      std::vector<int64_t> dims(port.dims, port.dims + port.rank);
      if (byExample[i])
        dims[0] = static_cast<int64_t>(examples);
      else
        dims.insert(dims.begin(), static_cast<int64_t>(batches));
      files[i]->finish(dims);
    }
  }

private:
  const trainc_entry &entry;
  std::vector<std::unique_ptr<NpyWriter>> files;
  std::vector<bool> byExample;
  uint64_t batches = 0, examples = 0;
};
} // namespace

Evaluation Evaluator::run(uint64_t step, const std::string &folder,
                          const volatile std::sig_atomic_t *stop) {
  const trainc_entry &e = model.entry(entry);
  std::optional<OutputFolder> outputs;
  for (uint32_t i = 0; !folder.empty() && i < e.num_outputs; ++i)
    if (e.outputs[i].splits)
      fail("output '%s' of entry '%s' is split over ranks: --out writes whole "
           "ones only",
           e.outputs[i].name, e.name);
  if (!folder.empty() && isFirst())
    outputs.emplace(folder, e, batches.batchSize());
  const char *const names[] = {"loss", "correct", "count"};
  int64_t indices[3];
  double sums[3] = {};
  for (int i = 0; i < 3; ++i)
    indices[i] = findSum(e, names[i]);

  Evaluation result;
  for (uint64_t position = 0; position < batches.examples();) {
    if (stop && *stop) {
      result.stopped = true;
      return result;
    }
    uint64_t rows = batches.fill(position, step);
    model.eval(entry);
    result.examples += rows;
    for (int i = 0; i < 3; ++i)
      if (indices[i] >= 0) {
        uint32_t index = static_cast<uint32_t>(indices[i]);
        sums[i] +=
            loadElement(e.outputs[index].dtype, model.output(entry, index), 0);
      }
    if (outputs)
      outputs->add(model, entry, rows);
  }
  if (outputs)
    outputs->finish();
  if (indices[2] >= 0) {
    if (indices[0] >= 0)
      result.loss = sums[0] / sums[2];
    if (indices[1] >= 0)
      result.accuracy = sums[1] / sums[2];
  }
  return result;
}

void print(const Evaluation &evaluation) {
  if (evaluation.loss)
    std::printf("eval loss %.6f\n", *evaluation.loss);
  if (evaluation.accuracy)
    std::printf("accuracy %.4f\n", *evaluation.accuracy);
  std::fflush(stdout);
}

void evaluateOnly(Model &model, const Options &options) {
  Evaluator evaluator(model, options);
  Evaluation result = evaluator.run(/*step=*/0, options.out);
  std::printf("evaluated %llu examples\n",
              static_cast<unsigned long long>(result.examples));
  print(result);
}

} // namespace trainc::run
