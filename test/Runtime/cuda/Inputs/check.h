//===- check.h - Ends a test where something is not so ----------*- C++ -*-===//
#ifndef TRAINC_TEST_CUDA_CHECK_H
#define TRAINC_TEST_CUDA_CHECK_H

#include "trainc/runtime.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition,       \
             trainc_last_error());                                             \
      exit(1);                                                                 \
    }                                                                          \
  } while (false)
/// Success is 0 of the runtime and of the driver alike.
#define OK(call) CHECK((call) == 0)

#endif // TRAINC_TEST_CUDA_CHECK_H
