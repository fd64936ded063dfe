//===- inspect.h - Listing a safetensors file -------------------*- C++ -*-===//
#ifndef TRAINC_RUN_INSPECT_H
#define TRAINC_RUN_INSPECT_H

#include <string>

namespace trainc::run {

/// trainc-run --inspect FILE: one line per tensor, then what the file says of
/// its training.
void inspect(const std::string &path);

} // namespace trainc::run

#endif // TRAINC_RUN_INSPECT_H
