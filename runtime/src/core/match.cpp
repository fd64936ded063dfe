//===- match.cpp - Which tensor of a state comes from where ---------------===//

#include "core/match.h"
#include "core/convert.h"
#include "core/parts.h"
#include <math.h>

using namespace trainc;

static void appendFileShape(Text &text, const FileTensor &tensor) {
  if (tensor.dtype != UINT32_MAX)
    return appendShape(text, tensor.dtype, tensor.rank, tensor.dims);
  for (uint32_t i = 0; i < tensor.rank; ++i)
    text.format("%lldx", static_cast<long long>(tensor.dims[i]));
  text.append(tensor.dtypeName);
}

bool trainc::isSum(const trainc_descriptor &d, const Ranks &ranks,
                   uint32_t gradient) {
  return isMerged(d, gradient) ||
         ranks.countIn(~partAxes(d.tensors[gradient])) == 1;
}

void trainc::rankName(Text &to, uint32_t rank, uint32_t ranks,
                      const char *name) {
  if (ranks > 1)
    to.format("rank/%u/", rank);
  to.append(name);
}

namespace {
class Matcher {
public:
  Matcher(const Source &source, const Target &target, Plan &plan)
      : source(source), target(target), d(*target.artifact->descriptor),
        plan(plan) {
    used.resize(source.header.tensors.size());
  }

  trainc_status matchState();
  trainc_status matchParameters();

private:
  trainc_status matchScalars();
  trainc_status matchSetScalar(uint32_t index, const char *name);
  trainc_status matchWindow(uint32_t window);
  void matchTensor(uint32_t index, const char *name, bool required,
                   bool adds = false, bool wanted = true);
  trainc_status matchGradients();
  trainc_status matchDivisor();
  trainc_status readScalar(const char *name, double &value);
  uint32_t sourceRanks() const;
  uint32_t countTerms(const char *gradient) const;
  trainc_status finish();

  const FileTensor *find(const char *name) {
    const FileTensor *tensor = source.header.find(name);
    if (tensor)
      used[static_cast<size_t>(tensor - source.header.tensors.data())] = true;
    return tensor;
  }

  const Source &source;
  const Target &target;
  const trainc_descriptor &d;
  Plan &plan;
  Array<bool> used; // per tensor of the source
  Text differences;
};
} // namespace

void Matcher::matchTensor(uint32_t index, const char *name, bool required,
                          bool adds, bool wanted) {
  const trainc_tensor &to = target.tensors[index];
  const FileTensor *from = find(name);
  if (!from) {
    if (required)
      differences.format("\n  missing: '%s'", name);
    return;
  }
  bool converts = target.integers ? from->dtype != UINT32_MAX
                                  : isFloat(to.dtype) && isFloat(from->dtype);
  bool fits = from->rank == to.rank && (from->dtype == to.dtype || converts);
  for (uint32_t i = 0; fits && i < to.rank; ++i)
    fits = from->dims[i] == to.dims[i];
  if (fits) {
    if (wanted)
      plan.tensors.push({from, index, adds});
    return;
  }
  differences.format("\n  mis-shaped: '%s' is ", name);
  appendFileShape(differences, *from);
  differences.append(", expected ");
  appendShape(differences, to.dtype, to.rank, to.dims);
}

trainc_status Matcher::readScalar(const char *name, double &value) {
  const FileTensor *from = find(name);
  if (!from) {
    differences.format("\n  missing: '%s'", name);
    return TRAINC_OK;
  }
  if (from->dtype != TRAINC_F64 || from->rank != 0) {
    differences.format("\n  mis-shaped: '%s' is ", name);
    appendFileShape(differences, *from);
    differences.append(", expected f64");
    return TRAINC_OK;
  }
  return source.readScalar(source.context, *from, &value);
}

