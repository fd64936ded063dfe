// Saving and loading: bitwise resume, lists of differences, conversion, folders of
// checkpoints, damaged files.
//
// RUN: %cc -std=gnu11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && %t | FileCheck %s

#include "handmade.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
  // CHECK: format 1, 18 tensors
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

/// Where the data of tensor `name` are in a file of one.
static char *find_data(char *file, const char *name) {
  uint64_t header;
  char key[64];
  memcpy(&header, file, 8);
  snprintf(key, sizeof key, "\"%s\":", name);
  char *entry = strstr(file + 8, key);
  CHECK(entry && entry < file + 8 + header);
  return file + 8 + header +
         strtoull(strstr(entry, "offsets\":[") + 10, NULL, 10);
}

/// Replaces `from` in the header by `to`, which is as long.
static void edit_header(char *file, const char *from, const char *to) {
  char *place = strstr(file + 8, from);
  CHECK(place && strlen(from) == strlen(to));
  memcpy(place, to, strlen(to));
}

/// Every flipped bit of the data is noticed; and values that no one may set, too, where
/// there is no checksum.
static void test_checksum(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 6), *same = make_trainer(a, 1, 6);
  char *data;
  long size;
  uint64_t header;
  file_bytes("a.safetensors", &data, &size);
  data[size] = 0;
  memcpy(&header, data, 8);
  for (long i = 8 + (long)header; i < size; i += i % 3 + 1) {
    data[i] ^= (char)(1 << i % 8);
    write_bytes("flipped.safetensors", data, size);
    CHECK(trainc_load(t, "flipped.safetensors") == TRAINC_DATA_CORRUPT);
    CHECK(trainc_load_parameters(t, "flipped.safetensors") ==
          TRAINC_DATA_CORRUPT);
    data[i] ^= (char)(1 << i % 8);
  }
  CHECK(same_state(t, same));
  data[size - 1] ^= 1;
  write_bytes("flipped.safetensors", data, size);
  data[size - 1] ^= 1;
  EXPECT(trainc_load(t, "flipped.safetensors"), TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: 'flipped.safetensors' is damaged: its data have the checksum crc32c:{{[0-9a-f]+}}, its header has crc32c:
  trainc_tensor_file *file;
  OK(trainc_tensor_file_open("flipped.safetensors", &file));
  CHECK(trainc_tensor_file_verify(file) == TRAINC_DATA_CORRUPT);
  trainc_tensor_file_close(file);
  OK(trainc_tensor_file_open("a.safetensors", &file));
  OK(trainc_tensor_file_verify(file));
  trainc_tensor_file_close(file);

  // As older versions have written it, and with what nobody knows.
  edit_header(data, "\"trainc.checksum\"", "\"before.checksum\"");
  write_bytes("none.safetensors", data, size);
  OK(trainc_load(t, "none.safetensors"));
  OK(trainc_tensor_file_open("none.safetensors", &file));
  EXPECT(trainc_tensor_file_verify(file), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: 'none.safetensors' has no checksum
  trainc_tensor_file_close(file);
  edit_header(data, "\"before.checksum\"", "\"trainc.checksum\"");
  edit_header(data, "crc32c:", "sha256:");
  write_bytes("unknown.safetensors", data, size);
  EXPECT(trainc_load(t, "unknown.safetensors"), TRAINC_UNSUPPORTED);
  // CHECK: TRAINC_UNSUPPORTE{{D}}: 'unknown.safetensors' has a checksum that this runtime does not know: 'sha256:
  edit_header(data, "\"trainc.checksum\"", "\"before.checksum\"");

  static const struct {
    const char *name;
    double value;
  } bad[] = {{"scalar/loss_scale", 0},  {"scalar/loss_scale", NAN},
             {"scalar/loss_scale", -1}, {"scalar/lr", INFINITY},
             {"scalar/update", 0.5},    {"scalar/skipped", -1},
             {"scalar/seed", 0x1p53},   {"scalar/loss_scale_age", NAN}};
  trainc_trainer_destroy(same);
  same = make_trainer(a, 1, 6);
  OK(trainc_load(same, "a.safetensors"));
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    char *place = find_data(data, bad[i].name), old[8];
    memcpy(old, place, 8);
    memcpy(place, &bad[i].value, 8);
    write_bytes("value.safetensors", data, size);
    EXPECT(trainc_load(t, "value.safetensors"), TRAINC_DATA_CORRUPT);
    CHECK(same_state(t, same));
    memcpy(place, old, 8);
  }
  // CHECK: scalar 'loss_scale' is 0, expected a positive number
  // CHECK: scalar 'loss_scale' is nan, expected a positive number
  // CHECK: scalar 'loss_scale' is -1, expected a positive number
  // CHECK: scalar 'lr' is inf, expected a finite number
  // CHECK: scalar 'update' is 0.5, expected an integer from 0 to 2^53 - 1
  // CHECK: scalar 'skipped' is -1, expected an integer
  // CHECK: scalar 'seed' is {{[0-9.e+]+}}, expected an integer
  // CHECK: scalar 'loss_scale_age' is nan, expected an integer
  free(data);
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(same);
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
  OK(trainc_load(loaded, "run"));
  CHECK(same_state(t, loaded));
  // What a killed save has left goes; what another one has open, or is not ours, stays.
  write_bytes("run/.step-000005.safetensors.0123456789abcdef.tmp", "half", 4);
  write_bytes("run/.latest.00000000000000ff.tmp", "half", 4);
  write_bytes("run/.step-000005.safetensors.tmp", "mine", 4);
  write_bytes("run/.step-000005.safetensors.0123456789ABCDEF.tmp", "mine", 4);
  write_bytes("run/.notes.0123456789abcdef.tmp", "mine", 4);
  write_bytes("run/step-x.safetensors", "mine", 4);
  write_bytes("run/step-5.safetensors", "mine", 4);
  int under_way = open("run/.step-000006.safetensors.0123456789abcdef.tmp",
                       O_CREAT | O_WRONLY, 0666);
  CHECK(flock(under_way, LOCK_EX | LOCK_NB) == 0);
  // A new run removes none of another's checkpoints.
  trainc_trainer *back = make_trainer(a, 1, 3);
  OK(trainc_save_checkpoint(back, "run", 1, NULL));
  list("run");
  // CHECK: .lock .notes.0123456789abcdef.tmp .step-000005.safetensors.0123456789ABCDEF.tmp .step-000005.safetensors.tmp .step-000006.safetensors.0123456789abcdef.tmp latest step-000000.safetensors step-000004-1.safetensors step-000004.safetensors step-5.safetensors step-x.safetensors
  close(under_way);
  OK(trainc_load(loaded, "run"));
  CHECK(same_state(back, loaded));
  // A run that goes on from a checkpoint owns those up to it.
  CHECK(system("rm -f run/.??*.tmp run/step-?.safetensors") == 0);
  OK(trainc_load(loaded, "run/step-000004.safetensors"));
  run_steps(loaded, 12, 15);
  OK(trainc_save_checkpoint(loaded, "run", 2, NULL));
  list("run");
  // CHECK: .lock latest step-000004-1.safetensors step-000004.safetensors step-000005.safetensors
  run_steps(loaded, 15, 18);
  OK(trainc_save_checkpoint(loaded, "run", 2, NULL));
  list("run");
  // CHECK: .lock latest step-000004-1.safetensors step-000005.safetensors step-000006.safetensors
  write_bytes("run/latest", "../a.safetensors\n", 17);
  EXPECT(trainc_load(loaded, "run"), TRAINC_DATA_CORRUPT);
  // CHECK: TRAINC_DATA_CORRUPT: 'run/latest' names no checkpoint
  EXPECT(trainc_save_checkpoint(back, "a.safetensors", 1, NULL),
         TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'a.safetensors' is not a folder
  EXPECT(trainc_save(back, "absent/a.safetensors"), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: cannot create 'absent/a.safetensors': No such file or directory
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(loaded);
  trainc_trainer_destroy(back);
}

/// The right to save to a folder.
static void test_reserve(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 3), *other = make_trainer(a, 1, 3);
  EXPECT(trainc_reserve_directory(t, "absent/run", 0), TRAINC_NOT_FOUND);
  // CHECK: TRAINC_NOT_FOUND: cannot make folder 'absent/run': No such file or directory
  EXPECT(trainc_reserve_directory(t, "held", 2), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: expected flags of a directory, got 0x2
  OK(trainc_reserve_directory(t, "held", 0));
  OK(trainc_reserve_directory(t, "held", 0));
  list("held");
  // CHECK: {{^}}.lock {{$}}
  OK(trainc_save_checkpoint(t, "held", 0, NULL));
  EXPECT(trainc_reserve_directory(other, "held", 1), TRAINC_IO_ERROR);
  // CHECK: TRAINC_IO_ERROR: another process saves to 'held': process {{[0-9]+}} on host {{.}}
  EXPECT(trainc_save_checkpoint(other, "held", 0, NULL), TRAINC_IO_ERROR);
  // CHECK: TRAINC_IO_ERROR: another process saves to 'held': process
  // A refusal leaves what was reserved before as it is, of the same folder and of another.
  trainc_trainer *third = make_trainer(a, 1, 3);
  OK(trainc_reserve_directory(third, "third", 0));
  EXPECT(trainc_reserve_directory(t, "third", 0), TRAINC_IO_ERROR);
  // CHECK: TRAINC_IO_ERROR: another process saves to 'third': process
  EXPECT(trainc_reserve_directory(t, "held", 0), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: 'held' has checkpoints of another run
  OK(trainc_save_checkpoint(t, "held", 0, NULL));
  EXPECT(trainc_reserve_directory(other, "held", 1), TRAINC_IO_ERROR);
  // CHECK: TRAINC_IO_ERROR: another process saves to 'held': process
  // A child does not keep a lock that its parent gives back.
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    char byte;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) != 0);
  }
  trainc_trainer_destroy(third);
  OK(trainc_reserve_directory(other, "third", 0));
  close(ends[0]), close(ends[1]);
  CHECK(child > 0 && waitpid(child, NULL, 0) == child);
  trainc_trainer_destroy(other);
  other = make_trainer(a, 1, 3);
  trainc_trainer_destroy(t);
  EXPECT(trainc_reserve_directory(other, "held", 0), TRAINC_MISMATCH);
  // CHECK: TRAINC_MISMATCH: 'held' has checkpoints of another run, which this one does not go on with
  OK(trainc_load(other, "held"));
  OK(trainc_reserve_directory(other, "held", 0));
  trainc_trainer_destroy(other);
  t = make_trainer(a, 1, 3);
  OK(trainc_reserve_directory(t, "held", TRAINC_DIRECTORY_OVERWRITE));
  trainc_trainer_destroy(t);
}

