//===- features.cpp - What this processor can do --------------------------===//

#include "cpu/features.h"
#include <sched.h>

using namespace trainc;

bool trainc::hasFeature(const char *name) {
  return hasFeature(name, strlen(name));
}

void trainc::appendMissingFeatures(const char *needed, Text &missing) {
  while (*needed) {
    size_t length = strcspn(needed, ",");
    const char *name = needed;
    needed += length + (needed[length] == ',');
    if (length && *name == '+') {
      ++name;
      --length;
    }
    if (!length || hasFeature(name, length))
      continue;
    if (missing.size())
      missing.append(',');
    missing.append(name, length);
  }
}

unsigned trainc::availableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return 1;
  int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<unsigned>(count) : 1;
}
