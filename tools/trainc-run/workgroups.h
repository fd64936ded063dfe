//===- workgroups.h - --check-workgroups ------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_WORKGROUPS_H
#define TRAINC_RUN_WORKGROUPS_H

#include "model.h"

namespace trainc::run {

/// trainc-run --check-workgroups N: runs N steps, and each eval once, and before each
/// command that workgroups share checks that these are independent of each other. Ends
/// the program with an error that names the command, the operand, the byte and the
/// workgroups if two write the same byte, if one needs what another writes or what
/// nothing has written, or if one touches memory that its command does not name.
void checkWorkgroups(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_WORKGROUPS_H
