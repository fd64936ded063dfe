//===- outputs.h - Trying where results go ----------------------*- C++ -*-===//
#ifndef TRAINC_RUN_OUTPUTS_H
#define TRAINC_RUN_OUTPUTS_H

#include "model.h"

namespace trainc::run {

/// Before any work: reserves the folder of checkpoints, tries whether all files can be
/// written that will be written at its end, and looks for the space. Ends the program if
/// not.
void prepareOutputs(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_OUTPUTS_H
