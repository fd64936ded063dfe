//===- images.cpp - Images and launches of the driver of tests ------------===//

#include "calls.h"
#include <elf.h>

using namespace trainc;
using namespace trainc::cuda;

/// Bytes of a shared library for this machine, 0 if it is something else.
static size_t imageBytes(const void *image) {
  Elf64_Ehdr header;
  if (memcmp(image, ELFMAG, SELFMAG))
    return 0;
  memcpy(&header, image, sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64)
    return 0;
  size_t end = header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
  const char *segments = static_cast<const char *>(image) + header.e_phoff;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    memcpy(&segment, segments + i * sizeof(segment), sizeof(segment));
    if (segment.p_offset + segment.p_filesz > end)
      end = segment.p_offset + segment.p_filesz;
  }
  return end;
}

CUresult trainc::cuda::cuModuleLoadDataEx(CUmodule *module, const void *image,
                                          unsigned count, CUjit_option *options,
                                          void **values) {
  Lock lock;
  CHECK(checkContext());
  CHECK(checkNoCapture("cuModuleLoadDataEx"));
  NEED(count == 0 || (options && values), CUDA_ERROR_INVALID_VALUE,
       "options without values");
  const char *text = static_cast<const char *>(image);
  NEED(strncmp(text, ".version", 8) != 0, CUDA_ERROR_NO_BINARY_FOR_GPU,
       "the image is not for the emulator, but %zu bytes of PTX", strlen(text));
  size_t bytes = imageBytes(image);
  NEED(bytes, CUDA_ERROR_NO_BINARY_FOR_GPU,
       "the image is not for the emulator");
  trainc_emu_module *loaded;
  NEED(trainc_emu_load(current()->emulator, image, bytes, &loaded) ==
           TRAINC_EMU_OK,
       CUDA_ERROR_INVALID_IMAGE, "%s", trainc_emu_report(current()->emulator));
  *module = fake.modules.make();
  **module = {current(), loaded};
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuModuleUnload(CUmodule module) {
  Lock lock;
  NEED(current(), CUDA_ERROR_INVALID_CONTEXT, "the thread has no context");
  CHECK(checkNoCapture("cuModuleUnload"));
  NEED(fake.modules.has(module) && module->context == current(),
       CUDA_ERROR_INVALID_HANDLE, "not a module of this context");
  finishAll();
  for (size_t i = fake.functions.objects.size(); i-- > 0;)
    if (fake.functions.objects[i]->module == module)
      fake.functions.drop(fake.functions.objects[i]);
  trainc_emu_unload(module->module);
  fake.modules.drop(module);
  return current()->failed;
}

CUresult trainc::cuda::cuModuleGetFunction(CUfunction *function,
                                           CUmodule module, const char *name) {
  Lock lock;
  CHECK(checkContext());
  NEED(fake.modules.has(module) && module->context == current(),
       CUDA_ERROR_INVALID_HANDLE, "not a module of this context");
  const trainc_emu_kernel *kernel = trainc_emu_find(module->module, name);
  NEED(kernel, CUDA_ERROR_NOT_FOUND, "the image has no kernel '%s'", name);
  for (CUfunction one : fake.functions.objects)
    if (one->kernel == kernel && one->module == module) {
      *function = one;
      return CUDA_SUCCESS;
    }
  *function = fake.functions.make();
  **function = {module, kernel};
  return CUDA_SUCCESS;
}

static uint32_t maxThreads(const trainc_emu_kernel &kernel) {
  return kernel.max_threads ? kernel.max_threads : 1024;
}

CUresult trainc::cuda::cuFuncGetAttribute(int *value,
                                          CUfunction_attribute attribute,
                                          CUfunction function) {
  Lock lock;
  CHECK(checkContext());
  NEED(fake.functions.has(function), CUDA_ERROR_INVALID_HANDLE,
       "not a function");
  NEED(attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
       CUDA_ERROR_INVALID_VALUE, "an attribute without a value");
  *value = static_cast<int>(maxThreads(*function->kernel));
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuLaunchKernel(CUfunction function, unsigned gridX,
                                      unsigned gridY, unsigned gridZ,
                                      unsigned blockX, unsigned blockY,
                                      unsigned blockZ, unsigned sharedBytes,
                                      CUstream stream, void **arguments,
                                      void **extra) {
  Lock lock;
  CHECK(checkStream(stream));
  NEED(fake.functions.has(function), CUDA_ERROR_INVALID_HANDLE,
       "not a function");
  const trainc_emu_kernel &kernel = *function->kernel;
  NEED(function->module->context == current(), CUDA_ERROR_INVALID_HANDLE,
       "launch of '%s', of another context", kernel.name);
  NEED(gridX && gridY && gridZ && gridX <= 0x7fffffff && gridY <= 0xffff &&
           gridZ <= 0xffff,
       CUDA_ERROR_INVALID_VALUE, "launch of '%s' with a grid of %u x %u x %u",
       kernel.name, gridX, gridY, gridZ);
  uint64_t threads = uint64_t(blockX) * blockY * blockZ;
  const uint32_t *required = kernel.required_block;
  NEED(threads && threads <= maxThreads(kernel) && blockZ <= 64 &&
           (!required[0] || (blockX == required[0] && blockY == required[1] &&
                             blockZ == required[2])),
       CUDA_ERROR_INVALID_VALUE, "launch of '%s' with a block of %u x %u x %u",
       kernel.name, blockX, blockY, blockZ);
  NEED(uint64_t(kernel.shared_bytes) + sharedBytes <= 48 << 10 &&
           (!sharedBytes || kernel.dynamic_shared),
       CUDA_ERROR_INVALID_VALUE,
       "launch of '%s' with %u bytes of shared memory", kernel.name,
       sharedBytes);
  NEED(!extra && (arguments || !kernel.parameter_count),
       CUDA_ERROR_INVALID_VALUE, "launch of '%s' without arguments",
       kernel.name);
  NEED(!failsBySetting("launch", ++fake.launched), CUDA_ERROR_NOT_SUPPORTED,
       "launch of '%s'", kernel.name);
  Work work = {};
  work.kind = Work::Launch;
  work.function = function;
  const uint32_t grid[] = {gridX, gridY, gridZ};
  const uint32_t block[] = {blockX, blockY, blockZ};
  memcpy(work.grid, grid, sizeof(grid));
  memcpy(work.block, block, sizeof(block));
  work.sharedBytes = sharedBytes;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < kernel.parameter_count; ++i)
    bytes += (kernel.parameter_bytes[i] + 15) / 16 * 16;
  work.arguments = static_cast<char *>(reallocate(nullptr, bytes));
  char *at = work.arguments;
  for (uint32_t i = 0; i < kernel.parameter_count; ++i) {
    memcpy(at, arguments[i], kernel.parameter_bytes[i]);
    at += (kernel.parameter_bytes[i] + 15) / 16 * 16;
  }
  enqueue(stream, work);
  return CUDA_SUCCESS;
}
