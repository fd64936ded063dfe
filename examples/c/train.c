// Trains a compiled step on two arrays of examples, from C:
//
//   python3 ../mlp.py --digits >digits.mlir && trainc digits.mlir -o digits.so
//   cc train.c $(pkg-config --cflags --libs trainc) -o train
//   ./train digits.so ../data/digits_train_x.npy ../data/digits_train_y.npy
#include "npy.h"
#include "trainc/runtime.h"

static void check(trainc_status status) {
  if (status == TRAINC_OK)
    return;
  fprintf(stderr, "train: %s\n", trainc_last_error());
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: train STEP.so IMAGES.npy LABELS.npy\n");
    return 2;
  }
  trainc_artifact *artifact;
  trainc_trainer *trainer;
  uint32_t step;
  check(trainc_artifact_open(argv[1], &artifact));
  check(trainc_artifact_find_entry(artifact, NULL, &step));
  check(trainc_trainer_create(artifact, NULL, &trainer));

  // What the step takes: input 0 is a batch of images, input 1 their labels.
  const trainc_entry *entry =
      &trainc_artifact_descriptor(artifact)->entries[step];
  if (entry->num_inputs != 2)
    return fprintf(stderr, "train: the step does not take images and labels\n"),
           1;
  uint64_t image_bytes = entry->inputs[0].bytes,
           label_bytes = entry->inputs[1].bytes;
  size_t images_size, labels_size;
  char *images = read_npy(argv[2], "<f4", &images_size);
  char *labels = read_npy(argv[3], "<i4", &labels_size);
  uint64_t batches = images_size / image_bytes;
  if (batches == 0 || labels_size / label_bytes < batches)
    return fprintf(stderr, "train: too few examples\n"), 1;

  for (uint64_t i = 0; i < 2000; ++i) {
    trainc_step_result result;
    uint64_t batch = i % batches;
    check(trainc_bind_input(trainer, step, 0, images + batch * image_bytes,
                            image_bytes));
    check(trainc_bind_input(trainer, step, 1, labels + batch * label_bytes,
                            label_bytes));
    check(trainc_step(trainer, step, &result));
    if (i % 200 == 0 || i == 1999)
      printf("step %4d  loss %.4f\n", (int)i, result.loss);
  }
  check(trainc_save(trainer, "trained.safetensors"));
  trainc_trainer_destroy(trainer);
  trainc_artifact_close(artifact);
  free(images), free(labels);
  return 0;
}
