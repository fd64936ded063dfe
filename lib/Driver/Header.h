//===- Header.h - The C header of an artifact -------------------*- C++ -*-===//
#ifndef TRAINC_LIB_DRIVER_HEADER_H
#define TRAINC_LIB_DRIVER_HEADER_H

#include "Tables.h"

namespace trainc {

/// The C header of an artifact.
std::string buildHeader(const Tables &tables);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_HEADER_H
