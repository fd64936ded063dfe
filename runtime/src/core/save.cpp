//===- save.cpp - Writing checkpoints -------------------------------------===//

#include "core/files.h"
#include "core/match.h"
#include <dirent.h>
#include <errno.h>

using namespace trainc;

/// What a checkpoint has, the wider types first so that all are aligned.
static void collect(const trainc_trainer *trainer, bool gradients,
                    Array<Piece> &pieces) {
  const trainc_descriptor &d = *trainer->d;
  const State &state = trainer->state;
  for (uint64_t size : {8, 4, 2, 1}) {
    for (uint32_t i = 0; size == 8 && i < d.num_scalars; ++i)
      if (d.scalars[i].flags & TRAINC_SCALAR_PERSISTENT)
        pieces.push({UINT32_MAX, i});
    Text name;
    for (uint32_t i = 0; i < d.num_tensors; ++i) {
      name.clear();
      if (trainc_dtype_size(state.tensors[i].dtype) == size &&
          checkpointName(d, i, name) &&
          (state.tensors[i].role != TRAINC_ROLE_GRADIENT || gradients))
        pieces.push({i, 0});
    }
  }
}

static void addMetadata(const trainc_trainer *trainer, HeaderWriter &header) {
  const trainc_descriptor &d = *trainer->d;
  Text text;
  header.addMetadata("trainc.format", "1");
  header.addMetadata("trainc.artifact", d.name);
  text.format("%016llx", static_cast<unsigned long long>(d.state_hash));
  header.addMetadata("trainc.state_hash", text.c_str());
  text.clear();
  text.format("%.0f", trainer->scalars[TRAINC_SCALAR_UPDATE]);
  header.addMetadata("trainc.update", text.c_str());
  if (inWindow(trainer))
    header.addMetadata("trainc.window_entry",
                       d.entries[trainer->windowEntry].name);
  for (const UserPair &pair : trainer->metadata) {
    text.clear();
    text.format("user.%s", pair.key);
    header.addMetadata(text.c_str(), pair.value);
  }
}

void trainc::pieceName(const trainc_descriptor &d, const Piece &piece,
                       Text &name) {
  if (piece.tensor == UINT32_MAX)
    name.format("scalar/%s", d.scalars[piece.scalar].name);
  else
    checkpointName(d, piece.tensor, name);
}

void trainc::describeState(const trainc_trainer *trainer, bool gradients,
                           Array<Piece> &pieces, HeaderWriter &header) {
  collect(trainer, gradients, pieces);
  addMetadata(trainer, header);
  Text name;
  for (const Piece &piece : pieces) {
    name.clear();
    pieceName(*trainer->d, piece, name);
    if (piece.tensor == UINT32_MAX) {
      header.addTensor(name.c_str(), TRAINC_F64, 0, nullptr, 8);
      continue;
    }
    const trainc_tensor &tensor = trainer->state.tensors[piece.tensor];
    header.addTensor(name.c_str(), tensor.dtype, tensor.rank, tensor.dims,
                     tensor.bytes);
  }
}

trainc_status trainc_save(trainc_trainer *trainer, const char *path) {
  if (trainer->broken)
    return fail(TRAINC_INVALID_ARGUMENT,
                "the last run or load of this trainer ended half-way; there is "
                "no state to save");
  Array<Piece> pieces;
  HeaderWriter header;
  describeState(trainer, inWindow(trainer), pieces, header);
  AtomicFile file;
  TRAINC_TRY(file.open(path));
  const Text &text = header.finish();
  TRAINC_TRY(file.write(text.data(), text.size()));
  TRAINC_TRY(file.flush());
  for (const Piece &piece : pieces)
    if (piece.tensor == UINT32_MAX) {
      TRAINC_TRY(file.write(&trainer->scalars[piece.scalar], 8));
    } else {
      const trainc_tensor &tensor = trainer->state.tensors[piece.tensor];
      TRAINC_TRY(file.write(tensorData(trainer, tensor), tensor.bytes));
    }
  return file.commit();
}

//===----------------------------------------------------------------------===//
// Folders of checkpoints
//===----------------------------------------------------------------------===//

