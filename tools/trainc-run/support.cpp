//===- support.cpp - Errors, texts and files of trainc-run ----------------===//

#include "support.h"
#include "ranks.h"
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace trainc::run {

bool lineIsOpen = false;

static std::string vformat(const char *format, va_list arguments) {
  va_list copy;
  va_copy(copy, arguments);
  int size = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  std::string text(size < 0 ? 0 : static_cast<size_t>(size), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

std::string format(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = vformat(format, arguments);
  va_end(arguments);
  return text;
}

static void print(const char *kind, std::string_view text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%strainc-run: %s%.*s\n", lineIsOpen ? "\n" : "", kind,
               static_cast<int>(text.size()), text.data());
  lineIsOpen = false;
}

void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = vformat(format, arguments);
  va_end(arguments);
  auto printError = [](const std::string &text) { print("error: ", text); };
  if (communicator())
    failTogether(text, printError);
  printError(text);
  std::exit(1);
}

void note(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = vformat(format, arguments);
  va_end(arguments);
  if (isFirst())
    print("", text);
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood).
static uint64_t mix(uint64_t x) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

uint64_t randomBits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix(mix(mix(seed) ^ stream) ^ index);
}

uint64_t randomBelow(uint64_t limit, uint64_t seed, uint64_t stream,
                     uint64_t index) {
  using Wide = unsigned __int128;
  return static_cast<uint64_t>(
      (static_cast<Wide>(randomBits(seed, stream, index)) * limit) >> 64);
}

double randomUnit(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t bits = randomBits(seed, stream, index) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

std::string jsonString(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      result += format("\\u%04x", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result + "\"";
}

std::string jsonNumber(double value) {
  return std::isfinite(value) ? format("%.17g", value) : "null";
}

OutputFile::OutputFile(std::string path, const char *mode)
    : path(std::move(path)), file(std::fopen(this->path.c_str(), mode)) {
  if (!file)
    failed();
}

OutputFile::OutputFile(OutputFile &&other)
    : path(std::move(other.path)), file(std::exchange(other.file, nullptr)) {}

OutputFile::~OutputFile() {
  if (file)
    std::fclose(file);
}

void OutputFile::failed() {
  fail("cannot write '%s': %s", path.c_str(), std::strerror(errno));
}

void OutputFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size())
    failed();
}

void OutputFile::rewind() {
  if (std::fseek(file, 0, SEEK_SET) != 0)
    failed();
}

void OutputFile::flush() {
  if (std::fflush(file) != 0)
    failed();
}

void OutputFile::close() {
  if (std::fclose(std::exchange(file, nullptr)) != 0)
    failed();
}

} // namespace trainc::run
