//===- files.h - Writing files that are whole or absent ---------*- C++ -*-===//
//
// All I/O of a save goes through these functions, and so through the fault
// layer (TRAINC_FAULT, see runtime.h).
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_FILES_H
#define TRAINC_CORE_FILES_H

#include "core/status.h"

namespace trainc {

/// Writes a file beside its place and moves it there when all is on the disk.
/// Without commit() the old file stays and the new one goes.
///
/// Two writers of one path do not meet: each has a temporary file of its own,
/// .NAME.NUMBER.tmp with a random number, which it has locked. Those that killed
/// writers of the path have left, and nobody has locked, are removed.
class AtomicFile {
public:
  ~AtomicFile();

  /// What is replaced is a regular file, or what a link points to; anything else
  /// there is refused.
  trainc_status open(const char *path);
  trainc_status write(const void *data, uint64_t bytes);
  trainc_status flush();

  /// Opens the file that another process has open and will commit; `number` is that
  /// process's.
  trainc_status join(const char *path, uint64_t number);
  uint64_t number() const { return random; }
  /// What open() has found to be replaced.
  const char *target() const { return path.c_str(); }
  /// Writes bytes [offset, offset + bytes) of the file: past what write() has
  /// written, or over it.
  trainc_status writeAt(uint64_t offset, const void *data, uint64_t bytes);
  trainc_status sync();

  /// Gives the file the size that it will have, on the disk, too: who opens it on
  /// another host sees it so.
  trainc_status reserve(uint64_t bytes);

  /// Syncs the file, renames it, syncs the folder. If the last fails alone, the error says
  /// that the new file is there; else the old one stays.
  trainc_status commit();

private:
  trainc_status nameTarget(const char *target);
  void nameTemporary();
  trainc_status make();
  trainc_status writeAll(const void *data, uint64_t bytes,
                         const uint64_t *offset = nullptr);

  Text path, temporary, folder;
  Array<char> buffer;
  uint64_t random = 0;
  int descriptor = -1;
  bool owned = false;
  int mode = -1; // of what is replaced
};

/// A file's place among all, or zeros.
struct FileIdentity {
  uint64_t device = 0, inode = 0;

  bool operator==(const FileIdentity &) const = default;
  bool isKnown() const { return inode != 0; }
};
/// Of what is at `path`; unknown if nothing is.
FileIdentity identify(const char *path);

/// A file as it was written last, so that one which another writer has put in its place
/// differs, also where that one got the number of a file that is gone.
struct FileVersion {
  FileIdentity place;
  uint64_t bytes = 0;
  int64_t seconds = 0, nanoseconds = 0; // when it was written

  bool operator==(const FileVersion &) const = default;
};
/// Of what is at `path`; zeros if nothing is.
FileVersion versionOf(const char *path);

/// One process's right to save to a folder: a lock on the file .lock in it, which
/// ends with the process. Where the file system has no locks everybody gets it.
class FolderLock {
public:
  ~FolderLock() { release(); }

  /// TRAINC_IO_ERROR names the process that has it.
  trainc_status take(const char *folder);
  void release();
  void swap(FolderLock &other);

private:
  int descriptor = -1;
  pid_t owner = 0;
};

/// Opens a file for reading; refuses all but regular ones, without waiting for the
/// writer of a FIFO.
trainc_status openRegular(const char *path, int &out_descriptor,
                          uint64_t &out_bytes);

/// The folder part of `path` ("." if it has none), and where its last part is.
const char *splitPath(const char *path, Text &folder);

/// If `name` is that of a temporary file of AtomicFile: where in it the target's name
/// ends, which begins after the dot. Else null.
const char *findTemporaryEnd(const char *name);

/// Removes the temporary file `name` of a folder, unless a process has it locked.
trainc_status removeStale(const char *folder, const char *name);

/// Appends the names in a folder, each with its zero byte.
trainc_status listFolder(const char *folder, Array<char> &names);

/// Calls function(name) for all files of a folder, while it returns TRAINC_OK. They may
/// be removed meanwhile.
template <typename Function>
trainc_status forNames(const char *folder, Function function) {
  Array<char> names; // each with its zero byte
  TRAINC_TRY(listFolder(folder, names));
  for (size_t at = 0; at < names.size(); at += strlen(names.data() + at) + 1)
    TRAINC_TRY(function(names.data() + at));
  return TRAINC_OK;
}

/// Removes a file; absent is fine.
trainc_status removeFile(const char *path);

/// Makes a folder; present is fine.
trainc_status makeFolder(const char *path);

} // namespace trainc

#endif // TRAINC_CORE_FILES_H
