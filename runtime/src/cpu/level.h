//===- level.h - The instructions that a file is compiled for ---*- C++ -*-===//
//
// For kernels.cpp and what it alone includes: what -march says.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_LEVEL_H
#define TRAINC_CPU_LEVEL_H

#if defined(__AVX512F__)
#define TRAINC_TABLE kernelsV4
#define TRAINC_LEVEL "x86-64-v4"
#define TRAINC_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define TRAINC_TABLE kernelsV3
#define TRAINC_LEVEL "x86-64-v3"
#define TRAINC_VECTOR_BYTES 32
#elif defined(__x86_64__)
#define TRAINC_TABLE kernelsV2
#define TRAINC_LEVEL "x86-64-v2"
#define TRAINC_VECTOR_BYTES 16
#elif defined(__aarch64__)
#define TRAINC_TABLE kernelsNeon
#define TRAINC_LEVEL "armv8-a"
#define TRAINC_VECTOR_BYTES 16
#endif

/// Whether vectors are multiplied and added at once. Without, there are no products.
#if defined(__FMA__) || defined(__aarch64__)
#define TRAINC_FUSES 1
#else
#define TRAINC_FUSES 0
#endif

#endif // TRAINC_CPU_LEVEL_H
