// Mutated .npy files: refused, or an array that lies within its file. The reader is
// compiled with sanitizers here. Arguments: folder, count, seed.
//
// RUN: rm -rf %t && mkdir %t && %python %S/Inputs/arrays.py toy %t
// RUN: %cxx -std=c++20 -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all -I%trainc_src/tools/trainc-run -I%runtime_include -I%runtime_src %s %trainc_src/tools/trainc-run/arrays.cpp %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -ffunction-sections -fuse-ld=lld -Wl,--gc-sections -o %t/fuzz
// RUN: %t/fuzz %t 30000 1 | FileCheck %s
// CHECK: seed 1
// CHECK: {{[1-9][0-9]*}} accepted, {{[1-9][0-9]*}} refused

#include "arrays.h"
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace trainc::run {
namespace {
struct Refused {};
} // namespace

// What the reader needs of trainc-run, where an error ends the program. Writers, which
// need more, are not linked.
std::string format(const char *, ...) { return "text"; }
void fail(const char *, ...) { throw Refused(); }
} // namespace trainc::run

using namespace trainc::run;

static uint64_t state;
static uint64_t below(uint64_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % limit;
}

static std::string readFile(const std::string &path) {
  std::string text;
  std::FILE *file = std::fopen(path.c_str(), "rb");
  for (int c; file && (c = std::fgetc(file)) != EOF;)
    text += static_cast<char>(c);
  if (file)
    std::fclose(file);
  return text;
}

static const char *const pieces[] = {
    "'shape': (4,), ",
    "'shape': (4611686018427387904,), ",
    "'descr': '<f8', ",
    "'descr': '|b1', ",
    "'fortran_order': False, ",
    "True",
    "(",
    ")",
    "0",
    "(0, 4611686018427387904, 4611686018427387904)",
    "18446744073709551616",
    "4611686018427387904, ",
    "-1, ",
    "2147483648, ",
    "1e3",
    ",",
    "'",
    "}",
    "{",
    " ",
    "\n",
    "<u8"};

static void mutate(std::string &file, uint64_t headerBytes) {
  uint64_t place = 6 + below(headerBytes - 6);
  place = place < file.size() ? place : 0;
  std::string piece = pieces[below(std::size(pieces))];
  // Half of the changes of pieces stand before a key.
  size_t key = file.find("'", below(40));
  if (below(2) && key != std::string::npos)
    place = key;
  switch (below(8)) {
  case 0:
    file[place] = static_cast<char>(file[place] ^ 1 << below(8));
    break;
  case 1:
    file[place] = static_cast<char>(below(256));
    break;
  case 2: // a digit
    while (place + 1 < file.size() && (file[place] < '0' || file[place] > '9'))
      ++place;
    file[place] = static_cast<char>('0' + below(10));
    break;
  case 3: // over what is there
    file.replace(place, piece.size(), piece);
    break;
  case 4: // between, taken from the blanks at the header's end
    file.insert(place, piece);
    if (file.size() > headerBytes + piece.size())
      file.erase(headerBytes - 1, piece.size());
    break;
  case 5:
    file.erase(place, 1 + below(20));
    break;
  case 6:
    file.resize(below(4) ? file.size() : below(file.size() + 1));
    break;
  default:
    if (file.size() > 12)
      file[8 + below(4)] = static_cast<char>(below(256));
    break;
  }
}

int main(int argc, char **argv) {
  std::string folder = argc > 1 ? argv[1] : ".", path = folder + "/mutant.npy";
  uint64_t count = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1000;
  uint64_t accepted = 0;
  state = argc > 3 ? strtoull(argv[3], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(state));
  const std::string valid[] = {readFile(folder + "/x.npy"),
                               readFile(folder + "/y.npy")};
  for (uint64_t i = 0; i < count; ++i) {
    std::string content = valid[below(2)];
    for (uint64_t n = 1 + below(4); n > 0 && content.size() > 128; --n)
      mutate(content, 128);
    // The mapping ends where the file does: what is behind it is no memory.
    if (content.size() > 64 && below(2))
      content.append((4096 - content.size() % 4096) % 4096, 'x');
    std::FILE *file = std::fopen(path.c_str(), "wb");
    if (!file ||
        std::fwrite(content.data(), 1, content.size(), file) != content.size())
      return 1;
    std::fclose(file);
    try {
      const FileArray array = readArrays(path)[0];
      unsigned __int128 bytes = array.type.bytes;
      for (int64_t size : array.dims)
        bytes *= static_cast<uint64_t>(size);
      if (bytes > content.size() ||
          array.elements() * array.type.bytes != bytes) {
        std::printf("%s: %s\n", array.shape().c_str(), content.c_str());
        return 1;
      }
      std::vector<char> out(array.elements() * 8 + 8);
      for (uint32_t dtype = TRAINC_F32; dtype <= TRAINC_BOOL; ++dtype)
        if (isConvertible(array.type, dtype))
          (void)copyElements(array, 0, array.elements(), dtype, out.data());
      ++accepted;
    } catch (const Refused &) {
    }
  }
  std::printf("%llu accepted, %llu refused\n",
              static_cast<unsigned long long>(accepted),
              static_cast<unsigned long long>(count - accepted));
  return 0;
}
