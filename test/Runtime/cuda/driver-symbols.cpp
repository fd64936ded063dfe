// The toolkit's stand-in for the driver has every function that the runtime calls;
// it is no driver.
//
// REQUIRES: cuda-stub
// RUN: %cxx -std=c++20 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%cuda_stub %t | FileCheck %s

#include "cuda/driver.h"

int main() {
  const trainc::cuda::Driver *driver;
  // CHECK: {{^}}8 no CUDA driver: '{{.*}}libcuda.so' is the toolkit's stand-in for linking
  int status = trainc::cuda::openDriver(&driver);
  printf("%d %s\n", status, trainc_last_error());
  return driver != nullptr;
}
