//===- log.h - The log of a training ----------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_LOG_H
#define TRAINC_RUN_LOG_H

#include "support.h"

namespace trainc::run {

/// Opens a log of JSON lines, each of which begins with its step. Of a resumed
/// training, which has done `done` steps, the lines up to that one stay. The program
/// ends if it cannot be opened; what cannot be written later is told once.
OutputFile openLog(const std::string &path, uint64_t done);

} // namespace trainc::run

#endif // TRAINC_RUN_LOG_H
