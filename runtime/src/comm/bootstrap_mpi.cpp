//===- bootstrap_mpi.cpp - Ranks as MPI says ------------------------------===//

#include "comm/bootstrap.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <unistd.h>

using namespace trainc;

//===----------------------------------------------------------------------===//
// The plug-in
//===----------------------------------------------------------------------===//

/// The folder of the library, or program, that this code is in, as it was when that
/// was loaded: absolute, and not what a program calls itself. False if it is not known.
static bool appendOwnFolder(Text &path) {
  static const char here = 0;
  Dl_info info;
  link_map *map = nullptr;
  if (!dladdr1(&here, &info, reinterpret_cast<void **>(&map),
               RTLD_DL_LINKMAP) ||
      !map)
    return false;
  char folder[PATH_MAX];
  if (!*map->l_name) { // the program
    ssize_t size = readlink("/proc/self/exe", folder, sizeof(folder));
    while (size > 0 && folder[size - 1] != '/')
      --size;
    if (size > 0)
      path.append(folder, static_cast<size_t>(size));
    return size > 0;
  }
  void *self = dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD);
  bool known =
      self && dlinfo(self, RTLD_DI_ORIGIN, folder) == 0 && folder[0] == '/';
  if (self)
    dlclose(self);
  if (known)
    path.format("%s/", folder);
  return known;
}

static void *openPlugin(Text &reason) {
  const char *given = secure_getenv("TRAINC_MPI_PLUGIN");
  Text beside, library;
  const char *places[3];
  unsigned count = 0;
  if (given && *given) {
    places[count++] = given;
  } else {
    if (appendOwnFolder(beside)) {
      library.append(beside.c_str());
      library.append("../" TRAINC_LIBDIR "/libtrainc_mpi.so");
      beside.append("libtrainc_mpi.so");
      places[count++] = beside.c_str();
      places[count++] = library.c_str();
    }
    places[count++] = "libtrainc_mpi.so";
  }
  for (unsigned i = 0; i < count; ++i) {
    // Global: components of an MPI look for its symbols there. It stays, as MPI
    // cannot be initialized again.
    void *plugin = dlopen(places[i], RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (plugin)
      return plugin;
    const char *error = dlerror();
    reason.clear();
    reason.append(error ? error : "unknown reason");
  }
  return nullptr;
}

static trainc_status loadPlugin(const trainc_mpi **out_mpi) {
  Text reason;
  void *plugin = openPlugin(reason);
  if (!plugin)
    return fail(TRAINC_UNSUPPORTED,
                "cannot load MPI (libtrainc_mpi.so beside the runtime, or "
                "TRAINC_MPI_PLUGIN=path): %s",
                reason.c_str());
  auto get = reinterpret_cast<trainc_mpi_plugin_fn>(
      dlsym(plugin, TRAINC_MPI_PLUGIN_SYMBOL));
  const trainc_mpi *mpi = get ? get() : nullptr;
  if (!mpi || mpi->interface != TRAINC_MPI_INTERFACE)
    return fail(TRAINC_UNSUPPORTED,
                "libtrainc_mpi.so is of another version of trainc");
  *out_mpi = mpi;
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Exchange
//===----------------------------------------------------------------------===//

static trainc_status failMpi(const trainc_mpi &mpi, int error) {
  char text[256];
  mpi.error_text(error, text, sizeof(text));
  return fail(TRAINC_COMM_FAILED, "MPI failed: %s", text);
}

static trainc_status finish(const trainc_mpi &mpi, trainc_mpi_request &request,
                            const Limit &limit) {
  for (unsigned i = 0;; ++i) {
    int done = 0;
    if (int error = mpi.test(&request, &done))
      return failMpi(mpi, error);
    if (done)
      return TRAINC_OK;
    TRAINC_TRY(limit.giveUp());
    if (limit.isOver())
      return fail(TRAINC_COMM_FAILED,
                  "not all ranks have come to an exchange within %g s",
                  limit.seconds);
    sleepNs(i < 1000 ? 20 * msNs / 1000 : msNs);
  }
}

static trainc_status exchange(Bootstrap &self, const void *mine, void *all,
                              uint64_t bytes, const Limit &limit) {
  trainc_mpi_request request;
  if (int error = self.mpi->gather(self.context, mine, all, bytes, &request))
    return failMpi(*self.mpi, error);
  return finish(*self.mpi, request, limit);
}

static void close(Bootstrap &self, bool clean) {
  self.mpi->close(self.context, clean);
}

trainc_status trainc::openMpi(const Start &start, const Limit &limit,
                              Bootstrap &bootstrap) {
  const trainc_mpi *mpi = nullptr;
  TRAINC_TRY(loadPlugin(&mpi));
  int rank = 0, ranks = 0;
  trainc_mpi_request request;
  if (int error = mpi->open(&bootstrap.context, &rank, &ranks, &request))
    return failMpi(*mpi, error);
  bootstrap.mpi = mpi;
  bootstrap.close = close;
  bootstrap.exchange = exchange;
  bootstrap.name.format("mpi (%s)", mpi->library());
  bootstrap.rank = static_cast<uint32_t>(rank);
  bootstrap.ranks = static_cast<uint32_t>(ranks);
  TRAINC_TRY(finish(*mpi, request, limit));
  if (start.ranks &&
      (start.ranks != bootstrap.ranks || start.rank != bootstrap.rank))
    return fail(TRAINC_INVALID_ARGUMENT,
                "MPI (%s) says rank %u of %u, %s rank %u of %u: is the "
                "launcher of this MPI?",
                mpi->library(), bootstrap.rank, bootstrap.ranks, start.source,
                start.rank, start.ranks);
  return TRAINC_OK;
}
