// Files of checkpoints: damaged ones, folders of them, what a save may replace.
//
// RUN: %cc -std=gnu11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir && %t | FileCheck %s

#include "handmade.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

/// Two runs that save to one folder in turn remove none of each other's files, also where
/// one has replaced a file of the other.
static void test_two_runs(trainc_artifact *a) {
  trainc_trainer *t = make_trainer(a, 1, 3), *other = make_trainer(a, 1, 4);
  trainc_trainer *loaded = make_trainer(a, 1, 3);
  run_steps(t, 0, 3);
  run_steps(other, 0, 3);
  OK(trainc_save_checkpoint(t, "both", 1, NULL));
  OK(trainc_save_checkpoint(other, "both", 1, NULL));
  run_steps(t, 3, 6);
  OK(trainc_save_checkpoint(t, "both", 1, NULL));
  list("both");
  // CHECK: {{^}}.lock latest step-000001.safetensors step-000002.safetensors {{$}}
  OK(trainc_load(loaded, "both/step-000001.safetensors"));
  CHECK(same_state(other, loaded));
  // Nor those of a run that went on from a file which another has replaced since.
  OK(trainc_load(loaded, "both"));
  run_steps(loaded, 6, 7);
  OK(trainc_save_checkpoint(loaded, "both", 0, NULL));
  run_steps(other, 3, 6);
  OK(trainc_save_checkpoint(other, "both", 0, NULL));
  run_steps(loaded, 7, 9);
  OK(trainc_save_checkpoint(loaded, "both", 1, NULL));
  list("both");
  // CHECK: {{^}}.lock latest step-000002.safetensors step-000003.safetensors {{$}}
  // The files that a run has left, it removes itself.
  run_steps(other, 6, 12);
  OK(trainc_save_checkpoint(other, "both", 1, NULL));
  list("both");
  // CHECK: {{^}}.lock latest step-000003.safetensors step-000004.safetensors {{$}}
  // A file is the run's, too, where its folder could not be synced.
  run_steps(other, 12, 15);
  setenv("TRAINC_FAULT", "fsync:2:fail", 1);
  EXPECT(trainc_save_checkpoint(other, "both", 1, NULL), TRAINC_IO_ERROR);
  // CHECK: TRAINC_IO_ERROR: cannot sync 'both': No space left on device; 'both/step-000005.safetensors' is replaced
  unsetenv("TRAINC_FAULT");
  run_steps(other, 15, 18);
  OK(trainc_save_checkpoint(other, "both", 1, NULL));
  list("both");
  // CHECK: {{^}}.lock latest step-000003.safetensors step-000006.safetensors {{$}}
  // What was refused makes no file the run's.
  OK(trainc_reserve_directory(t, "both", TRAINC_DIRECTORY_OVERWRITE));
  OK(trainc_save(loaded, "both/step-000006.safetensors"));
  EXPECT(trainc_save_checkpoint(other, "both", 1, NULL), TRAINC_IO_ERROR);
  // CHECK: TRAINC_IO_ERROR: another process saves to 'both'
  trainc_trainer_destroy(t);
  run_steps(other, 18, 21);
  OK(trainc_save_checkpoint(other, "both", 1, NULL));
  list("both");
  // CHECK: {{^}}.lock latest step-000003.safetensors step-000006.safetensors step-000007.safetensors {{$}}
  trainc_trainer_destroy(other);
  trainc_trainer_destroy(loaded);
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
  for (mode_t mode = 0600; mode >= 0400; mode -= 0200) {
    CHECK(chmod("private.safetensors", mode) == 0);
    OK(trainc_save(t, "private.safetensors"));
    CHECK(stat("private.safetensors", &info) == 0 &&
          (info.st_mode & 0777) == mode);
  }
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

/// A load of many pairs of metadata takes no longer than the file is long.
static void test_many_pairs(trainc_artifact *a) {
  enum { PAIRS = 40000, PAIR_BYTES = 17 };
  char *data;
  long size;
  uint64_t header;
  file_bytes("a.safetensors", &data, &size);
  memcpy(&header, data, 8);
  header += PAIRS * PAIR_BYTES;
  char *place = strstr(data + 8, "\"__metadata__\":{");
  CHECK(place);
  place += strlen("\"__metadata__\":{");
  FILE *file = fopen("pairs.safetensors", "wb");
  CHECK(file && fwrite(&header, 8, 1, file) == 1);
  CHECK(fwrite(data + 8, (size_t)(place - data) - 8, 1, file) == 1);
  for (int i = 0; i < PAIRS; ++i)
    CHECK(fprintf(file, "\"user.%05d\":\"x\",", i) == PAIR_BYTES);
  CHECK(fwrite(place, (size_t)(data + size - place), 1, file) == 1);
  CHECK(fclose(file) == 0);
  free(data);
  trainc_trainer *t = make_trainer(a, 1, 6);
  const char *value;
  clock_t begin = clock();
  OK(trainc_load(t, "pairs.safetensors"));
  double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  printf("%g s\n", seconds);
  CHECK(seconds < 1);
  OK(trainc_get_metadata(t, "39999", &value));
  CHECK(!strcmp(value, "x"));
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
      "{\"__metadata__\":{},\"__metadata__\":{}}",
      "{\"__metadata__\":{\"a\":\"1\",\"b\":\"2\",\"a\":\"1\"}}"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    write_file("bad.safetensors", bad[i], 4);
    EXPECT(trainc_load(t, "bad.safetensors"), TRAINC_DATA_CORRUPT);
  }
  // CHECK: header byte 0: expected '{'
  // CHECK: tensor 'a' has unknown dtype 'F99'
  // CHECK: expected a whole number
  // CHECK: tensor 'b' overlaps another
  // CHECK: two tensors are named 'a'
  // CHECK: two pairs of metadata are named 'a'
  trainc_trainer_destroy(t);
  trainc_trainer_destroy(same);
}

int main(void) {
  trainc_artifact *artifact = open_handmade();
  trainc_trainer *trainer = make_trainer(artifact, 2, 1);
  run_steps(trainer, 0, 20);
  OK(trainc_save(trainer, "a.safetensors"));
  trainc_trainer_destroy(trainer);
  test_checksum(artifact);
  test_folder(artifact);
  test_two_runs(artifact);
  test_reserve(artifact);
  test_targets(artifact);
  test_many_pairs(artifact);
  test_truncation(artifact);
  trainc_artifact_close(artifact);
  puts("done");
  // CHECK: done
  return 0;
}
