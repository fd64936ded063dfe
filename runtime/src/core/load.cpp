//===- load.cpp - Reading checkpoints -------------------------------------===//
//
// A load first matches the file's tensors with the artifact's, collecting every
// difference; only when all fit does it read into the state.
//
//===----------------------------------------------------------------------===//

#include "core/convert.h"
#include "core/safetensors.h"
#include "core/trainer.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace trainc;

namespace {
/// A tensor of the file and where it goes.
struct Match {
  const FileTensor *from;
  const trainc_tensor *to;
};

/// What a load found out about a file.
struct Plan {
  Array<Match> tensors;
  Array<double> scalars; // new values of all scalars
  uint32_t windowEntry = 0;
  Text differences;
};
} // namespace

//===----------------------------------------------------------------------===//
// Matching
//===----------------------------------------------------------------------===//

static void appendFileShape(Text &text, const FileTensor &tensor) {
  if (tensor.dtype != UINT32_MAX)
    return appendShape(text, tensor.dtype, tensor.rank, tensor.dims);
  for (uint32_t i = 0; i < tensor.rank; ++i)
    text.format("%lldx", static_cast<long long>(tensor.dims[i]));
  text.append(tensor.dtypeName);
}

static void matchTensor(Plan &plan, const FileTensor *from,
                        const trainc_tensor &to, const char *name,
                        bool required) {
  if (!from) {
    if (required)
      plan.differences.format("\n  missing: '%s'", name);
    return;
  }
  bool fits = from->rank == to.rank &&
              (from->dtype == to.dtype ||
               (isFloat(to.dtype) && from->dtype <= TRAINC_F16));
  for (uint32_t i = 0; fits && i < to.rank; ++i)
    fits = from->dims[i] == to.dims[i];
  if (fits)
    return plan.tensors.push({from, &to});
  plan.differences.format("\n  mis-shaped: '%s' is ", name);
  appendFileShape(plan.differences, *from);
  plan.differences.append(", expected ");
  appendShape(plan.differences, to.dtype, to.rank, to.dims);
}

static trainc_status matchScalars(const trainc_trainer *trainer,
                                  const TensorFile &file, Plan &plan,
                                  Array<bool> &used) {
  const trainc_descriptor &d = *trainer->d;
  plan.scalars.resize(d.num_scalars);
  Text name;
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    plan.scalars[i] = trainer->scalars[i];
    if (!(d.scalars[i].flags & TRAINC_SCALAR_PERSISTENT))
      continue;
    name.clear();
    name.format("scalar/%s", d.scalars[i].name);
    const FileTensor *from = file.header.find(name.c_str());
    if (!from) {
      plan.differences.format("\n  missing: '%s'", name.c_str());
      continue;
    }
    used[static_cast<size_t>(from - file.header.tensors.data())] = true;
    if (from->dtype != TRAINC_F64 || from->rank != 0) {
      plan.differences.format("\n  mis-shaped: '%s' is ", name.c_str());
      appendFileShape(plan.differences, *from);
      plan.differences.append(", expected f64");
      continue;
    }
    TRAINC_TRY(file.read(from->begin, &plan.scalars[i], 8));
  }
  return TRAINC_OK;
}

/// An open window must be one that this artifact can go on with.
static trainc_status matchWindow(const trainc_trainer *trainer,
                                 const TensorFile &file, Plan &plan) {
  const trainc_descriptor &d = *trainer->d;
  const char *path = file.path();
  auto whole = [](double value, double limit) {
    return value >= 0 && value < limit &&
           value == static_cast<double>(static_cast<uint64_t>(value));
  };
  double microStep = plan.scalars[TRAINC_SCALAR_MICRO_STEP];
  for (uint32_t i : {TRAINC_SCALAR_UPDATE, TRAINC_SCALAR_MICRO_STEP,
                     TRAINC_SCALAR_SKIPPED, TRAINC_SCALAR_SEED})
    if (!whole(plan.scalars[i], 0x1p53))
      return fail(TRAINC_DATA_CORRUPT, "'%s' is damaged: scalar '%s' is %g",
                  path, d.scalars[i].name, plan.scalars[i]);
  if (microStep == 0)
    return TRAINC_OK;
  const char *entry = file.header.findMetadata("trainc.window_entry");
  if (!entry)
    return fail(TRAINC_DATA_CORRUPT,
                "'%s' is damaged: it is inside a window but does not say of "
                "which entry",
                path);
  if (trainc_artifact_find_entry(trainer->artifact, entry, &plan.windowEntry) !=
          TRAINC_OK ||
      d.entries[plan.windowEntry].kind != TRAINC_ENTRY_STEP ||
      microStep >= d.entries[plan.windowEntry].accumulate)
    return fail(TRAINC_MISMATCH,
                "'%s' was saved after %.0f micro-steps of a window of '%s'; "
                "artifact '%s' has no such step with more",
                path, microStep, entry, d.name);
  return TRAINC_OK;
}

static trainc_status failDifferences(const TensorFile &file,
                                     const trainc_trainer *trainer,
                                     const Plan &plan) {
  return fail(TRAINC_MISMATCH, "'%s' does not fit artifact '%s':%s",
              file.path(), trainer->d->name, plan.differences.c_str());
}

