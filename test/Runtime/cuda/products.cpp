// Products of matrices by cuBLASLt, on the driver and the cuBLASLt of tests: shapes,
// types, batches, epilogues, plans that are shared, graphs, what is refused; nothing is
// left behind.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -x c -I%trainc_src/test/Equipment/include -I%trainc_src/include %trainc_src/test/Equipment/include/trainc/fake_cublaslt.h
// RUN: %cxx -std=c++20 -O1 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%trainc_src/test/Equipment/include -I%trainc_src/include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_fake_cublaslt -ltrainc_fake_cuda -lm -ldl -pthread -o %t
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUDA_ARCH=80 %t all
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so %t refuse | FileCheck %s
// RUN: echo | trainc-opt --train-lower-kernels-to-gpu=epilogues=trainc_epilogue_f32,trainc_epilogue_f64,trainc_epilogue_bf16,trainc_epilogue_f16,trainc_column_sums_f32_f32,trainc_column_sums_f64_f64,trainc_column_sums_bf16_bf16,trainc_column_sums_f16_f16,trainc_column_sums_bf16_f32,trainc_column_sums_f16_f32 | sed -n '/^  gpu.module/,/^  }/p;/^#/p' > %t.mlir
// RUN: trainc-emulate %t.mlir -o %t.image
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUBLASLT_REFUSE=all %t apart %t.image | FileCheck --check-prefix=APART %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUBLASLT_REFUSE=bgrada,gelu_aux_bias,dgelu_bgrad %t apart %t.image | FileCheck --check-prefix=APART %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so %t memory | FileCheck --check-prefix=MEMORY %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%t.nothing %t open | FileCheck --check-prefix=MISSING %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cuda.so %t open | FileCheck --check-prefix=OLD %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUBLASLT_FAIL=create %t open | FileCheck --check-prefix=CREATE %s
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUDA_ARCH=86 %t workspace 4
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUDA_ARCH=90 %t workspace 32
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUDA_ARCH=103 %t workspace 32
// RUN: env TRAINC_LIBCUDA=%runtime_lib/libtrainc_fake_cuda.so TRAINC_LIBCUBLASLT=%runtime_lib/libtrainc_fake_cublaslt.so TRAINC_FAKE_CUDA_ARCH=120 %t workspace 12

#include "products.h"
#include "trainc/fake_cublaslt.h"

static trainc_fake_cublaslt_counts libraryCounts() {
  trainc_fake_cublaslt_counts result;
  trainc_fake_cublaslt_get_counts(&result);
  return result;
}

/// A batch is one product, and none where there is nothing to compute.
static void testCounts(Bench &bench) {
  auto products = [&](trainc_gemm_detail g) {
    uint64_t before = libraryCounts().products;
    bench.check(g);
    return libraryCounts().products - before;
  };
  trainc_gemm_detail g = dense(TRAINC_F32, TRAINC_F32, 4, 4, 4);
  CHECK(products(g) == 1);
  g.batch = 10;
  g.stride_a = g.stride_b = g.stride_c = 16;
  CHECK(products(g) == 1);
  CHECK(products(dense(TRAINC_F32, TRAINC_F32, 0, 4, 4)) == 0);
  trainc_gemm_detail none = dense(TRAINC_F32, TRAINC_F32, 4, 4, 4);
  none.batch = 0;
  const Product *product = bench.plan(none);
  uint64_t before = libraryCounts().products;
  const CUdeviceptr nowhere[3] = {};
  OK(runProduct(*bench.products, *product, nowhere, bench.workspace,
                bench.stream));
  CHECK(libraryCounts().products == before);
}

