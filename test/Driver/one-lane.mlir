// Each workgroup of this attention stores every other bf16 number: one lane of a vector, of which LLVM 22 would store 32
// bits. What is checked by --check-workgroups needs AVX-512 on the machine that tests; the code does not.
//
// RUN: trainc %s --emit=obj -o %t.o --target-cpu=x86-64-v4
// RUN: llvm-objdump -d --no-show-raw-insn %t.o | FileCheck %s
// RUN: trainc %s -o %t.so && trainc-run %t.so --check-workgroups 1

// CHECK: <k_packed_attention
// CHECK: {{vpextrw|movw}} {{.*}}, {{.*}}(%r
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<5x16x4xf32> init(normal<1.0>) optimizer(@sgd)

train.step @step() precision(compute = bf16) {
  %w = train.read @w : tensor<5x16x4xf32>
  %o, %lse = nn.packed_attention %w heads 2 kv_heads 1 causal : tensor<5x16x4xf32>
  %sum = nn.reduce sum %o dims [0, 1, 2] : tensor<5x16x2xf32>
  train.yield loss(%sum) : tensor<f32>
}
