//===- runtime.hpp - runtime.h for C++ --------------------------*- C++ -*-===//
//
// Owners of the handles of runtime.h (C++17, header only). What runtime.h says
// holds here; a status other than TRAINC_OK becomes an exception of type Error.
//
//   trainc::Artifact artifact("digits.so");
//   trainc::Trainer trainer(artifact);
//   trainer.bindInput(step, 0, images.data(), images.size() * sizeof(float));
//   trainc_step_result result = trainer.step(step);
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_RUNTIME_HPP
#define TRAINC_RUNTIME_HPP

#include "trainc/runtime.h"
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainc {

/// A call that did not return TRAINC_OK; what() is trainc_last_error().
class Error : public std::runtime_error {
public:
  explicit Error(trainc_status status)
      : std::runtime_error(trainc_last_error()), code(status) {}
  trainc_status status() const { return code; }

private:
  trainc_status code;
};

inline void check(trainc_status status) {
  if (status != TRAINC_OK)
    throw Error(status);
}

/// The trainc_dtype of a C++ type.
template <typename T> constexpr uint32_t dtypeOf();
template <> constexpr uint32_t dtypeOf<float>() { return TRAINC_F32; }
template <> constexpr uint32_t dtypeOf<double>() { return TRAINC_F64; }
template <> constexpr uint32_t dtypeOf<int8_t>() { return TRAINC_I8; }
template <> constexpr uint32_t dtypeOf<int16_t>() { return TRAINC_I16; }
template <> constexpr uint32_t dtypeOf<int32_t>() { return TRAINC_I32; }
template <> constexpr uint32_t dtypeOf<int64_t>() { return TRAINC_I64; }
template <> constexpr uint32_t dtypeOf<uint8_t>() { return TRAINC_U8; }

class Artifact {
public:
  explicit Artifact(const std::string &path) {
    trainc_artifact *opened;
    check(trainc_artifact_open(path.c_str(), &opened));
    handle.reset(opened);
  }
  /// An artifact linked into the program.
  explicit Artifact(const trainc_descriptor &descriptor) {
    trainc_artifact *opened;
    check(trainc_artifact_open_descriptor(&descriptor, &opened));
    handle.reset(opened);
  }

  trainc_artifact *get() const { return handle.get(); }
  const trainc_descriptor &descriptor() const {
    return *trainc_artifact_descriptor(get());
  }
  const trainc_entry &entry(uint32_t index) const {
    return descriptor().entries[index];
  }

  /// The first step.
  uint32_t findStep() const { return findEntry(nullptr); }
  uint32_t findEntry(const char *name) const {
    uint32_t index;
    check(trainc_artifact_find_entry(get(), name, &index));
    return index;
  }
  uint32_t findInput(uint32_t entry, const char *name) const {
    uint32_t index;
    check(trainc_artifact_find_input(get(), entry, name, &index));
    return index;
  }
  uint32_t findOutput(uint32_t entry, const char *name) const {
    uint32_t index;
    check(trainc_artifact_find_output(get(), entry, name, &index));
    return index;
  }
  uint32_t findTensor(trainc_role role, const char *name,
                      const char *state = nullptr) const {
    uint32_t index;
    check(trainc_artifact_find_tensor(get(), role, name, state, &index));
    return index;
  }

private:
  struct Close {
    void operator()(trainc_artifact *artifact) const {
      trainc_artifact_close(artifact);
    }
  };
  std::unique_ptr<trainc_artifact, Close> handle;
};

class Trainer {
public:
  /// Options with their size set: change what you need.
  static trainc_trainer_options options() {
    trainc_trainer_options defaults = {};
    defaults.size = sizeof(defaults);
    return defaults;
  }

  explicit Trainer(const Artifact &artifact,
                   const trainc_trainer_options &options = Trainer::options()) {
    trainc_trainer *created;
    check(trainc_trainer_create(artifact.get(), &options, &created));
    handle.reset(created);
  }

  trainc_trainer *get() const { return handle.get(); }

  /// Where it runs, and, or null, why it does not run on a GPU.
  const char *device() const { return trainc_trainer_device(get()); }
  const char *notice() const { return trainc_trainer_notice(get()); }

  void bindInput(uint32_t entry, uint32_t index, const void *data,
                 uint64_t bytes) {
    check(trainc_bind_input(get(), entry, index, data, bytes));
  }
  /// The same, checking type and shape. The data must outlive the binding.
  template <typename T>
  void bindInput(uint32_t entry, uint32_t index, const T *data,
                 const std::vector<int64_t> &dims) {
    check(trainc_bind_input_shaped(get(), entry, index, data, dtypeOf<T>(),
                                   static_cast<uint32_t>(dims.size()),
                                   dims.data()));
  }
  void bindOutput(uint32_t entry, uint32_t index, void *data, uint64_t bytes) {
    check(trainc_bind_output(get(), entry, index, data, bytes));
  }
  template <typename T> const T *output(uint32_t entry, uint32_t index) const {
    const void *data;
    check(trainc_output_data(get(), entry, index, &data));
    return static_cast<const T *>(data);
  }

  trainc_step_result step(uint32_t entry) {
    trainc_step_result result;
    check(trainc_step(get(), entry, &result));
    return result;
  }
  trainc_step_result flush() {
    trainc_step_result result;
    check(trainc_flush(get(), &result));
    return result;
  }
  void eval(uint32_t entry) { check(trainc_eval(get(), entry)); }

  double scalar(const char *name) const {
    double value;
    check(trainc_get_scalar(get(), name, &value));
    return value;
  }
  void setScalar(const char *name, double value) {
    check(trainc_set_scalar(get(), name, value));
  }

  /// A tensor of floating type as f32 or f64, or an integer one as its own
  /// type.
  template <typename T> std::vector<T> readTensor(uint32_t tensor) const {
    const trainc_descriptor *d =
        trainc_artifact_descriptor(trainc_trainer_artifact(get()));
    uint64_t count = tensor < d->num_tensors;
    for (uint32_t i = 0; count && i < d->tensors[tensor].rank; ++i)
      count *= static_cast<uint64_t>(d->tensors[tensor].dims[i]);
    std::vector<T> values(count);
    check(trainc_tensor_read(get(), tensor, dtypeOf<T>(), values.data(),
                             count * sizeof(T)));
    return values;
  }
  template <typename T>
  void writeTensor(uint32_t tensor, const std::vector<T> &values) {
    check(trainc_tensor_write(get(), tensor, dtypeOf<T>(), values.data(),
                              values.size() * sizeof(T)));
  }

  void save(const std::string &path) {
    check(trainc_save(get(), path.c_str()));
  }
  void reserveDirectory(const std::string &directory, bool overwrite = false) {
    check(trainc_reserve_directory(
        get(), directory.c_str(),
        overwrite ? static_cast<uint32_t>(TRAINC_DIRECTORY_OVERWRITE) : 0));
  }
  std::string saveCheckpoint(const std::string &directory, uint32_t keep) {
    const char *path;
    check(trainc_save_checkpoint(get(), directory.c_str(), keep, &path));
    return path;
  }
  void load(const std::string &path) {
    check(trainc_load(get(), path.c_str()));
  }
  /// Which scalars of the checkpoint are not the artifact's, or null.
  const char *loadNotice() const { return trainc_load_notice(get()); }
  void loadParameters(const std::string &path) {
    check(trainc_load_parameters(get(), path.c_str()));
  }

  /// Options with their size set, for convert().
  static trainc_convert_options convertOptions() {
    trainc_convert_options defaults = {};
    defaults.size = sizeof(defaults);
    return defaults;
  }
  void convert(const trainc_convert_options &options) {
    check(trainc_convert(get(), &options));
  }

private:
  struct Destroy {
    void operator()(trainc_trainer *trainer) const {
      trainc_trainer_destroy(trainer);
    }
  };
  std::unique_ptr<trainc_trainer, Destroy> handle;
};

class Communicator {
public:
  /// Options with their size set: change what you need.
  static trainc_comm_options options() {
    trainc_comm_options defaults = {};
    defaults.size = sizeof(defaults);
    return defaults;
  }

  explicit Communicator(
      const trainc_comm_options &options = Communicator::options()) {
    trainc_comm *created;
    check(trainc_comm_create(&options, &created));
    handle.reset(created);
  }

  trainc_comm *get() const { return handle.get(); }

  trainc_comm_info info() const {
    trainc_comm_info result;
    check(trainc_comm_get_info(get(), &result));
    return result;
  }
  void barrier() { check(trainc_comm_barrier(get())); }
  void interrupt() { trainc_comm_interrupt(get()); }

private:
  struct Destroy {
    void operator()(trainc_comm *comm) const { trainc_comm_destroy(comm); }
  };
  std::unique_ptr<trainc_comm, Destroy> handle;
};

} // namespace trainc

#endif // TRAINC_RUNTIME_HPP
