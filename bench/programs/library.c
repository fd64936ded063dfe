// Trains an artifact that is opened by path.
#include "train.h"

int main(int argc, char **argv) {
  trainc_artifact *artifact;
  if (argc != 2 || failed(trainc_artifact_open(argv[1], &artifact)))
    return 1;
  return train(artifact);
}
