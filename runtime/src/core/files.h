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
/// Without commit(), or if that fails, the old file stays and the new one goes.
class AtomicFile {
public:
  ~AtomicFile();

  trainc_status open(const char *path);
  trainc_status write(const void *data, uint64_t bytes);
  trainc_status flush();

  /// Opens the file that another process has open and will commit.
  trainc_status join(const char *path);
  /// Writes bytes [offset, offset + bytes) of the file, past what write() has
  /// written.
  trainc_status writeAt(uint64_t offset, const void *data, uint64_t bytes);
  trainc_status sync();

  /// Syncs the file, renames it, syncs the folder.
  trainc_status commit();

private:
  trainc_status nameTemporary(const char *target);
  trainc_status writeAll(const void *data, uint64_t bytes,
                         const uint64_t *offset = nullptr);

  Text path, temporary, folder;
  Array<char> buffer;
  int descriptor = -1;
  bool owned = false;
};

/// The folder part of `path` ("." if it has none), and where its last part is.
const char *splitPath(const char *path, Text &folder);

/// Is `name` that of a temporary file of AtomicFile?
bool isTemporaryName(const char *name);

/// Removes a file; absent is fine.
trainc_status removeFile(const char *path);

/// Makes a folder; present is fine.
trainc_status makeFolder(const char *path);

} // namespace trainc

#endif // TRAINC_CORE_FILES_H
