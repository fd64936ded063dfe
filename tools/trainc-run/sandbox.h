//===- sandbox.h - Memory in which writes are seen --------------*- C++ -*-===//
#ifndef TRAINC_RUN_SANDBOX_H
#define TRAINC_RUN_SANDBOX_H

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainc::run {

/// Regions of memory that code runs on alone. Pages are closed for writing until the
/// code writes to them, which marks them; no page beside a region can be accessed. One
/// sandbox at a time, on one thread.
class Sandbox {
public:
  static const uint64_t pageBytes; // the system's

  struct Region {
    uint64_t bytes;
    /// Address modulo 64.
    uint64_t alignment;
    /// A write to a region that is not writable is a fault.
    bool writable;
    // Set by the sandbox:
    char *pages = nullptr;
    uint64_t numPages = 0;
    /// Where the region begins in its pages: it ends as near to their end as its
    /// alignment lets it.
    uint64_t lead = 0;
    std::vector<bool> isMarked = {};
    std::vector<uint32_t> marked = {};

    char *data() const { return pages + lead; }
  };

  /// An access that is not allowed, `offset` bytes from the beginning of a region;
  /// without a region it is nowhere near one.
  struct Fault {
    std::optional<size_t> region;
    int64_t offset;
    bool write;
  };

  explicit Sandbox(std::vector<Region> regions);
  Sandbox(const Sandbox &) = delete;
  ~Sandbox();

  size_t size() const { return all.size(); }
  const Region &operator[](size_t region) const { return all[region]; }

  /// Opens a page for writing and marks it.
  void open(size_t region, uint64_t page);
  void openAll();
  /// Closes the pages that are marked, which then are not.
  void closeMarked();

  /// Runs code; what it did that is not allowed, and ended it.
  std::optional<Fault> run(const std::function<void()> &code);

private:
  static void handle(int signal, void *info, void *context);
  bool allow(char *address, bool write);

  std::vector<Region> all;
};

} // namespace trainc::run

#endif // TRAINC_RUN_SANDBOX_H
