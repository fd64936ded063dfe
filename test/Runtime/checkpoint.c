// Saving and loading: bitwise resume, lists of differences, conversion, scalars, names.
//
// RUN: %cc -std=gnu11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && %t | FileCheck %s

#include "handmade.h"

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
  // CHECK: format 1, 18 tensors
  CHECK(trainc_tensor_file_find(file, "none", &view) == TRAINC_NOT_FOUND);
  trainc_tensor_file_close(file);
  trainc_trainer_destroy(whole);
  trainc_trainer_destroy(second);
  trainc_trainer_destroy(third);
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

static double scalar(trainc_trainer *t, const char *name) {
  double value;
  OK(trainc_get_scalar(t, name, &value));
  return value;
}

static void show_notice(trainc_trainer *t) {
  const char *notice = trainc_load_notice(t);
  printf("notice: %s\n", notice ? notice : "none");
}

/// The handmade artifact from a source with these numbers.
static trainc_artifact *open_edited(double lr, double clip, double scale) {
  static struct {
    trainc_descriptor d;
    trainc_scalar scalars[NUM_SCALARS];
  } made[8];
  static int count;
  trainc_descriptor *d = &made[count].d;
  trainc_scalar *table = made[count++].scalars;
  memcpy(table, scalars, sizeof scalars);
  table[SCALAR_LR] = (trainc_scalar){"lr", lr, TRAINC_SCALAR_SETTABLE, 0};
  table[TRAINC_SCALAR_CLIP_LIMIT].init = clip;
  table[TRAINC_SCALAR_LOSS_SCALE].init = scale;
  table[TRAINC_SCALAR_LOSS_SCALE].flags = TRAINC_SCALAR_SETTABLE;
  *d = trainc_descriptor_handmade;
  d->scalars = table;
  trainc_artifact *artifact;
  OK(trainc_artifact_open_descriptor(d, &artifact));
  return artifact;
}

/// What was set stays, what was not follows the artifact.
static void test_scalars(void) {
  trainc_artifact *old = open_edited(0.1, 1, 8), *new = open_edited(0.2, 2, 16);
  trainc_trainer *t = make_trainer(old, 1, 1), *u = make_trainer(new, 1, 1);
  OK(trainc_set_scalar(t, "lr", 0.05));
  run_steps(t, 0, 3);
  OK(trainc_save(t, "set.safetensors"));
  OK(trainc_set_scalar(u, "clip_limit", 7));
  OK(trainc_load(u, "set.safetensors"));
  CHECK(scalar(u, "lr") == 0.05 && scalar(u, "clip_limit") == 2 &&
        scalar(u, "loss_scale") == 16);
  show_notice(u);
  // CHECK: notice: scalar 'loss_scale' is 16, as in the artifact; the checkpoint was made with 8
  // CHECK-NEXT: scalar 'clip_limit' is 2, as in the artifact; the checkpoint was made with 1
  // CHECK-NEXT: scalar 'lr' is 0.05, as in the checkpoint; the artifact has 0.2
  // It is still one that was set.
  OK(trainc_set_scalar(u, "clip_limit", 3));
  OK(trainc_save(u, "set.safetensors"));
  OK(trainc_load(t, "set.safetensors"));
  CHECK(scalar(t, "lr") == 0.05 && scalar(t, "clip_limit") == 3 &&
        scalar(t, "loss_scale") == 8);
  OK(trainc_load(u, "set.safetensors"));
  OK(trainc_save(u, "again.safetensors"));
  char *one, *two;
  long sizes[2];
  file_bytes("set.safetensors", &one, &sizes[0]);
  file_bytes("again.safetensors", &two, &sizes[1]);
  CHECK(sizes[0] == sizes[1] && memcmp(one, two, (size_t)sizes[0]) == 0);
  free(one), free(two);
  trainc_trainer_destroy(u);

  // Sums of an open window have been scaled: that scale stays until it is closed.
  trainc_trainer_destroy(t);
  t = make_trainer(old, 1, 1), u = make_trainer(new, 1, 1);
  run_steps(t, 0, 4);
  OK(trainc_save(t, "open.safetensors"));
  OK(trainc_load(u, "open.safetensors"));
  CHECK(scalar(u, "loss_scale") == 8 && scalar(u, "lr") == 0.2);
  show_notice(u);
  // CHECK: notice: scalar 'loss_scale' is 8, as in the checkpoint; the artifact has 16
  run_steps(u, 4, 6);
  OK(trainc_save(u, "closed2.safetensors"));
  OK(trainc_load(u, "closed2.safetensors"));
  CHECK(scalar(u, "loss_scale") == 16);
  OK(trainc_load(t, "open.safetensors"));
  show_notice(t);
  // CHECK: notice: none
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(u);
  trainc_artifact_close(old);
  trainc_artifact_close(new);
}

