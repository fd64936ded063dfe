//===- mapped.h - Files that shrink while they are mapped -------*- C++ -*-===//
#ifndef TRAINC_RUN_MAPPED_H
#define TRAINC_RUN_MAPPED_H

namespace trainc::run {

/// Data, checkpoints and the artifact are mapped: if somebody makes such a file shorter,
/// the next access is SIGBUS. From now on the program then says which file it was and
/// ends with status 1; nothing is saved, as it ends in the middle of a step.
void watchMappedFiles();

} // namespace trainc::run

#endif // TRAINC_RUN_MAPPED_H
