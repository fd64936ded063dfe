//===- load.cpp - Reading checkpoints -------------------------------------===//
//
// A load first matches the file's tensors with the artifact's, collecting every
// difference; only when all fit does it read into the state.
//
//===----------------------------------------------------------------------===//

#include "core/access.h"
#include "core/checksum.h"
#include "core/convert.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/match.h"
#include "core/parts.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

/// Gives all ranks `bytes` bytes of the first one.
static trainc_status broadcast(const Ranks &ranks, void *data, uint64_t bytes) {
  return broadcastBytes(*ranks.communicator(), "a checkpoint", data, bytes);
}

/// Adds `count` elements of sums, which are f32 or f64 or, converted, of any type.
static void addElements(uint32_t dtype, char *to, const char *from,
                        uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    if (dtype == TRAINC_F64)
      reinterpret_cast<double *>(to)[i] +=
          reinterpret_cast<const double *>(from)[i];
    else if (dtype == TRAINC_F32)
      reinterpret_cast<float *>(to)[i] +=
          reinterpret_cast<const float *>(from)[i];
    else
      storeElement(dtype, to, i,
                   loadElement(dtype, to, i) + loadElement(dtype, from, i));
}

/// Takes over `count` elements from `data` for those from `at` on of this rank's part,
/// as far as it has them.
static trainc_status takeRun(const trainc_trainer *trainer, const Match &match,
                             const char *data, uint64_t at, uint64_t count) {
  const trainc_tensor &tensor = trainer->state.tensors[match.to];
  Part part = partOf(trainer, tensor);
  uint64_t fromSize = trainc_dtype_size(match.from->dtype), end = at + count;
  uint64_t low = at > part.first ? at : part.first;
  uint64_t high = end < part.first + part.count ? end : part.first + part.count;
  if (low >= high)
    return TRAINC_OK;
  Array<char> converted;
  if (match.adds)
    converted.resize((high - low) * trainc_dtype_size(tensor.dtype));
  Elements to;
  TRAINC_TRY(to.open(trainer, tensor, low - part.first, high - low,
                     match.adds ? Access::Update : Access::Write));
  convert(match.from->dtype, data + (low - at) * fromSize, tensor.dtype,
          match.adds ? converted.data() : to.data(), high - low);
  if (match.adds)
    addElements(tensor.dtype, to.data(), converted.data(), high - low);
  return to.close();
}

/// Takes over what is this rank's of the `bytes` bytes from `begin` on of the tensor
/// in the file.
static trainc_status takePiece(const trainc_trainer *trainer,
                               const Match &match, const char *data,
                               uint64_t begin, uint64_t bytes) {
  const trainc_tensor &tensor = trainer->state.tensors[match.to];
  uint64_t size = trainc_dtype_size(match.from->dtype), first = begin / size;
  PartMap map(tensor, trainer->ranks, trainer->ranks.rank());
  return map.forWhole(first, (begin + bytes) / size,
                      [&](uint64_t at, uint64_t element, uint64_t count) {
                        return takeRun(trainer, match,
                                       data + (element - first) * size, at,
                                       count);
                      });
}

/// Another type is converted, and what is added read, in pieces of `pieceBytes`.
static trainc_status readTensor(const trainc_trainer *trainer,
                                const TensorFile &file, const Match &match,
                                Array<char> &buffer) {
  const trainc_tensor &tensor = trainer->state.tensors[match.to];
  Part part = partOf(trainer, tensor);
  PartMap map(tensor, trainer->ranks, trainer->ranks.rank());
  uint64_t size = trainc_dtype_size(match.from->dtype);
  auto readRun = [&](char *to, uint64_t element, uint64_t count) {
    return file.read(match.from->begin + element * size, to, count * size);
  };
  auto readPiece = [&](char *data, uint64_t begin, uint64_t count) {
    return map.writePart(data, size, part.first + begin, count, readRun);
  };
  if (match.from->dtype == tensor.dtype && !match.adds)
    return forElements(trainer, tensor, Access::Write, readPiece);
  buffer.resize(pieceBytes);
  uint64_t most = pieceBytes / size;
  auto takeRuns = [&](uint64_t at, uint64_t element, uint64_t count) {
    for (uint64_t i = 0; element != PartMap::none && i < count; i += most) {
      uint64_t piece = count - i < most ? count - i : most;
      TRAINC_TRY(readRun(buffer.data(), element + i, piece));
      TRAINC_TRY(takeRun(trainer, match, buffer.data(), at + i, piece));
    }
    return TRAINC_OK;
  };
  return map.forPart(part.first, part.first + part.count, takeRuns);
}

