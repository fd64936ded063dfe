//===- sample.h - Writing text with a character model -----------*- C++ -*-===//
#ifndef TRAINC_RUN_SAMPLE_H
#define TRAINC_RUN_SAMPLE_H

#include "model.h"

namespace trainc::run {

/// The eval entry that `sample` draws from. Ends the program if there is none, or if the
/// prompt is not of its vocabulary.
uint32_t findSampled(const Model &model, const Options &options);

/// trainc-run --sample N: prints the prompt and N characters, drawn one by one
/// from the logits of an eval entry. A token is the byte of its character.
void sample(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_SAMPLE_H