/// Equal products share a plan.
static void testPlans(Bench &bench) {
  trainc_gemm_detail g = dense(TRAINC_BF16, TRAINC_F32, 12, 16, 20, true);
  uint64_t before = libraryCounts().heuristics;
  const Product *first = bench.plan(g);
  CHECK(libraryCounts().heuristics == before + 1);
  g.tile_m = 3; // is for the CPU
  CHECK(bench.plan(g) == first && libraryCounts().heuristics == before + 1);
  CHECK(bench.plan(g, 16) != first);
  g.accumulate = 1;
  CHECK(bench.plan(g) != first);
  g.accumulate = 0;
  g.ldc = 24;
  CHECK(bench.plan(g) != first);
  CHECK(libraryCounts().heuristics == before + 4);
  CHECK(libraryCounts().preferences == 0);
}

/// Operands that are aligned to their elements only.
static void testAlignment(Bench &bench) {
  trainc_operand places[] = {{0, 0, 512, 0, 0, 0}, {0, 0, 48, 0, 0, 0}};
  trainc_command command = {};
  command.operands = places;
  command.num_operands = 1;
  CHECK(productAlignment(command) == 256);
  command.num_operands = 2;
  CHECK(productAlignment(command) == 16);
  places[0].offset = 6;
  CHECK(productAlignment(command) == 2);
  for (Types types : allTypes) {
    trainc_gemm_detail g = dense(types.from, types.to, 8, 8, 8);
    g.has_bias = 1;
    // Matrices of a batch at odd places, too.
    g.batch = 3;
    g.stride_a = 65;
    g.stride_b = 67;
    g.stride_c = 67;
    bench.check(g);
    auto size = static_cast<uint32_t>(trainc_dtype_size(types.from));
    Operands odd(*bench.device, g, 1);
    bench.enqueue(bench.plan(g, size), odd);
    OK(waitFor(*bench.device, bench.stream, 10, "a product"));
    Reference(odd).check();
  }
}

/// A product comes after the stream's work, and before what follows.
static void testOrder(Bench &bench) {
  const Driver &cu = *bench.device->driver;
  trainc_gemm_detail g = dense(TRAINC_F32, TRAINC_F32, 8, 8, 8);
  Operands operands(*bench.device, g);
  const Product *product = bench.plan(g);
  CUstream other;
  CUevent filled, multiplied;
  OK(createStream(*bench.device, &other));
  OK(createEvent(*bench.device, &filled));
  OK(createEvent(*bench.device, &multiplied));
  void *pinned;
  OK(allocatePinned(*bench.device, 256, &pinned));
  auto *out = static_cast<float *>(pinned);
  {
    Current current(*bench.device);
    OK(current.status());
    out[0] = 7;
    OK(cu.cuMemsetD8Async(operands.arguments[0], 0, 256, other));
    OK(cu.cuEventRecord(filled, other));
    OK(cu.cuStreamWaitEvent(bench.stream, filled, 0));
    bench.enqueue(product, operands);
    OK(cu.cuEventRecord(multiplied, bench.stream));
    OK(cu.cuStreamWaitEvent(other, multiplied, 0));
    OK(cu.cuMemcpyDtoHAsync(pinned, operands.arguments[2], 256, other));
  }
  CHECK(out[0] == 7);
  OK(waitFor(*bench.device, other, 10, "a copy"));
  for (int i = 0; i < 64; ++i)
    CHECK(out[i] == 0);
  destroyStream(*bench.device, other);
  destroyEvent(*bench.device, filled);
  destroyEvent(*bench.device, multiplied);
  releasePinned(*bench.device, pinned);
}

/// f32 stays f32, but for a product that asks for TF32.
static void testTF32(Bench &bench) {
  trainc_gemm_detail g = dense(TRAINC_F32, TRAINC_F32, 1, 1, 1);
  for (bool tf32 : {false, true}) {
    g.back_end =
        tf32 ? TRAINC_BACK_END_CUBLASLT_TF32 : TRAINC_BACK_END_CUBLASLT;
    Operands operands(*bench.device, g);
    float a = 1 + 0x1p-20f, b = 3, c;
    OK(upload(*bench.device, operands.arguments[0], &a, sizeof(a)));
    OK(upload(*bench.device, operands.arguments[1], &b, sizeof(b)));
    bench.enqueue(bench.plan(g), operands);
    OK(waitFor(*bench.device, bench.stream, 10, "a product"));
    OK(download(*bench.device, &c, operands.arguments[2], sizeof(c)));
    CHECK(c == (tf32 ? 3 : a * b));
  }
  // Of another type it changes nothing.
  g = dense(TRAINC_F64, TRAINC_F64, 5, 7, 3);
  g.back_end = TRAINC_BACK_END_CUBLASLT_TF32;
  Operands operands(*bench.device, g);
  bench.enqueue(bench.plan(g), operands);
  OK(waitFor(*bench.device, bench.stream, 10, "a product"));
  Reference(operands).check();
}

