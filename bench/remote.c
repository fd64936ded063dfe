//===- remote.c - A trainer that another process asks -----------------------===//
//
// remote ARTIFACT THREADS SEED: answers requests of remote.py, one line each, with the
// bytes of arrays behind it, in the order of standard input. An answer is a line "ok" with
// numbers, and the bytes that it announces, or "error" and a text.
//
//===----------------------------------------------------------------------===//
#include "trainc/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static trainc_trainer *trainer;
static const trainc_descriptor *d;
/// What is bound is lent, by entry and input.
static void ***bound;

static void *read_bytes(size_t bytes) {
  char *data = malloc(bytes ? bytes : 1);
  if (!data || fread(data, 1, bytes, stdin) != bytes)
    exit(3);
  return data;
}

/// "ok", or the error of a call.
static void answer(trainc_status status) {
  if (status == TRAINC_OK)
    puts("ok");
  else
    printf("error %s: %s\n", trainc_status_name(status), trainc_last_error());
}

static void put_shape(uint32_t rank, const int64_t *dims) {
  for (uint32_t i = 0; i < rank; ++i)
    printf("%s%lld", i ? "x" : "\t", (long long)dims[i]);
  puts(rank ? "" : "\t");
}

static void describe(void) {
  for (uint32_t i = 0; i < d->num_tensors; ++i) {
    const trainc_tensor *t = &d->tensors[i];
    printf("tensor\t%u\t%s\t%s\t%u", t->role, t->name, t->state ? t->state : "",
           t->dtype);
    put_shape(t->rank, t->dims);
  }
  for (uint32_t e = 0; e < d->num_entries; ++e) {
    const trainc_entry *entry = &d->entries[e];
    printf("entry\t%s\t%u\n", entry->name, entry->accumulate);
    for (uint32_t i = 0; i < entry->num_inputs + entry->num_outputs; ++i) {
      const trainc_port *port = i < entry->num_inputs
                                    ? &entry->inputs[i]
                                    : &entry->outputs[i - entry->num_inputs];
      printf("%s\t%s\t%u", i < entry->num_inputs ? "input" : "output",
             port->name, port->dtype);
      put_shape(port->rank, port->dims);
    }
  }
  puts("end");
}

static void bind_input(uint32_t entry, uint32_t input, size_t bytes) {
  free(bound[entry][input]);
  bound[entry][input] = read_bytes(bytes);
  answer(trainc_bind_input(trainer, entry, input, bound[entry][input], bytes));
}

static void write_tensor(uint32_t tensor, uint32_t dtype, size_t bytes) {
  void *data = read_bytes(bytes);
  answer(trainc_tensor_write(trainer, tensor, dtype, data, bytes));
  free(data);
}

static void read_tensor(uint32_t tensor, uint32_t dtype, size_t bytes) {
  char *data = malloc(bytes ? bytes : 1);
  trainc_status status =
      trainc_tensor_read(trainer, tensor, dtype, data, bytes);
  answer(status);
  if (status == TRAINC_OK)
    fwrite(data, 1, bytes, stdout);
  free(data);
}

static void step(uint32_t entry) {
  trainc_step_result r;
  trainc_status status = trainc_step(trainer, entry, &r);
  if (status != TRAINC_OK)
    return answer(status);
  printf("ok %a %a %a %a %a %a %u %u %u\n", r.loss, r.weight, r.window_loss,
         r.window_weight, r.grad_norm, r.clip_factor, r.closed, r.finite,
         r.updated);
}

/// The bytes of all outputs of the last run, one behind the other.
static void put_outputs(uint32_t entry) {
  puts("ok");
  const trainc_entry *e = &d->entries[entry];
  for (uint32_t i = 0; i < e->num_outputs; ++i) {
    void *data = NULL;
    if (trainc_output_data(trainer, entry, i, &data) != TRAINC_OK)
      exit(3);
    fwrite(data, 1, e->outputs[i].bytes, stdout);
  }
}

static void scalar(const char *name) {
  double value;
  trainc_status status = trainc_get_scalar(trainer, name, &value);
  if (status != TRAINC_OK)
    return answer(status);
  printf("ok %a\n", value);
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  trainc_artifact *artifact;
  trainc_trainer_options options = {.size = sizeof options,
                                    .threads = (uint32_t)atoi(argv[2]),
                                    .seed = (uint64_t)atoi(argv[3])};
  if (trainc_artifact_open(argv[1], &artifact) != TRAINC_OK ||
      trainc_trainer_create(artifact, &options, &trainer) != TRAINC_OK) {
    printf("error %s\n", trainc_last_error());
    return 1;
  }
  d = trainc_artifact_descriptor(artifact);
  bound = calloc(d->num_entries, sizeof *bound);
  for (uint32_t e = 0; e < d->num_entries; ++e)
    bound[e] = calloc(d->entries[e].num_inputs + 1, sizeof **bound);
  describe();
  fflush(stdout);
  char line[4096], text[4096];
  uint32_t first, second;
  size_t bytes;
  for (; fgets(line, sizeof line, stdin); fflush(stdout)) {
    if (sscanf(line, "bind %u %u %zu", &first, &second, &bytes) == 3)
      bind_input(first, second, bytes);
    else if (sscanf(line, "write %u %u %zu", &first, &second, &bytes) == 3)
      write_tensor(first, second, bytes);
    else if (sscanf(line, "read %u %u %zu", &first, &second, &bytes) == 3)
      read_tensor(first, second, bytes);
    else if (sscanf(line, "step %u", &first) == 1)
      step(first);
    else if (sscanf(line, "eval %u", &first) == 1)
      answer(trainc_eval(trainer, first));
    else if (sscanf(line, "outputs %u", &first) == 1)
      put_outputs(first);
    else if (sscanf(line, "scalar %4095[^\n]", text) == 1)
      scalar(text);
    else if (sscanf(line, "save %4095[^\n]", text) == 1)
      answer(trainc_save(trainer, text));
    else if (sscanf(line, "load %4095[^\n]", text) == 1)
      answer(trainc_load(trainer, text));
    else
      exit(2);
  }
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
  return 0;
}
