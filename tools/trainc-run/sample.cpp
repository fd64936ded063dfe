//===- sample.cpp - Writing text with a character model -------------------===//

#include "sample.h"
#include "arrays.h"
#include "core/convert.h"
#include <algorithm>
#include <cmath>

namespace trainc::run {

static constexpr uint64_t sampleStream = 3;

/// The output with a row of floats for every token, or -1.
static int64_t findLogits(const trainc_entry &entry) {
  const trainc_port &tokens = entry.inputs[0];
  for (uint32_t i = 0; i < entry.num_outputs; ++i) {
    const trainc_port &port = entry.outputs[i];
    if (port.rank < 2 || !isFloat(port.dtype))
      continue;
    int64_t rows = 1;
    for (uint32_t d = 0; d + 1 < port.rank; ++d)
      rows *= port.dims[d];
    if (rows == tokens.dims[0] * tokens.dims[1])
      return i;
  }
  return -1;
}

/// Tokens [B, T] in, logits [B, T, V] out (or [T, V], or [B * T, V]).
static bool isLanguageModel(const trainc_entry &entry) {
  return entry.num_inputs == 1 && entry.inputs[0].rank == 2 &&
         elementType(entry.inputs[0].dtype).isInteger() &&
         entry.inputs[0].dims[0] > 0 && entry.inputs[0].dims[1] > 0 &&
         findLogits(entry) >= 0;
}

/// The token at `u` of the distribution softmax(logits / temperature).
static size_t draw(const std::vector<double> &logits, double temperature,
                   double u) {
  size_t best =
      static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
  if (temperature == 0)
    return best;
  std::vector<double> sums;
  sums.reserve(logits.size());
  double sum = 0;
  for (double logit : logits)
    sums.push_back(sum += std::exp((logit - logits[best]) / temperature));
  size_t token = static_cast<size_t>(std::ranges::upper_bound(sums, u * sum) -
                                     sums.begin());
  return std::min(token, logits.size() - 1);
}

static uint64_t countVocabulary(const trainc_entry &entry) {
  const trainc_port &logits = entry.outputs[findLogits(entry)];
  return static_cast<uint64_t>(logits.dims[logits.rank - 1]);
}

static std::string promptOf(const Options &options) {
  return options.prompt.empty() ? "\n" : options.prompt;
}

uint32_t findSampled(const Model &model, const Options &options) {
  static constexpr char expected[] =
      "one input of tokens [B, T] and an output of logits";
  uint32_t index = model.findEval(options.evalEntry, isLanguageModel, expected);
  if (!isLanguageModel(model.entry(index))) {
    // The name may be meant for what is evaluated.
    if (!options.eval && options.evalData.empty())
      fail("eval entry '%s' cannot write text: expects %s",
           model.entry(index).name, expected);
    index = model.findEval("", isLanguageModel, expected);
  }
  const trainc_entry &entry = model.entry(index);
  uint64_t vocabulary = countVocabulary(entry);
  if (vocabulary > 256)
    fail("--sample needs a character model, whose tokens are bytes: the "
         "vocabulary of '%s' is %llu",
         entry.name, static_cast<unsigned long long>(vocabulary));
  for (unsigned char c : promptOf(options))
    if (c >= vocabulary)
      fail("byte %u of the prompt is not in the vocabulary of %llu", c,
           static_cast<unsigned long long>(vocabulary));
  return index;
}

void sample(Model &model, const Options &options) {
  uint32_t index = findSampled(model, options);
  const trainc_entry &entry = model.entry(index);
  uint32_t logitsIndex = static_cast<uint32_t>(findLogits(entry));
  const trainc_port &in = entry.inputs[0], &out = entry.outputs[logitsIndex];
  uint64_t context = static_cast<uint64_t>(in.dims[1]);
  uint64_t vocabulary = countVocabulary(entry);
  std::string text = promptOf(options);
  auto print = [](unsigned char c) {
    bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    std::putchar(control ? '?' : c);
  };
  for (unsigned char c : options.prompt)
    print(c);

  std::vector<int64_t> aligned((in.bytes + 7) / 8);
  check(trainc_bind_input(model.trainer(), index, 0, aligned.data(), in.bytes));
  std::vector<double> logits(vocabulary);
  for (uint64_t i = 0; i < options.sample; ++i) {
    uint64_t used = std::min<uint64_t>(text.size(), context);
    for (uint64_t t = 0; t < used; ++t)
      storeNumber(in.dtype, aligned.data(), t,
                  static_cast<unsigned char>(text[text.size() - used + t]));
    model.eval(index);
    const void *row = model.output(index, logitsIndex);
    for (uint64_t v = 0; v < vocabulary; ++v) {
      logits[v] = loadElement(out.dtype, row, (used - 1) * vocabulary + v);
      if (!std::isfinite(logits[v]))
        fail("the logits after %llu characters are not finite",
             static_cast<unsigned long long>(i));
    }
    double u = randomUnit(model.seed(), sampleStream, i);
    text += static_cast<char>(draw(logits, options.temperature, u));
    print(static_cast<unsigned char>(text.back()));
  }
  std::putchar('\n');
  std::fflush(stdout);
}

} // namespace trainc::run
