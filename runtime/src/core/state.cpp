//===- state.cpp - Scalars, tensors and metadata by name ------------------===//

#include "core/access.h"
#include "core/convert.h"
#include "core/parts.h"
#include "core/safetensors.h"
#include "cuda/executor.h"
#include <math.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static trainc_status checkScalar(const trainc_trainer *trainer,
                                 uint32_t scalar) {
  if (scalar < trainer->d->num_scalars)
    return TRAINC_OK;
  return fail(TRAINC_INVALID_ARGUMENT,
              "artifact '%s' has %u scalars; no number %u", trainer->d->name,
              trainer->d->num_scalars, scalar);
}

trainc_status trainc_get_scalar_at(const trainc_trainer *trainer,
                                   uint32_t scalar, double *out_value) {
  TRAINC_TRY(checkScalar(trainer, scalar));
  TRAINC_TRY(settle(trainer));
  *out_value = trainer->scalars[scalar];
  return TRAINC_OK;
}

trainc_status trainc_get_scalar(const trainc_trainer *trainer, const char *name,
                                double *out_value) {
  uint32_t scalar = 0;
  TRAINC_TRY(trainc_artifact_find_scalar(trainer->artifact, name, &scalar));
  return trainc_get_scalar_at(trainer, scalar, out_value);
}

/// Is it the length of a schedule, `lr.steps` or `lr.size` of @lr, which divides by it? The
/// value of a schedule is the scalar of its name.
static bool isLength(const trainc_descriptor &d, const char *name) {
  const char *dot = strrchr(name, '.');
  if (!dot || (strcmp(dot, ".steps") != 0 && strcmp(dot, ".size") != 0))
    return false;
  size_t size = static_cast<size_t>(dot - name);
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    const char *other = d.scalars[i].name;
    if (strncmp(other, name, size) == 0 && other[size] == 0)
      return !(d.scalars[i].flags & TRAINC_SCALAR_SETTABLE);
  }
  return false;
}

const char *trainc::expectedOf(const trainc_descriptor &d, uint32_t scalar,
                               double value) {
  bool whole = value >= 0 && value < 0x1p53 && value == floor(value);
  const trainc_scalar &entry = d.scalars[scalar];
  switch (fixedOf(d, scalar)) {
  case TRAINC_SCALAR_SEED:
  case TRAINC_SCALAR_UPDATE:
  case TRAINC_SCALAR_MICRO_STEP:
  case TRAINC_SCALAR_SKIPPED:
  case TRAINC_SCALAR_SCALE_AGE:
    return whole ? nullptr : "an integer from 0 to 2^53 - 1";
  case TRAINC_SCALAR_LOSS_SCALE:
    return isfinite(value) && value > 0 ? nullptr : "a positive number";
  }
  bool free = !(entry.flags & TRAINC_SCALAR_SETTABLE);
  if (!free && !isfinite(value))
    return "a finite number";
  // What the source has may stay: 0 is the limit of a step without a clip.
  bool positive =
      fixedOf(d, scalar) == TRAINC_SCALAR_CLIP_LIMIT || isLength(d, entry.name);
  return free || !positive || value > 0 || value == entry.init
             ? nullptr
             : "a positive number";
}

trainc_status trainc_set_scalar_at(trainc_trainer *trainer, uint32_t scalar,
                                   double value) {
  TRAINC_TRY(checkScalar(trainer, scalar));
  const trainc_scalar &entry = trainer->d->scalars[scalar];
  if (!(entry.flags & TRAINC_SCALAR_SETTABLE))
    return fail(TRAINC_INVALID_ARGUMENT,
                "scalar '%s' is computed by the step and cannot be set",
                entry.name);
  if (const char *expected = expectedOf(*trainer->d, scalar, value))
    return fail(TRAINC_INVALID_ARGUMENT,
                "scalar '%s' cannot be %g: expected %s", entry.name, value,
                expected);
  if (fixedOf(*trainer->d, scalar) == TRAINC_SCALAR_LOSS_SCALE) {
    TRAINC_TRY(settle(trainer));
    double now = trainer->scalars[scalar];
    // The update divides the sums of all micro-steps by one scale.
    if (value != now && inWindowOf(scalar, trainer->scalars))
      return fail(
          TRAINC_INVALID_ARGUMENT,
          "scalar '%s' cannot be set in an open window, whose gradients "
          "are scaled by %g: flush it first",
          entry.name, now);
  }
  trainer->isSet[scalar] = true;
  setScalar(trainer, scalar, value);
  return TRAINC_OK;
}