static trainc_status matchState(const trainc_trainer *trainer,
                                const TensorFile &file, Plan &plan) {
  const trainc_descriptor &d = *trainer->d;
  const char *format = file.header.findMetadata("trainc.format");
  if (format && strcmp(format, "1") != 0)
    return fail(TRAINC_UNSUPPORTED,
                "'%s' has checkpoint format '%s', this runtime reads '1'",
                file.path(), format);
  Array<bool> used;
  used.resize(file.header.tensors.size());
  TRAINC_TRY(matchScalars(trainer, file, plan, used));
  bool inWindow = plan.scalars[TRAINC_SCALAR_MICRO_STEP] > 0;
  Text name;
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    name.clear();
    if (!checkpointName(d, i, name) ||
        (d.tensors[i].role == TRAINC_ROLE_GRADIENT && !inWindow))
      continue;
    const FileTensor *from = file.header.find(name.c_str());
    if (from)
      used[static_cast<size_t>(from - file.header.tensors.data())] = true;
    matchTensor(plan, from, d.tensors[i], name.c_str(), /*required=*/true);
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      plan.differences.format("\n  unexpected: '%s'",
                              file.header.tensors[i].name);
  if (plan.differences.size())
    return failDifferences(file, trainer, plan);
  return matchWindow(trainer, file, plan);
}

static trainc_status matchParameters(const trainc_trainer *trainer,
                                     const TensorFile &file, Plan &plan) {
  const trainc_descriptor &d = *trainer->d;
  Text name;
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    uint32_t role = d.tensors[i].role;
    name.clear();
    if (role == TRAINC_ROLE_STATE || role == TRAINC_ROLE_GRADIENT ||
        !checkpointName(d, i, name))
      continue;
    matchTensor(plan, file.header.find(name.c_str()), d.tensors[i],
                name.c_str(), /*required=*/role != TRAINC_ROLE_BUFFER);
  }
  return plan.differences.size() ? failDifferences(file, trainer, plan)
                                 : TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Another type is converted through a buffer of this many elements.
static constexpr uint64_t chunkElements = 1 << 16;

static trainc_status readTensor(const trainc_trainer *trainer,
                                const TensorFile &file, const Match &match,
                                Array<double> &chunk) {
  char *to = tensorData(trainer, *match.to);
  if (match.from->dtype == match.to->dtype)
    return file.read(match.from->begin, to, match.to->bytes);
  chunk.resize(chunkElements);
  uint64_t fromSize = trainc_dtype_size(match.from->dtype);
  uint64_t toSize = trainc_dtype_size(match.to->dtype);
  uint64_t count = elementCount(*match.to);
  for (uint64_t i = 0; i < count; i += chunkElements) {
    uint64_t piece = count - i < chunkElements ? count - i : chunkElements;
    TRAINC_TRY(file.read(match.from->begin + i * fromSize, chunk.data(),
                         piece * fromSize));
    convert(match.from->dtype, chunk.data(), match.to->dtype, to + i * toSize,
            piece);
  }
  return TRAINC_OK;
}

static trainc_status readTensors(trainc_trainer *trainer,
                                 const TensorFile &file, const Plan &plan) {
  Array<double> chunk;
  trainer->broken = true; // until all is read
  for (const Match &match : plan.tensors)
    TRAINC_TRY(readTensor(trainer, file, match, chunk));
  updateComputeCopies(trainer);
  return TRAINC_OK;
}

/// The file that a folder's `latest` names, or `path` itself.
static trainc_status resolve(const char *path, Text &file) {
  struct stat info;
  if (stat(path, &info) != 0)
    return fail(errno == ENOENT ? TRAINC_NOT_FOUND : TRAINC_IO_ERROR,
                "cannot open '%s': %s", path, errnoText(errno));
  if (!S_ISDIR(info.st_mode)) {
    file.append(path);
    return TRAINC_OK;
  }
  Text pointer;
  pointer.format("%s/latest", path);
  int descriptor = open(pointer.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return fail(errno == ENOENT ? TRAINC_NOT_FOUND : TRAINC_IO_ERROR,
                "folder '%s' has no finished checkpoint: cannot open '%s': %s",
                path, pointer.c_str(), errnoText(errno));
  char name[256];
  ssize_t bytes = read(descriptor, name, sizeof(name));
  int number = errno;
  close(descriptor);
  if (bytes < 0)
    return fail(TRAINC_IO_ERROR, "cannot read '%s': %s", pointer.c_str(),
                errnoText(number));
  size_t length = static_cast<size_t>(bytes);
  if (length < 2 || name[length - 1] != '\n' || memchr(name, '/', length) ||
      memchr(name, 0, length))
    return fail(TRAINC_DATA_CORRUPT, "'%s' names no checkpoint",
                pointer.c_str());
  file.format("%s/%.*s", path, static_cast<int>(length - 1), name);
  return TRAINC_OK;
}

trainc_status trainc_load(trainc_trainer *trainer, const char *path) {
  DefaultFloats floats;
  Text name;
  TensorFile file;
  Plan plan;
  TRAINC_TRY(resolve(path, name));
  TRAINC_TRY(file.open(name.c_str()));
  TRAINC_TRY(matchState(trainer, file, plan));
  TRAINC_TRY(readTensors(trainer, file, plan));
  memcpy(trainer->scalars, plan.scalars.data(), plan.scalars.size() * 8);
  trainer->windowEntry = plan.windowEntry;
  clearPairs(trainer->metadata);
  for (const MetadataPair &pair : file.header.metadata)
    if (!strncmp(pair.key, "user.", 5))
      setPair(trainer->metadata, pair.key + 5, pair.value);
  trainer->broken = false;
  return TRAINC_OK;
}

trainc_status trainc_load_parameters(trainc_trainer *trainer,
                                     const char *path) {
  DefaultFloats floats;
  Text name;
  TensorFile file;
  Plan plan;
  bool broken = trainer->broken;
  TRAINC_TRY(resolve(path, name));
  TRAINC_TRY(file.open(name.c_str()));
  TRAINC_TRY(matchParameters(trainer, file, plan));
  TRAINC_TRY(readTensors(trainer, file, plan));
  trainer->broken = broken; // states and scalars are what they were
  return TRAINC_OK;
}
