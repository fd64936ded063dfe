//===- status.cpp - Reporting what went wrong -----------------------------===//

#include "core/status.h"
#include <ctype.h>
#include <errno.h>
#include <pthread.h>

using namespace trainc;

/// Each thread's text. A pthread key frees it: destructors of thread_local
/// objects would need the C++ library.
static pthread_key_t errorKey;
static pthread_once_t errorOnce = PTHREAD_ONCE_INIT;

static void freeText(void *text) { destroy(static_cast<Text *>(text)); }

static Text *errorText(bool make) {
  pthread_once(&errorOnce, [] { pthread_key_create(&errorKey, freeText); });
  auto *text = static_cast<Text *>(pthread_getspecific(errorKey));
  if (!text && make) {
    text = create<Text>();
    pthread_setspecific(errorKey, text);
  }
  return text;
}

/// Names in texts come from files and other processes: what would steer a terminal is
/// written as \x1B, also in UTF-8 (the controls from U+0080 to U+009F).
static void appendPrintable(Text &to, const Text &text) {
  auto *bytes = reinterpret_cast<const unsigned char *>(text.c_str());
  for (size_t i = 0; i < text.size(); ++i) {
    bool wide = bytes[i] == 0xC2 && bytes[i + 1] >= 0x80 && bytes[i + 1] < 0xA0;
    if (wide)
      to.format("\\x%02X", bytes[i++]);
    if (wide || (bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\t') ||
        bytes[i] == 0x7F)
      to.format("\\x%02X", bytes[i]);
    else
      to.append(static_cast<char>(bytes[i]));
  }
}

trainc_status trainc::fail(trainc_status status, const char *format, ...) {
  // The arguments may point into the old text: it is replaced at the end.
  Text next;
  va_list arguments;
  va_start(arguments, format);
  next.vformat(format, arguments);
  va_end(arguments);
  Text *text = errorText(/*make=*/true);
  text->clear();
  appendPrintable(*text, next);
  return status;
}

trainc_status trainc::failSize(const char *what, uint64_t expected,
                               uint64_t found) {
  return fail(TRAINC_INVALID_ARGUMENT,
              "%s: expected a size of 8 to %llu, got %llu", what,
              static_cast<unsigned long long>(expected),
              static_cast<unsigned long long>(found));
}

trainc_status trainc::failAllocation(uint64_t bytes, const char *what) {
  return fail(TRAINC_OUT_OF_MEMORY, "cannot allocate %llu bytes for %s: %s",
              static_cast<unsigned long long>(bytes), what, errnoText(errno));
}

const char *trainc::errnoText(int number) {
  const char *text = strerrordesc_np(number);
  return text ? text : "unknown error";
}

void trainc::appendShape(Text &text, uint32_t dtype, uint32_t rank,
                         const int64_t *dims) {
  for (uint32_t i = 0; i < rank; ++i)
    text.format("%lldx", static_cast<long long>(dims[i]));
  const char *name = trainc_dtype_name(dtype);
  for (const char *c = name ? name : "?"; *c; ++c)
    text.append(static_cast<char>(tolower(*c)));
}

const char *trainc_last_error(void) {
  Text *text = errorText(/*make=*/false);
  return text ? text->c_str() : "";
}

const char *trainc_version(void) { return TRAINC_VERSION_STRING; }

const char *trainc_status_name(trainc_status status) {
  switch (status) {
  case TRAINC_OK:
    return "TRAINC_OK";
  case TRAINC_INVALID_ARGUMENT:
    return "TRAINC_INVALID_ARGUMENT";
  case TRAINC_NOT_FOUND:
    return "TRAINC_NOT_FOUND";
  case TRAINC_OUT_OF_MEMORY:
    return "TRAINC_OUT_OF_MEMORY";
  case TRAINC_OUT_OF_RANGE:
    return "TRAINC_OUT_OF_RANGE";
  case TRAINC_IO_ERROR:
    return "TRAINC_IO_ERROR";
  case TRAINC_DATA_CORRUPT:
    return "TRAINC_DATA_CORRUPT";
  case TRAINC_MISMATCH:
    return "TRAINC_MISMATCH";
  case TRAINC_UNSUPPORTED:
    return "TRAINC_UNSUPPORTED";
  case TRAINC_ABI_MISMATCH:
    return "TRAINC_ABI_MISMATCH";
  case TRAINC_CANCELLED:
    return "TRAINC_CANCELLED";
  case TRAINC_COMM_FAILED:
    return "TRAINC_COMM_FAILED";
  case TRAINC_DEVICE_FAILED:
    return "TRAINC_DEVICE_FAILED";
  }
  return "unknown status";
}

uint64_t trainc_dtype_size(uint32_t dtype) {
  switch (dtype) {
#define TRAINC_DTYPE(NAME, number, bytes, text)                                \
  case number:                                                                 \
    return bytes;
#include "trainc/step_abi.def"
  }
  return 0;
}

const char *trainc_dtype_name(uint32_t dtype) {
  switch (dtype) {
#define TRAINC_DTYPE(NAME, number, bytes, text)                                \
  case number:                                                                 \
    return text;
#include "trainc/step_abi.def"
  }
  return nullptr;
}
