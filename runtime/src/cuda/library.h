//===- library.h - Libraries that are opened at run time --------*- C++ -*-===//
//
// libcuda, libcublasLt and libnccl are opened by the first call that needs them, so
// that an artifact runs on a machine that has none of them. Each has its table of
// functions, and says once for the process what is missing.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CUDA_LIBRARY_H
#define TRAINC_CUDA_LIBRARY_H

#include "core/status.h"

namespace trainc::cuda {

/// A function of a library, and the pointer to it that is to be set.
struct Symbol {
  const char *name;
  void *function;
};

struct Library {
  /// As "CUDA driver", for "no CUDA driver: ..." and "the CUDA driver 'x' has no ...".
  const char *what;
  /// A variable of the environment. Its value, if it has one, is the only path that is
  /// tried.
  const char *variable;
  /// What is tried in turn without it, until a null: as the loader finds it, then in
  /// the folders of a toolkit and of Python's packages (`openLibrary`).
  const char *const *paths;
  /// As "CUDA 12": the first one with all of the symbols.
  const char *oldest;
};

/// An open library; it stays open.
struct OpenLibrary {
  void *handle = nullptr; // of dlsym; null: it is not to be used
  char path[512] = "";    // of what was opened
};

/// Opens the library and sets all functions. A path without a folder is searched by the
/// loader (LD_LIBRARY_PATH, its cache, what the process has loaded), then in
/// $CUDA_HOME/lib64, $CUDA_PATH/lib64, /usr/local/cuda/lib64, $CONDA_PREFIX/lib and
/// $VIRTUAL_ENV/lib/python3*/site-packages/nvidia/*/lib. If it is not there, or lacks one of them,
/// there is no handle, and `missing` says why.
OpenLibrary openLibrary(const Library &library, const Symbol *symbols,
                        size_t count, char (&missing)[512]);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_LIBRARY_H
