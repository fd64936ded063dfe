//===- library.cpp - Libraries that are opened at run time ----------------===//

#include "cuda/library.h"
#include <dlfcn.h>
#include <glob.h>

using namespace trainc;
using namespace trainc::cuda;

/// Where libraries of CUDA are, but for those that the loader finds: below the value of
/// a variable of the environment, which may be null.
static constexpr struct {
  const char *variable, *folder;
} places[] = {{"CUDA_HOME", "/lib64/"},
              {"CUDA_PATH", "/lib64/"},
              {nullptr, "/usr/local/cuda/lib64/"},
              {"CONDA_PREFIX", "/lib/"},
              {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib/"}};

static void *openAt(OpenLibrary &opened, const char *path) {
  snprintf(opened.path, sizeof(opened.path), "%s", path);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/// Opens what the loader does not find.
static void *openElsewhere(OpenLibrary &opened, const char *name) {
  void *handle = nullptr;
  for (const auto &place : places) {
    const char *root = place.variable ? getenv(place.variable) : "";
    if (!root || (place.variable && !*root))
      continue;
    Text pattern;
    pattern.format("%s%s%s", root, place.folder, name);
    glob_t found = {};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
      for (size_t i = 0; !handle && i < found.gl_pathc; ++i)
        handle = openAt(opened, found.gl_pathv[i]);
    globfree(&found);
    if (handle)
      break;
  }
  return handle;
}

OpenLibrary trainc::cuda::openLibrary(const Library &library,
                                      const Symbol *symbols, size_t count,
                                      char (&missing)[512]) {
  const char *chosen[] = {secure_getenv(library.variable), nullptr};
  const char *const *paths = chosen[0] && *chosen[0] ? chosen : library.paths;
  OpenLibrary opened;
  Text reasons;
  while (!opened.handle && *paths) {
    const char *path = *paths++;
    opened.handle = openAt(opened, path);
    if (!opened.handle)
      reasons.format("%s%s", reasons.size() ? "; " : "", dlerror());
    if (!opened.handle && !strchr(path, '/'))
      opened.handle = openElsewhere(opened, path);
  }
  if (!opened.handle)
    snprintf(missing, sizeof(missing), "no %s: %s", library.what,
             reasons.c_str());
  for (size_t i = 0; opened.handle && i < count; ++i) {
    void *function = dlsym(opened.handle, symbols[i].name);
    memcpy(symbols[i].function, &function, sizeof(function));
    if (function)
      continue;
    snprintf(missing, sizeof(missing),
             "the %s '%s' has no %s: it is older than %s", library.what,
             opened.path, symbols[i].name, library.oldest);
    opened.handle = nullptr;
  }
  return opened;
}
