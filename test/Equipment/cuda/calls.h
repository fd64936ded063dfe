//===- calls.h - What the functions of the driver share ---------*- C++ -*-===//
#ifndef TRAINC_EMULATOR_CUDA_CALLS_H
#define TRAINC_EMULATOR_CUDA_CALLS_H

#include "fake.h"

#define TRAINC_CU_FUNCTION(name, symbol, parameters)                           \
  extern "C" TRAINC_EMU_EXPORT CUresult symbol parameters;
namespace trainc::cuda {
#include "cuda/driver.def"

/// One call after the other.
struct Lock {
  Lock();
  ~Lock();
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;
};

/// The context of this thread, or null.
CUcontext current();
/// The thread has a context, and nothing in it has failed.
CUresult checkContext();
CUresult checkStream(CUstream stream);
/// Some calls may not be made while streams are captured: they end the capture.
CUresult checkNoCapture(const char *call);
/// Whether TRAINC_FAKE_CUDA_FAIL refuses the `number`-th of what it calls `what`.
bool failsBySetting(const char *what, uint64_t number);

} // namespace trainc::cuda

/// Returns from the function if `result` is a failure.
#define CHECK(result)                                                          \
  do {                                                                         \
    if (CUresult checked = (result); checked != CUDA_SUCCESS)                  \
      return checked;                                                          \
  } while (false)
/// Refuses what is not so.
#define NEED(condition, result, ...)                                           \
  do {                                                                         \
    if (!(condition))                                                          \
      return refuse(result, __VA_ARGS__);                                      \
  } while (false)

#endif // TRAINC_EMULATOR_CUDA_CALLS_H
