// Saving and loading: bitwise resume, lists of differences, conversion, folders of
// checkpoints, damaged files.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && %t | FileCheck %s

#include "handmade.h"
#include <unistd.h>

#define EXPECT(call, status)                                                   \
  do {                                                                         \
    CHECK((call) == (status));                                                 \
    printf("%s: %s\n", trainc_status_name(status), trainc_last_error());       \
  } while (0)

/// 20 micro-steps (6 updates and 2 of a window) against 10 + save + load + 10.
static void test_resume(trainc_artifact *a) {
  trainc_trainer *whole = make_trainer(a, 2, 1), *first = make_trainer(a, 1, 1);
  run_steps(whole, 0, 20);
  run_steps(first, 0, 10);
  OK(trainc_set_metadata(first, "position", "old"));
  OK(trainc_set_metadata(first, "position", "10 \"of\" 20\n"));
  OK(trainc_set_metadata(first, "gone", "x"));
  OK(trainc_set_metadata(first, "gone", NULL));
  OK(trainc_set_scalar(first, "lr", 0.1));
  OK(trainc_save(first, "ten.safetensors"));
  trainc_trainer_destroy(first);

  trainc_trainer *second = make_trainer(a, 3, 999);
  const char *position;
  OK(trainc_load(second, "ten.safetensors"));
  OK(trainc_get_metadata(second, "position", &position));
  CHECK(strcmp(position, "10 \"of\" 20\n") == 0);
  CHECK(trainc_get_metadata(second, "gone", &position) == TRAINC_NOT_FOUND);
  run_steps(second, 10, 20);
  CHECK(same_state(whole, second));
  OK(trainc_save(whole, "a.safetensors"));
  OK(trainc_set_metadata(second, "position", NULL));
  OK(trainc_save(second, "b.safetensors"));
  char *a_data, *b_data;
  long a_size, b_size;
  file_bytes("a.safetensors", &a_data, &a_size);
  file_bytes("b.safetensors", &b_data, &b_size);
  CHECK(a_size == b_size && memcmp(a_data, b_data, (size_t)a_size) == 0);
  free(a_data), free(b_data);

  // A flush may follow a load, before any input is bound.
  trainc_trainer *third = make_trainer(a, 1, 5);
  OK(trainc_load(third, "a.safetensors"));
  OK(trainc_flush(third, NULL));
  OK(trainc_flush(whole, NULL));
  CHECK(same_state(whole, third));
  OK(trainc_save(third, "closed.safetensors"));

  trainc_tensor_file *file;
  trainc_tensor_view view;
  const char *format;
  OK(trainc_tensor_file_open("a.safetensors", &file));
  OK(trainc_tensor_file_find(file, "optimizer/fc.weight/m", &view));
  CHECK(view.dtype == TRAINC_F32 && view.rank == 2 && view.dims[0] == FEATURES);
  OK(trainc_tensor_file_find(file, "gradient/fc.bias", &view));
  OK(trainc_tensor_file_find(file, "table", &view));
  CHECK(view.dtype == TRAINC_F16 && strcmp(view.dtype_name, "F16") == 0);
  OK(trainc_tensor_file_metadata(file, "trainc.format", &format));
  printf("format %s, %d tensors\n", format,
         (int)trainc_tensor_file_count(file));
  // CHECK: format 1, 19 tensors
  CHECK(trainc_tensor_file_find(file, "none", &view) == TRAINC_NOT_FOUND);
  trainc_tensor_file_close(file);
  trainc_trainer_destroy(whole);
  trainc_trainer_destroy(second);
  trainc_trainer_destroy(third);
}

/// Writes a safetensors file with this header and `bytes` zero bytes.
static void write_file(const char *path, const char *json, long bytes) {
  uint64_t size = strlen(json);
  char *data = calloc(1, 8 + size + (size_t)bytes);
  memcpy(data, &size, 8);
  memcpy(data + 8, json, size);
  write_bytes(path, data, (long)(8 + size) + bytes);
  free(data);
}

