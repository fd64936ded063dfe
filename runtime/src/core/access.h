//===- access.h - Reading and writing the state on the host -----*- C++ -*-===//
//
// The state lies in memory of the host or of a GPU. What initializes, converts, saves
// and loads it reads and writes elements in memory of the host by way of this file:
// on the processor they are the state itself, else a copy of a piece of it.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_ACCESS_H
#define TRAINC_CORE_ACCESS_H

#include "core/trainer.h"

namespace trainc {

/// Write: all elements are written. Update: what is there is read, too.
enum class Access { Read, Write, Update };

/// The most bytes of a GPU's memory that are copied at once.
constexpr uint64_t accessBytes = 4 << 20;

/// Elements of a tensor in memory of the host.
class Elements {
public:
  Elements() = default;
  Elements(const Elements &) = delete;
  Elements &operator=(const Elements &) = delete;
  ~Elements() { free(copy); }

  /// `count` elements of those that this rank has of `tensor`, from its `begin`-th
  /// on. Waits for the device.
  trainc_status open(const trainc_trainer *trainer, const trainc_tensor &tensor,
                     uint64_t begin, uint64_t count, Access access);
  char *data() const { return elements; }
  /// To be called when they are written; does nothing after a Read.
  trainc_status close();

private:
  const trainc_trainer *trainer = nullptr;
  Access access = Access::Read;
  uint32_t arena = 0;
  uint64_t offset = 0, bytes = 0;
  char *elements = nullptr;
  char *copy = nullptr;
  uint64_t capacity = 0;
};

/// How many elements of `size` bytes are accessed at once: on the processor all.
uint64_t accessCount(const trainc_trainer *trainer, uint64_t size);

/// Calls function(data, first, count) for all of the `count` elements from `begin` on,
/// piece by piece, while it returns TRAINC_OK. `first` counts from `begin`.
template <typename Function>
trainc_status forElements(const trainc_trainer *trainer,
                          const trainc_tensor &tensor, uint64_t begin,
                          uint64_t count, Access access, Function function) {
  uint64_t most = accessCount(trainer, trainc_dtype_size(tensor.dtype));
  Elements piece;
  for (uint64_t i = 0; i < count;) {
    uint64_t size = count - i < most ? count - i : most;
    TRAINC_TRY(piece.open(trainer, tensor, begin + i, size, access));
    TRAINC_TRY(function(piece.data(), i, size));
    TRAINC_TRY(piece.close());
    i += size;
  }
  return TRAINC_OK;
}

/// The same for all elements that this rank has.
template <typename Function>
trainc_status forElements(const trainc_trainer *trainer,
                          const trainc_tensor &tensor, Access access,
                          Function function) {
  return forElements(trainer, tensor, 0, partOf(trainer, tensor).count, access,
                     function);
}

} // namespace trainc

#endif // TRAINC_CORE_ACCESS_H
