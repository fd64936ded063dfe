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

/// Adds `count` elements of sums, which are f32 or f64.
static void addElements(uint32_t dtype, char *to, const char *from,
                        uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    if (dtype == TRAINC_F64)
      reinterpret_cast<double *>(to)[i] +=
          reinterpret_cast<const double *>(from)[i];
    else
      reinterpret_cast<float *>(to)[i] +=
          reinterpret_cast<const float *>(from)[i];
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

static trainc_status broadcast(const Ranks &ranks, void *data, uint64_t bytes) {
  Collective collective;
  collective.kind = TRAINC_BROADCAST;
  collective.group = worldGroup(*ranks.communicator());
  collective.dtype = TRAINC_U8;
  collective.count = bytes;
  collective.data = data;
  collective.label = "checkpoint";
  return run(*ranks.communicator(), collective, nullptr);
}

namespace {
/// An open checkpoint, as a source of a state. Where some ranks do not see the file,
/// the first one reads it for all.
class Checkpoint {
public:
  trainc_status open(const Ranks &ranks, const char *path);

  const FileHeader &header() const { return reader ? shared : file.header; }
  /// Does the first rank read for all? They then read the same at the same time.
  bool isShared() const { return reader; }
  trainc_status read(uint64_t begin, void *data, uint64_t bytes) const;
  Source source() const;

private:
  trainc_status openHere(const char *path);
  trainc_status share(const Ranks &ranks);

  TensorFile file;
  FileHeader shared;
  const Ranks *reader = nullptr;
  Text name;
};
} // namespace

trainc_status Checkpoint::openHere(const char *path) {
  Text resolved;
  TRAINC_TRY(resolve(path, resolved));
  TRAINC_TRY(file.open(resolved.c_str()));
  name.format("'%s'", resolved.c_str());
  return TRAINC_OK;
}

trainc_status Checkpoint::open(const Ranks &ranks, const char *path) {
  trainc_status status = openHere(path);
  if (!ranks.any())
    return status;
  uint32_t mine = status;
  Array<uint32_t> all;
  all.resize(ranks.size());
  TRAINC_TRY(trainc_comm_all_gather(ranks.communicator(), &mine, sizeof(mine),
                                    all.data()));
  bool absent = false;
  for (uint32_t other : all) {
    absent = absent || other == TRAINC_NOT_FOUND;
    if (other != TRAINC_OK && other != TRAINC_NOT_FOUND)
      return status;
  }
  if (!absent || all[0] != TRAINC_OK)
    return status;
  name.clear();
  name.format("'%s' of rank 0", path);
  return share(ranks);
}

trainc_status Checkpoint::share(const Ranks &ranks) {
  bool first = ranks.rank() == 0;
  Array<char> json;
  uint64_t sizes[2] = {};
  trainc_status status = first ? file.readHeader(json) : TRAINC_OK;
  if (first) {
    sizes[0] = json.size();
    sizes[1] = file.dataBytes();
  }
  TRAINC_TRY(ranks.agree(status));
  TRAINC_TRY(broadcast(ranks, sizes, sizeof(sizes)));
  json.resize(sizes[0]);
  TRAINC_TRY(broadcast(ranks, json.data(), sizes[0]));
  TRAINC_TRY(ranks.agree(shared.parse(json.data(), sizes[0], sizes[1])));
  reader = &ranks;
  return TRAINC_OK;
}

trainc_status Checkpoint::read(uint64_t begin, void *data,
                               uint64_t bytes) const {
  if (!reader)
    return file.read(begin, data, bytes);
  TRAINC_TRY(reader->agree(reader->rank() == 0 ? file.read(begin, data, bytes)
                                               : TRAINC_OK));
  return broadcast(*reader, data, bytes);
}

Source Checkpoint::source() const {
  return {header(), name.c_str(),
          [](const void *context, const FileTensor &scalar, double *value) {
            return static_cast<const Checkpoint *>(context)->read(scalar.begin,
                                                                  value, 8);
          },
          this};
}

/// TRAINC_OK if `status` is so on every rank and all have opened the same file, as
/// far as its header and scalars tell.
static trainc_status agreeOnFile(const trainc_trainer *trainer,
                                 const Checkpoint &checkpoint, const Plan &plan,
                                 trainc_status status) {
  TRAINC_TRY(trainer->ranks.agree(status));
  if (!trainer->ranks.any())
    return TRAINC_OK;
  uint64_t hash = UINT64_C(0xCBF29CE484222325); // FNV-1a
  auto add = [&](const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char *>(data)[i]) *
             UINT64_C(0x100000001B3);
  };
  for (const FileTensor &tensor : checkpoint.header().tensors) {
    add(tensor.name, strlen(tensor.name) + 1);
    add(&tensor.end, sizeof(tensor.end));
  }
  for (const MetadataPair &pair : checkpoint.header().metadata) {
    add(pair.key, strlen(pair.key) + 1);
    add(pair.value, strlen(pair.value) + 1);
  }
  for (uint32_t i = 0; i < plan.scalars.size(); ++i)
    if (trainer->d->scalars[i].flags & TRAINC_SCALAR_PERSISTENT &&
        i != TRAINC_SCALAR_LOSS_SUM && i != TRAINC_SCALAR_WEIGHT_SUM)
      add(&plan.scalars[i], sizeof(double)); // sums are those of a rank
  return agree(*trainer->ranks.communicator(), "the checkpoint", hash);
}

