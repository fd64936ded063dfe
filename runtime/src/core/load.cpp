//===- load.cpp - Reading checkpoints -------------------------------------===//
//
// A load first matches the file's tensors with the artifact's, collecting every
// difference; only when all fit does it read into the state.
//
//===----------------------------------------------------------------------===//

#include "core/convert.h"
#include "core/match.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace trainc;

/// Another type is converted through a buffer of `pieceBytes`.
static trainc_status readTensor(const trainc_trainer *trainer,
                                const TensorFile &file, const Match &match,
                                Array<char> &buffer) {
  const trainc_tensor &tensor = trainer->state.tensors[match.to];
  char *to = tensorData(trainer, tensor);
  if (match.from->dtype == tensor.dtype)
    return file.read(match.from->begin, to, tensor.bytes);
  buffer.resize(pieceBytes);
  uint64_t fromSize = trainc_dtype_size(match.from->dtype);
  uint64_t toSize = trainc_dtype_size(tensor.dtype);
  return forPieces(match.from->dtype, tensor.dtype, elementCount(tensor),
                   [&](uint64_t begin, uint64_t count) {
                     TRAINC_TRY(file.read(match.from->begin + begin * fromSize,
                                          buffer.data(), count * fromSize));
                     convert(match.from->dtype, buffer.data(), tensor.dtype,
                             to + begin * toSize, count);
                     return TRAINC_OK;
                   });
}

static trainc_status readTensors(trainc_trainer *trainer,
                                 const TensorFile &file, const Plan &plan) {
  Array<char> buffer;
  trainer->broken = true; // until all is read
  for (const Match &match : plan.tensors)
    TRAINC_TRY(readTensor(trainer, file, match, buffer));
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

namespace {
/// An open checkpoint, as a source of a state.
struct Checkpoint {
  trainc_status open(const char *path) {
    Text resolved;
    TRAINC_TRY(resolve(path, resolved));
    TRAINC_TRY(file.open(resolved.c_str()));
    name.format("'%s'", resolved.c_str());
    return TRAINC_OK;
  }
  Source source() const {
    return {file.header, name.c_str(),
            [](const void *context, const FileTensor &scalar, double *value) {
              return static_cast<const TensorFile *>(context)->read(
                  scalar.begin, value, 8);
            },
            &file};
  }

  TensorFile file;
  Text name;
};
} // namespace

static Target targetOf(const trainc_trainer *trainer) {
  return {trainer->artifact, trainer->state.tensors, /*gradients=*/false,
          /*integers=*/false};
}

trainc_status trainc_load(trainc_trainer *trainer, const char *path) {
  DefaultFloats floats;
  Checkpoint checkpoint;
  Plan plan;
  TRAINC_TRY(checkpoint.open(path));
  for (uint32_t i = 0; i < trainer->d->num_scalars; ++i)
    plan.scalars.push(trainer->scalars[i]);
  TRAINC_TRY(matchState(checkpoint.source(), targetOf(trainer), plan));
  TRAINC_TRY(readTensors(trainer, checkpoint.file, plan));
  memcpy(trainer->scalars, plan.scalars.data(), plan.scalars.size() * 8);
  trainer->windowEntry = plan.windowEntry;
  clearPairs(trainer->metadata);
  for (const MetadataPair &pair : checkpoint.file.header.metadata)
    if (!strncmp(pair.key, "user.", 5))
      setPair(trainer->metadata, pair.key + 5, pair.value);
  trainer->broken = false;
  return TRAINC_OK;
}

trainc_status trainc_load_parameters(trainc_trainer *trainer,
                                     const char *path) {
  DefaultFloats floats;
  Checkpoint checkpoint;
  Plan plan;
  bool broken = trainer->broken;
  TRAINC_TRY(checkpoint.open(path));
  TRAINC_TRY(matchParameters(checkpoint.source(), targetOf(trainer), plan));
  TRAINC_TRY(readTensors(trainer, checkpoint.file, plan));
  trainer->broken = broken; // states and scalars are what they were
  return TRAINC_OK;
}
