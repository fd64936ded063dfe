// Trains the digits with a step that is linked into the program, through the
// typed functions of its generated header:
//
//   python3 ../mlp.py --digits >digits.mlir
//   trainc --emit=obj digits.mlir -o digits.o       (and digits.h)
//   cc linked.c digits.o $(pkg-config --cflags --libs trainc) -o linked
//   ./linked ../data
#include "digits.h"
#include "npy.h"

enum { BATCH = 32, EVAL_BATCH = 60, PIXELS = 64, STEPS = 1500 };

static void check(trainc_status status) {
  if (status == TRAINC_OK)
    return;
  fprintf(stderr, "linked: %s\n", trainc_last_error());
  exit(1);
}

static void *read_data(const char *folder, const char *name, const char *type,
                       size_t *bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/digits_%s.npy", folder, name);
  return read_npy(path, type, bytes);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr,
            "usage: linked FOLDER   (of digits_train_x.npy and the others)\n");
    return 2;
  }
  size_t train_bytes, test_bytes, size;
  float *train_x = read_data(argv[1], "train_x", "<f4", &size);
  int32_t *train_y = read_data(argv[1], "train_y", "<i4", &train_bytes);
  float *test_x = read_data(argv[1], "test_x", "<f4", &size);
  int32_t *test_y = read_data(argv[1], "test_y", "<i4", &test_bytes);
  size_t batches = train_bytes / sizeof *train_y / BATCH;
  size_t eval_batches = test_bytes / sizeof *test_y / EVAL_BATCH;

  trainc_artifact *artifact;
  trainc_trainer *trainer;
  check(trainc_artifact_open_descriptor(&digits_descriptor, &artifact));
  check(trainc_trainer_create(artifact, NULL, &trainer));
  for (size_t i = 0; i < STEPS; ++i) {
    size_t first = i % batches * BATCH;
    trainc_step_result result;
    check(digits_step(trainer, train_x + first * PIXELS, train_y + first,
                      &result));
    if (i % 250 == 0 || i == STEPS - 1)
      printf("step %4d  loss %.4f\n", (int)i, result.loss);
  }

  double right = 0, all = 0;
  for (size_t i = 0; i < eval_batches; ++i) {
    float loss, count, correct;
    check(digits_eval(trainer, test_x + i * EVAL_BATCH * PIXELS,
                      test_y + i * EVAL_BATCH, &loss, &count, &correct));
    right += correct, all += count;
  }
  printf("held-out accuracy %.4f of %.0f\n", right / all, all);
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
  free(train_x), free(train_y), free(test_x), free(test_y);
  return 0;
}