static void test_differences(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 2), *same = make_trainer(a, 1, 2);
  write_file("other.safetensors",
             "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[10,24],"
             "\"data_offsets\":[0,960]},"
             "\"fc.bias\":{\"dtype\":\"I32\",\"shape\":[10],"
             "\"data_offsets\":[960,1000]},"
             "\"extra\":{\"dtype\":\"U64\",\"shape\":[],"
             "\"data_offsets\":[1000,1008]}}",
             1008);
  EXPECT(trainc_load(t, "other.safetensors"), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: 'other.safetensors' does not fit artifact 'handmade':
  // CHECK-DAG: missing: 'scalar/update'
  // CHECK-DAG: missing: 'scalar/lr'
  // CHECK-DAG: missing: 'optimizer/fc.weight/m'
  // CHECK-DAG: mis-shaped: 'fc.weight' is 10x24xf32, expected 24x10xf32
  // CHECK-DAG: mis-shaped: 'fc.bias' is 10xi32, expected 10xf32
  // CHECK-DAG: missing: 'steps'
  // CHECK-DAG: unexpected: 'extra'
  EXPECT(trainc_load_parameters(t, "other.safetensors"), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: 'other.safetensors' does not fit
  // CHECK-NEXT: mis-shaped: 'fc.weight'
  // CHECK-NEXT: mis-shaped: 'fc.bias'
  // CHECK-NEXT: missing: 'table'
  CHECK(same_state(t, same));

  // Parameters alone, from other types, and nothing else changes.
  write_file("init.safetensors",
             "{\"fc.weight\":{\"dtype\":\"F64\",\"shape\":[24,10],"
             "\"data_offsets\":[0,1920]},"
             "\"fc.bias\":{\"dtype\":\"BF16\",\"shape\":[10],"
             "\"data_offsets\":[1920,1940]},"
             "\"x\":{\"dtype\":\"U8\",\"shape\":[4],"
             "\"data_offsets\":[1944,1948]},"
             "\"table\":{\"dtype\":\"F32\",\"shape\":[2],"
             "\"data_offsets\":[1940,1944]}}",
             1948);
  EXPECT(trainc_load_parameters(t, "init.safetensors"), TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: 'init.safetensors' is damaged: tensor 'table': data_offsets do not fit dtype and shape
  write_file("init.safetensors",
             "{\"fc.weight\":{\"dtype\":\"F64\",\"shape\":[24,10],"
             "\"data_offsets\":[0,1920]},"
             "\"fc.bias\":{\"dtype\":\"BF16\",\"shape\":[10],"
             "\"data_offsets\":[1920,1940]},"
             "\"x\":{\"dtype\":\"U8\",\"shape\":[4],"
             "\"data_offsets\":[1948,1952]},"
             "\"table\":{\"dtype\":\"F32\",\"shape\":[2],"
             "\"data_offsets\":[1940,1948]}}",
             1952);
  OK(trainc_load_parameters(t, "init.safetensors"));
  float weight[WEIGHTS], momentum[CLASSES];
  uint16_t copy[WEIGHTS];
  OK(trainc_tensor_read(t, 0, TRAINC_F32, weight, sizeof weight));
  OK(trainc_tensor_read(t, 2, TRAINC_BF16, copy, sizeof copy));
  OK(trainc_tensor_read(t, 7, TRAINC_F32, momentum, sizeof momentum));
  CHECK(weight[7] == 0 && copy[7] == 0 && momentum[3] == 0.25f);
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(same);
}

/// A window of another length cannot be gone on with.
static void test_window(trainc_artifact *a) {
  trainc_entry changed[2] = {entries[0], entries[1]};
  changed[0].accumulate = 1;
  trainc_descriptor d = trainc_descriptor_handmade;
  d.entries = changed;
  trainc_artifact *single;
  OK(trainc_artifact_open_descriptor(&d, &single));
  trainc_trainer *t = make_trainer(single, 1, 0);
  EXPECT(trainc_load(t, "a.safetensors"), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: 'a.safetensors' is 2 micro-steps into a window of 'step'; artifact 'handmade' has no such step with more
  OK(trainc_load(t, "closed.safetensors"));
  trainc_trainer_destroy(t);
  trainc_artifact_close(single);
  (void)a;
}

static void list(const char *directory) {
  char command[256];
  fflush(stdout);
  snprintf(command, sizeof command, "LC_ALL=C ls -A %s | tr '\\n' ' '; echo",
           directory);
  CHECK(system(command) == 0);
}

static void test_folder(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 3), *loaded = make_trainer(a, 1, 4);
  const char *path;
  EXPECT(trainc_load(loaded, "run"), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: cannot open 'run': No such file or directory
  for (unsigned i = 0; i < 4; ++i) {
    run_steps(t, i * 3, i * 3 + 3);
    OK(trainc_save_checkpoint(t, "run", 2, &path));
    puts(path);
  }
  // CHECK: run/step-000001.safetensors
  // CHECK: run/step-000004.safetensors
  run_steps(t, 12, 13);
  OK(trainc_save_checkpoint(t, "run", 2, NULL));
  write_bytes("run/.step-000005.safetensors.tmp", "half", 4);
  list("run");
  // CHECK: .step-000005.safetensors.tmp latest step-000004-1.safetensors step-000004.safetensors
  OK(trainc_load(loaded, "run"));
  CHECK(same_state(t, loaded));
  // Going back: the newest by time is never removed, nor what is not ours.
  trainc_trainer *back = make_trainer(a, 1, 3);
  write_bytes("run/step-x.safetensors", "mine", 4);
  OK(trainc_save_checkpoint(back, "run", 1, NULL));
  list("run");
  // CHECK: latest step-000000.safetensors step-x.safetensors
  OK(trainc_load(loaded, "run"));
  CHECK(same_state(back, loaded));
  write_bytes("run/latest", "../a.safetensors\n", 17);
  EXPECT(trainc_load(loaded, "run"), TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: 'run/latest' names no checkpoint
  EXPECT(trainc_save_checkpoint(back, "a.safetensors", 1, NULL),
         TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'a.safetensors' is not a folder
  EXPECT(trainc_save(back, "absent/a.safetensors"), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: cannot create 'absent/.a.safetensors.tmp': No such file or directory
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(loaded);
  trainc_trainer_destroy(back);
}

/// Every truncation of a checkpoint is noticed, and leaves the state alone.
static void test_truncation(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 6), *same = make_trainer(a, 1, 6);
  char *data;
  long size;
  file_bytes("a.safetensors", &data, &size);
  for (long cut = 0; cut < size; cut += cut < 64 ? 1 : 37) {
    write_bytes("cut.safetensors", data, cut);
    CHECK(trainc_load(t, "cut.safetensors") == TRAINC_DATA_CORRUPT);
  }
  CHECK(same_state(t, same));
  EXPECT(trainc_load(t, "cut.safetensors"), TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: 'cut.safetensors' is damaged: the file has {{[0-9]+}} bytes of data, its tensors need {{[0-9]+}}
  free(data);
  static const char *const bad[] = {
      "",
      "{",
      "[]",
      "{}x",
      "{\"a\":1}",
      "{\"a\":{}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}",
      "{\"a\":{\"dtype\":\"F99\",\"shape\":[],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967297],"
      "\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}",
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
      "{\"\\u0000\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
      "{\"\\ud800\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
      "{\"__metadata__\":{\"a\":1}}",
      "{\"__metadata__\":{},\"__metadata__\":{}}"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    write_file("bad.safetensors", bad[i], 4);
    EXPECT(trainc_load(t, "bad.safetensors"), TRAINC_DATA_CORRUPT);
  }
  // CHECK: header byte 0: expected '{'
  // CHECK: tensor 'a' has unknown dtype 'F99'
  // CHECK: expected a whole number
  // CHECK: tensor 'b' overlaps another
  // CHECK: two tensors are named 'a'
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(same);
}

int main(void) {
  trainc_artifact *artifact = open_handmade();
  test_resume(artifact);
  test_differences(artifact);
  test_window(artifact);
  test_folder(artifact);
  test_truncation(artifact);
  trainc_artifact_close(artifact);
  puts("done");
  // CHECK: done
  return 0;
}
