//===- support.cpp - Errors, texts and files of trainc-run ----------------===//

#include "support.h"
#include "ranks.h"
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace trainc::run {

bool lineIsOpen = false, incomplete = false;

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

/// As the runtime's texts: names in them must not steer a terminal.
std::string printable(std::string_view text) {
  std::string result;
  auto at = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    bool wide = at(i) == 0xC2 && at(i + 1) >= 0x80 && at(i + 1) < 0xA0;
    if (wide)
      result += format("\\x%02X", at(i++));
    if (wide || (at(i) < 0x20 && at(i) != '\n' && at(i) != '\t') ||
        at(i) == 0x7F)
      result += format("\\x%02X", at(i));
    else
      result += text[i];
  }
  return result;
}

static void print(const char *kind, std::string_view text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%strainc-run: %s%s\n", lineIsOpen ? "\n" : "", kind,
               printable(text).c_str());
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

void warn(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = vformat(format, arguments);
  va_end(arguments);
  incomplete = true;
  print("warning: ",
        isFirst() ? text : "rank " + std::to_string(rank()) + ": " + text);
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

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

OutputFile::OutputFile(std::string path, const char *mode, bool tolerant)
    : path(std::move(path)), tolerant(tolerant),
      file(std::fopen(this->path.c_str(), mode)) {
  if (!file)
    failed();
}

OutputFile::OutputFile(OutputFile &&other)
    : path(std::move(other.path)), tolerant(other.tolerant),
      file(std::exchange(other.file, nullptr)) {}

OutputFile::~OutputFile() {
  if (file)
    std::fclose(file);
}

void OutputFile::failed() {
  int number = errno;
  if (!tolerant)
    fail("cannot write '%s': %s", path.c_str(), std::strerror(number));
  warn("cannot write '%s': %s; going on without it", path.c_str(),
       std::strerror(number));
  if (std::FILE *given = std::exchange(file, nullptr))
    std::fclose(given);
}

void OutputFile::write(std::string_view text) {
  if (file && std::fwrite(text.data(), 1, text.size(), file) != text.size())
    failed();
}

void OutputFile::rewind() {
  if (file && std::fseek(file, 0, SEEK_SET) != 0)
    failed();
}

void OutputFile::flush() {
  if (file && std::fflush(file) != 0)
    failed();
}

void OutputFile::close() {
  if (file && std::fclose(std::exchange(file, nullptr)) != 0)
    failed();
}

//===----------------------------------------------------------------------===//
// The process
//===----------------------------------------------------------------------===//

static void closeStdout() {
  // Of an earlier failure the reason is gone.
  bool failed = std::ferror(stdout);
  const char *reason =
      std::fclose(stdout) != 0 ? std::strerror(errno) : nullptr;
  if (!failed && !reason)
    return;
  std::fprintf(stderr, "trainc-run: error: cannot write to stdout%s%s\n",
               reason ? ": " : "", reason ? reason : "");
  std::_Exit(1);
}

void prepareProcess() {
  // In the other direction than they are used, so that using them fails.
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/dev/null",
                  descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::atexit(closeStdout);
}

} // namespace trainc::run
