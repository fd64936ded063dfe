// NCCL itself has every function that the runtime calls, and is new enough. No GPU is
// needed for that.
//
// REQUIRES: nccl-library
// RUN: %cxx -std=c++20 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBNCCL=%nccl_library %t | FileCheck %s

#include "cuda/nccl_library.h"
#include <stdio.h>

using namespace trainc::cuda;

int main() {
  const Nccl *nccl = nullptr;
  // CHECK: {{^}}0
  // CHECK-NEXT: version 2{{[0-9]+}}
  // CHECK-NEXT: invalid usage
  printf("%d %s\n", trainc::cuda::openNccl(&nccl), trainc_last_error());
  if (!nccl)
    return 1;
  printf("version %d\n", nccl->version);
  printf("%s\n", nccl->ncclGetErrorString(ncclInvalidUsage));
  return nccl->version < ncclOldest;
}