trainc_status trainc::settle(const trainc_trainer *trainer) {
  return trainer->gpu ? cuda::settle(trainer) : TRAINC_OK;
}

void trainc::setScalar(trainc_trainer *trainer, uint32_t scalar, double value) {
  trainer->scalars[scalar] = value;
  if (trainer->gpu)
    cuda::touchScalar(trainer, scalar);
}

trainc_status trainc_set_scalar(trainc_trainer *trainer, const char *name,
                                double value) {
  uint32_t scalar = 0;
  TRAINC_TRY(trainc_artifact_find_scalar(trainer->artifact, name, &scalar));
  return trainc_set_scalar_at(trainer, scalar, value);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static trainc_status getTensor(const trainc_trainer *trainer, uint32_t index,
                               const trainc_tensor **out_tensor) {
  if (index >= trainer->d->num_tensors)
    return fail(TRAINC_INVALID_ARGUMENT,
                "artifact '%s' has %u tensors; no number %u", trainer->d->name,
                trainer->d->num_tensors, index);
  *out_tensor = &trainer->state.tensors[index];
  return TRAINC_OK;
}

static trainc_status checkCopy(const trainc_tensor &tensor, uint32_t dtype,
                               uint64_t bytes) {
  if (!trainc_dtype_size(dtype))
    return fail(TRAINC_INVALID_ARGUMENT, "%u is no dtype", dtype);
  if (dtype != tensor.dtype && !(isFloat(dtype) && isFloat(tensor.dtype)))
    return fail(TRAINC_INVALID_ARGUMENT, "tensor '%s' is %s: cannot convert %s",
                tensor.name, trainc_dtype_name(tensor.dtype),
                trainc_dtype_name(dtype));
  uint64_t wanted = wholeCount(tensor) * trainc_dtype_size(dtype);
  if (bytes != wanted)
    return fail(
        TRAINC_INVALID_ARGUMENT,
        "tensor '%s' has %llu elements: expected %llu bytes of %s, got "
        "%llu",
        tensor.name, static_cast<unsigned long long>(wholeCount(tensor)),
        static_cast<unsigned long long>(wanted), trainc_dtype_name(dtype),
        static_cast<unsigned long long>(bytes));
  return TRAINC_OK;
}

trainc_status trainc::gatherTensor(const trainc_trainer *trainer,
                                   const trainc_tensor &converted,
                                   uint32_t dtype, char *data) {
  const trainc_descriptor &d = *trainer->d;
  uint32_t index = trainer->state.indexOf(converted);
  const trainc_bucket *bucket = bucketOf(d, index);
  if (!bucket || bucket->pieces == 1)
    return TRAINC_OK;
  const Ranks &ranks = trainer->ranks;
  const trainc_tensor &tensor = d.tensors[index];
  const trainc_arena &arena = d.arenas[tensor.arena];
  uint64_t piece = bucket->bytes / bucket->pieces;
  uint64_t size = trainc_dtype_size(tensor.dtype);
  uint64_t begin = tensor.offset - bucket->first, end = begin + tensor.bytes;
  Collective part;
  part.kind = TRAINC_BROADCAST;
  part.dtype = dtype;
  part.label = tensor.name;
  TRAINC_TRY(ranks.find(arena.piece_axes, &part.group));
  for (uint64_t at = begin; at < end;) {
    uint64_t next = (at / piece + 1) * piece;
    next = next < end ? next : end;
    part.root = static_cast<uint32_t>(at / piece);
    part.count = (next - at) / size;
    part.data = data + (at - begin) / size * trainc_dtype_size(dtype);
    TRAINC_TRY(run(*ranks.communicator(), part, nullptr));
    at = next;
  }
  return TRAINC_OK;
}

/// Writes the parts of all ranks, of which this one's is `part`, to `whole`.
static trainc_status gatherParts(const trainc_trainer *trainer,
                                 const trainc_tensor &tensor, uint32_t dtype,
                                 char *part, char *whole) {
  const Ranks &ranks = trainer->ranks;
  uint64_t size = trainc_dtype_size(dtype);
  Collective one;
  one.kind = TRAINC_BROADCAST;
  one.dtype = dtype;
  one.count = elementCount(tensor);
  one.label = tensor.name;
  TRAINC_TRY(ranks.find(partAxes(tensor), &one.group));
  Array<char> other;
  trainc_status status =
      other.tryResize(one.count * size)
          ? TRAINC_OK
          : failAllocation(one.count * size, "a part of another rank");
  TRAINC_TRY(ranks.agree(status));
  for (uint32_t i = 0; i < groupSize(*one.group); ++i) {
    one.root = i;
    one.data = i == groupIndex(*one.group) ? part : other.data();
    TRAINC_TRY(run(*ranks.communicator(), one, nullptr));
    const char *from = static_cast<const char *>(one.data);
    PartMap map(tensor, ranks, groupRank(*one.group, i));
    TRAINC_TRY(map.forPart(
        0, one.count, [&](uint64_t at, uint64_t element, uint64_t count) {
          if (element != PartMap::none)
            memcpy(whole + element * size, from + at * size, count * size);
          return TRAINC_OK;
        }));
  }
  return TRAINC_OK;
}

trainc_status trainc_tensor_read(const trainc_trainer *trainer, uint32_t index,
                                 uint32_t dtype, void *out_data,
                                 uint64_t bytes) {
  const trainc_tensor *tensor = nullptr;
  TRAINC_TRY(getTensor(trainer, index, &tensor));
  TRAINC_TRY(checkCopy(*tensor, dtype, bytes));
  DefaultFloats floats;
  uint64_t size = trainc_dtype_size(dtype);
  bool inParts = partAxes(*tensor) != 0;
  Array<char> part;
  if (inParts) {
    uint64_t needed = elementCount(*tensor) * size;
    trainc_status status = part.tryResize(needed)
                               ? TRAINC_OK
                               : failAllocation(needed, "a rank's part");
    TRAINC_TRY(trainer->ranks.agree(status));
  }
  char *all = inParts ? part.data() : static_cast<char *>(out_data);
  char *to = all + partOf(trainer, *tensor).first * size;
  TRAINC_TRY(forElements(trainer, *tensor, Access::Read,
                         [&](const char *data, uint64_t first, uint64_t count) {
                           convert(tensor->dtype, data, dtype,
                                   to + first * size, count);
                           return TRAINC_OK;
                         }));
  TRAINC_TRY(gatherTensor(trainer, *tensor, dtype, all));
  return inParts ? gatherParts(trainer, *tensor, dtype, all,
                               static_cast<char *>(out_data))
                 : TRAINC_OK;
}

trainc_status trainc_tensor_write(trainc_trainer *trainer, uint32_t index,
                                  uint32_t dtype, const void *data,
                                  uint64_t bytes) {
  const State &state = trainer->state;
  const trainc_tensor *tensor = nullptr;
  TRAINC_TRY(getTensor(trainer, index, &tensor));
  TRAINC_TRY(checkCopy(*tensor, dtype, bytes));
  if (state.isCopy(*tensor))
    return fail(TRAINC_INVALID_ARGUMENT,
                "the compute copy of '%s' follows its parameter: write that",
                tensor->name);
  DefaultFloats floats;
  const char *from = static_cast<const char *>(data);
  uint64_t fromSize = trainc_dtype_size(dtype);
  Part part = partOf(trainer, *tensor);
  if (trainer->ranks.any())
    TRAINC_TRY(fence(*trainer->ranks.communicator()));
  uint64_t size = trainc_dtype_size(tensor->dtype);
  PartMap map(*tensor, trainer->ranks, trainer->ranks.rank());
  auto writePart = [&](char *to, uint64_t first, uint64_t count) {
    return map.writePart(to, size, part.first + first, count,
                         [&](char *place, uint64_t element, uint64_t run) {
                           convert(dtype, from + element * fromSize,
                                   tensor->dtype, place, run);
                           return TRAINC_OK;
                         });
  };
  TRAINC_TRY(forElements(trainer, *tensor, Access::Write, writePart));
  uint32_t copy;
  if (tensor->role != TRAINC_ROLE_MASTER ||
      trainc_artifact_find_tensor(trainer->artifact, TRAINC_ROLE_COMPUTE,
                                  tensor->name, nullptr, &copy) != TRAINC_OK)
    return TRAINC_OK;
  const trainc_tensor &narrow = state.tensors[copy];
  if (tensorData(trainer, narrow) == part.data)
    return TRAINC_OK;
  // Of the data, which every rank has: what it has of the parameter is a part.
  uint64_t own = partOf(trainer, narrow).first;
  Array<char> rounded;
  rounded.resize(pieceBytes);
  uint64_t toSize = trainc_dtype_size(narrow.dtype);
  auto writeRun = [&](char *to, uint64_t element, uint64_t count) {
    return forPieces(dtype, tensor->dtype, count,
                     [&](uint64_t begin, uint64_t size) {
                       convert(dtype, from + (element + begin) * fromSize,
                               tensor->dtype, rounded.data(), size);
                       convert(tensor->dtype, rounded.data(), narrow.dtype,
                               to + begin * toSize, size);
                       return TRAINC_OK;
                     });
  };
  auto write = [&](char *to, uint64_t first, uint64_t count) {
    return map.writePart(to, toSize, own + first, count, writeRun);
  };
  return forElements(trainer, narrow, Access::Write, write);
}

trainc_status trainc_tensor_get(const trainc_trainer *trainer, uint32_t index,
                                const trainc_tensor **out_tensor) {
  return getTensor(trainer, index, out_tensor);
}

trainc_status trainc_tensor_data(trainc_trainer *trainer, uint32_t index,
                                 void **out_data) {
  const trainc_tensor *tensor = nullptr;
  TRAINC_TRY(getTensor(trainer, index, &tensor));
  TRAINC_TRY(settle(trainer));
  if (trainer->ranks.any())
    TRAINC_TRY(fence(*trainer->ranks.communicator()));
  *out_data = partOf(trainer, *tensor).data;
  return TRAINC_OK;
}

trainc_status trainc_tensor_part(const trainc_trainer *trainer, uint32_t index,
                                 uint64_t *out_first, uint64_t *out_count) {
  const trainc_tensor *tensor = nullptr;
  TRAINC_TRY(getTensor(trainer, index, &tensor));
  Part part = partOf(trainer, *tensor);
  *out_first = part.first;
  *out_count = part.count;
  return TRAINC_OK;
}

trainc_status trainc_update_compute_copies(trainc_trainer *trainer) {
  DefaultFloats floats;
  return updateComputeCopies(trainer);
}

//===----------------------------------------------------------------------===//
// Metadata
//===----------------------------------------------------------------------===//

void trainc::setPair(Array<UserPair> &pairs, const char *key,
                     const char *value) {
  for (UserPair &pair : pairs) {
    if (strcmp(pair.key, key) != 0)
      continue;
    char *old = pair.value; // `value` may be it
    if (value) {
      pair.value = copyText(value);
    } else {
      free(pair.key);
      pair = pairs[pairs.size() - 1];
      pairs.resize(pairs.size() - 1);
    }
    free(old);
    return;
  }
  if (value)
    pairs.push({copyText(key), copyText(value)});
}

void trainc::clearPairs(Array<UserPair> &pairs) {
  for (UserPair &pair : pairs) {
    free(pair.key);
    free(pair.value);
  }
  pairs.clear();
}

trainc_status trainc_set_metadata(trainc_trainer *trainer, const char *key,
                                  const char *value) {
  if (!isUtf8(key) || (value && !isUtf8(value)))
    return fail(TRAINC_INVALID_ARGUMENT, "the %s of metadata '%s' is not UTF-8",
                isUtf8(key) ? "value" : "key", key);
  setPair(trainer->metadata, key, value);
  return TRAINC_OK;
}

trainc_status trainc_get_metadata(const trainc_trainer *trainer,
                                  const char *key, const char **out_value) {
  for (const UserPair &pair : trainer->metadata) {
    if (strcmp(pair.key, key) != 0)
      continue;
    *out_value = pair.value;
    return TRAINC_OK;
  }
  return fail(TRAINC_NOT_FOUND, "no metadata '%s'", key);
}
