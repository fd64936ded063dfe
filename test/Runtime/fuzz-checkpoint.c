// Mutated checkpoints: no crash, no hang, no leak, and a refused one changes
// nothing. The runtime is compiled with sanitizers. Arguments: count, seed.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cc -std=c11 -Wall -Wextra -Werror -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime_sanitized.a -lm -ldl -pthread -o fuzz
// RUN: ./fuzz 4000 1 | FileCheck %s
// CHECK: seed 1
// CHECK: {{[0-9]+}} accepted, {{[0-9]+}} refused

#define _GNU_SOURCE
#include "handmade.h"

static uint64_t random_state;
static uint64_t next_random(void) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return random_state >> 33;
}
static long below(long limit) {
  return limit > 0 ? (long)(next_random() % (uint64_t)limit) : 0;
}

static const char *const pieces[] = {"\"",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ":",
                                     ",",
                                     "\\",
                                     "\\u0000",
                                     "\\ud83d\\ude00",
                                     "-1",
                                     "0",
                                     "18446744073709551616",
                                     "9223372036854775807",
                                     "4294967296",
                                     "null",
                                     "\"F64\"",
                                     "\"BF16\"",
                                     "\"U64\"",
                                     "\"__metadata__\":{},",
                                     " ",
                                     "\n",
                                     "\x80",
                                     "fc.weight",
                                     "scalar/micro_step",
                                     "gradient/fc.bias"};

/// Changes `data` (with room for more) in place; returns its new size. Most
/// changes fall into the header.
static long mutate(char *data, long size) {
  uint64_t header;
  memcpy(&header, data, 8);
  long place = below(8) ? 8 + below((long)header) : below(size);
  const char *piece = pieces[below(sizeof pieces / sizeof pieces[0])];
  long length = (long)strlen(piece), from, count;
  switch (below(9)) {
  case 0: // a bit
    data[place] ^= (char)(1 << below(8));
    return size;
  case 1: // a byte
    data[place] = (char)next_random();
    return size;
  case 2: // a digit
    while (place < size - 1 && (data[place] < '0' || data[place] > '9'))
      ++place;
    data[place] = (char)('0' + below(10));
    return size;
  case 3: // a piece over what is there
    if (place + length <= size)
      memcpy(data + place, piece, (size_t)length);
    return size;
  case 4: // a piece between, the header's length following
    memmove(data + place + length, data + place, (size_t)(size - place));
    memcpy(data + place, piece, (size_t)length);
    header += (uint64_t)length;
    memcpy(data, &header, 8);
    return size + length;
  case 5: // something gone, the header's length following
    count = 1 + below(20);
    if (place < 8 || place + count > size)
      return size;
    memmove(data + place, data + place + count, (size_t)(size - place - count));
    header -= (uint64_t)count;
    memcpy(data, &header, 8);
    return size - count;
  case 6: // the end gone
    return below(4) ? size : below(size);
  case 7: // a part copied elsewhere
    count = 1 + below(60);
    from = 8 + below((long)header);
    if (from + count <= size && place + count <= size)
      memmove(data + place, data + from, (size_t)count);
    return size;
  default: // another length of the header
    if (below(4) == 0) {
      header = below(2) ? next_random() << 32 | next_random()
                        : header + (uint64_t)below(64) - 32;
      memcpy(data, &header, 8);
    }
    return size;
  }
}

int main(int argc, char **argv) {
  long count = argc > 1 ? atol(argv[1]) : 1000;
  random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  printf("seed %llu\n", (unsigned long long)random_state);
  trainc_artifact *artifact = open_handmade();
  trainc_trainer *source = make_trainer(artifact, 1, 1);
  trainc_trainer *target = make_trainer(artifact, 1, 2);
  trainc_trainer *same = make_trainer(artifact, 1, 2);
  run_steps(source, 0, 4);
  OK(trainc_set_metadata(source, "position", "4"));
  OK(trainc_save(source, "valid.safetensors"));
  char *valid;
  long valid_size, accepted = 0;
  file_bytes("valid.safetensors", &valid, &valid_size);
  char *data = malloc((size_t)valid_size + 4096);
  char *checksum = memmem(valid, (size_t)valid_size, "trainc.checksum", 15);
  CHECK(checksum);
  for (long i = 0; i < count; ++i) {
    long size = valid_size;
    // Without a checksum, as older files are, in seven of eight.
    memcpy(checksum, i % 8 ? "before" : "trainc", 6);
    memcpy(data, valid, (size_t)size);
    for (long n = 1 + below(4); n > 0 && size > 8; --n) {
      uint64_t header;
      memcpy(&header, data, 8);
      if (header > (uint64_t)size - 8)
        break;
      size = mutate(data, size);
    }
    write_bytes("mutant.safetensors", data, size);

    trainc_tensor_file *file;
    trainc_tensor_view view;
    uint64_t sum = 0;
    if (trainc_tensor_file_open("mutant.safetensors", &file) == TRAINC_OK) {
      for (uint64_t k = 0; k < trainc_tensor_file_count(file); ++k) {
        OK(trainc_tensor_file_get(file, k, &view));
        OK(trainc_tensor_file_find(file, view.name, &view));
        for (uint64_t b = 0; b < view.bytes; ++b)
          sum += ((const unsigned char *)view.data)[b];
      }
      trainc_tensor_file_close(file);
    }
    CHECK(sum < UINT64_MAX);
    if (trainc_load(target, "mutant.safetensors") == TRAINC_OK) {
      if (accepted++ % 32 == 0) { // a save waits for the disk
        OK(trainc_save(target, "again.safetensors"));
        OK(trainc_load(target, "again.safetensors"));
      }
      run_steps(target, 0, 1);
      trainc_trainer_destroy(target);
      target = make_trainer(artifact, 1, 2);
    } else {
      CHECK(trainc_last_error()[0] && same_state(target, same));
    }
  }
  printf("%ld accepted, %ld refused\n", accepted, count - accepted);
  free(valid);
  free(data);
  trainc_trainer_destroy(source);
  trainc_trainer_destroy(target);
  trainc_trainer_destroy(same);
  trainc_artifact_close(artifact);
  return 0;
}
