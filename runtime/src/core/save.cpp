//===- save.cpp - Writing checkpoints -------------------------------------===//

#include "core/access.h"
#include "core/checksum.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/match.h"
#include "core/parts.h"

using namespace trainc;

/// Is it part of a checkpoint? What follows the artifact is not; but sums of an open
/// window have been scaled.
static bool isSaved(const trainc_trainer *trainer, uint32_t scalar) {
  return trainer->d->scalars[scalar].flags & TRAINC_SCALAR_PERSISTENT ||
         trainer->isSet[scalar] ||
         (fixedOf(*trainer->d, scalar) == TRAINC_SCALAR_LOSS_SCALE &&
          inWindowOf(scalar, trainer->scalars));
}

/// What a checkpoint has, the wider types first so that all are aligned.
static void collect(const trainc_trainer *trainer, bool gradients,
                    uint32_t ranks, Array<Piece> &pieces) {
  const Ranks &all = trainer->ranks;
  const trainc_descriptor &d = *trainer->d;
  const State &state = trainer->state;
  for (uint64_t size : {8, 4, 2, 1}) {
    for (uint32_t i = 0; size == 8 && i < d.num_scalars; ++i)
      if (isSaved(trainer, i))
        pieces.push({UINT32_MAX, i, UINT32_MAX});
    for (uint32_t i = 0;
         size == 8 && gradients && ranks > 1 && i < d.num_scalars; ++i)
      for (uint32_t rank = 0;
           isWindowSum(d, i) && inWindowOf(i, trainer->scalars) && rank < ranks;
           ++rank)
        pieces.push({UINT32_MAX, i, rank});
    Text name;
    for (uint32_t i = 0; i < d.num_tensors; ++i) {
      name.clear();
      bool gradient = state.tensors[i].role == TRAINC_ROLE_GRADIENT;
      if (trainc_dtype_size(state.tensors[i].dtype) != size ||
          !checkpointName(d, i, name) || (gradient && !gradients))
        continue;
      // Ranks with different parts of it have terms of different elements.
      bool own = gradient && !isMerged(d, i) && ranks > 1;
      uint32_t terms = own ? all.countIn(~partAxes(state.tensors[i])) : 1;
      for (uint32_t term = 0; term < terms; ++term)
        pieces.push({i, 0, terms > 1 ? term : UINT32_MAX});
    }
  }
}

void trainc::windowKey(const trainc_descriptor &d, uint32_t window, Text &key) {
  key.format("trainc.window_entry");
  if (window == 0)
    return;
  const char *update = d.scalars[scalarOf(window, TRAINC_SCALAR_UPDATE)].name;
  key.format(".%.*s", static_cast<int>(strlen(update) - strlen(".update")),
             update);
}

static void addMetadata(const trainc_trainer *trainer, uint32_t ranks,
                        HeaderWriter &header) {
  const trainc_descriptor &d = *trainer->d;
  PlainNumbers plain;
  Text text;
  header.addMetadata("trainc.format", "1");
  header.addMetadata("trainc.artifact", d.name);
  text.format("%016llx", static_cast<unsigned long long>(d.state_hash));
  header.addMetadata("trainc.state_hash", text.c_str());
  text.clear();
  text.format("%llu",
              static_cast<unsigned long long>(positionOf(trainer).update));
  header.addMetadata("trainc.update", text.c_str());
  for (uint32_t window = 0; window < d.num_windows; ++window) {
    if (!inWindowOf(scalarOf(window, 0), trainer->scalars))
      continue;
    text.clear();
    windowKey(d, window, text);
    header.addMetadata(text.c_str(),
                       d.entries[trainer->windowEntries[window]].name);
  }
  if (inWindow(trainer) && d.divisor != 0) {
    text.clear();
    text.format("%.17g", d.divisor);
    header.addMetadata("trainc.divisor", text.c_str());
  }
  if (inWindow(trainer) && ranks > 1) {
    text.clear();
    text.format("%u", ranks);
    header.addMetadata("trainc.window_ranks", text.c_str());
  }
  for (uint32_t i = 0; i < d.num_scalars; ++i) {
    // A scale that follows a rule here may follow the artifact where it is loaded.
    bool follows =
        followsArtifact(d, i) || fixedOf(d, i) == TRAINC_SCALAR_LOSS_SCALE;
    if (!follows || trainer->isSet[i])
      continue;
    Text value;
    text.clear();
    text.format("trainc.source.%s", d.scalars[i].name);
    value.format("%.17g", trainer->scalars[i]);
    header.addMetadata(text.c_str(), value.c_str());
  }
  for (const UserPair &pair : trainer->metadata) {
    text.clear();
    text.format("user.%s", pair.key);
    header.addMetadata(text.c_str(), pair.value);
  }
}

void trainc::pieceName(const trainc_descriptor &d, uint32_t ranks,
                       const Piece &piece, Text &name) {
  Text own;
  if (piece.tensor == UINT32_MAX)
    own.format("scalar/%s", d.scalars[piece.scalar].name);
  else
    checkpointName(d, piece.tensor, own);
  rankName(name, piece.rank, piece.rank == UINT32_MAX ? 1 : ranks, own.c_str());
}

