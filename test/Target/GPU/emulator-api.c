// The emulator's C API: images, allocations, launches, what it refuses. The header
// compiles alone as C11.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%trainc_src/test/Equipment/include -I%trainc_src/include %s -L%runtime_lib -Wl,-rpath,%runtime_lib -ltrainc_emulator -o %t
// RUN: trainc-emulate %S/Inputs/kernels.mlir -o %t.so
// RUN: %cc -shared -fPIC -x c /dev/null -o %t.other.so
// RUN: %t %t.so %t.other.so | FileCheck %s

#include "trainc/emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file)
    exit(2);
  char *bytes = malloc(1 << 20);
  *size = fread(bytes, 1, 1 << 20, file);
  fclose(file);
  return bytes;
}

static void show(const char *what, trainc_emu_status status,
                 const trainc_emu *device) {
  printf("%s: %d %s\n", what, (int)status,
         status ? trainc_emu_report(device) : "");
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  trainc_emu *device = trainc_emu_create();
  trainc_emu_module *module = NULL, *second = NULL;
  size_t size, other_size;
  char *image = read_file(argv[1], &size);
  char *other = read_file(argv[2], &other_size);

  // CHECK: text: 2 not an image:
  show("text", trainc_emu_load(device, "text", 4, &module), device);
  // CHECK: other: 2 not an image: it does not export trainc_emu_image
  show("other", trainc_emu_load(device, other, other_size, &module), device);
  // CHECK: image: 0
  show("image", trainc_emu_load(device, image, size, &module), device);
  // CHECK: again: 0
  show("again", trainc_emu_load(device, image, size, &second), device);
  // Two images at a time are two libraries.
  // CHECK: tables apart: yes
  printf("tables apart: %s\n",
         trainc_emu_get_image(module) != trainc_emu_get_image(second) ? "yes"
                                                                      : "no");
  memset(image, 0, size);
  free(image);
  free(other);

  // CHECK: elementwise 3 parameters of 8 8 4 bytes, 0 shared, 0 threads
  // CHECK: block_sum 2 parameters of 8 8 bytes, 32 shared, 256 threads
  // CHECK: matmul 3 parameters of 8 8 8 bytes, 2048 shared, 256 threads
  // CHECK: tensor 3 parameters of 8 8 8 bytes, 768 shared, 0 threads
  const trainc_emu_image *tables = trainc_emu_get_image(module);
  for (uint32_t i = 0; i < tables->kernel_count; ++i) {
    const trainc_emu_kernel *kernel = &tables->kernels[i];
    printf("%s %u parameters of", kernel->name, kernel->parameter_count);
    for (uint32_t j = 0; j < kernel->parameter_count; ++j)
      printf(" %u", kernel->parameter_bytes[j]);
    printf(" bytes, %u shared, %u threads\n", kernel->shared_bytes,
           kernel->max_threads);
  }
  // CHECK: nothing: none
  printf("nothing: %s\n",
         trainc_emu_find(module, "nothing") ? "found" : "none");

  float *x = aligned_alloc(256, 4096), *y = aligned_alloc(256, 4096), s = 2;
  for (int i = 0; i < 1024; ++i)
    x[i] = 0;
  // CHECK: x: 0
  show("x", trainc_emu_register(device, x, 4096, "x"), device);
  // CHECK: overlap: 1 allocation 'inner' overlaps 'x'
  show("overlap", trainc_emu_register(device, x + 1000, 4096, "inner"), device);
  // CHECK: empty: 1 allocation 'empty' has no bytes
  show("empty", trainc_emu_register(device, y, 0, "empty"), device);

  const trainc_emu_kernel *kernel = trainc_emu_find(module, "elementwise");
  uint32_t grid[3] = {4, 1, 1}, block[3] = {64, 1, 1}, none[3] = {0, 1, 1};
  void *arguments[] = {&x, &y, &s};
  // CHECK: no blocks: 1 kernel elementwise: a grid has 1 to 2^31-1 blocks
  show("no blocks",
       trainc_emu_launch(device, module, kernel, none, block, 0, arguments),
       device);
  // CHECK: unregistered: 10 access outside of every allocation
  show("unregistered",
       trainc_emu_launch(device, module, kernel, grid, block, 0, arguments),
       device);
  // CHECK: y: 0
  show("y", trainc_emu_register(device, y, 4096, "y"), device);
  // After a fault the device goes on.
  // CHECK: launch: 0
  show("launch",
       trainc_emu_launch(device, module, kernel, grid, block, 0, arguments),
       device);
  // CHECK: 1 1
  printf("%g %g\n", (double)y[0], (double)y[1023]);
  // CHECK: unregister: 0
  show("unregister", trainc_emu_unregister(device, y), device);
  // CHECK: twice: 1 no allocation begins at
  show("twice", trainc_emu_unregister(device, y), device);
  // CHECK: gone: 10
  show("gone",
       trainc_emu_launch(device, module, kernel, grid, block, 0, arguments),
       device);
  // CHECK: second: 10
  trainc_emu_unload(module);
  show("second",
       trainc_emu_launch(device, second, trainc_emu_find(second, "elementwise"),
                         grid, block, 0, arguments),
       device);
  trainc_emu_counts counts;
  trainc_emu_get_counts(device, &counts);
  // CHECK: 4 launches
  printf("%llu launches\n", (unsigned long long)counts.launches);
  trainc_emu_destroy(device);
  trainc_emu_destroy(NULL);
  free(x);
  free(y);
  return 0;
}