/// A scalar that the artifact gives has the source's value if it was set there.
trainc_status Matcher::matchSetScalar(uint32_t index, const char *name) {
  const trainc_scalar &scalar = d.scalars[index];
  double &value = plan.scalars[index];
  value = scalar.init;
  Text key;
  key.format("trainc.source.%s", scalar.name);
  const char *before = source.header.findMetadata(key.c_str());
  double saved = scalar.init;
  if (before) {
    PlainNumbers plain;
    saved = strtod(before, nullptr);
  }
  bool isSaved = source.header.find(name);
  if (isSaved)
    TRAINC_TRY(readScalar(name, saved));
  plan.isSet[index] = isSaved && !before;
  // Sums of an open window have been scaled.
  bool goesOn = plan.isSet[index] ||
                (isSaved && fixedOf(d, index) == TRAINC_SCALAR_LOSS_SCALE &&
                 inWindowOf(index, plan.scalars.data()));
  if (goesOn)
    value = saved;
  if (saved == scalar.init)
    return TRAINC_OK;
  plan.notice.format("%sscalar '%s' is ", plan.notice.size() ? "\n" : "",
                     scalar.name);
  if (goesOn)
    plan.notice.format("%g, as in the checkpoint; the artifact has %g", saved,
                       scalar.init);
  else
    plan.notice.format(
        "%g, as in the artifact; the checkpoint was made with %g", scalar.init,
        saved);
  return TRAINC_OK;
}

trainc_status Matcher::matchScalars() {
  Text name;
  plan.isSet.resize(d.num_scalars);
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    name.clear();
    name.format("scalar/%s", d.scalars[i].name);
    if (followsArtifact(d, i))
      TRAINC_TRY(matchSetScalar(i, name.c_str()));
    else if (d.scalars[i].flags & TRAINC_SCALAR_PERSISTENT)
      TRAINC_TRY(readScalar(name.c_str(), plan.scalars[i]));
    else
      continue;
    if (const char *expected = expectedOf(d, i, plan.scalars[i]))
      return fail(TRAINC_DATA_CORRUPT,
                  "%s is damaged: scalar '%s' is %g, expected %s", source.name,
                  d.scalars[i].name, plan.scalars[i], expected);
  }
  return TRAINC_OK;
}

/// How many ranks saved sums of an open window of their own; 1 if there are none.
uint32_t Matcher::sourceRanks() const {
  const char *ranks = source.header.findMetadata("trainc.window_ranks");
  long count = ranks ? strtol(ranks, nullptr, 10) : 1;
  return count > 1 && count <= 65536 ? static_cast<uint32_t>(count) : 1;
}

/// How many terms the source has of a gradient, each of another name.
uint32_t Matcher::countTerms(const char *gradient) const {
  uint32_t most = sourceRanks(), terms = 0;
  Text name;
  for (; terms < most; ++terms) {
    name.clear();
    rankName(name, terms, most, gradient);
    if (!source.header.find(name.c_str()))
      break;
  }
  return terms > 0 ? terms : 1;
}

/// Sums of an open window are those of a rank or, of gradients, of all. Those of a
/// rank go on at the same number of ranks. Else the first rank gets their sum, in the
/// order of the ranks, and the others nothing; what is merged gets the sum.
trainc_status Matcher::matchGradients() {
  uint32_t ranks = sourceRanks(),
           rank = target.ranks ? target.ranks->rank() : 0;
  bool own = ranks == (target.ranks ? target.ranks->size() : 1);
  Text name, gradient;
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    gradient.clear();
    if (d.tensors[i].role != TRAINC_ROLE_GRADIENT ||
        !checkpointName(d, i, gradient))
      continue;
    bool merged = isMerged(d, i);
    uint32_t sums = countTerms(gradient.c_str());
    uint32_t axes = ~partAxes(d.tensors[i]); // along these it is a sum
    uint32_t place = target.ranks ? target.ranks->indexIn(axes) : 0;
    bool goesOn =
        !merged && sums == (target.ranks ? target.ranks->countIn(axes) : 1);
    for (uint32_t term = 0; term < sums; ++term) {
      name.clear();
      rankName(name, term, sums, gradient.c_str());
      matchTensor(i, name.c_str(), /*required=*/true,
                  /*adds=*/!goesOn && term > 0,
                  goesOn ? term == place : merged || place == 0);
    }
    if (!goesOn && !merged && place != 0)
      plan.tensors.push({nullptr, i, false});
  }
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    if (!isWindowSum(d, i) || !inWindowOf(i, plan.scalars.data()))
      continue;
    for (uint32_t one = 0; ranks > 1 && one < ranks; ++one) {
      double value = 0;
      name.clear();
      gradient.clear();
      gradient.format("scalar/%s", d.scalars[i].name);
      rankName(name, one, ranks, gradient.c_str());
      TRAINC_TRY(readScalar(name.c_str(), value));
      if (own && one == rank)
        plan.scalars[i] = value;
    }
    if (!own && rank != 0)
      plan.scalars[i] = 0;
  }
  return TRAINC_OK;
}

