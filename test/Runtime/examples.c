// The example programs train a library on .npy files.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cc -std=c11 -w -O1 -fno-math-errno -shared -nostdlib -fPIC -DLIBRARY -I%runtime_include -I%S/Inputs %s -o step.so
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o data
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include %S/../../examples/c/train.c %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o train
// RUN: %cxx -std=c++17 -Wall -Wextra -Werror -I%runtime_include %S/../../examples/cpp/train.cpp %runtime_lib/libtrainc_runtime.a -ldl -pthread -o train++
// RUN: ./data
// RUN: ./train step.so x.npy y.npy | tee c.txt | FileCheck %s
// RUN: mv trained.safetensors c.safetensors
// RUN: ./train++ step.so x.npy y.npy > cpp.txt
// RUN: cmp c.txt cpp.txt
// RUN: cmp c.safetensors trained.safetensors
// RUN: not ./train step.so y.npy x.npy 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not ./train++ absent.so x.npy y.npy 2>&1 | FileCheck %s --check-prefix=ABSENT
//
// CHECK: step 0 loss {{[1-9]}}
// CHECK: step 1999 loss 0.0
// TYPE: train: cannot read 'y.npy' as a .npy file of <f4
// ABSENT: train: cannot open './absent.so': No such file or directory

#include "handmade.h"

#ifdef LIBRARY
// The symbol has the name of the type, which C cannot say directly.
extern const trainc_descriptor exported __asm__("trainc_descriptor")
    __attribute__((alias("trainc_descriptor_handmade"), visibility("default")));
#else

enum { BATCHES = 4 };

static void write_npy(const char *path, const char *type, const char *shape,
                      const void *data, size_t bytes) {
  char header[128];
  memset(header, ' ', sizeof header);
  memcpy(header, "\x93NUMPY\1\0\x76\0", 10);
  header[10 + snprintf(header + 10, 100,
                       "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                       type, shape)] = ' ';
  header[127] = '\n';
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(header, 1, sizeof header, file) == sizeof header &&
        fwrite(data, 1, bytes, file) == bytes);
  fclose(file);
}

int main(void) {
  static float x[BATCHES][ROWS * FEATURES];
  static int32_t y[BATCHES][ROWS];
  for (unsigned i = 0; i < BATCHES; ++i)
    make_batch(i, x[i], y[i]);
  write_npy("x.npy", "<f4", "(128, 24)", x, sizeof x);
  write_npy("y.npy", "<i4", "(128,)", y, sizeof y);
  return 0;
}
#endif
