//===- bootstrap_file.cpp - Ranks that meet in a folder -------------------===//
//
// All is in a folder of its own in that of the user, whose files are left alone.
// Files are written beside their place and renamed, so that whoever sees one sees
// all of it. The folder may hold files of an earlier run, so nothing in it is
// believed that does not prove to be new:
// - a rank's hello has a random number and a beat that it raises until it is
//   answered; rank 0 believes in a hello when it has seen it change;
// - rank 0's answer, the file run, has the random numbers of all ranks and one
//   of its own, the run's; a rank believes it if its own number is in it;
// - a rank acknowledges with the run's number, and every further file has the
//   run's number in its name.
//
//===----------------------------------------------------------------------===//

#include "comm/bootstrap.h"
#include "core/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace trainc;

/// Of any mesh.
static constexpr uint32_t maxRanks = 65536;

static constexpr uint64_t beatNs = 20 * msNs, pollNs = 5 * msNs;

/// The others wait a little longer than rank 0, which may have a reason to tell.
static constexpr uint64_t tellNs = 500 * msNs;

namespace {
constexpr uint64_t fileMagic = 0x656c69666e617274;

struct Hello {
  uint64_t magic, number, beat;
  uint32_t rank, ranks;
  char failure[256]; // empty: none
};

/// Followed by the random number of every rank.
struct Run {
  uint64_t magic, number;
  uint32_t ranks, ready;
  char failure[512];
};

struct Acknowledgement {
  uint64_t magic, run, number;
};

struct Files {
  Text folder;
  uint32_t rank, ranks;
  uint64_t number; // mine
  uint64_t run = 0, round = 0;
  Array<Hello> hellos, first; // rank 0: the last seen, and what was there
};
} // namespace

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static void appendPath(Text &path, const Files &files, const char *kind,
                       uint32_t rank) {
  path.format("%s/%s.%u", files.folder.c_str(), kind, rank);
}

static void appendRoundPath(Text &path, const Files &files, uint64_t round,
                            uint32_t rank) {
  path.format("%s/data.%016llx.%llu.%u", files.folder.c_str(),
              static_cast<unsigned long long>(files.run),
              static_cast<unsigned long long>(round), rank);
}

static trainc_status writeFile(const Files &files, const char *path,
                               const void *data, uint64_t bytes) {
  Text temporary;
  temporary.format("%s/.%016llx", files.folder.c_str(),
                   static_cast<unsigned long long>(files.number));
  int file = open(temporary.c_str(),
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool good = file >= 0;
  for (uint64_t done = 0; good && done < bytes;) {
    ssize_t size =
        write(file, static_cast<const char *>(data) + done, bytes - done);
    good = size >= 0 || errno == EINTR;
    done += size > 0 ? static_cast<uint64_t>(size) : 0;
  }
  int error = errno;
  if (file < 0)
    return fail(TRAINC_IO_ERROR, "cannot write '%s': %s", path,
                errnoText(error));
  if (close(file) != 0 && good) {
    good = false;
    error = errno;
  }
  if (good && rename(temporary.c_str(), path) == 0)
    return TRAINC_OK;
  error = good ? errno : error;
  unlink(temporary.c_str());
  return fail(TRAINC_IO_ERROR, "cannot write '%s': %s", path, errnoText(error));
}

/// Reads the first `bytes` of a file, which has no more with `whole`; false if there is
/// none.
static bool readFile(const char *path, void *data, uint64_t bytes,
                     bool whole = true) {
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0)
    return false;
  struct stat info;
  uint64_t done = 0;
  ssize_t size = 1;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
      (!whole || static_cast<uint64_t>(info.st_size) == bytes))
    while (done < bytes && size > 0) {
      size = read(file, static_cast<char *>(data) + done, bytes - done);
      done += size > 0 ? static_cast<uint64_t>(size) : 0;
    }
  close(file);
  return done == bytes && bytes;
}

template <typename T> static bool readRecord(const char *path, T &record) {
  return readFile(path, &record, sizeof(record)) && record.magic == fileMagic;
}

static bool readHello(const Files &files, uint32_t rank, Hello &hello) {
  Text path;
  appendPath(path, files, "hello", rank);
  if (!readRecord(path.c_str(), hello))
    return false;
  hello.failure[sizeof(hello.failure) - 1] = 0;
  return true;
}