void trainc::describeState(const trainc_trainer *trainer, bool gradients,
                           uint32_t ranks, Array<Piece> &pieces,
                           HeaderWriter &header) {
  collect(trainer, gradients, ranks, pieces);
  header.addChecksum();
  addMetadata(trainer, ranks, header);
  Text name;
  for (const Piece &piece : pieces) {
    name.clear();
    pieceName(*trainer->d, ranks, piece, name);
    if (piece.tensor == UINT32_MAX) {
      header.addTensor(name.c_str(), TRAINC_F64, 0, nullptr, 8);
      continue;
    }
    const trainc_tensor &tensor = trainer->state.tensors[piece.tensor];
    header.addTensor(name.c_str(), tensor.dtype, tensor.rank, tensor.dims,
                     wholeCount(tensor) * trainc_dtype_size(tensor.dtype));
  }
}

/// Writes the checksum of the data into the header.
static trainc_status writeChecksum(const HeaderWriter &header, uint32_t sum,
                                   AtomicFile &file) {
  Text digits;
  appendChecksum(digits, sum);
  return file.writeAt(header.checksumPlace(), digits.data(), digits.size());
}

/// Opens `path` for a file with that header, and writes it.
static trainc_status beginFile(const Text &header, const char *path,
                               AtomicFile &file) {
  if (header.size() - 8 > maxHeaderBytes)
    return fail(TRAINC_INVALID_ARGUMENT,
                "'%s' would have a header of %llu bytes, with its metadata: "
                "nothing reads more than %llu",
                path, static_cast<unsigned long long>(header.size() - 8),
                static_cast<unsigned long long>(maxHeaderBytes));
  TRAINC_TRY(file.open(path));
  TRAINC_TRY(file.write(header.data(), header.size()));
  return file.flush();
}

static trainc_status saveAlone(trainc_trainer *trainer, const char *path) {
  Array<Piece> pieces;
  HeaderWriter header;
  describeState(trainer, inWindow(trainer), /*ranks=*/1, pieces, header);
  AtomicFile file;
  TRAINC_TRY(beginFile(header.finish(), path, file));
  Checksum sum(header.dataBytes());
  uint64_t at = 0;
  auto write = [&](const void *data, uint64_t bytes) {
    sum.add(at, data, bytes);
    at += bytes;
    return file.write(data, bytes);
  };
  for (const Piece &piece : pieces)
    if (piece.tensor == UINT32_MAX) {
      TRAINC_TRY(write(&trainer->scalars[piece.scalar], 8));
    } else {
      const trainc_tensor &tensor = trainer->state.tensors[piece.tensor];
      uint64_t size = trainc_dtype_size(tensor.dtype);
      TRAINC_TRY(forElements(trainer, tensor, Access::Read,
                             [&](const char *data, uint64_t, uint64_t count) {
                               return write(data, count * size);
                             }));
    }
  TRAINC_TRY(file.flush());
  TRAINC_TRY(writeChecksum(header, sum.finish(), file));
  return file.commit();
}

//===----------------------------------------------------------------------===//
// Several ranks
//===----------------------------------------------------------------------===//

/// What this rank writes of `part`, which all ranks along `axes` have: its share of it.
static Part shareOf(const trainc_trainer *trainer, const Part &part,
                    uint32_t axes) {
  uint64_t ranks = trainer->ranks.countIn(axes);
  uint64_t rank = trainer->ranks.indexIn(axes);
  uint64_t begin = part.count / ranks * rank;
  uint64_t end =
      rank + 1 == ranks ? part.count : part.count / ranks * (rank + 1);
  return {begin, end - begin, part.data};
}

/// Elements of `piece` that this rank writes; none if another rank does.
static Part writtenPart(const trainc_trainer *trainer, const Piece &piece) {
  const Ranks &ranks = trainer->ranks;
  const trainc_tensor &tensor = trainer->state.tensors[piece.tensor];
  Part part = partOf(trainer, tensor);
  uint32_t axes = ~partAxes(tensor); // along these they are equal
  if (piece.rank != UINT32_MAX)
    return piece.rank == ranks.indexIn(axes) ? part : Part{0, 0, nullptr};
  const trainc_bucket *bucket = bucketOf(*trainer->d, piece.tensor);
  if (!bucket || bucket->pieces == 1)
    return shareOf(trainer, part, axes);
  // Of equal pieces the first rank writes its own.
  axes &= ~trainer->d->arenas[tensor.arena].piece_axes;
  return ranks.indexIn(axes) == 0 ? part : Part{0, 0, nullptr};
}