static trainc_status writeZeros(const trainc_trainer *trainer,
                                const Match &match) {
  const trainc_tensor &tensor = trainer->state.tensors[match.to];
  return forElements(trainer, tensor, Access::Write,
                     [&](char *data, uint64_t, uint64_t count) {
                       memset(data, 0, count * trainc_dtype_size(tensor.dtype));
                       return TRAINC_OK;
                     });
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
  int descriptor;
  uint64_t size;
  if (trainc_status status = openRegular(pointer.c_str(), descriptor, size))
    return fail(status, "folder '%s' has no finished checkpoint: %s", path,
                trainc_last_error());
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

/// What is read at once.
static constexpr uint64_t chunkBytes = 1 << 20;

namespace {
/// An open checkpoint, as a source of a state. If the first rank can open it and
/// another cannot, the first reads it for all.
struct Checkpoint {
  explicit Checkpoint(const trainc_trainer *trainer) : ranks(trainer->ranks) {}

  trainc_status open(const char *path);
  const FileHeader &header() const { return passed ? received : file.header; }
  Source source() const {
    return {header(), name.c_str(),
            [](const void *context, const FileTensor &scalar, double *value) {
              auto &self = *static_cast<const Checkpoint *>(context);
              return self.read(scalar.begin, value, 8);
            },
            this};
  }
  /// All ranks read the same if the file is passed on.
  trainc_status read(uint64_t begin, void *data, uint64_t bytes) const;
  bool isPassed() const { return passed; }
  /// Compares the data with the header's checksum, if there is one; all ranks do it.
  trainc_status verify() const;

  TensorFile file;
  Text name; // in messages

private:
  trainc_status openAlone(const char *path);
  trainc_status passHeader();

  const Ranks &ranks;
  bool passed = false;
  FileHeader received;
};
} // namespace

trainc_status Checkpoint::openAlone(const char *path) {
  Text resolved;
  TRAINC_TRY(resolve(path, resolved));
  TRAINC_TRY(file.open(resolved.c_str()));
  name.format("'%s'", resolved.c_str());
  return TRAINC_OK;
}

trainc_status Checkpoint::open(const char *path) {
  trainc_status status = openAlone(path);
  if (!ranks.any())
    return status;
  Array<uint32_t> all;
  all.resize(ranks.size());
  uint32_t mine = status;
  TRAINC_TRY(trainc_comm_all_gather(ranks.communicator(), &mine, sizeof(mine),
                                    all.data()));
  bool some = false;
  for (uint32_t one : all)
    some = some || one != TRAINC_OK;
  if (!some)
    return TRAINC_OK;
  // What the first cannot read nobody can; elsewhere it may be absent, no more.
  for (uint32_t one : all)
    if (all[0] != TRAINC_OK ||
        (one != TRAINC_OK && one != TRAINC_NOT_FOUND && one != TRAINC_IO_ERROR))
      return ranks.agree(status);
  passed = true;
  if (ranks.rank() != 0)
    name.format("'%s' of rank 0", path);
  return passHeader();
}

/// Each rank reads its share of the file or, if it is passed on, the first one all.
trainc_status Checkpoint::verify() const {
  const char *text = header().findMetadata(checksumKey);
  if (!text)
    return TRAINC_OK;
  uint32_t expected = 0, found = 0;
  if (!parseChecksum(text, expected))
    return fail(TRAINC_UNSUPPORTED,
                "%s has a checksum that this runtime does not know: '%s'",
                name.c_str(), text);
  uint64_t share = ranks.size(), rank = ranks.rank(), end = 0;
  for (const FileTensor &tensor : header().tensors)
    end = tensor.end;
  Checksum sum(end);
  uint64_t first = passed ? 0 : end / share * rank;
  uint64_t last = passed              ? (rank == 0 ? end : 0)
                  : rank + 1 == share ? end
                                      : end / share * (rank + 1);
  trainc_status status = TRAINC_OK;
  Array<char> piece;
  if (!piece.tryResize(chunkBytes))
    status = fail(TRAINC_OUT_OF_MEMORY, "no memory to read '%s'", name.c_str());
  for (; first < last && status == TRAINC_OK; first += chunkBytes) {
    uint64_t bytes = last - first < chunkBytes ? last - first : chunkBytes;
    status = file.read(first, piece.data(), bytes);
    sum.add(first, piece.data(), bytes);
  }
  TRAINC_TRY(ranks.agree(status));
  uint32_t part = sum.part();
  Array<uint32_t> all;
  all.resize(share);
  all[0] = part;
  if (ranks.any())
    TRAINC_TRY(gatherBytes(*ranks.communicator(), "checksum of a checkpoint",
                           &part, sizeof(part), all.data()));
  for (uint32_t i = 0; i < share; ++i)
    if (i != rank)
      sum.addPart(all[i]);
  found = sum.finish();
  return found == expected ? TRAINC_OK
                           : failChecksum(name.c_str(), text, found);
}

trainc_status Checkpoint::passHeader() {
  Array<char> json;
  uint64_t sizes[2] = {};
  trainc_status status = TRAINC_OK;
  if (ranks.rank() == 0) {
    status = file.readHeader(json);
    sizes[0] = json.size();
    sizes[1] = file.dataBytes();
  }
  TRAINC_TRY(ranks.agree(status));
  TRAINC_TRY(broadcast(ranks, sizes, sizeof(sizes)));
  if (!json.tryResize(sizes[0]))
    status = failAllocation(sizes[0], "the header of a file");
  TRAINC_TRY(ranks.agree(status));
  TRAINC_TRY(broadcast(ranks, json.data(), json.size()));
  return ranks.agree(received.parse(json.data(), json.size(), sizes[1]));
}

trainc_status Checkpoint::read(uint64_t begin, void *data,
                               uint64_t bytes) const {
  if (!passed)
    return file.read(begin, data, bytes);
  trainc_status status =
      ranks.rank() == 0 ? file.read(begin, data, bytes) : TRAINC_OK;
  TRAINC_TRY(ranks.agree(status));
  return broadcast(ranks, data, bytes);
}

/// Sums whose terms come in the order of the file, whichever that is, begin with zeros.
static trainc_status beginSums(const trainc_trainer *trainer, Plan &plan) {
  for (size_t i = 1; i < plan.tensors.size(); ++i) {
    Match &first = plan.tensors[i - 1];
    const Match &second = plan.tensors[i];
    if (first.adds || !first.from || !second.adds || second.to != first.to)
      continue;
    TRAINC_TRY(writeZeros(trainer, first));
    first.adds = true;
  }
  return TRAINC_OK;
}

/// Reads the file once, in pieces that the first rank passes on; each rank takes
/// what is its own.
static trainc_status readPassed(const trainc_trainer *trainer,
                                const Checkpoint &checkpoint,
                                const Plan &plan) {
  Array<char> chunk;
  chunk.resize(chunkBytes);
  for (const FileTensor &tensor : checkpoint.header().tensors)
    for (uint64_t at = tensor.begin; at < tensor.end; at += chunkBytes) {
      uint64_t bytes =
          tensor.end - at < chunkBytes ? tensor.end - at : chunkBytes;
      TRAINC_TRY(checkpoint.read(at, chunk.data(), bytes));
      for (const Match &match : plan.tensors)
        if (match.from == &tensor)
          TRAINC_TRY(takePiece(trainer, match, chunk.data(), at - tensor.begin,
                               bytes));
    }
  return TRAINC_OK;
}

trainc_status trainc::scaleGradients(trainc_trainer *trainer, double factor) {
  if (factor == 1)
    return TRAINC_OK;
  for (const trainc_tensor &tensor : trainer->state.tensors) {
    auto scale = [&](char *data, uint64_t, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i)
        storeElement(tensor.dtype, data, i,
                     loadElement(tensor.dtype, data, i) * factor);
      return TRAINC_OK;
    };
    if (tensor.role == TRAINC_ROLE_GRADIENT)
      TRAINC_TRY(forElements(trainer, tensor, Access::Update, scale));
  }
  return TRAINC_OK;
}

