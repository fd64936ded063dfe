// Trains a compiled step on two arrays of examples, from C++:
//
//   python3 ../mlp.py --digits >digits.mlir && trainc digits.mlir -o digits.so
//   c++ -std=c++17 train.cpp $(pkg-config --cflags --libs trainc) -o train
//   ./train digits.so ../data/digits_train_x.npy ../data/digits_train_y.npy
#include "trainc/runtime.hpp"
#include <cstdio>
#include <fstream>
#include <iterator>

/// The data of a .npy file (version 1) whose items are of `type`, "<f4" or
/// "<i4".
static std::vector<char> readNpy(const std::string &path,
                                 const std::string &type) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> start(10);
  file.read(start.data(), 10);
  size_t length = static_cast<unsigned char>(start[8]) +
                  256u * static_cast<unsigned char>(start[9]);
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  if (!file || std::string(start.data(), 7) != "\x93NUMPY\1" ||
      header.find(type) == std::string::npos)
    throw std::runtime_error("cannot read '" + path + "' as a .npy file of " +
                             type);
  return {std::istreambuf_iterator<char>(file), {}};
}

static void train(const char *stepPath, const char *imagesPath,
                  const char *labelsPath) {
  trainc::Artifact artifact(stepPath);
  trainc::Trainer trainer(artifact);
  uint32_t step = artifact.findStep();

  // What the step takes: input 0 is a batch of images, input 1 their labels.
  const trainc_entry &entry = artifact.entry(step);
  if (entry.num_inputs != 2 || entry.inputs[0].bytes == 0)
    throw std::runtime_error("the step does not take images and labels");
  uint64_t imageBytes = entry.inputs[0].bytes;
  uint64_t labelBytes = entry.inputs[1].bytes;
  std::vector<char> images = readNpy(imagesPath, "<f4");
  std::vector<char> labels = readNpy(labelsPath, "<i4");
  uint64_t batches = images.size() / imageBytes;
  if (batches == 0 || labels.size() / labelBytes < batches)
    throw std::runtime_error("too few examples");

  for (uint64_t i = 0; i < 2000; ++i) {
    uint64_t batch = i % batches;
    trainer.bindInput(step, 0, images.data() + batch * imageBytes, imageBytes);
    trainer.bindInput(step, 1, labels.data() + batch * labelBytes, labelBytes);
    trainc_step_result result = trainer.step(step);
    if (i % 200 == 0 || i == 1999)
      std::printf("step %4d  loss %.4f\n", static_cast<int>(i), result.loss);
  }
  trainer.save("trained.safetensors");
}

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: train STEP.so IMAGES.npy LABELS.npy\n");
    return 2;
  }
  try {
    train(argv[1], argv[2], argv[3]);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
