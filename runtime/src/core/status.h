//===- status.h - Reporting what went wrong ---------------------*- C++ -*-===//
#ifndef TRAINC_CORE_STATUS_H
#define TRAINC_CORE_STATUS_H

#include "core/containers.h"
#include "trainc/runtime.h"
#include <locale.h>

namespace trainc {

/// Sets trainc_last_error() of this thread and returns `status`.
__attribute__((format(printf, 2, 3))) trainc_status fail(trainc_status status,
                                                         const char *format,
                                                         ...);

/// TRAINC_OUT_OF_MEMORY: there is no memory of `bytes` for `what`.
trainc_status failAllocation(uint64_t bytes, const char *what);

/// Appends the text of `number` (an errno) as "No space left on device".
const char *errnoText(int number);

/// While it lives, numbers in texts that this thread writes and reads have a point,
/// whatever locale the program has set.
class PlainNumbers {
public:
  PlainNumbers() : before(uselocale(newlocale(LC_ALL_MASK, "C", nullptr))) {}
  ~PlainNumbers() { uselocale(before); }
  PlainNumbers(const PlainNumbers &) = delete;
  PlainNumbers &operator=(const PlainNumbers &) = delete;

private:
  locale_t before;
};

/// Appends "2x3xf32", the way shapes are written in messages.
void appendShape(Text &text, uint32_t dtype, uint32_t rank,
                 const int64_t *dims);

/// TRAINC_INVALID_ARGUMENT, with what was found and expected of `what`.
trainc_status failSize(const char *what, uint64_t expected, uint64_t found);

/// Options that a program gives, which may be of a header with fewer members: the others
/// are 0. Null: all are.
template <typename Options>
trainc_status takeOptions(const Options *given, const char *what,
                          Options &out_options) {
  out_options = {};
  out_options.size = sizeof(Options);
  if (!given)
    return TRAINC_OK;
  if (given->size < sizeof(given->size) || given->size > sizeof(Options))
    return failSize(what, sizeof(Options), given->size);
  memcpy(&out_options, given, given->size);
  out_options.size = sizeof(Options);
  return TRAINC_OK;
}

inline uint64_t alignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

} // namespace trainc

/// Returns from the function if `expression` is not TRAINC_OK.
#define TRAINC_TRY(expression)                                                 \
  do {                                                                         \
    if (trainc_status tryStatus = (expression))                                \
      return tryStatus;                                                        \
  } while (false)

#endif // TRAINC_CORE_STATUS_H
