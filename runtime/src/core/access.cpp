//===- access.cpp - Reading and writing the state on the host -------------===//

#include "core/access.h"
#include "cuda/executor.h"

using namespace trainc;

uint64_t trainc::accessCount(const trainc_trainer *trainer, uint64_t size) {
  return trainer->gpu ? accessBytes / size : UINT64_MAX;
}

trainc_status Elements::open(const trainc_trainer *newTrainer,
                             const trainc_tensor &tensor, uint64_t begin,
                             uint64_t count, Access newAccess) {
  trainer = newTrainer;
  access = newAccess;
  Range range = rangeIn(trainer->state, *trainer->d, trainer->ranks,
                        trainer->state.indexOf(tensor));
  uint64_t size = trainc_dtype_size(tensor.dtype);
  arena = tensor.arena;
  offset = range.offset + begin * size;
  bytes = count * size;
  char *address = arenaData(trainer, arena) + offset;
  if (!trainer->gpu) {
    elements = address;
    return TRAINC_OK;
  }
  if (bytes > capacity) {
    copy = static_cast<char *>(reallocate(copy, bytes));
    capacity = bytes;
  }
  elements = copy;
  if (access != Access::Write)
    return cuda::readMemory(*trainer->gpu, address, copy, bytes);
  return cuda::waitForWork(*trainer->gpu);
}

trainc_status Elements::close() {
  if (!trainer->gpu || access == Access::Read)
    return TRAINC_OK;
  return cuda::writeMemory(*trainer->gpu, arenaData(trainer, arena) + offset,
                           copy, bytes);
}
