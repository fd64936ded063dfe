//===- svg.h - The loss curve -----------------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_SVG_H
#define TRAINC_RUN_SVG_H

#include "losses.h"
#include <string>

namespace trainc::run {

/// Writes the losses of steps, their running mean, and those of evaluations.
void writeLossCurve(const std::string &path, const std::string &title,
                    const Curve &losses, const Curve &evaluations);

} // namespace trainc::run

#endif // TRAINC_RUN_SVG_H
