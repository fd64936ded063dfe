//===- launch.h - The workgroups of a launch, each alone --------*- C++ -*-===//
//
// Every workgroup of a command runs alone, on copies of all memory that it may touch.
// Memory that it is to write holds a pattern; what differs from the pattern afterwards
// is what the workgroup writes. A second run on the opposite pattern finds the bytes
// that were equal to the first one. Memory that is read and written holds its real
// content, so that zeros that are added would not be seen: two more runs, on other
// numbers and on signaling NaNs, which any arithmetic changes, find these.
//
// What a workgroup writes may not depend on the patterns: these stand where others
// write. Where others change what they read, two more runs have poison there.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_RUN_LAUNCH_H
#define TRAINC_RUN_LAUNCH_H

#include "sandbox.h"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainc::run {

/// What memory holds before a workgroup runs. In `Real` and the poisoned ones a
/// workgroup has its own input; in the others only what it writes is of interest.
enum class Image { Real, First, Second, PoisonFirst, PoisonSecond };

/// Memory that workgroups see.
struct Memory {
  std::string name; // "operand 3 (...)"
  uint32_t dtype;
  uint64_t bytes;
  const char *real; // what it holds before the launch, if it is read
  bool read, written;
  /// By all workgroups. Else it is undefined before each of them.
  bool shared = true;
  /// The real content may be replaced by other numbers, which lead nowhere else.
  bool replaceable = false;
  /// Of its address, modulo 64.
  uint64_t alignment = 0;
};

/// A byte of memory number `memory`.
struct Place {
  size_t memory;
  uint64_t byte;
};

/// The workgroups of a command, or of one stage of it.
class Launch {
public:
  using Run = std::function<void(void *const *data, int64_t number)>;

  Launch(std::string name, std::vector<Memory> memories, int64_t count,
         Run run);

  /// What is wrong, or an empty text.
  std::string check();
  /// Runs all workgroups, one after the other, and gives what memory holds then.
  std::vector<std::vector<char>> results();

private:
  std::string checkImage(Image image);
  std::string checkOne(Image image, int64_t number);
  bool isCompared(Image image) const;
  std::string claim(Image image, int64_t number, size_t m, uint64_t page);
  std::string take(Image image, int64_t number, size_t m, uint64_t byte);
  std::optional<Place> findDifferent(int64_t number) const;
  std::string explain(Image image, int64_t number, Place different);
  bool isNeeded(Image image, int64_t number, const std::vector<Place> &places);
  std::vector<Place> placesOf(int64_t from, int64_t to) const;
  std::string describeFault(int64_t number, const Sandbox::Fault &fault) const;

  uint64_t element(Image image, size_t m, uint64_t index) const;
  char original(size_t m, uint64_t byte) const;
  void fillPage(Image image, size_t m, uint64_t page, char *to) const;
  void fillAll(Image image);
  void giveOwn(int64_t number);
  std::optional<Sandbox::Fault> run(int64_t number);

  std::string where(Place place) const;
  std::string who(int64_t number) const;

  std::string name;
  std::vector<Memory> memories;
  int64_t count;
  Run function;
  Sandbox sandbox;
  bool changes = false; // something is read and written
  /// Per byte of memory: which workgroup writes it, plus 1, and what.
  std::vector<std::vector<uint32_t>> owner;
  std::vector<std::vector<char>> value;
  /// Pages that a workgroup writes to.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> pages;
};

} // namespace trainc::run

#endif // TRAINC_RUN_LAUNCH_H
