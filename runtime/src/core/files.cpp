//===- files.cpp - Writing files that are whole or absent -----------------===//

#include "core/files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
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

FileIdentity trainc::identify(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0)
    return {};
  return {info.st_dev, info.st_ino};
}

FileVersion trainc::versionOf(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0)
    return {};
  return {{info.st_dev, info.st_ino},
          static_cast<uint64_t>(info.st_size),
          info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec};
}

trainc_status trainc::openRegular(const char *path, int &out_descriptor,
                                  uint64_t &out_bytes) {
  // Opening a FIFO waits for its writer, unless it is told not to.
  int descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (descriptor < 0 || fstat(descriptor, &info) != 0) {
    trainc_status status = failFile("open", path);
    if (descriptor >= 0)
      close(descriptor);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    close(descriptor);
    return fail(TRAINC_INVALID_ARGUMENT, "'%s' is not a regular file", path);
  }
  out_descriptor = descriptor;
  out_bytes = static_cast<uint64_t>(info.st_size);
  return TRAINC_OK;
}

trainc_status trainc::listFolder(const char *folder, Array<char> &names) {
  DIR *stream = opendir(folder);
  if (!stream)
    return failFile("list", folder);
  while (dirent *entry = readdir(stream))
    for (const char *c = entry->d_name;; ++c) {
      names.push(*c);
      if (!*c)
        break;
    }
  closedir(stream);
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Locks
//===----------------------------------------------------------------------===//

namespace {
enum class Lock { Taken, Busy, Impossible };
} // namespace

/// Tries to lock an open file until it is closed. It is impossible on some file
/// systems.
static Lock tryLock(int descriptor) {
  int result;
  do
    result = flock(descriptor, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0            ? Lock::Taken
         : errno == EWOULDBLOCK ? Lock::Busy
                                : Lock::Impossible;
}

trainc_status FolderLock::take(const char *folder) {
  Text path;
  path.format("%s/.lock", folder);
  int flags = O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int file = ::open(path.c_str(), O_RDWR | flags, 0666);
  if (file < 0 && errno == EACCES) // of another user, who lets us read it
    file = ::open(path.c_str(), O_RDONLY | flags, 0666);
  if (file < 0)
    return failFile("open", path.c_str());
  char owner[128] = {};
  switch (tryLock(file)) {
  case Lock::Impossible:
    close(file);
    return TRAINC_OK;
  case Lock::Busy:
    if (pread(file, owner, sizeof(owner) - 1, 0) < 0)
      owner[0] = 0;
    close(file);
    owner[strcspn(owner, "\n")] = 0;
    return fail(TRAINC_IO_ERROR, "another process saves to '%s'%s%s", folder,
                owner[0] ? ": " : "", owner);
  case Lock::Taken:
    break;
  }
  // For the message of others; a lock without it is a lock.
  char host[64] = {};
  gethostname(host, sizeof(host) - 1);
  int length = snprintf(owner, sizeof(owner), "process %d on host %s\n",
                        static_cast<int>(getpid()), host);
  (void)!ftruncate(file, 0);
  (void)!pwrite(file, owner, static_cast<size_t>(length), 0);
  release();
  descriptor = file;
  this->owner = getpid();
  return TRAINC_OK;
}

void FolderLock::release() {
  // A process that was forked meanwhile has the file open, too.
  if (descriptor >= 0 && owner == getpid())
    flock(descriptor, LOCK_UN);
  if (descriptor >= 0)
    close(descriptor);
  descriptor = -1;
}

void FolderLock::swap(FolderLock &other) {
  trainc::swap(descriptor, other.descriptor);
  trainc::swap(owner, other.owner);
}

//===----------------------------------------------------------------------===//
// Temporary files
//===----------------------------------------------------------------------===//

/// "." NAME "." 16 hex digits ".tmp"; of a name that is longer its beginning.
static constexpr int maxNameBytes = 200;
static constexpr size_t endBytes = 1 + 16 + 4;

const char *trainc::findTemporaryEnd(const char *name) {
  size_t length = strlen(name);
  if (name[0] != '.' || length < endBytes + 2)
    return nullptr;
  const char *end = name + length - endBytes;
  bool matches = end[0] == '.' && !strcmp(end + 17, ".tmp");
  for (int i = 1; i <= 16; ++i)
    matches = matches && end[i] && strchr("0123456789abcdef", end[i]);
  return matches ? end : nullptr;
}

trainc_status trainc::removeStale(const char *folder, const char *name) {
  Text path;
  path.format("%s/%s", folder, name);
  int file =
      ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0)
    return TRAINC_OK; // gone, or not ours
  struct stat info;
  bool stale = fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
               tryLock(file) == Lock::Taken;
  trainc_status status = stale ? removeFile(path.c_str()) : TRAINC_OK;
  close(file);
  return status;
}

/// Removes what killed writers of the file at `path` have left, as far as it can.
static void removeStaleOf(const char *path) {
  Text folder;
  const char *name = splitPath(path, folder);
  size_t length = strnlen(name, maxNameBytes);
  (void)forNames(folder.c_str(), [&](const char *other) {
    const char *end = findTemporaryEnd(other);
    bool own = end && static_cast<size_t>(end - other) == length + 1 &&
               !strncmp(other + 1, name, length);
    return own ? removeStale(folder.c_str(), other) : TRAINC_OK;
  });
}

//===----------------------------------------------------------------------===//
// Atomic files
//===----------------------------------------------------------------------===//

AtomicFile::~AtomicFile() {
  if (descriptor < 0)
    return;
  if (owned)
    unlink(temporary.c_str());
  close(descriptor);
}

static const char *kindText(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

/// Follows links, the last of which may point to nothing.
trainc_status AtomicFile::nameTarget(const char *target) {
  path.append(target);
  for (int links = 0;; ++links) {
    if (!*splitPath(path.c_str(), folder))
      return fail(TRAINC_INVALID_ARGUMENT, "'%s' names no file", path.c_str());
    struct stat info;
    if (lstat(path.c_str(), &info) != 0)
      return errno == ENOENT ? TRAINC_OK : failFile("create", path.c_str());
    if (S_ISREG(info.st_mode))
      return TRAINC_OK;
    if (!S_ISLNK(info.st_mode))
      return fail(TRAINC_INVALID_ARGUMENT,
                  "'%s' is %s: expected a regular file, or none, to replace",
                  path.c_str(), kindText(info.st_mode));
    char next[4096];
    ssize_t bytes = readlink(path.c_str(), next, sizeof(next));
    if (bytes >= static_cast<ssize_t>(sizeof(next)) || links == 40) {
      errno = links == 40 ? ELOOP : ENAMETOOLONG;
      bytes = -1;
    }
    if (bytes < 0)
      return failFile("follow the link", path.c_str());
    path.clear();
    if (next[0] != '/')
      path.format("%s/", folder.c_str());
    path.append(next, static_cast<size_t>(bytes));
  }
}

void AtomicFile::nameTemporary() {
  Text own;
  const char *name = splitPath(path.c_str(), own);
  temporary.clear();
  temporary.format("%.*s.%.*s.%016llx.tmp",
                   static_cast<int>(name - path.c_str()), path.c_str(),
                   maxNameBytes, name, static_cast<unsigned long long>(random));
}

trainc_status AtomicFile::join(const char *target, uint64_t number) {
  TRAINC_TRY(nameTarget(target));
  random = number;
  nameTemporary();
  if (passFaults(OPEN))
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  return descriptor >= 0 ? TRAINC_OK : failFile("open", temporary.c_str());
}

/// Makes the temporary file. It has a name before it has its lock: who cleans up may
/// come between and take it away, then another one is made.
trainc_status AtomicFile::make() {
  for (int tries = 0; tries < 100; ++tries) {
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
      return failFile("draw a random number for", path.c_str());
    nameTemporary();
    int file =
        ::open(temporary.c_str(),
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST)
      continue;
    if (file < 0)
      return failFile("create", path.c_str());
    struct stat info;
    bool ours = tryLock(file) != Lock::Busy && fstat(file, &info) == 0 &&
                info.st_nlink > 0;
    if (ours) {
      // Who could not read what it replaces cannot read it either. Until it is whole
      // the other ranks open it to write.
      if (stat(path.c_str(), &info) == 0) {
        mode = static_cast<int>(info.st_mode & 0777);
        (void)!fchmod(file, static_cast<mode_t>(mode | S_IWUSR));
      }
      descriptor = file;
      owned = true;
      return TRAINC_OK;
    }
    close(file);
  }
  errno = EAGAIN;
  return failFile("create", path.c_str());
}

trainc_status AtomicFile::open(const char *target) {
  TRAINC_TRY(nameTarget(target));
  if (!passFaults(OPEN))
    return failFile("create", path.c_str());
  TRAINC_TRY(make());
  removeStaleOf(path.c_str());
  return TRAINC_OK;
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
      return failFile("write", path.c_str());
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
             : failFile("sync", path.c_str());
}

trainc_status AtomicFile::reserve(uint64_t bytes) {
  TRAINC_TRY(flush());
  if (!passFaults(WRITE) ||
      ftruncate(descriptor, static_cast<off_t>(bytes)) != 0)
    return failFile("resize", path.c_str());
  return sync();
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
  if (mode >= 0 && !(mode & S_IWUSR))
    (void)!fchmod(descriptor, static_cast<mode_t>(mode));
  bool moved =
      passFaults(RENAME) && rename(temporary.c_str(), path.c_str()) == 0;
  if (!moved)
    return failFile("replace", path.c_str());
  // Only now may others have the lock. All is on the disk: no close can fail.
  owned = false;
  close(descriptor);
  descriptor = -1;
  if (trainc_status status = syncFolder(folder.c_str())) {
    Text reason;
    reason.append(trainc_last_error());
    return fail(
        status,
        "%s; '%s' is replaced, but a crash of the machine may undo that",
        reason.c_str(), path.c_str());
  }
  return TRAINC_OK;
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
