//===- openblas.cpp - OpenBLAS, opened at run time ------------------------===//
//
// OpenBLAS picks its kernels while it is loaded, by the processor's model, and
// the environment may overrule it: a shell that sets OPENBLAS_CORETYPE=Haswell
// halves its speed. So those variables are taken out of the environment while
// it loads, the kernels it picked are looked at, and a processor with AVX-512
// that it does not know gets the AVX-512 kernels by name.
//
//===----------------------------------------------------------------------===//

#include "cpu/openblas.h"
#include "cpu/features.h"
#include <atomic>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

using namespace trainc;

namespace {
/// A variable of the environment, set or removed for a while.
class ScopedVariable {
public:
  ScopedVariable(const char *name, const char *value) : name(name) {
    if (const char *present = getenv(name)) {
      had = true;
      old.append(present);
    }
    set(value);
  }
  ~ScopedVariable() { set(had ? old.c_str() : nullptr); }
  ScopedVariable(const ScopedVariable &) = delete;
  ScopedVariable &operator=(const ScopedVariable &) = delete;

private:
  void set(const char *value) {
    if (value)
      setenv(name, value, 1);
    else
      unsetenv(name);
  }
  const char *name;
  bool had = false;
  Text old;
};

struct Loaded {
  OpenBlas functions = {};
  void *(*takeBuffer)(int) = nullptr;
  void (*returnBuffer)(void *) = nullptr;
  void (*setThreads)(int) = nullptr;
  int (*getThreads)() = nullptr;
  unsigned buffers = 0; // that it has for good
  bool complete = false;
  Text description; // or why it could not be loaded
};
} // namespace

static pthread_mutex_t loadMutex = PTHREAD_MUTEX_INITIALIZER;
static Loaded *loaded;
static std::atomic<bool> isLoaded; // `loaded` is complete, and stays
static unsigned heldBy;            // how many hold it at one thread
static int threadsOfProgram;       // before they did

