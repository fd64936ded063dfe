// CRC-32C: the values of RFC 3720, B.4; the same with and without the processor's
// instruction, and for runs of bytes in any order, by any number of writers.
//
// RUN: %cxx -std=c++20 -O1 -g -Wall -Wextra -Werror -fno-exceptions -I%runtime_src -I%runtime_include %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t

#include "core/checksum.h"
#include "trainc/runtime.h"
#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

using namespace trainc;

static int failures = 0;

static void expect(const char *what, uint32_t found, uint32_t expected) {
  if (found == expected)
    return;
  printf("%s: %08x, expected %08x\n", what, found, expected);
  ++failures;
}

static uint32_t sumOf(const std::vector<unsigned char> &data) {
  Checksum sum(data.size());
  sum.add(0, data.data(), data.size());
  return sum.finish();
}

/// By its definition, bit by bit.
static uint32_t slowSum(const std::vector<unsigned char> &data) {
  uint32_t left = UINT32_MAX;
  for (unsigned char byte : data) {
    left ^= byte;
    for (int i = 0; i < 8; ++i)
      left = left >> 1 ^ (left & 1 ? 0x82F63B78u : 0);
  }
  return ~left;
}

/// Seconds per GiB of the function.
template <typename Function> static double time(Function function) {
  std::vector<unsigned char> data(64 << 20, 1);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto begin = std::chrono::steady_clock::now();
    volatile uint32_t left = function(0, data.data(), data.size());
    (void)left;
    best = std::min(best, std::chrono::duration<double>(
                              std::chrono::steady_clock::now() - begin)
                              .count());
  }
  return best * 16;
}

int main(int argc, char **) {
  std::vector<unsigned char> data(32);
  expect("zeros", sumOf(data), 0x8A9136AA);
  std::fill(data.begin(), data.end(), 0xFF);
  expect("ones", sumOf(data), 0x62A8AB43);
  for (unsigned char i = 0; i < 32; ++i)
    data[i] = i;
  expect("up", sumOf(data), 0x46DD794E);
  std::reverse(data.begin(), data.end());
  expect("down", sumOf(data), 0x113FDB5C);
  std::string digits = "123456789";
  expect("digits", sumOf({digits.begin(), digits.end()}), 0xE3069283);
  expect("nothing", sumOf({}), 0);

  std::mt19937_64 random(1);
  auto below = [&](uint64_t limit) { return random() % limit; };
  for (int round = 0; round < 300; ++round) {
    // Long ones reach the loop that takes three parts at once.
    data.resize(below(round % 3 ? 300 : 60000));
    for (unsigned char &byte : data)
      byte = static_cast<unsigned char>(random());
    uint32_t whole = slowSum(data), before = static_cast<uint32_t>(random());
    expect("whole", sumOf(data), whole);
    uint64_t from = data.empty() ? 0 : below(std::min<size_t>(data.size(), 9));
    expect("portable",
           crcRemainderPortable(before, data.data() + from, data.size() - from),
           crcRemainder(before, data.data() + from, data.size() - from));
    std::vector<unsigned char> zeros(below(20000));
    expect("shift", crcShift(before, zeros.size()),
           crcRemainder(before, zeros.data(), zeros.size()));

    std::vector<std::pair<uint64_t, uint64_t>> runs;
    for (uint64_t at = 0; at < data.size();) {
      uint64_t count = std::min<uint64_t>(1 + below(200), data.size() - at);
      runs.push_back({at, count});
      at += count;
    }
    if (round % 2)
      std::shuffle(runs.begin(), runs.end(), random);
    constexpr int writers = 3;
    std::vector<Checksum> sums(writers, Checksum(data.size()));
    for (auto [at, count] : runs)
      sums[below(writers)].add(at, data.data() + at, count);
    for (int i = 1; i < writers; ++i)
      sums[0].addPart(sums[i].part());
    expect("runs", sums[0].finish(), whole);
  }

  Text text;
  uint32_t value = 0;
  appendChecksum(text, 0x12AB);
  if (std::string(text.c_str()) != "crc32c:000012ab" ||
      !parseChecksum(text.c_str(), value) || value != 0x12AB)
    printf("text: %s, %08x\n", text.c_str(), value), ++failures;
  for (const char *bad : {"", "crc32c:", "crc32c:12ab", "crc32c:000012ab0",
                          "crc32c:000012AB", "crc32:000012ab", "000012ab"})
    if (parseChecksum(bad, value))
      printf("'%s' is taken\n", bad), ++failures;
  if (argc > 1)
    printf("%.1f GiB/s, portable %.1f GiB/s\n", 1 / time(crcRemainder),
           1 / time(crcRemainderPortable));
  return failures != 0;
}
