//===- library.cpp - Libraries that are opened at run time ----------------===//

#include "cuda/library.h"
#include <dlfcn.h>

using namespace trainc;
using namespace trainc::cuda;

OpenLibrary trainc::cuda::openLibrary(const Library &library,
                                      const Symbol *symbols, size_t count,
                                      char (&missing)[512]) {
  const char *chosen[] = {getenv(library.variable), nullptr};
  const char *const *paths = chosen[0] && *chosen[0] ? chosen : library.paths;
  OpenLibrary opened;
  Text reasons;
  while (!opened.handle && *paths) {
    opened.path = *paths++;
    opened.handle = dlopen(opened.path, RTLD_NOW | RTLD_LOCAL);
    if (!opened.handle)
      reasons.format("%s%s", reasons.size() ? "; " : "", dlerror());
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
