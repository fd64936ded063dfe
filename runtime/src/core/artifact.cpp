//===- artifact.cpp - Opening artifacts -----------------------------------===//

#include "core/artifact.h"
#include "cpu/features.h"
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>

using namespace trainc;

/// A kernel has no way to report that there is no memory.
static void *allocateOrAbort(uint64_t bytes) {
  void *buffer = malloc(bytes ? bytes : 1);
  if (!buffer)
    abort();
  return buffer;
}

/// What generated code calls.
static const trainc_functions functionTable = {
    sizeof(trainc_functions),
#define TRAINC_MATH1(name) static_cast<double (*)(double)>(::name),
#define TRAINC_MATH2(name) static_cast<double (*)(double, double)>(::name),
#include "trainc/step_abi.def"
    allocateOrAbort,
    free,
};

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

trainc_status trainc::checkProcessor(const trainc_artifact &artifact,
                                     const trainc_descriptor &d) {
  Text missing, processor;
  appendMissingFeatures(d.features, missing);
  if (!missing.size())
    return TRAINC_OK;
  appendProcessorName(processor);
  return fail(TRAINC_UNSUPPORTED,
              "artifact '%s' is for processor '%s' and needs %s, which this "
              "one (%s) does not have: compile it with another --target-cpu",
              artifact.path.c_str(), d.cpu ? d.cpu : "?", missing.c_str(),
              processor.c_str());
}

trainc_status trainc::checkAbi(const char *path, const trainc_descriptor &d) {
  if (d.magic != TRAINC_ABI_MAGIC)
    return fail(TRAINC_ABI_MISMATCH, "'%s' is no trainc artifact", path);
  if (d.abi_version == TRAINC_ABI_VERSION)
    return TRAINC_OK;
  return fail(TRAINC_ABI_MISMATCH,
              "artifact '%s' has ABI version %u, this runtime (%s) needs %u: "
              "compile it again",
              path, d.abi_version, TRAINC_VERSION_STRING, TRAINC_ABI_VERSION);
}

/// Checks the tables for one target.
static trainc_status checkTables(const char *path, const trainc_descriptor *d) {
  TRAINC_TRY(checkAbi(path, *d));
  if (d->target != TRAINC_TARGET_CPU && d->target != TRAINC_TARGET_CUDA)
    return fail(TRAINC_UNSUPPORTED,
                "artifact '%s' is for target %u, which this runtime (%s) does "
                "not know",
                path, d->target, TRAINC_VERSION_STRING);
  return validate(*d);
}

static trainc_status adopt(trainc_artifact *artifact,
                           const trainc_descriptor *d) {
  const char *path = artifact->path.c_str();
  TRAINC_TRY(checkAbi(path, *d));
  TRAINC_TRY(artifact->tables.read(path, d, &d));
  artifact->descriptor = d;
  const trainc_descriptor *cpu = nullptr;
  for (const trainc_descriptor *one = d; one; one = one->next) {
    TRAINC_TRY(checkTables(path, one));
    TRAINC_TRY(validateChain(*d, *one));
    if (one->target == TRAINC_TARGET_CPU)
      cpu = one;
    if (one->functions)
      __atomic_store_n(one->functions, &functionTable, __ATOMIC_RELEASE);
  }
  // With code for a GPU, too, the processor may do without.
  return cpu == d && !d->next ? checkProcessor(*artifact, *d) : TRAINC_OK;
}

/// A shared library that is loaded. By the name of one dlopen finds that one, also when
/// another file stands in its place: that is loaded by a name of its own.
struct trainc::LoadedFile {
  dev_t device;
  ino_t inode;
  Text name; // as dlopen has it
  uint32_t users = 0;
  LoadedFile *next = nullptr;
};

static LoadedFile *loadedFiles = nullptr;
static pthread_mutex_t loadedMutex = PTHREAD_MUTEX_INITIALIZER;

static LoadedFile *findLoaded(const struct stat &status) {
  LoadedFile *file = loadedFiles;
  while (file &&
         (file->device != status.st_dev || file->inode != status.st_ino))
    file = file->next;
  return file;
}

static bool isLoadedName(const Text &name) {
  for (LoadedFile *file = loadedFiles; file; file = file->next)
    if (!strcmp(file->name.c_str(), name.c_str()))
      return true;
  return false;
}

