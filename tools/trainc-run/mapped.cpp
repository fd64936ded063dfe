//===- mapped.cpp - Files that shrink while they are mapped ---------------===//

#include "mapped.h"
#include "support.h"
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace trainc::run {

namespace {
/// Reads lines of a file; calls nothing that a handler of signals may not call.
class Lines {
public:
  explicit Lines(const char *path) : file(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Lines() {
    if (file >= 0)
      close(file);
  }
  /// The next line, without its end; null behind the last. What is too long is cut.
  const char *next() {
    size_t length = 0;
    for (char c; (c = take()) != 0;) {
      if (c == '\n') {
        line[length] = 0;
        return line;
      }
      if (length + 1 < sizeof(line))
        line[length++] = c;
    }
    return nullptr;
  }

private:
  char take() {
    if (at == filled) {
      ssize_t got = read(file, buffer, sizeof(buffer));
      filled = got > 0 ? static_cast<size_t>(got) : 0;
      at = 0;
    }
    return at < filled ? buffer[at++] : '\0';
  }

  int file;
  size_t at = 0, filled = 0;
  char buffer[4096];
  char line[PATH_MAX + 128];
};
} // namespace

static uintptr_t parseHex(const char *&text) {
  uintptr_t value = 0;
  for (;; ++text)
    if (*text >= '0' && *text <= '9')
      value = value * 16 + static_cast<uintptr_t>(*text - '0');
    else if (*text >= 'a' && *text <= 'f')
      value = value * 16 + static_cast<uintptr_t>(*text - 'a' + 10);
    else
      return value;
}

/// The file that is mapped at `address`, or null: of a line such as
///   7f0c1c000000-7f0c1c021000 r--p 00000000 fe:01 1234   /data/x.npy
static const char *fileAt(Lines &maps, uintptr_t address) {
  while (const char *line = maps.next()) {
    uintptr_t begin = parseHex(line);
    line += *line == '-';
    uintptr_t end = parseHex(line);
    if (address >= begin && address < end)
      return std::strchr(line, '/');
  }
  return nullptr;
}

static void write(const char *text) {
  for (; *text; ++text) {
    char c =
        static_cast<unsigned char>(*text) < 0x20 && *text != '\n' ? '?' : *text;
    (void)!::write(STDERR_FILENO, &c, 1);
  }
}

static void explain(int number, siginfo_t *info, void *) {
  Lines maps("/proc/self/maps");
  const char *file = fileAt(maps, reinterpret_cast<uintptr_t>(info->si_addr));
  constexpr char shared[] = "/memfd:";
  if (!file || !std::strncmp(file, shared, sizeof(shared) - 1)) {
    std::signal(number, SIG_DFL); // happens again, and ends the program
    return;
  }
  write(lineIsOpen ? "\ntrainc-run: error: '" : "trainc-run: error: '");
  write(file);
  write("' could not be read: it has become shorter, or its disk has failed\n");
  _exit(1);
}

void watchMappedFiles() {
  struct sigaction action = {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

} // namespace trainc::run