static trainc_status readTensors(trainc_trainer *trainer,
                                 const Checkpoint &checkpoint, Plan &plan) {
  Array<char> buffer;
  trainer->broken = true; // until all is read
  trainc_status status = TRAINC_OK;
  for (const Match &match : plan.tensors)
    if (status != TRAINC_OK)
      break;
    else if (!match.from)
      status = writeZeros(trainer, match);
    else if (!checkpoint.isPassed())
      status = readTensor(trainer, checkpoint.file, match, buffer);
  if (checkpoint.isPassed()) {
    if (status == TRAINC_OK)
      status = beginSums(trainer, plan);
    trainc_status read = readPassed(trainer, checkpoint, plan);
    status = status == TRAINC_OK ? read : status;
  }
  if (status == TRAINC_OK)
    status = scaleGradients(trainer, plan.gradientFactor);
  TRAINC_TRY(trainer->ranks.agree(status));
  return updateComputeCopies(trainer);
}

/// TRAINC_OK if `status` is so on every rank and all have opened the same file, as
/// far as its header and scalars tell.
static trainc_status agreeOnFile(const trainc_trainer *trainer,
                                 const Checkpoint &checkpoint, const Plan &plan,
                                 trainc_status status) {
  TRAINC_TRY(trainer->ranks.agree(status));
  if (!trainer->ranks.any())
    return TRAINC_OK;
  uint64_t hash = hashStart;
  auto add = [&](const void *data, size_t bytes) {
    hash = hashBytes(hash, data, bytes);
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
    if ((trainer->d->scalars[i].flags & TRAINC_SCALAR_PERSISTENT ||
         (i < plan.isSet.size() && plan.isSet[i])) &&
        !isWindowSum(*trainer->d, i))
      add(&plan.scalars[i], sizeof(double)); // sums are those of a rank
  return agree(*trainer->ranks.communicator(), "the checkpoint", hash);
}

static Target targetOf(const trainc_trainer *trainer) {
  return {trainer->artifact,
          &trainer->ranks,
          trainer->state.tensors,
          /*gradients=*/false,
          /*integers=*/false,
          /*averages=*/positionOf(trainer).update == 0};
}

trainc_status trainc_load(trainc_trainer *trainer, const char *path) {
  DefaultFloats floats;
  TRAINC_TRY(settle(trainer));
  Checkpoint checkpoint(trainer);
  Plan plan;
  for (uint32_t i = 0; i < trainer->d->num_scalars; ++i)
    plan.scalars.push(trainer->scalars[i]);
  trainc_status status = checkpoint.open(path);
  if (status == TRAINC_OK)
    status = matchState(checkpoint.source(), targetOf(trainer), plan);
  TRAINC_TRY(agreeOnFile(trainer, checkpoint, plan, status));
  TRAINC_TRY(checkpoint.verify());
  TRAINC_TRY(readTensors(trainer, checkpoint, plan));
  memcpy(trainer->scalars, plan.scalars.data(), plan.scalars.size() * 8);
  trainer->isSet.swap(plan.isSet);
  trainer->loadNotice.clear();
  trainer->loadNotice.append(plan.notice.c_str());
  if (!checkpoint.isPassed() || trainer->ranks.rank() == 0)
    trainer->directory.setLoaded(checkpoint.file.path(), positionOf(trainer));
  trainer->windowEntries.swap(plan.windowEntries);
  clearPairs(trainer->metadata);
  for (const MetadataPair &pair : checkpoint.header().metadata)
    if (!strncmp(pair.key, "user.", 5)) // each once, see FileHeader
      trainer->metadata.push({copyText(pair.key + 5), copyText(pair.value)});
  trainer->broken = false;
  return TRAINC_OK;
}

const char *trainc_load_notice(const trainc_trainer *trainer) {
  return trainer->loadNotice.size() ? trainer->loadNotice.c_str() : nullptr;
}

trainc_status trainc_load_parameters(trainc_trainer *trainer,
                                     const char *path) {
  DefaultFloats floats;
  TRAINC_TRY(settle(trainer));
  Checkpoint checkpoint(trainer);
  Plan plan;
  bool broken = trainer->broken;
  trainc_status status = checkpoint.open(path);
  if (status == TRAINC_OK)
    status = matchParameters(checkpoint.source(), targetOf(trainer), plan);
  TRAINC_TRY(agreeOnFile(trainer, checkpoint, plan, status));
  TRAINC_TRY(checkpoint.verify());
  TRAINC_TRY(readTensors(trainer, checkpoint, plan));
  trainer->broken = broken; // states and scalars are what they were
  return TRAINC_OK;
}
