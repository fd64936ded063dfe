//===- device.cpp - A GPU: context, memory, streams, images ---------------===//

#include "cuda/device.h"
#include "comm/waiting.h"

using namespace trainc;
using namespace trainc::cuda;

//===----------------------------------------------------------------------===//
// Contexts
//===----------------------------------------------------------------------===//

Current::Current(const Device &device) : driver(*device.driver) {
  CUresult pushed = driver.cuCtxPushCurrent(device.context);
  result =
      pushed == CUDA_SUCCESS ? TRAINC_OK : failCall("cuCtxPushCurrent", pushed);
}

Current::~Current() {
  CUcontext context;
  if (result == TRAINC_OK)
    driver.cuCtxPopCurrent(&context);
}

static trainc_status readFacts(Device &device) {
  const Driver &driver = *device.driver;
  size_t memory = 0;
  TRAINC_CU(driver, cuDeviceGet, &device.handle, device.ordinal);
  TRAINC_CU(driver, cuDeviceGetName, device.name,
            static_cast<int>(sizeof(device.name)), device.handle);
  TRAINC_CU(driver, cuDeviceGetAttribute, &device.major,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device.handle);
  TRAINC_CU(driver, cuDeviceGetAttribute, &device.minor,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device.handle);
  TRAINC_CU(driver, cuDeviceGetAttribute, &device.processors,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device.handle);
  TRAINC_CU(driver, cuDeviceTotalMem, &memory, device.handle);
  device.memory = memory;
  TRAINC_CU(driver, cuDevicePrimaryCtxRetain, &device.context, device.handle);
  return TRAINC_OK;
}

static trainc_status prepareCopies(Device &device) {
  TRAINC_TRY(createStream(device, &device.copies));
  for (int i = 0; i < 2; ++i) {
    TRAINC_TRY(allocatePinned(device, pieceBytes, &device.pieces[i]));
    TRAINC_TRY(createEvent(device, &device.pieceDone[i]));
  }
  return TRAINC_OK;
}

trainc_status trainc::cuda::openDevice(int ordinal, Device **out_device) {
  *out_device = nullptr;
  const Driver *driver;
  TRAINC_TRY(openDriver(&driver));
  if (ordinal < 0 || ordinal >= driver->devices)
    return fail(TRAINC_INVALID_ARGUMENT,
                "there is no CUDA device %d: the driver has %d of them",
                ordinal, driver->devices);
  auto *device = create<Device>();
  device->driver = driver;
  device->ordinal = ordinal;
  trainc_status status = readFacts(*device);
  if (status == TRAINC_OK)
    status = prepareCopies(*device);
  if (status != TRAINC_OK) {
    closeDevice(device);
    return status;
  }
  *out_device = device;
  return TRAINC_OK;
}