static void *openLibrary(const char *path, const char *coreType) {
  ScopedVariable core("OPENBLAS_CORETYPE", coreType);
  ScopedVariable threads("OPENBLAS_NUM_THREADS", "1");
  ScopedVariable cache("OPENBLAS_L2_SIZE", nullptr);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
static bool find(void *library, const char *name, Function &function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

static const char *coreName(void *library) {
  char *(*name)();
  return find(library, "openblas_get_corename", name) ? name() : "unknown";
}

static bool hasOldKernels(const char *core) {
  static const char *const avx512[] = {"SkylakeX", "Cooperlake",
                                       "SapphireRapids", "Zen4", "Zen5"};
  for (const char *name : avx512)
    if (!strcasecmp(core, name))
      return false;
  return hasFeature("avx512f") && hasFeature("avx512dq") &&
         hasFeature("avx512bw") && hasFeature("avx512vl") &&
         hasFeature("avx512cd");
}

static void load(Loaded &to) {
  const char *path = secure_getenv("TRAINC_OPENBLAS");
  if (!path || !*path)
    path = "libopenblas.so.0";
  void *present = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  const char *core = heldToAvx2() ? "Haswell" : nullptr;
  void *library = present ? present : openLibrary(path, core);
  if (library && !present && hasOldKernels(coreName(library))) {
    dlclose(library);
    library = openLibrary(path, "SkylakeX");
  }
  if (!library) {
    const char *reason = dlerror();
    to.description.format("cannot load OpenBLAS: %s",
                          reason ? reason : "unknown reason");
    return;
  }
  char *(*getConfig)();
  if (!find(library, "cblas_sgemm", to.functions.sgemm) ||
      !find(library, "cblas_dgemm", to.functions.dgemm) ||
      !find(library, "openblas_set_num_threads", to.setThreads) ||
      !find(library, "openblas_get_num_threads", to.getThreads) ||
      !find(library, "openblas_get_config", getConfig)) {
    to.description.format("'%s' is no OpenBLAS", path);
    return;
  }
  (void)(find(library, "blas_memory_alloc", to.takeBuffer) &&
         find(library, "blas_memory_free", to.returnBuffer));
  to.complete = true;
  const char *config = getConfig(); // "OpenBLAS 0.3.21 NO_AFFINITY ..."
  const char *version = strchr(config, ' ');
  version = version ? version + 1 : config;
  to.description.format(
      "OpenBLAS %.*s (%s kernels%s)", static_cast<int>(strcspn(version, " ")),
      version, coreName(library), present ? ", shared with the program" : "");
}

/// What it maps for a thread that multiplies, and keeps.
static constexpr uint64_t bufferBytes = 128 << 20;

/// It has no more buffers without a warning.
static constexpr unsigned mostBuffers = 128;

/// Lets it map buffers for `threads` that multiply at once. Without memory for one it
/// would try again for ever, so that is tried first.
static trainc_status reserve(Loaded &library, unsigned threads) {
  unsigned wanted = threads < mostBuffers ? threads : mostBuffers;
  if (!library.takeBuffer || !library.returnBuffer || library.buffers >= wanted)
    return TRAINC_OK;
  void *buffers[mostBuffers];
  unsigned count = 0, missing = wanted - library.buffers;
  for (; count < missing; ++count) {
    buffers[count] = mmap(nullptr, bufferBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffers[count] == MAP_FAILED)
      break;
  }
  int error = errno;
  for (unsigned i = 0; i < count; ++i)
    munmap(buffers[i], bufferBytes);
  if (count < missing)
    return fail(TRAINC_OUT_OF_MEMORY,
                "OpenBLAS needs %llu bytes of address space for each of %u "
                "threads: %s",
                static_cast<unsigned long long>(bufferBytes), wanted,
                errnoText(error));
  // It hands out those that it has first.
  for (unsigned i = 0; i < wanted; ++i)
    buffers[i] = library.takeBuffer(0);
  for (unsigned i = 0; i < wanted; ++i)
    library.returnBuffer(buffers[i]);
  library.buffers = wanted;
  return TRAINC_OK;
}

trainc_status trainc::loadOpenBlas(unsigned threads,
                                   const OpenBlas **out_blas) {
  pthread_mutex_lock(&loadMutex);
  if (!loaded || !loaded->complete) { // what failed may be installed by now
    destroy(loaded);
    loaded = create<Loaded>();
    load(*loaded);
    isLoaded.store(loaded->complete, std::memory_order_release);
  }
  Loaded *result = loaded;
  trainc_status status = TRAINC_OK;
  if (!result->complete)
    status = fail(TRAINC_UNSUPPORTED,
                  "the artifact multiplies matrices, which needs OpenBLAS "
                  "(libopenblas.so.0, or TRAINC_OPENBLAS=path): %s",
                  result->description.c_str());
  else
    status = reserve(*result, threads);
  if (!status)
    *out_blas = &result->functions;
  pthread_mutex_unlock(&loadMutex);
  return status;
}

OneBlasThread::OneBlasThread()
    : isCounted(isLoaded.load(std::memory_order_acquire)) {
  if (!isCounted)
    return;
  pthread_mutex_lock(&loadMutex);
  if (heldBy++ == 0) {
    threadsOfProgram = loaded->getThreads();
    if (threadsOfProgram != 1)
      loaded->setThreads(1);
  }
  pthread_mutex_unlock(&loadMutex);
}

OneBlasThread::~OneBlasThread() {
  if (!isCounted)
    return;
  pthread_mutex_lock(&loadMutex);
  if (--heldBy == 0 && threadsOfProgram != 1)
    loaded->setThreads(threadsOfProgram);
  pthread_mutex_unlock(&loadMutex);
}

uint64_t trainc::openBlasBytes() {
  pthread_mutex_lock(&loadMutex);
  uint64_t bytes = loaded ? loaded->buffers * bufferBytes : 0;
  pthread_mutex_unlock(&loadMutex);
  return bytes;
}

void trainc::appendOpenBlas(Text &text) {
  pthread_mutex_lock(&loadMutex);
  text.append(loaded ? loaded->description.c_str() : "OpenBLAS not loaded");
  pthread_mutex_unlock(&loadMutex);
}
