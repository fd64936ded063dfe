//===- steps.c - Runs steps of an artifact --------------------------------===//
//
// steps ARTIFACT THREADS STEPS: on inputs of small numbers; integers are 0. Prints a
// hash of the parameters.
//
//===----------------------------------------------------------------------===//
#include "trainc/runtime.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                               \
  do {                                                                         \
    if ((call) != TRAINC_OK) {                                                 \
      printf("%s: %s\n", #call, trainc_last_error());                          \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

static void *make_input(const trainc_port *port) {
  char *data = calloc(1, port->bytes);
  for (uint64_t i = 0; port->dtype == TRAINC_F32 && i < port->bytes / 4; ++i) {
    float value = (float)(i * 2654435761u % 997) / 997 - 0.5f;
    memcpy(data + 4 * i, &value, 4);
  }
  return data;
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  trainc_artifact *artifact;
  // The library needs ThreadSanitizer's, so the runtime would not load it.
  void *library = dlopen(argv[1], RTLD_NOW);
  void *tables = library ? dlsym(library, "trainc_descriptor") : NULL;
  if (!tables)
    return printf("%s\n", dlerror()), 1;
  OK(trainc_artifact_open_descriptor(tables, &artifact));
  const trainc_descriptor *d = trainc_artifact_descriptor(artifact);
  trainc_trainer_options options = {
      .size = sizeof options, .threads = (uint32_t)atoi(argv[2]), .seed = 3};
  trainc_trainer *trainer;
  OK(trainc_trainer_create(artifact, &options, &trainer));
  uint32_t step = 0;
  while (d->entries[step].kind != TRAINC_ENTRY_STEP)
    ++step;
  const trainc_entry *entry = &d->entries[step];
  void **inputs = calloc(entry->num_inputs + 1, sizeof(void *));
  for (uint32_t i = 0; i < entry->num_inputs; ++i) {
    inputs[i] = make_input(&entry->inputs[i]);
    OK(trainc_bind_input(trainer, step, i, inputs[i], entry->inputs[i].bytes));
  }
  for (int i = 0; i < atoi(argv[3]) * (int)entry->accumulate; ++i)
    OK(trainc_step(trainer, step, NULL));
  uint64_t hash = 14695981039346656037u;
  for (uint32_t i = 0; i < d->num_tensors; ++i) {
    const trainc_tensor *t = &d->tensors[i];
    if (t->role != TRAINC_ROLE_MASTER)
      continue;
    unsigned char *data = malloc(t->bytes);
    OK(trainc_tensor_read(trainer, i, t->dtype, data, t->bytes));
    for (uint64_t k = 0; k < t->bytes; ++k)
      hash = (hash ^ data[k]) * 1099511628211u;
    free(data);
  }
  printf("hash %llx\n", (unsigned long long)hash);
  trainc_trainer_destroy(trainer);
  for (uint32_t i = 0; i < entry->num_inputs; ++i)
    free(inputs[i]);
  free(inputs);
  trainc_artifact_close(artifact);
  return 0;
}
