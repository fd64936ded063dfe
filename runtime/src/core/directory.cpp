//===- directory.cpp - Folders of checkpoints -----------------------------===//

#include "core/directory.h"
#include "core/trainer.h"

using namespace trainc;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

void trainc::appendCheckpointName(Text &name, Position position) {
  name.format("step-%06llu", static_cast<unsigned long long>(position.update));
  if (position.microStep)
    name.format("-%llu", static_cast<unsigned long long>(position.microStep));
  name.append(".safetensors");
}

static void appendCheckpointPath(Text &path, const char *folder,
                                 Position position) {
  path.format("%s/", folder);
  appendCheckpointName(path, position);
}

static FileVersion versionIn(const char *folder, Position position) {
  Text path;
  appendCheckpointPath(path, folder, position);
  return versionOf(path.c_str());
}

/// Is the text of `length` bytes at `name` that of a checkpoint?
static bool parseName(const char *name, size_t length, Position &position) {
  Text text, again;
  text.append(name, length);
  unsigned long long update = 0, microStep = 0;
  if (sscanf(text.c_str(), "step-%llu-%llu.", &update, &microStep) < 1)
    return false;
  position = {update, microStep};
  appendCheckpointName(again, position);
  return !strcmp(text.c_str(), again.c_str());
}

/// Is `name` a temporary file of a checkpoint, or of `latest`?
static bool isTemporary(const char *name) {
  const char *end = findTemporaryEnd(name);
  Position position;
  size_t length = end ? static_cast<size_t>(end - name) - 1 : 0;
  return end && (parseName(name + 1, length, position) ||
                 (length == 6 && !strncmp(name + 1, "latest", 6)));
}

//===----------------------------------------------------------------------===//
// Folders
//===----------------------------------------------------------------------===//

void Directory::setLoaded(const char *path, Position position) {
  Text folder;
  splitPath(path, folder);
  loaded = identify(folder.c_str());
  loadedPosition = position;
  if (loaded == current)
    current = {}; // which of its checkpoints are the run's is to be found again
}

/// Finds the run's checkpoints in a folder that it has not saved to last.
trainc_status Directory::enter(const char *folder) {
  FileIdentity identity = identify(folder);
  if (identity == current)
    return TRAINC_OK;
  own.clear();
  current = identity;
  if (!(identity == loaded))
    return TRAINC_OK;
  TRAINC_TRY(forNames(folder, [&](const char *name) {
    Position position;
    if (parseName(name, strlen(name), position) && position <= loadedPosition)
      own.push({position, versionIn(folder, position)});
    return TRAINC_OK;
  }));
  if (own.size())
    qsort(own.data(), own.size(), sizeof(Checkpoint),
          [](const void *a, const void *b) {
            Position x = static_cast<const Checkpoint *>(a)->position;
            Position y = static_cast<const Checkpoint *>(b)->position;
            return x == y ? 0 : x <= y ? -1 : 1;
          });
  return TRAINC_OK;
}

trainc_status Directory::reserve(const char *folder, bool overwrite) {
  TRAINC_TRY(makeFolder(folder));
  FileIdentity identity = identify(folder);
  FolderLock lock; // what was reserved before stays so until all is well
  bool isNew = !(identity == reserved);
  if (isNew)
    TRAINC_TRY(lock.take(folder));
  Text latest;
  latest.format("%s/latest", folder);
  AtomicFile attempt;
  TRAINC_TRY(attempt.open(latest.c_str()));
  if (!overwrite && !(identity == loaded) && identify(latest.c_str()).isKnown())
    return fail(TRAINC_MISMATCH,
                "'%s' has checkpoints of another run, which this one does not "
                "go on with",
                folder);
  if (isNew)
    ofRun.swap(lock);
  reserved = identity;
  return TRAINC_OK;
}

trainc_status Directory::begin(const char *folder, Position position) {
  TRAINC_TRY(makeFolder(folder));
  if (!(identify(folder) == reserved))
    TRAINC_TRY(ofSave.take(folder));
  TRAINC_TRY(enter(folder));
  saving = position;
  before = versionIn(folder, position);
  begun = true;
  return TRAINC_OK;
}

/// A save that fails may have put its file there before.
void Directory::addSaved(const char *folder) {
  FileVersion version = versionIn(folder, saving);
  if (version == before)
    return;
  before = version;
  size_t count = 0;
  for (const Checkpoint &other : own)
    if (!(other.position == saving))
      own[count++] = other;
  own.resize(count);
  if (version.place.isKnown())
    own.push({saving, version});
}

void Directory::end(const char *folder) {
  if (begun)
    addSaved(folder);
  begun = false;
  ofSave.release();
}

trainc_status Directory::prune(const char *folder, uint32_t keep) {
  Text path;
  while (keep && own.size() > keep) {
    path.clear();
    appendCheckpointPath(path, folder, own[0].position);
    if (versionOf(path.c_str()) == own[0].version)
      TRAINC_TRY(removeFile(path.c_str()));
    memmove(own.data(), own.data() + 1, (own.size() - 1) * sizeof(Checkpoint));
    own.resize(own.size() - 1);
  }
  return forNames(folder, [&](const char *name) {
    return isTemporary(name) ? removeStale(folder, name) : TRAINC_OK;
  });
}

trainc_status Directory::publish(const char *folder, uint32_t keep) {
  addSaved(folder);
  AtomicFile latest;
  Text name, pointer;
  appendCheckpointName(name, saving);
  name.append('\n');
  pointer.format("%s/latest", folder);
  TRAINC_TRY(latest.open(pointer.c_str()));
  TRAINC_TRY(latest.write(name.data(), name.size()));
  TRAINC_TRY(latest.commit());
  return prune(folder, keep);
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

trainc_status trainc_reserve_directory(trainc_trainer *trainer,
                                       const char *directory, uint32_t flags) {
  if (flags & ~static_cast<uint32_t>(TRAINC_DIRECTORY_OVERWRITE))
    return fail(TRAINC_INVALID_ARGUMENT,
                "expected flags of a directory, got %#x", flags);
  const Ranks &ranks = trainer->ranks;
  return ranks.agree(ranks.rank() == 0
                         ? trainer->directory.reserve(
                               directory, flags & TRAINC_DIRECTORY_OVERWRITE)
                         : TRAINC_OK);
}

trainc_status trainc_save_checkpoint(trainc_trainer *trainer,
                                     const char *directory, uint32_t keep,
                                     const char **out_path) {
  const Ranks &ranks = trainer->ranks;
  bool first = ranks.rank() == 0;
  trainc_status status = settle(trainer);
  Position position = positionOf(trainer);
  trainer->checkpointPath.clear();
  appendCheckpointPath(trainer->checkpointPath, directory, position);
  if (status == TRAINC_OK && first)
    status = trainer->directory.begin(directory, position);
  status = ranks.agree(status);
  if (status == TRAINC_OK)
    status = trainc_save(trainer, trainer->checkpointPath.c_str());
  if (status == TRAINC_OK)
    status = ranks.agree(first ? trainer->directory.publish(directory, keep)
                               : TRAINC_OK);
  if (first)
    trainer->directory.end(directory);
  if (status == TRAINC_OK && out_path)
    *out_path = trainer->checkpointPath.c_str();
  return status;
}