/// Another type is converted through a buffer of `pieceBytes`, and another if it is
/// added.
static trainc_status readTensor(const trainc_trainer *trainer,
                                const Checkpoint &file, const Match &match,
                                Array<char> &buffer) {
  const trainc_tensor &tensor = trainer->state.tensors[match.to];
  Part part = partOf(trainer, tensor);
  uint64_t toSize = trainc_dtype_size(tensor.dtype);
  if (!match.from) {
    memset(part.data, 0, part.count * toSize);
    return TRAINC_OK;
  }
  uint64_t fromSize = trainc_dtype_size(match.from->dtype);
  uint64_t from = match.from->begin + part.first * fromSize;
  if (match.from->dtype == tensor.dtype && !match.adds)
    return file.read(from, part.data, part.count * toSize);
  buffer.resize(2 * pieceBytes);
  char *converted = buffer.data() + pieceBytes;
  return forPieces(match.from->dtype, tensor.dtype, part.count,
                   [&](uint64_t begin, uint64_t count) {
                     TRAINC_TRY(file.read(from + begin * fromSize,
                                          buffer.data(), count * fromSize));
                     char *to = part.data + begin * toSize;
                     convert(match.from->dtype, buffer.data(), tensor.dtype,
                             match.adds ? converted : to, count);
                     if (match.adds)
                       addElements(tensor.dtype, to, converted, count);
                     return TRAINC_OK;
                   });
}

/// Takes elements [begin, begin + count) of a tensor of the file, at `data`, as far
/// as `match` wants them.
static void takePiece(const trainc_trainer *trainer, const Match &match,
                      bool adds, uint64_t begin, uint64_t count,
                      const char *data, char *converted) {
  const trainc_tensor &tensor = trainer->state.tensors[match.to];
  Part part = partOf(trainer, tensor);
  uint64_t from = begin > part.first ? begin : part.first;
  uint64_t end = begin + count, partEnd = part.first + part.count;
  end = end < partEnd ? end : partEnd;
  if (from >= end)
    return;
  uint64_t toSize = trainc_dtype_size(tensor.dtype);
  char *to = part.data + (from - part.first) * toSize;
  data += (from - begin) * trainc_dtype_size(match.from->dtype);
  if (match.from->dtype == tensor.dtype && !adds)
    memcpy(to, data, (end - from) * toSize);
  else
    convert(match.from->dtype, data, tensor.dtype, adds ? converted : to,
            end - from);
  if (adds)
    addElements(tensor.dtype, to, converted, end - from);
}

