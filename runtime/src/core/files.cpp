//===- files.cpp - Writing files that are whole or absent -----------------===//

#include "core/files.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// Fault layer
//===----------------------------------------------------------------------===//

namespace {
enum Operation { OPEN, WRITE, FSYNC, RENAME, REMOVE, NUM_OPERATIONS };
} // namespace

static const char *const operationNames[NUM_OPERATIONS] = {
    "open", "write", "fsync", "rename", "remove"};

/// Operations done since TRAINC_FAULT got its present value.
static pthread_mutex_t faultMutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t operationCounts[NUM_OPERATIONS];
static char faultPlan[512];

static bool takeWord(const char *&text, const char *word) {
  size_t length = strlen(word);
  if (strncmp(text, word, length) != 0)
    return false;
  text += length;
  return true;
}

static bool takeNumber(const char *&text, uint64_t &number) {
  if (*text < '0' || *text > '9')
    return false;
  char *end;
  number = strtoull(text, &end, 10);
  text = end;
  return true;
}

/// Whether the rule at `plan` applies to the `count`-th `operation`; moves
/// `plan` to the rule's action.
static bool matchRule(const char *&plan, Operation operation, uint64_t count,
                      bool &valid) {
  bool applies = takeWord(plan, "*");
  uint64_t number = 0;
  valid = applies;
  for (int i = 0; i < NUM_OPERATIONS && !valid; ++i)
    if ((valid = takeWord(plan, operationNames[i])))
      applies = i == operation;
  valid = valid && takeWord(plan, ":");
  if (!takeWord(plan, "*")) {
    valid = valid && takeNumber(plan, number);
    applies = applies && number == count;
  }
  valid = valid && takeWord(plan, ":");
  return applies;
}

/// Acts as TRAINC_FAULT says before `operation` is done. On failure sets errno.
static bool passFaults(Operation operation) {
  const char *plan = getenv("TRAINC_FAULT");
  if (!plan || !*plan)
    return true;
  pthread_mutex_lock(&faultMutex);
  if (strncmp(plan, faultPlan, sizeof(faultPlan) - 1) != 0) {
    snprintf(faultPlan, sizeof(faultPlan), "%s", plan);
    memset(operationCounts, 0, sizeof(operationCounts));
  }
  uint64_t count = ++operationCounts[operation];
  pthread_mutex_unlock(&faultMutex);

  bool valid = true, failing = false;
  while (valid && *plan) {
    uint64_t delay = 0;
    bool applies = matchRule(plan, operation, count, valid);
    if (takeWord(plan, "kill")) {
      if (applies && valid)
        raise(SIGKILL);
    } else if (takeWord(plan, "fail")) {
      failing = failing || (applies && valid);
    } else if (takeWord(plan, "delay=") && takeNumber(plan, delay)) {
      timespec time = {static_cast<time_t>(delay / 1000),
                       static_cast<long>(delay % 1000) * 1000000};
      if (applies && valid)
        nanosleep(&time, nullptr);
    } else {
      valid = false;
    }
    valid = valid && (!*plan || takeWord(plan, ","));
  }
  errno = valid ? ENOSPC : EINVAL; // a plan that says nothing must not pass
  return valid && !failing;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Small pieces are gathered to writes of this size.
static constexpr uint64_t bufferBytes = 1 << 20;

static trainc_status failFile(const char *what, const char *path) {
  int number = errno;
  return fail(number == ENOENT ? TRAINC_NOT_FOUND : TRAINC_IO_ERROR,
              "cannot %s '%s': %s", what, path, errnoText(number));
}

const char *trainc::splitPath(const char *path, Text &folder) {
  const char *slash = strrchr(path, '/');
  folder.clear();
  if (!slash) {
    folder.append('.');
    return path;
  }
  folder.append(path, slash == path ? 1 : static_cast<size_t>(slash - path));
  return slash + 1;
}

bool trainc::isTemporaryName(const char *name) {
  size_t length = strlen(name);
  return name[0] == '.' && length > 5 && !strcmp(name + length - 4, ".tmp");
}

AtomicFile::~AtomicFile() {
  if (descriptor < 0)
    return;
  close(descriptor);
  if (owned)
    unlink(temporary.c_str());
}

trainc_status AtomicFile::nameTemporary(const char *target) {
  path.append(target);
  const char *name = splitPath(target, folder);
  if (!*name)
    return fail(TRAINC_INVALID_ARGUMENT, "'%s' names no file", target);
  temporary.format("%.*s.%s.tmp", static_cast<int>(name - target), target,
                   name);
  return TRAINC_OK;
}

trainc_status AtomicFile::join(const char *target) {
  TRAINC_TRY(nameTemporary(target));
  if (passFaults(OPEN))
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CLOEXEC);
  return descriptor >= 0 ? TRAINC_OK : failFile("open", temporary.c_str());
}

