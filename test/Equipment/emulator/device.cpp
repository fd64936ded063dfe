//===- device.cpp - Devices, allocations, images --------------------------===//
#include "calls.h"
#include "machine.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace trainc::emu;

trainc_emu *trainc_emu_create(void) {
  trainc_emu *device = static_cast<trainc_emu *>(calloc(1, sizeof(trainc_emu)));
  if (device)
    device->limit = uint64_t(1) << 31;
  return device;
}

void trainc_emu_destroy(trainc_emu *device) {
  if (!device)
    return;
  while (device->modules.size)
    trainc_emu_unload(device->modules[device->modules.size - 1]);
  while (device->regions.size)
    removeRegion(*device, device->regions.size - 1);
  for (size_t i = 0; i < device->stacks.size; ++i)
    munmap(device->stacks[i] - 4096, kStackBytes + 4096);
  for (Thread &thread : device->threads)
    thread.copies.release();
  releasePages(device->sharedRegion);
  free(device->shared);
  free(device->initialized);
  free(device->pending);
  device->stacks.release();
  device->freeStacks.release();
  device->regions.release();
  device->modules.release();
  device->launch.order.release();
  device->launch.starts.release();
  device->launch.releases.release();
  device->launch.acquired.release();
  device->launch.stores.release();
  device->launch.late.release();
  free(device);
}

void trainc_emu_set_seed(trainc_emu *device, uint64_t seed) {
  device->seed = seed;
}

void trainc_emu_set_limit(trainc_emu *device, uint64_t accesses) {
  device->limit = accesses;
}

void trainc_emu_set_late_stores(trainc_emu *device, int late) {
  device->lateStores = late != 0;
}

const char *trainc_emu_report(const trainc_emu *device) {
  return device->report;
}

void trainc_emu_get_counts(const trainc_emu *device,
                           trainc_emu_counts *out_counts) {
  *out_counts = device->counts;
}

//===----------------------------------------------------------------------===//
// Allocations
//===----------------------------------------------------------------------===//

trainc_emu_status trainc_emu_register(trainc_emu *device, void *address,
                                      size_t bytes, const char *name) {
  uintptr_t base = reinterpret_cast<uintptr_t>(address);
  if (!address || bytes == 0 || base + bytes < base)
    return refuse(*device, TRAINC_EMU_BAD_ARGUMENT,
                  "allocation '%s' has no bytes", name);
  for (size_t i = 0; i < device->regions.size; ++i) {
    const Region &region = device->regions[i];
    if (base < region.base + region.bytes && region.base < base + bytes)
      return refuse(*device, TRAINC_EMU_BAD_ARGUMENT,
                    "allocation '%s' overlaps '%s'", name, region.name);
  }
  if (!addRegion(*device, base, bytes, name, RegionKind::Allocation, false,
                 nullptr))
    return refuse(*device, TRAINC_EMU_OUT_OF_MEMORY,
                  "no memory to register allocation '%s'", name);
  return TRAINC_EMU_OK;
}

trainc_emu_status trainc_emu_unregister(trainc_emu *device, void *address) {
  for (size_t i = 0; i < device->regions.size; ++i)
    if (device->regions[i].base == reinterpret_cast<uintptr_t>(address) &&
        device->regions[i].kind == RegionKind::Allocation) {
      removeRegion(*device, i);
      return TRAINC_EMU_OK;
    }
  return refuse(*device, TRAINC_EMU_BAD_ARGUMENT, "no allocation begins at %p",
                address);
}

//===----------------------------------------------------------------------===//
// Images
//===----------------------------------------------------------------------===//

/// Opens a shared library that lies in memory, and the file that holds it. Its name
/// has the file's number, and two of one name would be the same library: the file
/// stays open as long as the library.
static void *openImage(trainc_emu &device, const void *bytes, size_t size,
                       int &file) {
  file = memfd_create("trainc-emulator-image", MFD_CLOEXEC);
  const char *rest = static_cast<const char *>(bytes);
  size_t left = size;
  while (file >= 0 && left) {
    ssize_t written = write(file, rest, left);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0) {
      close(file);
      file = -1;
      break;
    }
    rest += written;
    left -= static_cast<size_t>(written);
  }
  if (file < 0) {
    refuse(device, TRAINC_EMU_OUT_OF_MEMORY, "no memory for an image: %s",
           strerror(errno));
    return nullptr;
  }
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    refuse(device, TRAINC_EMU_BAD_IMAGE, "not an image: %s", dlerror());
    close(file);
  }
  return handle;
}

trainc_emu_status trainc_emu_load(trainc_emu *device, const void *image,
                                  size_t bytes,
                                  trainc_emu_module **out_module) {
  *out_module = nullptr;
  int file;
  void *handle = openImage(*device, image, bytes, file);
  if (!handle)
    return device->status;
  const trainc_emu_image *tables =
      static_cast<const trainc_emu_image *>(dlsym(handle, "trainc_emu_image"));
  uint32_t functions = 0;
#define TRAINC_EMU_FUNCTION(name, signature) ++functions;
#define TRAINC_EMU_MATH(name, signature) ++functions;
#include "trainc/Target/GPU/emulator_abi.def"
  if (!tables || tables->version != TRAINC_EMU_ABI_VERSION ||
      tables->function_count != functions) {
    if (tables)
      refuse(*device, TRAINC_EMU_BAD_IMAGE,
             "an image of version %u with %u functions; this emulator is of "
             "version %u and has %u",
             tables->version, tables->function_count, TRAINC_EMU_ABI_VERSION,
             functions);
    else
      refuse(*device, TRAINC_EMU_BAD_IMAGE,
             "not an image: it does not export trainc_emu_image");
    dlclose(handle);
    close(file);
    return device->status;
  }
  trainc_emu_module *module =
      static_cast<trainc_emu_module *>(calloc(1, sizeof(trainc_emu_module)));
  bool good = module && device->modules.push(module);
  if (good) {
    *module = {device, handle, file, tables};
    *tables->table = trainc_emu_table;
    for (uint32_t i = 0; i < tables->global_count && good; ++i) {
      const trainc_emu_variable &variable = tables->globals[i];
      good = addRegion(*device, reinterpret_cast<uintptr_t>(variable.address),
                       variable.bytes, variable.name, RegionKind::Variable,
                       variable.constant != 0, module);
    }
    if (good) {
      *out_module = module;
      return TRAINC_EMU_OK;
    }
    trainc_emu_unload(module);
  } else {
    free(module);
    dlclose(handle);
    close(file);
  }
  return refuse(*device, TRAINC_EMU_OUT_OF_MEMORY, "no memory for an image");
}

void trainc_emu_unload(trainc_emu_module *module) {
  trainc_emu &device = *module->device;
  for (size_t i = device.regions.size; i-- > 0;)
    if (device.regions[i].owner == module)
      removeRegion(device, i);
  for (size_t i = 0; i < device.modules.size; ++i)
    if (device.modules[i] == module) {
      device.modules[i] = device.modules[device.modules.size - 1];
      --device.modules.size;
      break;
    }
  dlclose(module->handle);
  close(module->file);
  free(module);
}

const trainc_emu_image *trainc_emu_get_image(const trainc_emu_module *module) {
  return module->image;
}

const trainc_emu_kernel *trainc_emu_find(const trainc_emu_module *module,
                                         const char *name) {
  for (uint32_t i = 0; i < module->image->kernel_count; ++i)
    if (!strcmp(module->image->kernels[i].name, name))
      return &module->image->kernels[i];
  return nullptr;
}
