// A driver knows what toolkits of its major release have made, and PTX of its own release and those before. What the
// emulator would run is refused with it, as a real driver of that release would.
//
// RUN: trainc-emulate %S/Inputs/step.mlir -o %t.image
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%trainc_src/runtime/src -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_DRIVER=12040 %t %t.image | FileCheck %s --check-prefix=OLDER
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_DRIVER=13000 %t %t.image | FileCheck %s --check-prefix=SAME
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_FAKE_CUDA_DRIVER=13020 %t %t.image | FileCheck %s --check-prefix=NEWER

#include "device.h"

// OLDER: cubin of 12.8: TRAINC_OK
// OLDER: cubin of 13.1: TRAINC_UNSUPPORTED, CUDA device 0 (emulated GPU, sm_90): the image for sm_90 was made by a toolkit of CUDA 13.1, and the driver is of CUDA 12.4: expects a driver of CUDA 13.0 (580 or later), or an artifact made by a toolkit of CUDA 12
// OLDER: PTX of 12.4: TRAINC_OK
// OLDER: PTX of 12.8: TRAINC_UNSUPPORTED, CUDA device 0 (emulated GPU, sm_90): the image for PTX of sm_80 was made by a toolkit of CUDA 12.8, and the driver is of CUDA 12.4: expects a driver of CUDA 12.8 (525 or later), or an artifact made by a toolkit of CUDA 12
// SAME: cubin of 12.8: TRAINC_OK
// SAME: cubin of 13.1: TRAINC_OK
// SAME: PTX of 12.4: TRAINC_OK
// SAME: PTX of 13.1: TRAINC_UNSUPPORTED, {{.*}} expects a driver of CUDA 13.1
// NEWER-NOT: TRAINC_UNSUPPORTED
int main(int, char **argv) {
  Device *device;
  OK(openDevice(0, &device));
  std::string code = readFile(argv[1]);
  for (trainc_image_kind kind : {TRAINC_IMAGE_CUBIN, TRAINC_IMAGE_PTX})
    for (uint32_t toolkit : {12040, 12080, 13010}) {
      trainc_image images[] = {
          image(TRAINC_IMAGE_HOST, 0, code),
          image(kind, kind == TRAINC_IMAGE_PTX ? 80 : 90, code)};
      images[1].toolkit = toolkit;
      CUmodule module;
      trainc_status status = loadImage(*device, images, 2, &module);
      printf("%s of %u.%u: %s%s%s\n",
             kind == TRAINC_IMAGE_PTX ? "PTX" : "cubin", toolkit / 1000,
             toolkit % 1000 / 10, trainc_status_name(status),
             status ? ", " : "", status ? trainc_last_error() : "");
      unloadImage(*device, module);
    }
  closeDevice(device);
}