trainc_status AtomicFile::open(const char *target) {
  TRAINC_TRY(nameTemporary(target));
  owned = true;
  if (passFaults(OPEN))
    descriptor = ::open(temporary.c_str(),
                        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return descriptor >= 0 ? TRAINC_OK : failFile("create", temporary.c_str());
}

trainc_status AtomicFile::writeAll(const void *data, uint64_t bytes,
                                   const uint64_t *offset) {
  const char *rest = static_cast<const char *>(data);
  uint64_t at = offset ? *offset : 0;
  while (bytes) {
    // Linux writes at most 2 GB at once.
    size_t piece = bytes < (1u << 30) ? bytes : (1u << 30);
    ssize_t written = -1;
    if (passFaults(WRITE))
      written = offset
                    ? ::pwrite(descriptor, rest, piece, static_cast<off_t>(at))
                    : ::write(descriptor, rest, piece);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return failFile("write", temporary.c_str());
    rest += written;
    at += static_cast<uint64_t>(written);
    bytes -= static_cast<uint64_t>(written);
  }
  return TRAINC_OK;
}

trainc_status AtomicFile::writeAt(uint64_t offset, const void *data,
                                  uint64_t bytes) {
  return writeAll(data, bytes, &offset);
}

trainc_status AtomicFile::sync() {
  TRAINC_TRY(flush());
  return passFaults(FSYNC) && fsync(descriptor) == 0
             ? TRAINC_OK
             : failFile("sync", temporary.c_str());
}

trainc_status AtomicFile::flush() {
  TRAINC_TRY(writeAll(buffer.data(), buffer.size()));
  buffer.clear();
  return TRAINC_OK;
}

trainc_status AtomicFile::write(const void *data, uint64_t bytes) {
  if (buffer.size() + bytes > bufferBytes)
    TRAINC_TRY(flush());
  if (bytes >= bufferBytes)
    return writeAll(data, bytes);
  size_t at = buffer.size();
  buffer.resize(at + bytes);
  if (bytes)
    memcpy(buffer.data() + at, data, bytes);
  return TRAINC_OK;
}

static trainc_status syncFolder(const char *folder) {
  int descriptor = ::open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return failFile("open", folder);
  bool synced = passFaults(FSYNC) && fsync(descriptor) == 0;
  int number = errno;
  close(descriptor);
  errno = number;
  return synced ? TRAINC_OK : failFile("sync", folder);
}

trainc_status AtomicFile::commit() {
  TRAINC_TRY(sync());
  int closing = descriptor;
  descriptor = -1;
  bool moved = close(closing) == 0 && passFaults(RENAME) &&
               rename(temporary.c_str(), path.c_str()) == 0;
  if (!moved) {
    trainc_status status = failFile("move into place", temporary.c_str());
    unlink(temporary.c_str());
    return status;
  }
  return syncFolder(folder.c_str());
}

trainc_status trainc::removeFile(const char *path) {
  if (passFaults(REMOVE) && unlink(path) == 0)
    return TRAINC_OK;
  return errno == ENOENT ? TRAINC_OK : failFile("remove", path);
}

trainc_status trainc::makeFolder(const char *path) {
  if (mkdir(path, 0777) == 0) {
    Text parent;
    splitPath(path, parent);
    return syncFolder(parent.c_str());
  }
  if (errno != EEXIST)
    return failFile("make folder", path);
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
    return fail(TRAINC_INVALID_ARGUMENT, "'%s' is not a folder", path);
  return TRAINC_OK;
}
