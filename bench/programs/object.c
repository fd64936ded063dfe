// Trains an artifact that is linked into the program.
#include "digits.h"
#include "train.h"

int main(void) {
  trainc_artifact *artifact;
  if (failed(trainc_artifact_open_descriptor(&digits_descriptor, &artifact)))
    return 1;
  return train(artifact);
}
