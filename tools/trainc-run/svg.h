//===- svg.h - The loss curve -----------------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_SVG_H
#define TRAINC_RUN_SVG_H

#include <cstdint>
#include <string>
#include <vector>

namespace trainc::run {

struct Point {
  uint64_t step;
  double loss;
};

/// Writes the losses of steps, their running mean, and those of evaluations.
/// Losses that are not finite are left out.
void writeLossCurve(const std::string &path, const std::string &title,
                    const std::vector<Point> &losses,
                    const std::vector<Point> &evaluations);

} // namespace trainc::run

#endif // TRAINC_RUN_SVG_H
