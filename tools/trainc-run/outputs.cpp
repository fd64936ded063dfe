//===- outputs.cpp - Trying where results go ------------------------------===//

#include "outputs.h"
#include "core/files.h"
#include "ranks.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace trainc::run {

//===----------------------------------------------------------------------===//
// Space
//===----------------------------------------------------------------------===//

/// Bytes of a checkpoint outside of a window, but for its header.
static uint64_t checkpointBytes(const trainc_descriptor &d) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < d.num_tensors; ++i) {
    const trainc_tensor &tensor = d.tensors[i];
    if (tensor.role == TRAINC_ROLE_GRADIENT ||
        tensor.role == TRAINC_ROLE_COMPUTE)
      continue;
    uint64_t size = trainc_dtype_size(tensor.dtype); // all parts together
    for (uint32_t k = 0; k < tensor.rank; ++k)
      size *= static_cast<uint64_t>(tensor.dims[k]);
    bytes += size;
  }
  return bytes;
}

/// In a folder that is there. The last checkpoint stays until the next is complete.
static void checkSpace(const Model &model, const std::string &folder,
                       uint64_t count, bool tell) {
  struct statvfs disk;
  if (statvfs(folder.c_str(), &disk) != 0)
    fail("cannot find the free space of '%s': %s", folder.c_str(),
         std::strerror(errno));
  uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  uint64_t needed = checkpointBytes(model.descriptor());
  if (tell)
    std::printf("checkpoints: %.1f MB each, %.1f MB free in '%s'\n",
                static_cast<double>(needed) / 1e6,
                static_cast<double>(free) / 1e6, folder.c_str());
  if (free / count < needed)
    fail("no room for %s of %llu bytes in '%s': %llu are free",
         count == 1 ? "a checkpoint" : "two checkpoints",
         static_cast<unsigned long long>(needed), folder.c_str(),
         static_cast<unsigned long long>(free));
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Can a file be written there? What is there stays, nothing comes to be there.
static void tryFile(const std::string &path) {
  struct stat info;
  if (path.empty())
    return;
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode))
      errno = EISDIR;
    else if (access(path.c_str(), W_OK) == 0)
      return;
  } else if (errno == ENOENT) {
    AtomicFile file; // beside it
    check(file.open(path.c_str()));
    return;
  }
  fail("cannot write '%s': %s", path.c_str(), std::strerror(errno));
}

static void trySave(const Model &model, const std::string &path) {
  AtomicFile file;
  check(file.open(path.c_str()));
  if (path != file.target())
    note("'%s' is a link: what it points to, '%s', is written", path.c_str(),
         file.target());
  Text folder;
  splitPath(file.target(), folder);
  checkSpace(model, folder.c_str(), 1, /*tell=*/false);
}

void prepareOutputs(Model &model, const Options &options) {
  if (!options.checkpointDir.empty() && (options.steps || options.preflight)) {
    trainc_status status = trainc_reserve_directory(
        model.trainer(), options.checkpointDir.c_str(),
        options.overwrite ? TRAINC_DIRECTORY_OVERWRITE : 0);
    if (status == TRAINC_MISMATCH)
      fail("%s: expects --resume, another --checkpoint-dir, or --overwrite",
           trainc_last_error());
    check(status);
    if (isFirst())
      checkSpace(model, options.checkpointDir, options.preflight ? 2 : 1,
                 options.preflight);
  }
  if (isFirst() && !options.save.empty())
    trySave(model, options.save);
  if (isFirst())
    tryFile(options.svg);
  tryFile(pathOfRank(options.profile));
}

} // namespace trainc::run