namespace {
struct Checkpoint {
  char *name;
  uint64_t update, microStep;
};
} // namespace

/// Is `name` step-UPDATE.safetensors or step-UPDATE-MICROSTEP.safetensors?
static bool parseName(const char *name, Checkpoint &checkpoint) {
  auto number = [&](uint64_t &value) {
    if (*name < '0' || *name > '9')
      return false;
    char *end;
    value = strtoull(name, &end, 10);
    name = end;
    return true;
  };
  if (strncmp(name, "step-", 5) != 0)
    return false;
  name += 5;
  checkpoint.microStep = 0;
  if (!number(checkpoint.update))
    return false;
  if (*name == '-' && (++name, !number(checkpoint.microStep)))
    return false;
  return !strcmp(name, ".safetensors");
}

static trainc_status listFolder(const char *folder,
                                Array<Checkpoint> &checkpoints,
                                Array<char *> &temporaries) {
  DIR *stream = opendir(folder);
  if (!stream)
    return fail(TRAINC_IO_ERROR, "cannot list '%s': %s", folder,
                errnoText(errno));
  while (dirent *entry = readdir(stream)) {
    Checkpoint checkpoint;
    if (isTemporaryName(entry->d_name)) {
      temporaries.push(strdup(entry->d_name));
    } else if (parseName(entry->d_name, checkpoint)) {
      checkpoint.name = strdup(entry->d_name);
      checkpoints.push(checkpoint);
    }
  }
  closedir(stream);
  return TRAINC_OK;
}

static trainc_status removeIn(const char *folder, const char *name) {
  Text path;
  path.format("%s/%s", folder, name);
  return removeFile(path.c_str());
}

/// Removes all but the `keep` last checkpoints, never `latest`, and what killed
/// saves have left.
static trainc_status prune(const char *folder, const char *latest,
                           uint32_t keep) {
  Array<Checkpoint> checkpoints;
  Array<char *> temporaries;
  trainc_status status = listFolder(folder, checkpoints, temporaries);
  if (checkpoints.size())
    qsort(checkpoints.data(), checkpoints.size(), sizeof(Checkpoint),
          [](const void *a, const void *b) {
            auto *x = static_cast<const Checkpoint *>(a);
            auto *y = static_cast<const Checkpoint *>(b);
            if (x->update != y->update)
              return x->update > y->update ? -1 : 1;
            return x->microStep > y->microStep   ? -1
                   : x->microStep < y->microStep ? 1
                                                 : 0;
          });
  uint32_t kept = 1; // latest
  for (const Checkpoint &checkpoint : checkpoints) {
    if (strcmp(checkpoint.name, latest) != 0 && keep && kept++ >= keep &&
        status == TRAINC_OK)
      status = removeIn(folder, checkpoint.name);
    free(checkpoint.name);
  }
  for (char *name : temporaries) {
    if (status == TRAINC_OK)
      status = removeIn(folder, name);
    free(name);
  }
  return status;
}

trainc_status trainc_save_checkpoint(trainc_trainer *trainer,
                                     const char *directory, uint32_t keep,
                                     const char **out_path) {
  Text name, pointer;
  name.format("step-%06.0f", trainer->scalars[TRAINC_SCALAR_UPDATE]);
  if (inWindow(trainer))
    name.format("-%.0f", trainer->scalars[TRAINC_SCALAR_MICRO_STEP]);
  name.append(".safetensors");
  TRAINC_TRY(makeFolder(directory));
  trainer->checkpointPath.clear();
  trainer->checkpointPath.format("%s/%s", directory, name.c_str());
  TRAINC_TRY(trainc_save(trainer, trainer->checkpointPath.c_str()));

  AtomicFile latest;
  pointer.format("%s/latest", directory);
  TRAINC_TRY(latest.open(pointer.c_str()));
  TRAINC_TRY(latest.write(name.c_str(), name.size()));
  TRAINC_TRY(latest.write("\n", 1));
  TRAINC_TRY(latest.commit());
  TRAINC_TRY(prune(directory, name.c_str(), keep));
  if (out_path)
    *out_path = trainer->checkpointPath.c_str();
  return TRAINC_OK;
}