/// Makes `name` one of `path` that no loaded file has.
static void chooseName(const char *path, Text &name) {
  const char *last = strrchr(path, '/') + 1;
  Text folder;
  folder.append(path, static_cast<size_t>(last - path));
  do {
    name.clear();
    name.append(folder.c_str());
    name.append(last);
    folder.append("./");
  } while (isLoadedName(name));
}

/// Loads `artifact->path`, with loadedMutex held.
static trainc_status loadLibrary(trainc_artifact *artifact) {
  const char *path = artifact->path.c_str();
  struct stat status;
  if (stat(path, &status))
    return fail(TRAINC_IO_ERROR, "cannot read '%s': %s", path,
                errnoText(errno));
  LoadedFile *file = findLoaded(status);
  if (!file) {
    file = create<LoadedFile>();
    file->device = status.st_dev;
    file->inode = status.st_ino;
    chooseName(path, file->name);
    file->next = loadedFiles;
    loadedFiles = file;
  }
  ++file->users;
  artifact->file = file;
  artifact->library = dlopen(file->name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (artifact->library)
    return TRAINC_OK;
  const char *reason = dlerror();
  return fail(TRAINC_DATA_CORRUPT, "cannot load '%s': %s", path,
              reason ? reason : "unknown reason");
}

static trainc_status openLibrary(trainc_artifact *artifact, const char *path) {
  // Without a slash dlopen would search elsewhere.
  if (!strchr(path, '/'))
    artifact->path.append("./");
  artifact->path.append(path);
  path = artifact->path.c_str();
  TRAINC_TRY(checkLibraryFile(path));
  pthread_mutex_lock(&loadedMutex);
  trainc_status status = loadLibrary(artifact);
  pthread_mutex_unlock(&loadedMutex);
  TRAINC_TRY(status);
  auto *descriptor = static_cast<const trainc_descriptor *>(
      dlsym(artifact->library, "trainc_descriptor"));
  if (!descriptor)
    return fail(TRAINC_ABI_MISMATCH,
                "'%s' is no trainc artifact: it has no trainc_descriptor",
                path);
  return adopt(artifact, descriptor);
}

trainc_status trainc_artifact_open(const char *path,
                                   trainc_artifact **out_artifact) {
  auto *artifact = create<trainc_artifact>();
  trainc_status status = openLibrary(artifact, path);
  if (status != TRAINC_OK)
    destroy(artifact);
  else
    *out_artifact = artifact;
  return status;
}

trainc_status
trainc_artifact_open_descriptor(const trainc_descriptor *descriptor,
                                trainc_artifact **out_artifact) {
  auto *artifact = create<trainc_artifact>();
  artifact->path.append(descriptor->magic == TRAINC_ABI_MAGIC &&
                                descriptor->name
                            ? descriptor->name
                            : "linked artifact");
  trainc_status status = adopt(artifact, descriptor);
  if (status != TRAINC_OK)
    destroy(artifact);
  else
    *out_artifact = artifact;
  return status;
}

trainc_artifact::~trainc_artifact() {
  if (!file)
    return;
  pthread_mutex_lock(&loadedMutex);
  if (library)
    dlclose(library);
  if (--file->users == 0) {
    LoadedFile **place = &loadedFiles;
    while (*place != file)
      place = &(*place)->next;
    *place = file->next;
    destroy(file);
  }
  pthread_mutex_unlock(&loadedMutex);
}

void trainc::retain(trainc_artifact *artifact) {
  artifact->users.fetch_add(1, std::memory_order_relaxed);
}

void trainc::release(trainc_artifact *artifact) {
  if (artifact->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
    destroy(artifact);
}

void trainc_artifact_close(trainc_artifact *artifact) {
  if (artifact)
    release(artifact);
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

const trainc_descriptor *
trainc_artifact_descriptor(const trainc_artifact *artifact) {
  return artifact->descriptor;
}

trainc_status trainc::getEntry(const trainc_artifact *artifact, uint32_t entry,
                               const trainc_entry **out_entry) {
  const trainc_descriptor &d = *artifact->descriptor;
  if (entry >= d.num_entries)
    return fail(TRAINC_INVALID_ARGUMENT,
                "artifact '%s' has %u entries; no number %u", d.name,
                d.num_entries, entry);
  *out_entry = &d.entries[entry];
  return TRAINC_OK;
}

const trainc_tensor *trainc::findMaster(const trainc_tensor *tensors,
                                        size_t count,
                                        const trainc_tensor &tensor) {
  for (size_t i = 0; i < count; ++i)
    if (tensors[i].role == TRAINC_ROLE_MASTER &&
        !strcmp(tensors[i].name, tensor.name))
      return &tensors[i];
  return nullptr;
}

bool trainc::checkpointName(const trainc_descriptor &d, uint32_t index,
                            Text &name) {
  const trainc_tensor &tensor = d.tensors[index];
  switch (tensor.role) {
  case TRAINC_ROLE_STATE:
    name.format("optimizer/%s/%s", tensor.name, tensor.state);
    return true;
  case TRAINC_ROLE_GRADIENT:
    name.format("gradient/%s", tensor.name);
    return true;
  case TRAINC_ROLE_COMPUTE:
    if (isCopy(d.tensors, d.num_tensors, tensor))
      return false;
    break;
  case TRAINC_ROLE_MASTER:
  case TRAINC_ROLE_BUFFER:
    break;
  default:
    return false;
  }
  name.append(tensor.name);
  return true;
}

trainc_status trainc_artifact_find_entry(const trainc_artifact *artifact,
                                         const char *name,
                                         uint32_t *out_entry) {
  const trainc_descriptor &d = *artifact->descriptor;
  for (uint32_t i = 0; i < d.num_entries; ++i) {
    if (name ? strcmp(d.entries[i].name, name) != 0
             : d.entries[i].kind != TRAINC_ENTRY_STEP)
      continue;
    *out_entry = i;
    return TRAINC_OK;
  }
  return fail(TRAINC_NOT_FOUND, "artifact '%s' has no %s '%s'", d.name,
              name ? "entry" : "entry of kind", name ? name : "step");
}

static trainc_status findPort(const trainc_artifact *artifact, uint32_t entry,
                              bool output, const char *name,
                              uint32_t *out_index) {
  const trainc_entry *e = nullptr;
  TRAINC_TRY(getEntry(artifact, entry, &e));
  const trainc_port *ports = output ? e->outputs : e->inputs;
  uint32_t count = output ? e->num_outputs : e->num_inputs;
  for (uint32_t i = 0; i < count; ++i)
    if (!strcmp(ports[i].name, name)) {
      *out_index = i;
      return TRAINC_OK;
    }
  return fail(TRAINC_NOT_FOUND, "entry '%s' has no %s '%s'", e->name,
              output ? "output" : "input", name);
}

trainc_status trainc_artifact_find_input(const trainc_artifact *artifact,
                                         uint32_t entry, const char *name,
                                         uint32_t *out_index) {
  return findPort(artifact, entry, /*output=*/false, name, out_index);
}

trainc_status trainc_artifact_find_output(const trainc_artifact *artifact,
                                          uint32_t entry, const char *name,
                                          uint32_t *out_index) {
  return findPort(artifact, entry, /*output=*/true, name, out_index);
}

trainc_status trainc_artifact_find_tensor(const trainc_artifact *artifact,
                                          trainc_role role, const char *name,
                                          const char *state,
                                          uint32_t *out_tensor) {
  const trainc_descriptor &d = *artifact->descriptor;
  auto find = [&](uint32_t wanted) {
    for (uint32_t i = 0; i < d.num_tensors; ++i) {
      const trainc_tensor &tensor = d.tensors[i];
      if (tensor.role != wanted || strcmp(tensor.name, name) != 0 ||
          !state != !tensor.state ||
          (state && strcmp(tensor.state, state) != 0))
        continue;
      *out_tensor = i;
      return true;
    }
    return false;
  };
  if (find(role) || (role == TRAINC_ROLE_MASTER && find(TRAINC_ROLE_COMPUTE)))
    return TRAINC_OK;
  return fail(TRAINC_NOT_FOUND,
              "artifact '%s' has no tensor '%s%s%s' of role %d", d.name, name,
              state ? "/" : "", state ? state : "", role);
}

trainc_status trainc_artifact_find_scalar(const trainc_artifact *artifact,
                                          const char *name,
                                          uint32_t *out_scalar) {
  const trainc_descriptor &d = *artifact->descriptor;
  for (uint32_t i = 0; i < d.num_scalars; ++i)
    if (!strcmp(d.scalars[i].name, name)) {
      *out_scalar = i;
      return TRAINC_OK;
    }
  return fail(TRAINC_NOT_FOUND, "artifact '%s' has no scalar '%s'", d.name,
              name);
}