void trainc::cuda::closeDevice(Device *device) {
  if (device && device->context) {
    for (int i = 0; i < 2; ++i) {
      destroyEvent(*device, device->pieceDone[i]);
      releasePinned(*device, device->pieces[i]);
    }
    destroyStream(*device, device->copies);
    device->driver->cuDevicePrimaryCtxRelease(device->handle);
  }
  destroy(device);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static double mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

trainc_status trainc::cuda::allocate(const Device &device, uint64_t bytes,
                                     CUdeviceptr *out_address) {
  *out_address = 0;
  if (bytes == 0)
    return TRAINC_OK;
  Current current(device);
  TRAINC_TRY(current.status());
  const Driver &driver = *device.driver;
  CUresult result = driver.cuMemAlloc(out_address, bytes);
  if (result == CUDA_SUCCESS)
    return TRAINC_OK;
  size_t left = 0, total = 0;
  if (result != CUDA_ERROR_OUT_OF_MEMORY ||
      driver.cuMemGetInfo(&left, &total) != CUDA_SUCCESS)
    return failCall("cuMemAlloc", result);
  return fail(TRAINC_OUT_OF_MEMORY,
              "no memory for %.1f MiB on CUDA device %d (%s): %.1f of %.1f MiB "
              "are free",
              mebibytes(bytes), device.ordinal, device.name, mebibytes(left),
              mebibytes(total));
}

void trainc::cuda::release(const Device &device, CUdeviceptr address) {
  Current current(device);
  if (address && current.status() == TRAINC_OK)
    device.driver->cuMemFree(address);
}

trainc_status trainc::cuda::allocatePinned(const Device &device, uint64_t bytes,
                                           void **out_address) {
  *out_address = nullptr;
  Current current(device);
  TRAINC_TRY(current.status());
  TRAINC_CU(*device.driver, cuMemHostAlloc, out_address, bytes,
            CU_MEMHOSTALLOC_PORTABLE);
  return TRAINC_OK;
}

void trainc::cuda::releasePinned(const Device &device, void *address) {
  Current current(device);
  if (address && current.status() == TRAINC_OK)
    device.driver->cuMemFreeHost(address);
}

static trainc_status waitForPiece(Device &device, int piece) {
  return waitFor(device, device.pieceDone[piece], pieceSeconds,
                 "a copy between it and the host");
}

trainc_status trainc::cuda::upload(Device &device, CUdeviceptr to,
                                   const void *from, uint64_t bytes) {
  Current current(device);
  TRAINC_TRY(current.status());
  int piece = 0;
  for (uint64_t at = 0; at < bytes; at += pieceBytes, piece ^= 1) {
    uint64_t count = bytes - at < pieceBytes ? bytes - at : pieceBytes;
    // An event that nobody recorded is done.
    TRAINC_TRY(waitForPiece(device, piece));
    memcpy(device.pieces[piece], static_cast<const char *>(from) + at, count);
    TRAINC_CU(*device.driver, cuMemcpyHtoDAsync, to + at, device.pieces[piece],
              count, device.copies);
    TRAINC_CU(*device.driver, cuEventRecord, device.pieceDone[piece],
              device.copies);
  }
  TRAINC_TRY(waitForPiece(device, 0));
  return waitForPiece(device, 1);
}

trainc_status trainc::cuda::download(Device &device, void *to, CUdeviceptr from,
                                     uint64_t bytes) {
  Current current(device);
  TRAINC_TRY(current.status());
  uint64_t pieces = (bytes + pieceBytes - 1) / pieceBytes;
  auto sizeOf = [&](uint64_t i) {
    return i + 1 < pieces ? pieceBytes : bytes - i * pieceBytes;
  };
  // Piece i is on its way while piece i - 1 is copied out.
  for (uint64_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      TRAINC_CU(*device.driver, cuMemcpyDtoHAsync, device.pieces[i % 2],
                from + i * pieceBytes, sizeOf(i), device.copies);
      TRAINC_CU(*device.driver, cuEventRecord, device.pieceDone[i % 2],
                device.copies);
    }
    if (i > 0) {
      TRAINC_TRY(waitForPiece(device, (i - 1) % 2));
      memcpy(static_cast<char *>(to) + (i - 1) * pieceBytes,
             device.pieces[(i - 1) % 2], sizeOf(i - 1));
    }
  }
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

trainc_status trainc::cuda::createStream(const Device &device,
                                         CUstream *out_stream) {
  *out_stream = nullptr;
  Current current(device);
  TRAINC_TRY(current.status());
  TRAINC_CU(*device.driver, cuStreamCreate, out_stream, CU_STREAM_NON_BLOCKING);
  return TRAINC_OK;
}

trainc_status trainc::cuda::createEvent(const Device &device,
                                        CUevent *out_event) {
  *out_event = nullptr;
  Current current(device);
  TRAINC_TRY(current.status());
  TRAINC_CU(*device.driver, cuEventCreate, out_event, CU_EVENT_DISABLE_TIMING);
  return TRAINC_OK;
}

void trainc::cuda::destroyStream(const Device &device, CUstream stream) {
  Current current(device);
  if (stream && current.status() == TRAINC_OK)
    device.driver->cuStreamDestroy(stream);
}

void trainc::cuda::destroyEvent(const Device &device, CUevent event) {
  Current current(device);
  if (event && current.status() == TRAINC_OK)
    device.driver->cuEventDestroy(event);
}

/// Asks `query` until it is ready: at first all the time, then in pauses that grow
/// with the wait, to at most a millisecond.
template <typename Query>
static trainc_status poll(const Device &device, double seconds,
                          const char *what, const char *call, Query query) {
  Current current(device);
  TRAINC_TRY(current.status());
  // A step is asked for over and over: who sleeps too long leaves the device idle.
  constexpr uint64_t spinNs = 2 * msNs;
  uint64_t begin = nowNs();
  for (;;) {
    // The time is taken before the answer: a late look is not a late device.
    uint64_t passed = nowNs() - begin;
    CUresult result = query();
    if (result == CUDA_SUCCESS)
      return TRAINC_OK;
    if (result != CUDA_ERROR_NOT_READY) {
      trainc_status status = failCall(call, result);
      return fail(status, "CUDA device %d (%s) failed: %s", device.ordinal,
                  device.name, trainc_last_error());
    }
    if (static_cast<double>(passed) >= seconds * static_cast<double>(secondNs))
      return fail(TRAINC_DEVICE_FAILED,
                  "CUDA device %d (%s) did not end %s within %g seconds",
                  device.ordinal, device.name, what, seconds);
    if (passed > spinNs)
      sleepNs(passed / 64 < msNs ? passed / 64 : msNs);
  }
}

trainc_status trainc::cuda::waitFor(const Device &device, CUevent event,
                                    double seconds, const char *what) {
  return poll(device, seconds, what, "cuEventQuery",
              [&] { return device.driver->cuEventQuery(event); });
}

trainc_status trainc::cuda::waitFor(const Device &device, CUstream stream,
                                    double seconds, const char *what) {
  return poll(device, seconds, what, "cuStreamQuery",
              [&] { return device.driver->cuStreamQuery(stream); });
}

//===----------------------------------------------------------------------===//
// Images and kernels
//===----------------------------------------------------------------------===//

const trainc_image *trainc::cuda::chooseImage(const trainc_image *images,
                                              uint32_t count, int major,
                                              int minor, bool emulated) {
  auto capability = static_cast<uint32_t>(10 * major + minor);
  auto rank = [&](const trainc_image &image) -> int {
    switch (image.kind) {
    case TRAINC_IMAGE_HOST:
      return emulated ? 3 : 0;
    case TRAINC_IMAGE_CUBIN:
      return image.arch / 10 == capability / 10 && image.arch <= capability ? 2
                                                                            : 0;
    case TRAINC_IMAGE_PTX:
      return image.arch <= capability ? 1 : 0;
    }
    return 0;
  };
  const trainc_image *best = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    int mine = rank(images[i]), other = best ? rank(*best) : 0;
    if (mine > other || (best && mine == other && images[i].arch > best->arch))
      best = &images[i];
  }
  return best;
}

