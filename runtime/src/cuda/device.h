//===- device.h - A GPU: context, memory, streams, images -------*- C++ -*-===//
#ifndef TRAINC_CUDA_DEVICE_H
#define TRAINC_CUDA_DEVICE_H

#include "cuda/driver.h"
#include "trainc/step_abi.h"

namespace trainc::cuda {

/// Copies between a GPU and ordinary memory go through two pinned pieces of this
/// size: one is filled while the other one is on its way.
constexpr uint64_t pieceBytes = 4 << 20;

/// How long the device may take for such a piece.
constexpr double pieceSeconds = 60;

/// A GPU and its primary context. Calls about one device come from one thread at a
/// time, which may be another one each time: they make the context current
/// themselves, and leave the thread's own context as it was.
struct Device {
  const Driver *driver = nullptr;
  int ordinal = 0;
  CUdevice handle = 0;
  CUcontext context = nullptr;
  char name[128] = "";
  int major = 0, minor = 0; // compute capability
  int processors = 0;       // streaming multiprocessors
  uint64_t memory = 0;

  // For upload and download; made at open.
  CUstream copies = nullptr;
  void *pieces[2] = {};
  CUevent pieceDone[2] = {};
};

/// Opens device `ordinal`. TRAINC_UNSUPPORTED without a driver or a device,
/// TRAINC_INVALID_ARGUMENT if there are devices, but not that many.
trainc_status openDevice(int ordinal, Device **out_device);

/// All that was made with the device must be gone. Null is allowed.
void closeDevice(Device *device);

/// The device's context is current while this lives.
class Current {
public:
  explicit Current(const Device &device);
  ~Current();
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;

  /// Not TRAINC_OK: the context could not be made current.
  trainc_status status() const { return result; }

private:
  const Driver &driver;
  trainc_status result;
};

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Memory of the device, aligned to 256 bytes, of undefined content. No bytes: 0.
trainc_status allocate(const Device &device, uint64_t bytes,
                       CUdeviceptr *out_address);
/// Waits for all work of the device. 0 is allowed.
void release(const Device &device, CUdeviceptr address);

/// Memory of the host that the device copies from and to by itself.
trainc_status allocatePinned(const Device &device, uint64_t bytes,
                             void **out_address);
/// Null is allowed.
void releasePinned(const Device &device, void *address);

/// Copies from and to any memory of the host, and waits. Work on other streams that
/// uses the bytes must be done.
trainc_status upload(Device &device, CUdeviceptr to, const void *from,
                     uint64_t bytes);
trainc_status download(Device &device, void *to, CUdeviceptr from,
                       uint64_t bytes);

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

/// A stream that does not wait for the default one.
trainc_status createStream(const Device &device, CUstream *out_stream);
/// An event without a time.
trainc_status createEvent(const Device &device, CUevent *out_event);
/// Null is allowed.
void destroyStream(const Device &device, CUstream stream);
void destroyEvent(const Device &device, CUevent event);

/// Waits until all work before the event's last record, or all work of the stream, is
/// done. TRAINC_DEVICE_FAILED if that takes longer than `seconds`, or if any work of
/// the context failed; the error says that it was `what` that was waited for.
trainc_status waitFor(const Device &device, CUevent event, double seconds,
                      const char *what);
trainc_status waitFor(const Device &device, CUstream stream, double seconds,
                      const char *what);

//===----------------------------------------------------------------------===//
// Images and kernels
//===----------------------------------------------------------------------===//

/// The image for a device of compute capability major.minor: HOST if the device is
/// emulated and there is one; else the newest CUBIN of its major, not above its
/// minor; else the newest PTX that is not above it. Null if none fits.
const trainc_image *chooseImage(const trainc_image *images, uint32_t count,
                                int major, int minor, bool emulated);

/// Loads the image that fits; PTX is compiled by the driver. TRAINC_UNSUPPORTED if
/// there is none for this device.
trainc_status loadImage(const Device &device, const trainc_image *images,
                        uint32_t count, CUmodule *out_module);
/// Null is allowed.
void unloadImage(const Device &device, CUmodule module);

/// Finds a kernel of the artifact in its image, and checks that the device can run
/// its blocks.
trainc_status findKernel(const Device &device, CUmodule module,
                         const trainc_kernel &kernel, CUfunction *out_function);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_DEVICE_H