static trainc_status randomNumber(uint64_t &number) {
  if (getrandom(&number, sizeof(number), 0) != sizeof(number))
    return fail(TRAINC_IO_ERROR, "cannot draw a random number: %s",
                errnoText(errno));
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Rank 0
//===----------------------------------------------------------------------===//

/// Is it data.RUN.ROUND.RANK or ack.RANK?
static bool isOfRun(const char *name) {
  Text again;
  unsigned long long run, round;
  unsigned rank;
  if (sscanf(name, "data.%16llx.%llu.%u", &run, &round, &rank) == 3)
    again.format("data.%016llx.%llu.%u", run, round, rank);
  else if (sscanf(name, "ack.%u", &rank) == 1)
    again.format("ack.%u", rank);
  return !strcmp(name, again.c_str());
}

/// Removes what earlier runs left; hellos may be of this run.
static void cleanFolder(const Files &files) {
  (void)forNames(files.folder.c_str(), [&](const char *name) {
    if (!isOfRun(name))
      return TRAINC_OK;
    Text path;
    path.format("%s/%s", files.folder.c_str(), name);
    unlink(path.c_str());
    return TRAINC_OK;
  });
}

static trainc_status writeRun(const Files &files, bool ready,
                              const char *failure) {
  Run run = {fileMagic, files.run, files.ranks, ready, {}};
  snprintf(run.failure, sizeof(run.failure), "%s", failure);
  Array<char> bytes;
  bytes.resize(sizeof(Run) + files.ranks * sizeof(uint64_t));
  memcpy(bytes.data(), &run, sizeof(run));
  for (uint32_t i = 1; i < files.ranks; ++i)
    memcpy(bytes.data() + sizeof(run) + i * sizeof(uint64_t),
           &files.hellos[i].number, sizeof(uint64_t));
  Text path;
  path.format("%s/run", files.folder.c_str());
  return writeFile(files, path.c_str(), bytes.data(), bytes.size());
}

static bool isLive(const Files &files, uint32_t rank) {
  return files.hellos[rank].number != 0;
}

/// Reads a rank's hello, if it is there, and checks it.
static trainc_status hear(Files &files, uint32_t rank) {
  Hello hello;
  const Hello &first = files.first[rank];
  if (!readHello(files, rank, hello) ||
      (hello.number == first.number && hello.beat == first.beat))
    return TRAINC_OK;
  uint64_t before = files.hellos[rank].number;
  files.hellos[rank] = hello;
  if (hello.failure[0])
    return fail(TRAINC_COMM_FAILED, "%s", hello.failure);
  if (before && before != hello.number)
    return fail(TRAINC_COMM_FAILED, "two processes are rank %u", rank);
  if (hello.rank != rank || hello.ranks != files.ranks)
    return fail(TRAINC_COMM_FAILED,
                "rank %u says that there are %u ranks, rank 0 that there are "
                "%u",
                rank, hello.ranks, files.ranks);
  return TRAINC_OK;
}

/// Tells all ranks, also those that come a little later.
static trainc_status failAll(Files &files, trainc_status status,
                             const Limit &limit) {
  Text text;
  text.append(trainc_last_error());
  uint64_t end = limit.isOver() ? 0 : nowNs() + tellNs;
  uint32_t missing;
  do {
    missing = 0;
    for (uint32_t i = 1; i < files.ranks; ++i) {
      (void)hear(files, i);
      missing += !isLive(files, i);
    }
    (void)writeRun(files, /*ready=*/false, text.c_str());
    sleepNs(beatNs);
  } while (missing && nowNs() < end);
  return fail(status, "%s", text.c_str());
}

static trainc_status checkAlone(const Files &files) {
  Text path;
  path.format("%s/run", files.folder.c_str());
  Array<char> bytes;
  bytes.resize(sizeof(Run) + files.ranks * sizeof(uint64_t));
  Run run = {};
  if (readFile(path.c_str(), bytes.data(), bytes.size()))
    memcpy(&run, bytes.data(), sizeof(run));
  if (run.number != files.run)
    return fail(TRAINC_COMM_FAILED,
                "two processes are rank 0, or two runs use the folder '%s'",
                files.folder.c_str());
  return TRAINC_OK;
}

/// Polls until `present` holds for all other ranks.
template <typename Present>
static trainc_status awaitRanks(Files &files, const Limit &limit,
                                Present present) {
  while (true) {
    uint32_t missing = 0;
    for (uint32_t i = 1; i < files.ranks; ++i) {
      TRAINC_TRY(hear(files, i));
      missing += !present(i);
    }
    if (!missing)
      return TRAINC_OK;
    TRAINC_TRY(checkAlone(files));
    TRAINC_TRY(limit.giveUp());
    if (limit.isOver()) {
      Text text;
      appendMissing(text, files.ranks,
                    [&](uint32_t i) { return i == 0 || present(i); });
      return fail(TRAINC_COMM_FAILED, "%s of %u did not come within %g s",
                  text.c_str(), files.ranks, limit.seconds);
    }
    sleepNs(pollNs);
  }
}

static trainc_status lead(Files &files, const Limit &limit) {
  TRAINC_TRY(randomNumber(files.run));
  files.hellos.resize(files.ranks);
  files.first.resize(files.ranks);
  for (uint32_t i = 1; i < files.ranks; ++i)
    if (!readHello(files, i, files.first[i]))
      files.first[i] = {};
  cleanFolder(files);
  TRAINC_TRY(writeRun(files, /*ready=*/false, ""));
  trainc_status status =
      awaitRanks(files, limit, [&](uint32_t i) { return isLive(files, i); });
  if (!status)
    status = writeRun(files, /*ready=*/true, "");
  if (!status)
    status = awaitRanks(files, limit, [&](uint32_t i) {
      Text path;
      appendPath(path, files, "ack", i);
      Acknowledgement got;
      return readRecord(path.c_str(), got) && got.run == files.run &&
             got.number == files.hellos[i].number;
    });
  return status ? failAll(files, status, limit) : TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// The others
//===----------------------------------------------------------------------===//

/// Says hello again. Fails if the file has become another process's.
static trainc_status beat(const Files &files, Hello &hello) {
  Text path;
  appendPath(path, files, "hello", files.rank);
  Hello seen;
  bool isOther = hello.beat > 0 && readHello(files, files.rank, seen) &&
                 seen.number != hello.number;
  ++hello.beat;
  if (!isOther)
    return writeFile(files, path.c_str(), &hello, sizeof(hello));
  snprintf(hello.failure, sizeof(hello.failure), "two processes are rank %u",
           files.rank);
  (void)writeFile(files, path.c_str(), &hello, sizeof(hello));
  return fail(TRAINC_COMM_FAILED, "%s", hello.failure);
}

/// Looks for rank 0's answer; sets files.run when it is there.
static trainc_status readAnswer(Files &files, uint32_t &seenRanks) {
  Text path;
  path.format("%s/run", files.folder.c_str());
  Array<char> bytes;
  Run run;
  if (!readFile(path.c_str(), &run, sizeof(run), /*whole=*/false) ||
      run.magic != fileMagic || run.ranks > maxRanks)
    return TRAINC_OK;
  seenRanks = run.ranks;
  uint64_t number = 0;
  bytes.resize(sizeof(Run) + run.ranks * sizeof(uint64_t));
  if (!readFile(path.c_str(), bytes.data(), bytes.size()))
    return TRAINC_OK;
  memcpy(&run, bytes.data(), sizeof(run));
  if (bytes.size() != sizeof(Run) + run.ranks * sizeof(uint64_t))
    return TRAINC_OK;
  if (files.rank < run.ranks)
    memcpy(&number, bytes.data() + sizeof(run) + files.rank * sizeof(number),
           sizeof(number));
  if (number != files.number)
    return TRAINC_OK; // of an earlier run, or too early
  run.failure[sizeof(run.failure) - 1] = 0;
  if (run.failure[0])
    return fail(TRAINC_COMM_FAILED, "%s", run.failure);
  if (run.ready)
    files.run = run.number;
  return TRAINC_OK;
}

static trainc_status follow(Files &files, const Limit &limit) {
  Hello hello = {fileMagic, files.number, 0, files.rank, files.ranks, {}};
  uint32_t seenRanks = 0;
  for (uint64_t next = 0; !files.run; sleepNs(pollNs)) {
    uint64_t now = nowNs();
    if (now >= next) {
      TRAINC_TRY(beat(files, hello));
      next = now + beatNs;
    }
    TRAINC_TRY(readAnswer(files, seenRanks));
    TRAINC_TRY(limit.giveUp());
    if (files.run || now < limit.end + tellNs)
      continue;
    return fail(TRAINC_COMM_FAILED,
                "rank 0 has not answered in the folder '%s' within %g s%s",
                files.folder.c_str(), limit.seconds,
                seenRanks && seenRanks != files.ranks
                    ? " (there is a run of another number of ranks)"
                    : "");
  }
  Acknowledgement mine = {fileMagic, files.run, files.number};
  Text path;
  appendPath(path, files, "ack", files.rank);
  return writeFile(files, path.c_str(), &mine, sizeof(mine));
}

//===----------------------------------------------------------------------===//
// The bootstrap
//===----------------------------------------------------------------------===//

static trainc_status exchange(Bootstrap &self, const void *mine, void *all,
                              uint64_t bytes, const Limit &limit) {
  Files &files = *static_cast<Files *>(self.state);
  uint64_t round = files.round++;
  Text path;
  appendRoundPath(path, files, round, files.rank);
  TRAINC_TRY(writeFile(files, path.c_str(), mine, bytes));
  Array<uint8_t> present;
  present.resize(files.ranks);
  uint32_t missing = files.ranks;
  while (true) {
    for (uint32_t i = 0; i < files.ranks; ++i) {
      if (present[i])
        continue;
      path.clear();
      appendRoundPath(path, files, round, i);
      present[i] =
          readFile(path.c_str(), static_cast<char *>(all) + i * bytes, bytes);
      missing -= present[i];
    }
    if (!missing)
      break;
    TRAINC_TRY(limit.giveUp());
    if (limit.isOver()) {
      Text text;
      appendMissing(text, files.ranks, [&](uint32_t i) { return present[i]; });
      return fail(TRAINC_COMM_FAILED,
                  "%s did not come to an exchange within %g s", text.c_str(),
                  limit.seconds);
    }
    sleepNs(pollNs);
  }
  if (round == 0)
    return TRAINC_OK;
  // All have read the round before, as they have written this one.
  path.clear();
  appendRoundPath(path, files, round - 1, files.rank);
  unlink(path.c_str());
  return TRAINC_OK;
}

static void close(Bootstrap &self, bool clean) {
  auto *files = static_cast<Files *>(self.state);
  Text hello, ack;
  appendPath(hello, *files, "hello", files->rank);
  appendPath(ack, *files, "ack", files->rank);
  if (clean) {
    unlink(hello.c_str());
    unlink(ack.c_str());
  }
  destroy(files);
}

/// Makes the user's folder and, in it, that of the runs, for nobody else.
static trainc_status makeOwnFolder(const char *place, Text &folder) {
  folder.format("%s/.trainc-comm", place);
  if (mkdir(place, 0777) != 0 && errno != EEXIST)
    return fail(TRAINC_IO_ERROR, "cannot make the folder '%s': %s", place,
                errnoText(errno));
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(TRAINC_IO_ERROR, "cannot make the folder '%s': %s",
                folder.c_str(), errnoText(errno));
  struct stat info;
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      (info.st_mode & 022))
    return fail(TRAINC_INVALID_ARGUMENT,
                "'%s' is not a folder that only its user may write to",
                folder.c_str());
  return TRAINC_OK;
}

trainc_status trainc::openFiles(const Start &start, const Limit &limit,
                                Bootstrap &bootstrap) {
  auto *files = create<Files>();
  files->rank = start.rank;
  files->ranks = start.ranks;
  bootstrap.state = files;
  bootstrap.exchange = exchange;
  bootstrap.close = close;
  TRAINC_TRY(makeOwnFolder(start.place.c_str(), files->folder));
  TRAINC_TRY(randomNumber(files->number));
  return files->rank == 0 ? lead(*files, limit) : follow(*files, limit);
}
