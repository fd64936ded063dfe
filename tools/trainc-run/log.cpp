//===- log.cpp - The log of a training ------------------------------------===//

#include "log.h"
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace trainc::run {

/// Where in the file the lines up to step `done` end.
static uint64_t findEnd(const std::string &path, uint64_t done) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    fail("cannot read '%s': %s", path.c_str(), std::strerror(errno));
  uint64_t at = 0, end = 0;
  for (std::string line; std::getline(file, line);) {
    at += line.size() + 1;
    unsigned long long step = 0;
    int length = 0; // of a whole beginning
    std::sscanf(line.c_str(), "{\"step\":%llu,%n", &step, &length);
    // The last line of a killed run may lack its end.
    if (length && step <= done && !file.eof())
      end = at;
  }
  if (file.bad())
    fail("cannot read '%s': %s", path.c_str(), std::strerror(errno));
  return end;
}

OutputFile openLog(const std::string &path, uint64_t done) {
  struct stat info;
  bool goesOn = done && stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  // What stays is not touched: no moment is without it.
  if (goesOn &&
      truncate(path.c_str(), static_cast<off_t>(findEnd(path, done))) != 0)
    fail("cannot write '%s': %s", path.c_str(), std::strerror(errno));
  OutputFile log(path, goesOn ? "ab" : "wb");
  log.tolerate();
  return log;
}

} // namespace trainc::run