/// What is replaced is a file; links are followed. Who could not read it still cannot; what
/// could not be read back is not written.
static void test_targets(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 3);
  struct stat info;
  OK(trainc_save(t, "private.safetensors"));
  CHECK(chmod("private.safetensors", 0600) == 0);
  OK(trainc_save(t, "private.safetensors"));
  CHECK(stat("private.safetensors", &info) == 0 &&
        (info.st_mode & 0777) == 0600);
  enum { LARGE = 101 << 20 };
  char *large = malloc(LARGE);
  memset(large, 'x', LARGE);
  large[LARGE - 1] = 0;
  OK(trainc_set_metadata(t, "large", large));
  EXPECT(trainc_save(t, "private.safetensors"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'private.safetensors' would have a header of {{[0-9]+}} bytes, with its metadata: nothing reads more than 100000000
  OK(trainc_set_metadata(t, "large", NULL));
  free(large);
  OK(trainc_load(t, "private.safetensors"));
  CHECK(mkdir("target", 0777) == 0 && mkfifo("target/fifo", 0666) == 0);
  EXPECT(trainc_save(t, "target/fifo"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'target/fifo' is a FIFO: expected a regular file, or none, to replace
  EXPECT(trainc_save(t, "target"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'target' is a folder: expected
  EXPECT(trainc_save(t, "/dev/null"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: '/dev/null' is a device: expected
  CHECK(symlink("target/file", "link") == 0 && symlink("loop", "loop") == 0);
  OK(trainc_save(t, "link")); // to what is not there yet
  OK(trainc_save(t, "link"));
  OK(trainc_load(t, "target/file"));
  list("target");
  // CHECK: {{^}}fifo file {{$}}
  EXPECT(trainc_save(t, "loop"), TRAINC_IO_ERROR);
  // CHECK: TRAINC_IO_ERROR: cannot follow the link './loop': Too many levels
  // Nor is what is read anything else.
  EXPECT(trainc_load(t, "target/fifo"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'target/fifo' is not a regular file
  CHECK(mkfifo("target/latest", 0666) == 0);
  EXPECT(trainc_load(t, "target"), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: folder 'target' has no finished checkpoint: 'target/latest' is not a regular file
  trainc_artifact *none;
  EXPECT(trainc_artifact_open("target/fifo", &none), TRAINC_INVALID_ARGUMENT);
  // CHECK: TRAINC_INVALID_ARGUMENT: 'target/fifo' is not a regular file
  // A temporary file's name is not that of a link that somebody has laid.
  write_bytes("precious", "precious", 8);
  CHECK(symlink("../precious", "target/.file.tmp") == 0);
  OK(trainc_save(t, "target/file"));
  char *data;
  long size;
  file_bytes("precious", &data, &size);
  CHECK(size == 8);
  free(data);
  trainc_trainer_destroy(t);
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
  test_scalars();
  test_checksum(artifact);
  test_names();
  test_folder(artifact);
  test_reserve(artifact);
  test_targets(artifact);
  test_truncation(artifact);
  trainc_artifact_close(artifact);
  puts("done");
  // CHECK: done
  return 0;
}
