// Reads the data of .npy files, for the examples in C.
#ifndef TRAINC_EXAMPLES_NPY_H
#define TRAINC_EXAMPLES_NPY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// Reads the data of a .npy file (version 1) whose items are of `type`, "<f4"
/// or
/// "<i4"; its size goes to `bytes`. Ends the program if there is no such file.
static void *read_npy(const char *path, const char *type, size_t *bytes) {
  char header[65536] = "", *data = NULL;
  FILE *file = fopen(path, "rb");
  if (file && fread(header, 1, 10, file) == 10 &&
      !memcmp(header, "\x93NUMPY\1", 7)) {
    size_t length = (unsigned char)header[8] + 256u * (unsigned char)header[9];
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file) - 10 - length;
    fseek(file, 10, SEEK_SET);
    data = (char *)malloc(*bytes + 1);
    if (fread(header, 1, length, file) == length && strstr(header, type) &&
        data && fread(data, 1, *bytes, file) == *bytes) {
      fclose(file);
      return data;
    }
  }
  fprintf(stderr, "train: cannot read '%s' as a .npy file of %s\n", path, type);
  exit(1);
}

#endif
