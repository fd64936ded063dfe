//===- features.h - What this processor can do ------------------*- C++ -*-===//
#ifndef TRAINC_CPU_FEATURES_H
#define TRAINC_CPU_FEATURES_H

#include "core/containers.h"

namespace trainc {

/// Appends those features of `needed` (LLVM's names separated by commas, each
/// with or without a leading '+') that this processor or its operating system
/// lacks, or that are unknown here, separated by commas.
void appendMissingFeatures(const char *needed, Text &missing);

/// One feature by LLVM's name.
bool hasFeature(const char *name);
bool hasFeature(const char *name, size_t length);

/// Whether the environment holds this process to AVX2: then the processor has no
/// feature with larger registers. Of x86-64 only.
bool heldToAvx2();

/// Marketing name of the processor.
void appendProcessorName(Text &text);

/// Processors that this process may run on.
unsigned availableProcessors();

} // namespace trainc

#endif // TRAINC_CPU_FEATURES_H