/// Writes what is this rank's of the data section, which begins at `start`, and adds
/// that to `sum`. `sums` has the fixed scalars of all ranks.
static trainc_status writeParts(const trainc_trainer *trainer,
                                const Array<Piece> &pieces,
                                const Array<double> &sums, uint64_t start,
                                AtomicFile &file, Checksum &sum) {
  uint64_t begin = start;
  auto writeAt = [&](uint64_t at, const void *data, uint64_t bytes) {
    sum.add(at - begin, data, bytes);
    return file.writeAt(at, data, bytes);
  };
  uint32_t rank = trainer->ranks.rank(), ranks = trainer->ranks.size();
  size_t fixed = sums.size() / ranks;
  for (const Piece &piece : pieces) {
    if (piece.tensor == UINT32_MAX) {
      double value = trainer->scalars[piece.scalar];
      bool shared = piece.rank == UINT32_MAX;
      // In an open window these differ; what stands for all is the sum.
      if (shared && isWindowSum(*trainer->d, piece.scalar) &&
          inWindowOf(piece.scalar, trainer->scalars)) {
        value = sums[piece.scalar];
        for (uint32_t i = 1; i < ranks; ++i)
          value += sums[i * fixed + piece.scalar];
      }
      if (rank == (shared ? 0 : piece.rank))
        TRAINC_TRY(writeAt(start, &value, 8));
      start += 8;
      continue;
    }
    const trainc_tensor &tensor = trainer->state.tensors[piece.tensor];
    uint64_t size = trainc_dtype_size(tensor.dtype);
    Part part = writtenPart(trainer, piece);
    uint64_t own = partOf(trainer, tensor).first;
    PartMap map(tensor, trainer->ranks, rank);
    auto write = [&](const char *data, uint64_t first, uint64_t count) {
      first += part.first;
      return map.forPart(first, first + count,
                         [&](uint64_t at, uint64_t element, uint64_t run) {
                           if (element == PartMap::none)
                             return TRAINC_OK;
                           return writeAt(start + element * size,
                                          data + (at - first) * size,
                                          run * size);
                         });
    };
    TRAINC_TRY(forElements(trainer, tensor, part.first - own, part.count,
                           Access::Read, write));
    start += wholeCount(tensor) * size;
  }
  return TRAINC_OK;
}

static bool hasHosts(const trainc_comm &comm) {
  trainc_comm_info info;
  return trainc_comm_get_info(&comm, &info) == TRAINC_OK && info.hosts > 1;
}

/// The first rank makes the file and, when every rank has written its part and
/// synced it, moves it into place.
static trainc_status saveTogether(trainc_trainer *trainer, const char *path) {
  const Ranks &ranks = trainer->ranks;
  trainc_comm &comm = *ranks.communicator();
  bool first = ranks.rank() == 0;
  Array<Piece> pieces;
  HeaderWriter header;
  describeState(trainer, inWindow(trainer), ranks.size(), pieces, header);
  TRAINC_TRY(agree(
      comm, "the scalars that were set",
      hashBytes(hashStart, pieces.data(), pieces.size() * sizeof(Piece))));
  AtomicFile file;
  struct {
    uint64_t start, number;
  } place = {};
  trainc_status status = TRAINC_OK;
  if (first) {
    const Text &text = header.finish();
    status = beginFile(text, path, file);
    place = {text.size(), file.number()};
    // Where a file system caches on each host, two that make a file longer may each
    // write zeros over what the other has written.
    if (status == TRAINC_OK && hasHosts(comm))
      status = file.reserve(text.size() + header.dataBytes());
  }
  TRAINC_TRY(ranks.agree(status));
  size_t fixed = scalarOf(trainer->d->num_windows, 0);
  Array<double> sums;
  sums.resize(fixed * ranks.size());
  TRAINC_TRY(gatherBytes(comm, "sums of windows", trainer->scalars,
                         fixed * sizeof(double), sums.data()));
  TRAINC_TRY(
      broadcastBytes(comm, "header of a checkpoint", &place, sizeof(place)));
  Checksum sum(header.dataBytes());
  if (!first)
    status = file.join(path, place.number);
  if (status == TRAINC_OK)
    status = writeParts(trainer, pieces, sums, place.start, file, sum);
  if (status == TRAINC_OK)
    status = file.sync();
  TRAINC_TRY(ranks.agree(status));
  Array<uint32_t> all;
  all.resize(ranks.size());
  uint32_t part = sum.part();
  TRAINC_TRY(gatherBytes(comm, "checksum of a checkpoint", &part, sizeof(part),
                         all.data()));
  if (first) {
    for (uint32_t i = 1; i < all.size(); ++i)
      sum.addPart(all[i]);
    status = writeChecksum(header, sum.finish(), file);
    if (status == TRAINC_OK)
      status = file.commit();
  }
  return ranks.agree(status);
}

/// Is there a state to save?
static trainc_status checkWhole(const trainc_trainer *trainer) {
  if (trainer->broken)
    return fail(TRAINC_INVALID_ARGUMENT,
                "the last run or load of this trainer ended half-way; there is "
                "no state to save");
  return settle(trainer);
}

trainc_status trainc_save(trainc_trainer *trainer, const char *path) {
  TRAINC_TRY(trainer->ranks.agree(checkWhole(trainer)));
  return trainer->ranks.any() ? saveTogether(trainer, path)
                              : saveAlone(trainer, path);
}
