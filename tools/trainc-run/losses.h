//===- losses.h - The losses of a run ---------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_LOSSES_H
#define TRAINC_RUN_LOSSES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainc::run {

struct Point {
  uint64_t step;
  double loss;
};

/// A curve of any length in bounded memory: when it has too many points, each two
/// neighbours become their mean. Losses that are not finite are left out.
class Curve {
public:
  void add(uint64_t step, double loss);
  std::vector<Point> points() const;

private:
  struct Sum {
    uint64_t step; // the last one
    double loss;
    uint64_t count; // of the finite ones
  };

  std::vector<Sum> sums;
  uint64_t width = 1, open = 0; // steps per point, and of the last one
};

/// The last losses.
class LastLosses {
public:
  void add(double loss);
  uint64_t count() const { return seen; }
  /// The mean of the last `wanted`, as far as they are there.
  double mean(size_t wanted) const;
  static constexpr size_t most = 20;

private:
  double values[most] = {};
  uint64_t seen = 0;
};

} // namespace trainc::run

#endif // TRAINC_RUN_LOSSES_H