static void show(trainc_status status) {
  printf("%s, %s\n", trainc_status_name(status), trainc_last_error());
}

static void testRefusals(Bench &bench) {
  auto plan = [&](const trainc_gemm_detail &g) {
    const Product *product;
    show(planProduct(*bench.products, g, &product));
    CHECK(!product);
  };
  const trainc_gemm_detail plain = dense(TRAINC_F32, TRAINC_F32, 12, 8, 3);
  trainc_gemm_detail g = plain;
  g.b_type = TRAINC_BF16;
  g.transpose_a = g.transpose_b = g.accumulate = g.has_bias = 1;
  // CHECK: TRAINC_UNSUPPORTED, CUDA device 0 (emulated GPU, sm_90, cuBLASLt 130000) cannot compute the product 12x8x3 (m x n x k), F32 of F32 and BF16, A transposed, B transposed, accumulating, bias, rows at 3, 8, 8: its types are none that cuBLASLt multiplies
  plan(g);
  g = plain;
  g.c_type = TRAINC_BF16;
  // CHECK: its types are none that cuBLASLt multiplies
  plan(g);
  g = plain;
  g.k = 0;
  // CHECK: 12x8x0 {{.*}}: its sums are of nothing
  plan(g);
  g = plain;
  g.back_end = TRAINC_BACK_END_AMX;
  // CHECK: : its back end is none of GPUs
  plan(g);
  g = plain;
  g.batch = 2;
  // CHECK: , batch 2, {{.*}}: results of its batch overlap
  plan(g);
  g = plain;
  g.epilogue = 3;
  // CHECK: , ?, {{.*}}: it has an unknown epilogue
  plan(g);
  g = plain;
  g.epilogue = TRAINC_EPILOGUE_GELU;
  g.accumulate = 1;
  // CHECK: , accumulating, gelu, {{.*}}: it has an epilogue or a bias gradient, and is a batch or accumulates
  plan(g);
  g = plain;
  g.epilogue = TRAINC_EPILOGUE_GELU_GRAD;
  // CHECK: , gradient of gelu, {{.*}}: its epilogue and its auxiliary matrix do not belong together
  plan(g);
  g.has_aux = g.has_bias = 1;
  // CHECK: , bias, gradient of gelu, auxiliary matrix, {{.*}}: it has a bias, and the gradient of gelu or of a bias
  plan(g);
  g = plain;
  g.has_aux = 1;
  // CHECK: : its epilogue and its auxiliary matrix do not belong together
  plan(g);
  g.epilogue = TRAINC_EPILOGUE_GELU;
  g.ldc = 12;
  // CHECK: , rows at 3, 8, 12: it has an auxiliary matrix with rows of no multiple of 8 elements
  plan(g);
  g = dense(TRAINC_F64, TRAINC_F64, 12, 8, 3);
  g.epilogue = TRAINC_EPILOGUE_GELU;
  // CHECK: , F64 of F64 and F64, {{.*}}: it has an epilogue in f64
  plan(g);
  g = plain;
  g.bias_gradient = TRAINC_BIAS_GRADIENT_A;
  // CHECK: , bias gradient of A, {{.*}}: it has a bias gradient of A, which is not transposed
  plan(g);
  g.transpose_b = 1;
  g.bias_gradient = TRAINC_BIAS_GRADIENT_B;
  // CHECK: , bias gradient of B, {{.*}}: it has a bias gradient of B, which is transposed
  plan(g);
  g.bias_gradient = TRAINC_BIAS_GRADIENT_C;
  // CHECK: , bias gradient of C, {{.*}}: it has a bias gradient of C without the gradient of gelu
  plan(g);
  g.bias_gradient = 4;
  // CHECK: , ?, {{.*}}: it has an unknown bias gradient
  plan(g);
  g.transpose_b = 0;
  g.bias_gradient = TRAINC_BIAS_GRADIENT_B;
  g.epilogue = TRAINC_EPILOGUE_GELU;
  // CHECK: : it has an epilogue and a bias gradient of A or B
  plan(g);

  // What the library itself refuses.
  g = plain;
  g.ldc = 5;
  // CHECK: , rows at 3, 8, 5: cublasLtMatmulAlgoGetHeuristic: D has 8 rows and the leading dimension 5 (CUBLAS_STATUS_INVALID_VALUE)
  plan(g);
  setenv("TRAINC_FAKE_CUBLASLT_FAIL", "heuristic", 1);
  // CHECK: TRAINC_UNSUPPORTED, {{.*}}: cublasLtMatmulAlgoGetHeuristic: no algorithm for this operation (CUBLAS_STATUS_NOT_SUPPORTED)
  plan(plain);
  g = plain;
  g.epilogue = TRAINC_EPILOGUE_GELU;
  // CHECK: TRAINC_UNSUPPORTED, {{.*}}: cublasLtMatmulAlgoGetHeuristic: no algorithm for this operation (CUBLAS_STATUS_NOT_SUPPORTED); apart: the image has no kernel
  plan(g);
  setenv("TRAINC_FAKE_CUBLASLT_FAIL", "empty", 1);
  // CHECK: TRAINC_UNSUPPORTED, {{.*}}: cublasLtMatmulAlgoGetHeuristic: {{.*}}(CUBLAS_STATUS_NOT_SUPPORTED)
  plan(plain);
  unsetenv("TRAINC_FAKE_CUBLASLT_FAIL");
  // Nothing of what failed is left; it can be planned now.
  CHECK(libraryCounts().operations == 0 && libraryCounts().layouts == 0);
  const Product *product;
  OK(planProduct(*bench.products, plain, &product));

  Operands operands(*bench.device, plain, 1);
  // CHECK: TRAINC_INVALID_ARGUMENT, {{.*}} 12x8x3 {{.*}}: operand 0 is at 0x{{.*}}4, but was planned for multiples of 16 bytes
  show(runProduct(*bench.products, *product, operands.arguments.data(),
                  bench.workspace, bench.stream));
  Operands good(*bench.device, plain);
  setenv("TRAINC_FAKE_CUBLASLT_FAIL", "matmul", 1);
  // CHECK: TRAINC_DEVICE_FAILED, {{.*}} 12x8x3 {{.*}}: cublasLtMatmul: a product fails (CUBLAS_STATUS_EXECUTION_FAILED)
  show(runProduct(*bench.products, *product, good.arguments.data(),
                  bench.workspace, bench.stream));
  unsetenv("TRAINC_FAKE_CUBLASLT_FAIL");
  // CHECK: TRAINC_DEVICE_FAILED, {{.*}}: cublasLtMatmul: the workspace at 0x{{.*}} for an algorithm with multiples of 256 bytes
  show(runProduct(*bench.products, *product, good.arguments.data(),
                  bench.workspace + 16, bench.stream));
  CUdeviceptr clash[3] = {good.arguments[0], good.arguments[1],
                          good.arguments[0]};
  // CHECK: TRAINC_DEVICE_FAILED, {{.*}}: cublasLtMatmul: a result overlaps something else
  show(runProduct(*bench.products, *product, clash, bench.workspace,
                  bench.stream));
  CHECK(counts().pending == 0);
}