/// Appends "sm_80, sm_90, PTX of sm_100".
static void appendImages(Text &text, const trainc_image *images,
                         uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const char *separator = i ? ", " : "";
    if (images[i].kind == TRAINC_IMAGE_HOST)
      text.format("%sthe emulator", separator);
    else
      text.format("%s%ssm_%u", separator,
                  images[i].kind == TRAINC_IMAGE_PTX ? "PTX of " : "",
                  images[i].arch);
  }
}

/// Whether a driver runs what a toolkit has made: cubins of its major release, PTX of
/// its own and older ones.
static bool knows(const Driver &driver, const trainc_image &image) {
  auto version = static_cast<uint32_t>(driver.version);
  return image.kind == TRAINC_IMAGE_CUBIN
             ? image.toolkit / 1000 <= version / 1000
             : image.toolkit <= version;
}

/// The first driver of a major release of CUDA, as NVIDIA numbers drivers.
static unsigned firstDriver(uint32_t major) {
  return major <= 11 ? 450 : major == 12 ? 525 : major == 13 ? 580 : 0;
}

/// Fails because the toolkit that made the image is newer than the driver.
static trainc_status failToolkit(const Device &device,
                                 const trainc_image &image) {
  uint32_t major = image.toolkit / 1000, minor = image.toolkit % 1000 / 10;
  int driver = device.driver->version;
  Text held, needed;
  appendImages(held, &image, 1);
  if (unsigned first = firstDriver(major))
    needed.format(" (%u or later)", first);
  return fail(TRAINC_UNSUPPORTED,
              "CUDA device %d (%s, sm_%d%d): the image for %s was made by a "
              "toolkit of CUDA %u.%u, and the driver is of CUDA %d.%d: expects "
              "a driver of CUDA %u.%u%s, or an artifact made by a toolkit of "
              "CUDA %d",
              device.ordinal, device.name, device.major, device.minor,
              held.c_str(), major, minor, driver / 1000, driver % 1000 / 10,
              major, image.kind == TRAINC_IMAGE_PTX ? minor : 0, needed.c_str(),
              driver / 1000);
}

