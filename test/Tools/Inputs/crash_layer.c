// A layer below a program (LD_PRELOAD) that writes down what it does to the files under
// the folder CRASH_FOLDER, in order, to the file CRASH_JOURNAL, so that what a crash of
// the system may leave can be made afterwards. With CRASH_DROP=OPERATION that operation
// is not written down, as if the program did not do it.
//
// A record: a line "OPERATION FILE NUMBER BYTES ARGUMENT", where FILE is an inode, NUMBER
// an offset or, of a name, the inode of its folder; then BYTES bytes of data.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static unsigned long inode_of(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 ? info.st_ino : 0;
}

/// Is it in the folder? Then that one's inode and the name.
static unsigned long in_folder(const char *path, const char **name) {
  const char *folder = getenv("CRASH_FOLDER"), *slash = strrchr(path, '/');
  size_t length = folder ? strlen(folder) : 0;
  if (!length || strncmp(path, folder, length) || path[length] != '/')
    return 0;
  char parent[4096];
  snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
  *name = slash + 1;
  return inode_of(parent);
}

static int is_watched(int file) {
  char link[64], path[4096];
  const char *folder = getenv("CRASH_FOLDER");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, sizeof path - 1);
  size_t length = folder ? strlen(folder) : 0;
  return length && size >= (ssize_t)length && !strncmp(path, folder, length) &&
         ((size_t)size == length || path[length] == '/');
}

static void record(const char *operation, unsigned long file,
                   unsigned long number, const void *data, size_t bytes,
                   const char *argument) {
  const char *journal = getenv("CRASH_JOURNAL"), *drop = getenv("CRASH_DROP");
  if (!journal || (drop && !strcmp(drop, operation)))
    return;
  static int (*real_open)(const char *, int, ...);
  static ssize_t (*real_write)(int, const void *, size_t);
  pthread_mutex_lock(&mutex);
  if (!real_open) {
    real_open = next("open");
    real_write = next("write");
  }
  int out = real_open(journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  char line[4352];
  int length = snprintf(line, sizeof line, "%s %lu %lu %zu %s\n", operation,
                        file, number, bytes, argument);
  int good = out >= 0 && real_write(out, line, (size_t)length) == length &&
             real_write(out, data ? data : "", bytes) == (ssize_t)bytes;
  if (!good)
    abort();
  close(out);
  pthread_mutex_unlock(&mutex);
}

static unsigned long inode_at(int file) {
  struct stat info;
  return fstat(file, &info) == 0 ? info.st_ino : 0;
}

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  int (*real)(const char *, int, ...) = next("open");
  const char *name;
  unsigned long folder = in_folder(path, &name);
  int is_new = folder && (flags & O_CREAT) && !inode_of(path);
  int file = real(path, flags, mode);
  if (file >= 0 && is_new)
    record("create", inode_at(file), folder, NULL, 0, name);
  else if (file >= 0 && folder && (flags & O_TRUNC))
    record("truncate", inode_at(file), 0, NULL, 0, name);
  return file;
}

ssize_t write(int file, const void *data, size_t bytes) {
  ssize_t (*real)(int, const void *, size_t) = next("write");
  off_t at = lseek(file, 0, SEEK_CUR);
  ssize_t done = real(file, data, bytes);
  if (done > 0 && is_watched(file))
    record("write", inode_at(file), (unsigned long)at, data, (size_t)done, "-");
  return done;
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t at) {
  ssize_t (*real)(int, const void *, size_t, off_t) = next("pwrite");
  ssize_t done = real(file, data, bytes, at);
  if (done > 0 && is_watched(file))
    record("write", inode_at(file), (unsigned long)at, data, (size_t)done, "-");
  return done;
}

ssize_t pwrite64(int file, const void *data, size_t bytes, off_t at) {
  return pwrite(file, data, bytes, at);
}

int fsync(int file) {
  int (*real)(int) = next("fsync");
  int result = real(file);
  if (result == 0 && is_watched(file))
    record("fsync", inode_at(file), 0, NULL, 0, "-");
  return result;
}

int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = next("rename");
  const char *name, *old;
  unsigned long folder = in_folder(to, &name), file = inode_of(from);
  int result = real(from, to);
  if (result == 0 && folder && in_folder(from, &old)) {
    char both[4096];
    snprintf(both, sizeof both, "%s/%s", old, name); // '/' is in no name
    record("rename", file, folder, NULL, 0, both);
  }
  return result;
}

int unlink(const char *path) {
  int (*real)(const char *) = next("unlink");
  const char *name;
  unsigned long folder = in_folder(path, &name), file = inode_of(path);
  int result = real(path);
  if (result == 0 && folder)
    record("unlink", file, folder, NULL, 0, name);
  return result;
}