/// A matrix that ends behind its memory; and, in a graph, one whose memory is gone.
static void testMemory(Bench &bench) {
  const Driver &cu = *bench.device->driver;
  trainc_gemm_detail g = dense(TRAINC_F32, TRAINC_F32, 8, 8, 8);
  Operands operands(*bench.device, g);
  const Product *product = bench.plan(g, 16);
  CUdeviceptr arguments[3] = {operands.arguments[0], operands.arguments[1],
                              operands.arguments[2] + 1024 + 16};
  // MEMORY: TRAINC_DEVICE_FAILED, {{.*}}: cublasLtMatmul: cublasLtMatmul: 256 bytes at 0x{{.*}} are not of one allocation of this context
  show(runProduct(*bench.products, *product, arguments, bench.workspace,
                  bench.stream));
  OK(allocate(*bench.device, 256, &arguments[2]));
  CUgraph graph;
  CUgraphExec executable;
  Current current(*bench.device);
  OK(current.status());
  OK(cu.cuStreamBeginCapture(bench.stream,
                             CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(runProduct(*bench.products, *product, arguments, bench.workspace,
                bench.stream));
  OK(cu.cuStreamEndCapture(bench.stream, &graph));
  OK(cu.cuGraphInstantiate(&executable, graph, 0));
  release(*bench.device, arguments[2]);
  OK(cu.cuGraphLaunch(executable, bench.stream));
  // MEMORY: TRAINC_DEVICE_FAILED, {{.*}}: cublasLtMatmul: memory was freed before it was done
  show(waitFor(*bench.device, bench.stream, 10, "a graph"));
  cu.cuGraphExecDestroy(executable);
  cu.cuGraphDestroy(graph);
}

// MISSING: TRAINC_UNSUPPORTED, no cuBLASLt: {{.*}}.nothing: cannot open
// OLD: TRAINC_UNSUPPORTED, the cuBLASLt '{{.*}}libtrainc_fake_cuda.so' has no cublasLtCreate: it is older than CUDA 12
// CREATE: TRAINC_DEVICE_FAILED, cublasLtCreate: the thread has no context (CUBLAS_STATUS_NOT_INITIALIZED)
static void testOpen() {
  Device *device;
  OK(openDevice(0, &device));
  for (int i = 0; i < 2; ++i) {
    Products *products;
    trainc_status status = openProducts(*device, nullptr, &products);
    CHECK(status && !products);
    if (i)
      show(status);
  }
  closeProducts(nullptr);
  closeDevice(device);
}

int main(int argc, char **argv) {
  std::string what = argc > 1 ? argv[1] : "";
  if (what == "open") {
    testOpen();
  } else if (what == "refuse") {
    Bench bench;
    testRefusals(bench);
  } else if (what == "memory") {
    Bench bench;
    testMemory(bench);
  } else if (what == "workspace" && argc == 3) {
    Bench bench;
    CHECK(workspaceBytes(*bench.products) ==
          static_cast<uint64_t>(atoi(argv[2])) << 20);
  } else if (what == "apart" && argc == 3) {
    // APART: cuBLASLt {{[0-9]+}} has no algorithm for the product {{.*}}: what follows such products is computed by kernels of the artifact
    Bench bench(argv[2]);
    testShapes(bench);
    testBatches(bench);
    testEpilogues(bench);
    testGraph(bench);
    printf("%s\n", noticeOf(*bench.products));
  } else if (what == "all") {
    Bench bench;
    testShapes(bench);
    testBatches(bench);
    testEpilogues(bench);
    testCounts(bench);
    testPlans(bench);
    testAlignment(bench);
    testOrder(bench);
    testTF32(bench);
    testGraph(bench);
  } else {
    return 2;
  }
  trainc_fake_cuda_counts left = counts();
  CHECK(!left.contexts && !left.allocations && !left.streams && !left.events &&
        !left.pending);
  trainc_fake_cublaslt_counts handles = libraryCounts();
  CHECK(!handles.handles && !handles.operations && !handles.layouts &&
        !handles.preferences);
}
