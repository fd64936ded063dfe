//===- inspect.cpp - Listing a safetensors file ---------------------------===//

#include "inspect.h"
#include "support.h"

namespace trainc::run {

static std::string describe(const trainc_tensor_view &view) {
  std::string shape;
  for (uint32_t i = 0; i < view.rank; ++i)
    shape += (i ? "x" : "") + std::to_string(view.dims[i]);
  return format("%-40s %-5s %s", printable(view.name).c_str(), view.dtype_name,
                shape.empty() ? "one value" : shape.c_str());
}

void inspect(const std::string &path) {
  trainc_tensor_file *file;
  check(trainc_tensor_file_open(path.c_str(), &file));
  uint64_t count = trainc_tensor_file_count(file), bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    trainc_tensor_view view;
    check(trainc_tensor_file_get(file, i, &view));
    std::printf("%s\n", describe(view).c_str());
    bytes += view.bytes;
  }
  std::printf("%llu tensors, %llu bytes\n",
              static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(bytes));
  for (const char *key :
       {"trainc.artifact", "trainc.update", "trainc.state_hash",
        "user.data.position", "user.data.seed", "user.first_loss"}) {
    const char *value;
    if (trainc_tensor_file_metadata(file, key, &value) == TRAINC_OK)
      std::printf("%s: %s\n", key, printable(value).c_str());
  }
  trainc_status status = trainc_tensor_file_verify(file);
  if (status != TRAINC_NOT_FOUND)
    check(status);
  const char *sum;
  if (trainc_tensor_file_metadata(file, "trainc.checksum", &sum) == TRAINC_OK)
    std::printf("trainc.checksum: %s, which the data have\n", sum);
  trainc_tensor_file_close(file);
}

} // namespace trainc::run
