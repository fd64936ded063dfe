//===- directory.h - Folders of checkpoints ---------------------*- C++ -*-===//
//
// A run's checkpoints are those that it has written and, if it goes on from one of
// them, those of the folder up to that one, while they are the files that they were: what
// another run has written under their names is that run's. Others are never removed.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_DIRECTORY_H
#define TRAINC_CORE_DIRECTORY_H

#include "core/files.h"

namespace trainc {

/// How far a run has come. Checkpoints are named and ordered by it.
struct Position {
  uint64_t update = 0, microStep = 0;

  bool operator==(const Position &) const = default;
  bool operator<=(const Position &other) const {
    return update != other.update ? update < other.update
                                  : microStep <= other.microStep;
  }
};

/// step-UPDATE.safetensors, or step-UPDATE-MICROSTEP.safetensors.
void appendCheckpointName(Text &name, Position position);

/// The folder that a trainer saves to, on the rank that does so for all.
class Directory {
public:
  /// The state is now that of the file at `path`, which is there.
  void setLoaded(const char *path, Position position);

  /// Makes the folder, tries to write into it, and keeps its lock. Refuses one with
  /// checkpoints of another run, TRAINC_MISMATCH, but with `overwrite`.
  trainc_status reserve(const char *folder, bool overwrite);
  /// Makes the folder and gets its lock, to save the file of a position.
  trainc_status begin(const char *folder, Position position);
  /// Makes `latest` name the file that was saved, and removes all but the `keep` last of
  /// the run's (0: none), and what killed saves have left.
  trainc_status publish(const char *folder, uint32_t keep);
  /// After begin(), also if the save has failed: what is there by now is the run's.
  void end(const char *folder);

private:
  struct Checkpoint {
    Position position;
    FileVersion version;
  };

  trainc_status enter(const char *folder);
  void addSaved(const char *folder);
  trainc_status prune(const char *folder, uint32_t keep);

  FileIdentity loaded;     // folder of the file that was loaded last
  Position loadedPosition; // and of that file
  FileIdentity reserved;
  FolderLock ofRun, ofSave;
  FileIdentity current;
  Array<Checkpoint> own; // the run's in `current`, by time
  bool begun = false;
  Position saving;    // since begin()
  FileVersion before; // of the file of that position, at begin()
};

} // namespace trainc

#endif // TRAINC_CORE_DIRECTORY_H
