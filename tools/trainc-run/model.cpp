//===- model.cpp - The artifact and its trainer ---------------------------===//

#include "model.h"
#include "observer.h"
#include "ranks.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace trainc::run {

Model::Model(const Options &options) {
  check(trainc_artifact_open(options.model.c_str(), &artifact));
  trainc_trainer_options settings = {};
  settings.size = sizeof(settings);
  settings.threads = options.threads ? static_cast<uint32_t>(options.threads)
                                     : defaultThreads();
  settings.comm = communicator();
  settings.memory_limit = options.memoryLimit;
  settings.seed = options.seed.value_or(0);
  settings.device = options.device.c_str();
  if (options.resume)
    settings.flags |= TRAINC_TRAINER_NO_INIT;
  check(trainc_trainer_create(artifact, &settings, &handle));
  tables = trainc_trainer_descriptor(handle);
  tellNotice();
  dataSeed = settings.seed;
  load(options);
  setScalars(options);
  if (options.resume)
    noteDifferences(options);
}

void Model::tellNotice() {
  const char *notice = trainc_trainer_notice(handle);
  if (!notice || std::strlen(notice) <= told)
    return;
  note("warning: %s", notice + told + (told > 0)); // behind the end of a line
  told = std::strlen(notice);
}

Model::~Model() {
  tellNotice();
  trainc_trainer_destroy(handle);
  trainc_artifact_close(artifact);
}

void Model::load(const Options &options) {
  if (!options.init.empty())
    check(trainc_load_parameters(handle, options.init.c_str()));
  if (!options.resume)
    return;
  const std::string &path =
      options.resume->empty() ? options.checkpointDir : *options.resume;
  check(trainc_load(handle, path.c_str()));
  if (const char *seed = metadata("data.seed"))
    dataSeed = std::strtoull(seed, nullptr, 10);
  if (options.seed && *options.seed != dataSeed)
    fail("the checkpoint was made with --seed %llu, not %llu",
         static_cast<unsigned long long>(dataSeed),
         static_cast<unsigned long long>(*options.seed));
}

/// Says where the checkpoint and the artifact have other scalars, but for those that
/// the options set.
void Model::noteDifferences(const Options &options) {
  const char *notice = trainc_load_notice(handle);
  std::istringstream lines(notice ? notice : "");
  for (std::string line; std::getline(lines, line);)
    if (std::none_of(
            options.scalars.begin(), options.scalars.end(), [&](auto &scalar) {
              return line.rfind("scalar '" + scalar.first + "' ", 0) == 0;
            }))
      note("%s", line.c_str());
}

void Model::setScalars(const Options &options) {
  for (const auto &[name, value] : options.scalars) {
    trainc_status status = trainc_set_scalar(handle, name.c_str(), value);
    if (status == TRAINC_OK)
      continue;
    std::string reason = trainc_last_error(), known;
    for (uint32_t i = 0; i < tables->num_scalars; ++i)
      if (tables->scalars[i].flags & TRAINC_SCALAR_SETTABLE)
        known +=
            (known.empty() ? "" : ", ") + std::string(tables->scalars[i].name);
    fail("%s (scalars that can be set: %s)", reason.c_str(), known.c_str());
  }
}

std::string Model::entryNames(uint32_t kind) const {
  std::string names;
  for (uint32_t i = 0; i < tables->num_entries; ++i)
    if (entry(i).kind == kind)
      names += (names.empty() ? "" : ", ") + std::string(entry(i).name);
  return names.empty() ? "none" : names;
}

uint32_t Model::findStep(const std::string &name) const {
  for (uint32_t i = 0; i < tables->num_entries; ++i)
    if (entry(i).kind == TRAINC_ENTRY_STEP &&
        (name.empty() || name == entry(i).name))
      return i;
  fail("model '%s' has no step%s; its steps: %s", tables->name,
       name.empty() ? "" : (" '" + name + "'").c_str(),
       entryNames(TRAINC_ENTRY_STEP).c_str());
}

uint32_t Model::findEvalNamed(const std::string &name,
                              const char *expected) const {
  for (uint32_t i = 0; i < tables->num_entries; ++i)
    if (entry(i).kind == TRAINC_ENTRY_EVAL && name == entry(i).name)
      return i;
  std::string names = entryNames(TRAINC_ENTRY_EVAL);
  if (name.empty())
    fail("model '%s' has no eval entry with %s; its evals: %s", tables->name,
         expected, names.c_str());
  fail("model '%s' has no eval entry '%s'; its evals: %s", tables->name,
       name.c_str(), names.c_str());
}

double Model::scalar(uint32_t index) const {
  double value;
  check(trainc_get_scalar_at(handle, index, &value));
  return value;
}

int64_t Model::learningRate() const {
  int64_t found = -1;
  for (uint32_t i = tables->num_scalars; i-- > 0;) {
    std::string_view name = tables->scalars[i].name;
    if (name == "lr")
      return i;
    if (name.size() > 3 && name.substr(name.size() - 3) == ".lr")
      found = i;
  }
  return found;
}

void Model::convert(const ConvertArgument &argument) {
  trainc_convert_options request = {};
  request.size = sizeof(request);
  request.dtype = argument.dtype.c_str();
  request.what = argument.what;
  request.include_integers = argument.integers;
  check(trainc_convert(handle, &request));
}

trainc_step_result Model::step(uint32_t entry, uint64_t step) {
  trainc_step_result result;
  trainc_status status = trainc_step(handle, entry, &result);
  if (status == TRAINC_CANCELLED && observer)
    fail("step %llu: %s", static_cast<unsigned long long>(step),
         observer->reason().c_str());
  if (status != TRAINC_OK)
    fail("step %llu: %s", static_cast<unsigned long long>(step),
         trainc_last_error());
  return result;
}

void Model::eval(uint32_t entry) {
  trainc_status status = trainc_eval(handle, entry);
  if (status == TRAINC_CANCELLED && observer)
    fail("eval '%s': %s", this->entry(entry).name, observer->reason().c_str());
  check(status);
}

const void *Model::output(uint32_t entry, uint32_t index) const {
  const void *data;
  check(trainc_output_data(handle, entry, index, &data));
  return data;
}

const char *Model::metadata(const char *key) const {
  const char *value;
  trainc_status status = trainc_get_metadata(handle, key, &value);
  if (status == TRAINC_NOT_FOUND)
    return nullptr;
  check(status);
  return value;
}

void Model::setMetadata(const char *key, const std::string &value) {
  check(trainc_set_metadata(handle, key, value.c_str()));
}

} // namespace trainc::run
