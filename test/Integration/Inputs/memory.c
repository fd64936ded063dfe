//===- memory.c - What clang calls of the C library -----------------------===//
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    ((char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int byte, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    ((char *)to)[i] = (char)byte;
  return to;
}