/// Reads the tensors that some rank wants, one after the other, piece by piece: no
/// rank holds more of what is others'.
static trainc_status readShared(const trainc_trainer *trainer,
                                const Checkpoint &file, const Plan &plan) {
  const Array<FileTensor> &tensors = file.header().tensors;
  Array<float> wanted; // by how many ranks
  Array<bool> adds;    // by tensor of the state: it begins at zero
  wanted.resize(tensors.size());
  adds.resize(trainer->state.tensors.size());
  for (const Match &match : plan.tensors) {
    adds[match.to] = adds[match.to] || match.adds || !match.from;
    if (match.from)
      wanted[static_cast<size_t>(match.from - tensors.data())] = 1;
  }
  for (uint32_t i = 0; i < adds.size(); ++i) {
    const trainc_tensor &tensor = trainer->state.tensors[i];
    Part part = adds[i] ? partOf(trainer, tensor) : Part{0, 0, nullptr};
    if (part.count)
      memset(part.data, 0, part.count * trainc_dtype_size(tensor.dtype));
  }
  Collective sum;
  sum.kind = TRAINC_ALL_REDUCE;
  sum.group = worldGroup(*trainer->ranks.communicator());
  sum.count = wanted.size();
  sum.data = wanted.data();
  sum.label = "wanted tensors";
  TRAINC_TRY(run(*trainer->ranks.communicator(), sum, nullptr));

  Array<char> buffer;
  buffer.resize(2 * pieceBytes);
  Array<const Match *> matches;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const FileTensor &tensor = tensors[i];
    if (!wanted[i])
      continue;
    matches.clear();
    for (const Match &match : plan.tensors)
      if (match.from == &tensor)
        matches.push(&match);
    uint64_t size = trainc_dtype_size(tensor.dtype);
    TRAINC_TRY(
        forPieces(tensor.dtype, TRAINC_F64, (tensor.end - tensor.begin) / size,
                  [&](uint64_t begin, uint64_t count) {
                    TRAINC_TRY(file.read(tensor.begin + begin * size,
                                         buffer.data(), count * size));
                    for (const Match *match : matches)
                      takePiece(trainer, *match, adds[match->to], begin, count,
                                buffer.data(), buffer.data() + pieceBytes);
                    return TRAINC_OK;
                  }));
  }
  return TRAINC_OK;
}

static trainc_status readTensors(trainc_trainer *trainer,
                                 const Checkpoint &file, const Plan &plan) {
  Array<char> buffer;
  trainer->broken = true; // until all is read
  trainc_status status = TRAINC_OK;
  if (file.isShared())
    status = readShared(trainer, file, plan);
  for (const Match &match : plan.tensors)
    if (status == TRAINC_OK && !file.isShared())
      status = readTensor(trainer, file, match, buffer);
  TRAINC_TRY(trainer->ranks.agree(status));
  return updateComputeCopies(trainer);
}

static Target targetOf(const trainc_trainer *trainer) {
  return {trainer->artifact,      trainer->ranks.rank(), trainer->ranks.size(),
          trainer->state.tensors, /*gradients=*/false,   /*integers=*/false};
}

trainc_status trainc_load(trainc_trainer *trainer, const char *path) {
  DefaultFloats floats;
  Checkpoint checkpoint;
  Plan plan;
  for (uint32_t i = 0; i < trainer->d->num_scalars; ++i)
    plan.scalars.push(trainer->scalars[i]);
  trainc_status status = checkpoint.open(trainer->ranks, path);
  if (status == TRAINC_OK)
    status = matchState(checkpoint.source(), targetOf(trainer), plan);
  TRAINC_TRY(agreeOnFile(trainer, checkpoint, plan, status));
  TRAINC_TRY(readTensors(trainer, checkpoint, plan));
  memcpy(trainer->scalars, plan.scalars.data(), plan.scalars.size() * 8);
  trainer->windowEntry = plan.windowEntry;
  clearPairs(trainer->metadata);
  for (const MetadataPair &pair : checkpoint.header().metadata)
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
  trainc_status status = checkpoint.open(trainer->ranks, path);
  if (status == TRAINC_OK)
    status = matchParameters(checkpoint.source(), targetOf(trainer), plan);
  TRAINC_TRY(agreeOnFile(trainer, checkpoint, plan, status));
  TRAINC_TRY(readTensors(trainer, checkpoint, plan));
  trainer->broken = broken; // states and scalars are what they were
  return TRAINC_OK;
}