/// What is no UTF-8 is neither saved nor read; names that a checkpoint cannot have are
/// refused before there is one.
static void test_names(void) {
  trainc_artifact *a = open_handmade();
  trainc_trainer *t = make_trainer(a, 1, 1);
  static const char *const bad[] = {"\x80",         "a\xC0\xAF",
                                    "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                    "\xE2\x82",     "\xFF"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    char json[128];
    CHECK(trainc_set_metadata(t, "key", bad[i]) == TRAINC_INVALID_ARGUMENT);
    CHECK(trainc_set_metadata(t, bad[i], "value") == TRAINC_INVALID_ARGUMENT);
    snprintf(json, sizeof json, "{\"__metadata__\":{\"a\":\"%s\"}}", bad[i]);
    write_file("utf8.safetensors", json, 0);
    trainc_tensor_file *file;
    EXPECT(trainc_tensor_file_open("utf8.safetensors", &file),
           TRAINC_DATA_CORRUPT);
  }
  // CHECK: 'utf8.safetensors' is damaged: header byte 22: expected UTF-8
  // CHECK: 'utf8.safetensors' is damaged: header byte 23: expected UTF-8
  const char *good =
                 "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\x9F\xBF\xEE\x80\x80",
             *value;
  OK(trainc_set_metadata(t, good, good));
  OK(trainc_save(t, "utf8.safetensors"));
  OK(trainc_load(t, "utf8.safetensors"));
  OK(trainc_get_metadata(t, good, &value));
  CHECK(strcmp(value, good) == 0);
  trainc_trainer_destroy(t);
  trainc_artifact_close(a);

  static const char *const names[] = {"__metadata__", "rank/0/x",
                                      "\xFF",         "gradient/fc.weight",
                                      "scalar/lr",    "optimizer/fc.bias/m"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    trainc_tensor changed[NUM_TENSORS];
    memcpy(changed, tensors, sizeof changed);
    changed[8].name = names[i]; // a buffer
    trainc_descriptor d = trainc_descriptor_handmade;
    d.tensors = changed;
    EXPECT(trainc_artifact_open_descriptor(&d, &a), TRAINC_DATA_CORRUPT);
  }
  // CHECK: the artifact is damaged: '__metadata__' is no name for a tensor of a checkpoint
  // CHECK: the artifact is damaged: 'rank/0/x' is no name for a tensor
  // CHECK: in a checkpoint is not UTF-8
  // CHECK: two tensors or scalars are 'gradient/fc.weight' in a checkpoint
  // CHECK: two tensors or scalars are 'scalar/lr' in a checkpoint
  // CHECK: two tensors or scalars are 'optimizer/fc.bias/m' in a checkpoint
}

int main(void) {
  trainc_artifact *artifact = open_handmade();
  test_resume(artifact);
  test_differences(artifact);
  test_window(artifact);
  test_scalars();
  test_names();
  trainc_artifact_close(artifact);
  puts("done");
  // CHECK: done
  return 0;
}