trainc_status trainc::cuda::loadImage(const Device &device,
                                      const trainc_image *images,
                                      uint32_t count, CUmodule *out_module) {
  *out_module = nullptr;
  const Driver &driver = *device.driver;
  const trainc_image *image =
      chooseImage(images, count, device.major, device.minor, driver.emulated);
  if (!image) {
    Text held;
    appendImages(held, images, count);
    return fail(TRAINC_UNSUPPORTED,
                "CUDA device %d (%s, sm_%d%d) runs none of the artifact's "
                "images: %s",
                device.ordinal, device.name, device.major, device.minor,
                held.size() ? held.c_str() : "it has none");
  }
  // The emulator stands for a driver that would take another one.
  const trainc_image *real =
      chooseImage(images, count, device.major, device.minor, false);
  if (real && !knows(driver, *real))
    return failToolkit(device, *real);
  // The driver takes PTX as a text that ends with a 0.
  Text text;
  const void *data = image->data;
  if (image->kind == TRAINC_IMAGE_PTX) {
    text.append(static_cast<const char *>(image->data), image->bytes);
    data = text.c_str();
  }
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log))};
  Current current(device);
  TRAINC_TRY(current.status());
  CUresult result =
      driver.cuModuleLoadDataEx(out_module, data, 2, options, values);
  if (result == CUDA_SUCCESS)
    return TRAINC_OK;
  trainc_status status = failCall("cuModuleLoadDataEx", result);
  Text held;
  appendImages(held, image, 1);
  log[sizeof(log) - 1] = 0;
  return fail(status,
              "CUDA device %d (%s, sm_%d%d, driver of CUDA %d.%d) refuses the "
              "image for %s: %s%s%s",
              device.ordinal, device.name, device.major, device.minor,
              driver.version / 1000, driver.version % 1000 / 10, held.c_str(),
              trainc_last_error(), *log ? "\n" : "", log);
}

void trainc::cuda::unloadImage(const Device &device, CUmodule module) {
  Current current(device);
  if (module && current.status() == TRAINC_OK)
    device.driver->cuModuleUnload(module);
}

trainc_status trainc::cuda::findKernel(const Device &device, CUmodule module,
                                       const trainc_kernel &kernel,
                                       CUfunction *out_function) {
  *out_function = nullptr;
  const Driver &driver = *device.driver;
  Current current(device);
  TRAINC_TRY(current.status());
  CUresult result =
      driver.cuModuleGetFunction(out_function, module, kernel.name);
  if (result == CUDA_ERROR_NOT_FOUND)
    return fail(TRAINC_DATA_CORRUPT, "the image has no kernel '%s'",
                kernel.name);
  if (result != CUDA_SUCCESS)
    return failCall("cuModuleGetFunction", result);
  int most = 0;
  TRAINC_CU(driver, cuFuncGetAttribute, &most,
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *out_function);
  if (kernel.threads == 0 || kernel.threads > static_cast<uint32_t>(most))
    return fail(TRAINC_UNSUPPORTED,
                "kernel '%s' has blocks of %u threads; CUDA device %d (%s) "
                "runs at most %d of them",
                kernel.name, kernel.threads, device.ordinal, device.name, most);
  return TRAINC_OK;
}
