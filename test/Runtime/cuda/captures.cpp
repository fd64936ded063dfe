// A list whose capture fails, or that the driver makes no graph of, is launched command by command from then on: the same
// bits, and a notice. A launch that fails outside of a capture is an error.
//
// RUN: trainc-emulate %S/Inputs/step.mlir -o %t.image
// RUN: %cxx -std=c++20 -O1 -ffp-contract=off -Wall -Wextra -Werror -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// DEFINE: %{run} = TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so %t %t.image
// RUN: env %{run} | FileCheck %s --check-prefix=GOOD
// RUN: env TRAINC_FAKE_CUDA_FAIL=endcapture %{run} | FileCheck %s --check-prefixes=PLAIN,END
// RUN: env TRAINC_FAKE_CUDA_FAIL=instantiate %{run} | FileCheck %s --check-prefixes=PLAIN,MAKE
// RUN: env TRAINC_FAKE_CUDA_FAIL=endcapture:2,instantiate:1 %{run} | FileCheck %s --check-prefixes=PLAIN,MAKE
// RUN: env TRAINC_FAKE_CUDA_FAIL=launch:2 %{run} | FileCheck %s --check-prefix=LAUNCH

#include "step.h"

// GOOD: no notice
// PLAIN: notice: the commands of cuda:0 (emulated GPU, sm_90) cannot be one graph, and are launched one by one:
// END-SAME: cuStreamEndCapture: the end of the capture (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
// MAKE-SAME: cuGraphInstantiate: a graph of {{.*}} (CUDA_ERROR_NOT_SUPPORTED)
// LAUNCH: TRAINC_DEVICE_FAILED, launch of {{.*}}: cuLaunchKernel: {{.*}} (CUDA_ERROR_NOT_SUPPORTED)
int main(int, char **argv) {
  Tables tables(argv[1]);
  trainc_artifact *artifact = tables.open(tables.gpu);
  {
    Trainer cpu(artifact, "cpu"), gpu(artifact, "cuda");
    for (unsigned i = 0; i < 4 * WINDOW; ++i) {
      gpu.fill(i);
      trainc_step_result b;
      if (trainc_status status = trainc_step(gpu.t, STEP, &b)) {
        printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
        return 0;
      }
      trainc_step_result a = cpu.step(i);
      CHECK(sameResult(a, b));
    }
    CHECK(sameState(cpu, gpu));
    const char *notice = trainc_trainer_notice(gpu.t);
    printf("%s%s\n", notice ? "notice: " : "no notice", notice ? notice : "");
  }
  trainc_artifact_close(artifact);
}
