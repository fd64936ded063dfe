//===- support.h - Errors, texts and files of trainc-run --------*- C++ -*-===//
#ifndef TRAINC_RUN_SUPPORT_H
#define TRAINC_RUN_SUPPORT_H

#include "trainc/runtime.h"
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace trainc::run {

/// Text made as by printf.
__attribute__((format(printf, 1, 2))) std::string format(const char *format,
                                                         ...);

/// Prints "trainc-run: error: TEXT" to stderr, below a progress bar if there is
/// one, and ends the program with status 1. Of several ranks the first prints for
/// all what went wrong on it; what went wrong on another alone, that one. All end.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format,
                                                             ...);

/// Ends the program with the runtime's text if `status` is not TRAINC_OK.
inline void check(trainc_status status) {
  if (status != TRAINC_OK)
    fail("%s", trainc_last_error());
}

/// Prints "trainc-run: TEXT" to stderr, below a progress bar if there is one; the
/// first rank only.
__attribute__((format(printf, 1, 2))) void note(const char *format, ...);

/// Prints the same for what is not written as it was asked for: the program goes on,
/// and ends with status 1. Of several ranks each says so.
__attribute__((format(printf, 1, 2))) void warn(const char *format, ...);
/// Has it?
extern bool incomplete;

/// What every start of the program begins with: a write to a closed pipe, or past a
/// limit, fails and does not kill; no file that is opened takes the place of a
/// standard stream that is closed; and the program ends with status 1 if what it has
/// printed cannot be written.
void prepareProcess();

/// Is the cursor behind a progress bar? Kept by Progress.
extern bool lineIsOpen;

/// CLOCK_MONOTONIC in seconds.
double now();

/// Bits that depend on (seed, stream, index) only: whoever knows how far a run
/// has come continues its random choices.
uint64_t randomBits(uint64_t seed, uint64_t stream, uint64_t index);
/// In [0, limit).
uint64_t randomBelow(uint64_t limit, uint64_t seed, uint64_t stream,
                     uint64_t index);
/// In (0, 1).
double randomUnit(uint64_t seed, uint64_t stream, uint64_t index);

/// `text` with control characters, but for tabs and ends of lines, as \x1B.
std::string printable(std::string_view text);

/// `text` as a JSON string, and `value` as a JSON number or null.
std::string jsonString(std::string_view text);
std::string jsonNumber(double value);

/// A file that is written whole, or the program ends with an error or, of a file whose
/// errors are tolerated, says so and goes on without it.
class OutputFile {
public:
  /// `mode` is fopen's.
  OutputFile(std::string path, const char *mode = "wb", bool tolerant = false);
  OutputFile(OutputFile &&other);
  ~OutputFile();

  /// From here on.
  void tolerate() { tolerant = true; }
  void write(std::string_view text);
  void rewind();
  void flush();
  void close();

private:
  void failed();

  std::string path;
  bool tolerant;
  std::FILE *file; // null: closed, or given up
};

} // namespace trainc::run

#endif // TRAINC_RUN_SUPPORT_H
