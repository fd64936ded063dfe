//===- losses.cpp - The losses of a run -----------------------------------===//

#include "losses.h"
#include <algorithm>
#include <cmath>

namespace trainc::run {

static constexpr size_t mostPoints = 4000;

void Curve::add(uint64_t step, double loss) {
  if (open == 0) {
    if (sums.size() == mostPoints) {
      for (size_t i = 0; i < sums.size(); i += 2)
        sums[i / 2] = {sums[i + 1].step, sums[i].loss + sums[i + 1].loss,
                       sums[i].count + sums[i + 1].count};
      sums.resize(mostPoints / 2);
      width *= 2;
    }
    sums.push_back({step, 0, 0});
  }
  Sum &last = sums.back();
  last.step = step;
  if (std::isfinite(loss)) {
    last.loss += loss;
    ++last.count;
  }
  open = (open + 1) % width;
}

std::vector<Point> Curve::points() const {
  std::vector<Point> result;
  for (const Sum &sum : sums)
    if (sum.count)
      result.push_back({sum.step, sum.loss / static_cast<double>(sum.count)});
  return result;
}

void LastLosses::add(double loss) { values[seen++ % most] = loss; }

double LastLosses::mean(size_t wanted) const {
  uint64_t count = std::min<uint64_t>({wanted, most, seen});
  double sum = 0;
  for (uint64_t i = seen - count; i < seen; ++i)
    sum += values[i % most];
  return sum / static_cast<double>(count);
}

} // namespace trainc::run
