//===- launch.cpp - The workgroups of a launch, each alone ----------------===//

#include "launch.h"
#include "core/convert.h"
#include "support.h"
#include "trainc/step_abi.h"
#include <algorithm>
#include <array>
#include <cstring>

namespace trainc::run {

/// Workgroups of one launch that are run on poisoned memory at most, spread over all.
static constexpr int64_t mostPoisoned = 4096;

static std::vector<Sandbox::Region>
regionsOf(const std::vector<Memory> &memories) {
  std::vector<Sandbox::Region> regions;
  for (const Memory &memory : memories)
    regions.push_back({memory.bytes, memory.alignment, memory.written});
  return regions;
}

Launch::Launch(std::string name, std::vector<Memory> given, int64_t count,
               Run run)
    : name(std::move(name)), memories(std::move(given)), count(count),
      function(std::move(run)), sandbox(regionsOf(memories)),
      owner(memories.size()), value(memories.size()),
      pages(static_cast<size_t>(count)) {
  for (size_t m = 0; m < memories.size(); ++m) {
    changes |= memories[m].read && memories[m].written;
    if (!memories[m].written || !memories[m].shared)
      continue;
    owner[m].resize(memories[m].bytes);
    value[m].resize(memories[m].bytes);
  }
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

/// 64 random bits.
static uint64_t scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// A finite number of the type, about 1 or, with `other`, about -4; a small integer.
static uint64_t numberOf(uint32_t dtype, uint64_t bits, bool other) {
  switch (dtype) {
  case TRAINC_F32:
    return (other ? 0xC0800000 : 0x3F800000) | (bits & 0x7FFFFF);
  case TRAINC_F64:
    return (other ? 0xC010000000000000 : 0x3FF0000000000000) |
           (bits & 0xFFFFFFFFFFFFF);
  case TRAINC_BF16:
    return (other ? 0xC080 : 0x3F80) | (bits & 0x7F);
  case TRAINC_F16:
    return (other ? 0xC400 : 0x3C00) | (bits & 0x3FF);
  case TRAINC_BOOL:
    return (bits & 1) ^ other;
  default:
    return (bits & 7) + (other ? 8 : 0);
  }
}

/// A signaling NaN of the type, or another number of one that has none.
static uint64_t signalingOf(uint32_t dtype, uint64_t bits) {
  switch (dtype) {
  case TRAINC_F32:
    return 0x7F800001 | (bits & 0x3FFFFF);
  case TRAINC_F64:
    return 0x7FF0000000000001 | (bits & 0x7FFFFFFFFFFFF);
  case TRAINC_BF16:
    return 0x7F81 | (bits & 0x3F);
  case TRAINC_F16:
    return 0x7C01 | (bits & 0x1FF);
  default:
    return numberOf(dtype, bits, /*other=*/true);
  }
}

/// The bits of an element in an image.
uint64_t Launch::element(Image image, size_t m, uint64_t index) const {
  const Memory &memory = memories[m];
  uint64_t size = trainc_dtype_size(memory.dtype);
  uint64_t bits = scramble(index + (static_cast<uint64_t>(m) << 48));
  auto real = [&] {
    uint64_t result = 0;
    std::memcpy(&result, memory.real + index * size, size);
    return result;
  };
  if (!memory.written)
    return image == Image::Second && memory.replaceable
               ? numberOf(memory.dtype, bits, false)
               : real();
  if (!memory.read) {
    bits = memory.dtype == TRAINC_BOOL ? bits & 1 : bits;
    if (image == Image::First || image == Image::PoisonSecond)
      return bits ^ (memory.dtype == TRAINC_BOOL ? 1 : UINT64_MAX);
    return bits;
  }
  if (image == Image::First)
    return numberOf(memory.dtype, bits, false);
  if (image == Image::Second)
    return signalingOf(memory.dtype, bits);
  if (image == Image::Real || !owner[m][index * size])
    return real();
  return image == Image::PoisonFirst ? UINT64_MAX
                                     : numberOf(memory.dtype, bits, true);
}

/// A byte of the image `Real`.
char Launch::original(size_t m, uint64_t byte) const {
  uint64_t size = trainc_dtype_size(memories[m].dtype);
  uint64_t bits = element(Image::Real, m, byte / size);
  return static_cast<char>(bits >> (8 * (byte % size)));
}

/// The content of a page; what is beside the memory holds a pattern.
void Launch::fillPage(Image image, size_t m, uint64_t page, char *to) const {
  const Sandbox::Region &region = sandbox[m];
  uint64_t size = trainc_dtype_size(memories[m].dtype);
  uint64_t begin = page * Sandbox::pageBytes, end = begin + Sandbox::pageBytes;
  uint64_t first = std::max(begin, region.lead),
           last = std::min(end, region.lead + region.bytes);
  std::memset(to, 0x5A, Sandbox::pageBytes);
  bool isReal =
      memories[m].read && (image == Image::Real ||
                           (!memories[m].written && image != Image::Second));
  if (isReal && first < last) {
    std::memcpy(to + (first - begin), memories[m].real + (first - region.lead),
                last - first);
    return;
  }
  for (uint64_t at = first; at < last; at += size) {
    uint64_t bits = element(image, m, (at - region.lead) / size);
    std::memcpy(to + (at - begin), &bits, size);
  }
}

void Launch::fillAll(Image image) {
  sandbox.openAll();
  for (size_t m = 0; m < memories.size(); ++m)
    for (uint64_t page = 0; page < sandbox[m].numPages; ++page)
      fillPage(image, m, page, sandbox[m].pages + page * Sandbox::pageBytes);
  sandbox.closeMarked();
}

/// Replaces poison by the real content where the workgroup itself writes.
void Launch::giveOwn(int64_t number) {
  for (auto [m, page] : pages[static_cast<size_t>(number)]) {
    if (!memories[m].read)
      continue;
    sandbox.open(m, page);
    const Sandbox::Region &region = sandbox[m];
    for (uint64_t i = 0; i < Sandbox::pageBytes; ++i) {
      uint64_t byte = page * Sandbox::pageBytes + i - region.lead;
      if (byte < region.bytes && owner[m][byte] == number + 1)
        region.data()[byte] = memories[m].real[byte];
    }
  }
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

std::string Launch::who(int64_t number) const {
  return format("workgroup %lld of %s", static_cast<long long>(number),
                name.c_str());
}

std::string Launch::where(Place place) const {
  return format("byte %llu of %s", static_cast<unsigned long long>(place.byte),
                memories[place.memory].name.c_str());
}

std::string Launch::describeFault(int64_t number,
                                  const Sandbox::Fault &fault) const {
  const char *does = fault.write ? "writes" : "reads";
  if (!fault.region)
    return format("%s %s memory that is no operand", who(number).c_str(), does);
  const Memory &memory = memories[*fault.region];
  bool inside =
      fault.offset >= 0 && fault.offset < static_cast<int64_t>(memory.bytes);
  return format("%s %s byte %lld of %s, which %s", who(number).c_str(), does,
                static_cast<long long>(fault.offset), memory.name.c_str(),
                inside ? "is only read"
                       : format("has %llu bytes",
                                static_cast<unsigned long long>(memory.bytes))
                             .c_str());
}

//===----------------------------------------------------------------------===//
// One workgroup
//===----------------------------------------------------------------------===//

std::optional<Sandbox::Fault> Launch::run(int64_t number) {
  std::vector<void *> data;
  for (size_t m = 0; m < memories.size(); ++m)
    data.push_back(sandbox[m].data());
  return sandbox.run([&] { function(data.data(), number); });
}

/// Whether what a workgroup writes in this image must be what it writes in `Real`.
bool Launch::isCompared(Image image) const {
  return image == Image::PoisonFirst || image == Image::PoisonSecond ||
         (image == Image::First && !changes);
}

/// Notes that the workgroup writes a byte; what is wrong with that, or nothing.
std::string Launch::take(Image image, int64_t number, size_t m, uint64_t byte) {
  uint32_t &by = owner[m][byte];
  if (by && by != number + 1)
    return format("workgroups %u and %lld of %s both write %s", by - 1,
                  static_cast<long long>(number), name.c_str(),
                  where({m, byte}).c_str());
  if (image == Image::Real)
    value[m][byte] = sandbox[m].data()[byte];
  else if (!by)
    value[m][byte] = original(m, byte);
  by = static_cast<uint32_t>(number + 1);
  return "";
}

/// Finds what the workgroup has written in a page.
std::string Launch::claim(Image image, int64_t number, size_t m,
                          uint64_t page) {
  const Sandbox::Region &region = sandbox[m];
  const Memory &memory = memories[m];
  std::vector<char> before(Sandbox::pageBytes);
  fillPage(image, m, page, before.data());
  const char *after = region.pages + page * Sandbox::pageBytes;
  if (!std::memcmp(before.data(), after, before.size()))
    return "";
  if (memory.shared)
    pages[static_cast<size_t>(number)].emplace_back(m, page);
  // Numbers that are read and written are taken whole: an exponent may be equal.
  uint64_t unit = memory.read ? trainc_dtype_size(memory.dtype) : 1;
  for (uint64_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i])
      continue;
    auto byte = static_cast<int64_t>(page * Sandbox::pageBytes + i) -
                static_cast<int64_t>(region.lead);
    if (byte < 0 || byte >= static_cast<int64_t>(memory.bytes))
      return describeFault(number, {m, byte, /*write=*/true});
    if (!memory.shared)
      continue;
    uint64_t first = static_cast<uint64_t>(byte) / unit * unit;
    for (uint64_t k = first; k < first + unit; ++k)
      if (std::string wrong = take(image, number, m, k); !wrong.empty())
        return wrong;
  }
  return "";
}

/// A byte that the workgroup has not written as in `Real`.
std::optional<Place> Launch::findDifferent(int64_t number) const {
  for (auto [m, page] : pages[static_cast<size_t>(number)]) {
    const Sandbox::Region &region = sandbox[m];
    for (uint64_t i = 0; i < Sandbox::pageBytes; ++i) {
      uint64_t byte = page * Sandbox::pageBytes + i - region.lead;
      if (byte < region.bytes && owner[m][byte] == number + 1 &&
          region.data()[byte] != value[m][byte])
        return Place{m, byte};
    }
  }
  return std::nullopt;
}

std::string Launch::checkOne(Image image, int64_t number) {
  bool records = image <= Image::Second;
  if (!records)
    giveOwn(number);
  if (auto fault = run(number))
    return describeFault(number, *fault);
  for (size_t m = 0; records && m < memories.size(); ++m)
    for (uint32_t page : sandbox[m].marked)
      if (std::string wrong = claim(image, number, m, page); !wrong.empty())
        return wrong;
  if (isCompared(image))
    if (std::optional<Place> different = findDifferent(number))
      return explain(image, number, *different);
  for (size_t m = 0; m < memories.size(); ++m)
    for (uint32_t page : sandbox[m].marked)
      fillPage(image, m, page, sandbox[m].pages + page * Sandbox::pageBytes);
  sandbox.closeMarked();
  return "";
}

//===----------------------------------------------------------------------===//
// Why results differ
//===----------------------------------------------------------------------===//

/// What workgroups from `from` to before `to` write.
std::vector<Place> Launch::placesOf(int64_t from, int64_t to) const {
  std::vector<Place> places;
  for (size_t m = 0; m < memories.size(); ++m)
    for (uint64_t byte = 0; byte < owner[m].size(); ++byte)
      if (owner[m][byte] > from && owner[m][byte] <= to)
        places.push_back({m, byte});
  return places;
}

/// Whether the workgroup writes something else where these places hold what they do in
/// `image`.
bool Launch::isNeeded(Image image, int64_t number,
                      const std::vector<Place> &places) {
  fillAll(Image::Real);
  sandbox.openAll();
  for (Place place : places) {
    uint64_t size = trainc_dtype_size(memories[place.memory].dtype);
    uint64_t bits = element(image, place.memory, place.byte / size);
    sandbox[place.memory].data()[place.byte] =
        static_cast<char>(bits >> (8 * (place.byte % size)));
  }
  return run(number) || findDifferent(number);
}

/// One of `places` without which `isNeeded` would not hold, as far as one decides.
template <typename Needs>
static Place narrow(std::vector<Place> places, Needs needs) {
  while (places.size() > 1) {
    auto middle = places.begin() + static_cast<ptrdiff_t>(places.size() / 2);
    std::vector<Place> front(places.begin(), middle);
    if (needs(front))
      places = std::move(front);
    else
      places.erase(places.begin(), middle);
  }
  return places.front();
}

std::string Launch::explain(Image image, int64_t number, Place different) {
  // What is undefined has another pattern in `First`.
  Image other = changes ? image : Image::First;
  if (image == Image::PoisonFirst)
    other = Image::PoisonFirst;
  auto needs = [&](const std::vector<Place> &places) {
    return !places.empty() &&
           (isNeeded(other, number, places) ||
            (changes && isNeeded(Image::PoisonSecond, number, places)));
  };
  std::string reader = who(number);
  // By halves: the workgroups before it, or those behind.
  for (auto [low, high] :
       {std::pair<int64_t, int64_t>(0, number), {number + 1, count}}) {
    if (!needs(placesOf(low, high)))
      continue;
    while (high - low > 1) {
      int64_t middle = low + (high - low) / 2;
      (needs(placesOf(low, middle)) ? high : low) = middle;
    }
    return format("%s reads %s, which workgroup %lld writes", reader.c_str(),
                  where(narrow(placesOf(low, high), needs)).c_str(),
                  static_cast<long long>(low));
  }
  std::vector<Place> own, nobodys;
  for (size_t m = 0; m < memories.size(); ++m)
    for (uint64_t byte = 0; byte < memories[m].bytes; ++byte) {
      if (!memories[m].written || memories[m].read)
        continue;
      if (!memories[m].shared || !owner[m][byte])
        nobodys.push_back({m, byte});
      else if (owner[m][byte] == number + 1)
        own.push_back({m, byte});
    }
  if (needs(own))
    return format("%s reads %s before it writes it", reader.c_str(),
                  where(narrow(own, needs)).c_str());
  if (needs(nobodys))
    return format("%s reads %s, which nothing has written", reader.c_str(),
                  where(narrow(nobodys, needs)).c_str());
  return format("%s does not always write the same to %s", reader.c_str(),
                where(different).c_str());
}

//===----------------------------------------------------------------------===//
// All workgroups
//===----------------------------------------------------------------------===//

std::string Launch::checkImage(Image image) {
  fillAll(image);
  int64_t step =
      image > Image::Second ? (count + mostPoisoned - 1) / mostPoisoned : 1;
  for (int64_t number = 0; number < count; number += step)
    if (std::string wrong = checkOne(image, number); !wrong.empty())
      return wrong;
  if (step > 1 && image == Image::PoisonFirst)
    note("of the %lld workgroups of %s one in %lld ran on poisoned memory",
         static_cast<long long>(count), name.c_str(),
         static_cast<long long>(step));
  return "";
}

std::string Launch::check() {
  for (Image image : {Image::Real, Image::First, Image::Second,
                      Image::PoisonFirst, Image::PoisonSecond}) {
    if (!changes && image > Image::First)
      break;
    if (std::string wrong = checkImage(image); !wrong.empty())
      return wrong;
    if (image == Image::Real || image > Image::Second)
      continue;
    for (auto &list : pages) { // found in several images
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }
  return "";
}

std::vector<std::vector<char>> Launch::results() {
  fillAll(Image::Real);
  for (int64_t number = 0; number < count; ++number)
    run(number);
  std::vector<std::vector<char>> results;
  for (size_t m = 0; m < memories.size(); ++m)
    results.emplace_back(sandbox[m].data(),
                         sandbox[m].data() + sandbox[m].bytes);
  return results;
}

} // namespace trainc::run
