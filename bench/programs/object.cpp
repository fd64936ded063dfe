// The same in C++, built by CMake.
#include "digits.h"
#include "train.h"

int main() {
  trainc_artifact *artifact;
  if (failed(trainc_artifact_open_descriptor(&digits_descriptor, &artifact)))
    return 1;
  return train(artifact);
}