/// Sums of an open window are divided by what follows from the terms of their artifact's
/// loss. Sources that do not say by what are taken as they are.
trainc_status Matcher::matchDivisor() {
  const char *text = source.header.findMetadata("trainc.divisor");
  if (!text || d.divisor == 0)
    return TRAINC_OK;
  int exponent;
  double divisor = strtod(text, nullptr);
  if (frexp(divisor, &exponent) != 0.5)
    return fail(TRAINC_DATA_CORRUPT,
                "%s is damaged: its sums of gradients are divided by '%s', "
                "expected a power of two",
                source.name, text);
  plan.gradientFactor = divisor / d.divisor;
  return TRAINC_OK;
}

/// An open window must be one that this artifact can go on with.
trainc_status Matcher::matchWindow(uint32_t window) {
  double microStep = plan.scalars[scalarOf(window, TRAINC_SCALAR_MICRO_STEP)];
  if (microStep == 0)
    return TRAINC_OK;
  Text key;
  windowKey(d, window, key);
  const char *entry = source.header.findMetadata(key.c_str());
  if (!entry)
    return fail(TRAINC_DATA_CORRUPT,
                "%s is damaged: it is inside a window but does not say of "
                "which entry",
                source.name);
  uint32_t &found = plan.windowEntries[window];
  if (trainc_artifact_find_entry(target.artifact, entry, &found) != TRAINC_OK ||
      d.entries[found].kind != TRAINC_ENTRY_STEP ||
      d.entries[found].window != window ||
      microStep >= d.entries[found].accumulate)
    return fail(TRAINC_MISMATCH,
                "%s is %.0f micro-steps into a window of '%s'; "
                "artifact '%s' has no such step with more",
                source.name, microStep, entry, d.name);
  return TRAINC_OK;
}

trainc_status Matcher::finish() {
  return differences.size()
             ? fail(TRAINC_MISMATCH, "%s does not fit artifact '%s':%s",
                    source.name, d.name, differences.c_str())
             : TRAINC_OK;
}

trainc_status Matcher::matchState() {
  const char *format = source.header.findMetadata("trainc.format");
  if (format && strcmp(format, "1") != 0)
    return fail(TRAINC_UNSUPPORTED,
                "%s has checkpoint format '%s', this runtime reads '1'",
                source.name, format);
  TRAINC_TRY(matchScalars());
  bool gradients = target.gradients || inWindow(d, plan.scalars.data());
  Text name;
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    name.clear();
    if (checkpointName(d, i, name) && d.tensors[i].role != TRAINC_ROLE_GRADIENT)
      matchTensor(i, name.c_str(), /*required=*/true);
  }
  if (gradients) {
    TRAINC_TRY(matchGradients());
    TRAINC_TRY(matchDivisor());
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      differences.format("\n  unexpected: '%s'", source.header.tensors[i].name);
  TRAINC_TRY(finish());
  plan.windowEntries.resize(d.num_windows);
  for (uint32_t window = 0; window < d.num_windows; ++window)
    TRAINC_TRY(matchWindow(window));
  return TRAINC_OK;
}

trainc_status Matcher::matchParameters() {
  Text name;
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    uint32_t role = d.tensors[i].role;
    name.clear();
    // An average starts at the parameter's initial value.
    if (target.averages && role == TRAINC_ROLE_STATE &&
        !strcmp(d.tensors[i].state, "ema"))
      matchTensor(i, d.tensors[i].name, /*required=*/false);
    if (role != TRAINC_ROLE_STATE && role != TRAINC_ROLE_GRADIENT &&
        checkpointName(d, i, name))
      matchTensor(i, name.c_str(), /*required=*/role != TRAINC_ROLE_BUFFER);
  }
  return finish();
}

trainc_status trainc::matchState(const Source &source, const Target &target,
                                 Plan &plan) {
  return Matcher(source, target, plan).matchState();
}

trainc_status trainc::matchParameters(const Source &source,
                                      const Target &target, Plan &plan) {
  return Matcher(source, target, plan).matchParameters();
}
