// Random operands of products.
#ifndef RANDOM_H
#define RANDOM_H

#include <math.h>
#include <stdint.h>

#include <vector>

static uint64_t state = 88172645463325252ull;
/// Of either sign, of sizes from 2^-6 to 2.
static float random_value() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  double fraction = static_cast<double>(state >> 40) * 0x1p-23 - 1;
  return static_cast<float>(ldexp(fraction, -static_cast<int>(state & 7)) * 2);
}
static std::vector<float> random_values(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float &value : values)
    value = random_value();
  return values;
}

#endif
