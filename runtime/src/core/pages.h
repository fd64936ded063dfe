//===- pages.h - Memory from the system -------------------------*- C++ -*-===//
#ifndef TRAINC_CORE_PAGES_H
#define TRAINC_CORE_PAGES_H

#include "core/status.h"

namespace trainc {

/// What the system hands out, at least. TRAINC_PAGE_BYTES asks for larger pages, as other
/// systems have them (for tests).
uint64_t pageBytes();

/// Bytes that a trainer holds, and the most it has held.
struct Account {
  uint64_t held = 0, peak = 0;

  void add(uint64_t bytes) {
    held += bytes;
    peak = held > peak ? held : peak;
  }
};

/// A range of addresses whose pages are zero when first touched. The account
/// counts the pages that are held; it must outlive them.
class Pages {
public:
  ~Pages() { release(); }
  Pages() = default;
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;

  /// Holds all of `bytes`, rounded up to pages.
  bool allocate(uint64_t bytes, Account &account);
  /// Addresses only: pages are counted by take() before they are written.
  bool reserve(uint64_t bytes, Account &account);
  /// The same of shared memory, which somebody else made and frees. What is dropped
  /// of it is gone for all that share it. It has whole pages.
  void borrow(char *memory, uint64_t bytes, Account &account);
  /// Memory of a device, which somebody else made and frees: an address and a count.
  void hold(char *address, uint64_t bytes, Account &account);
  void take(uint64_t count);
  void takeRest();
  /// Puts small pages together to huge ones, where the system can. It holds one
  /// more of these meanwhile, which is not resident here.
  void collapse();
  /// Gives pages back to the system. Their content is lost.
  void drop(uint64_t page, uint64_t count);
  void release();

  char *data() const { return start; }
  uint64_t size() const { return bytes; }
  void swap(Pages &other);

private:
  bool map(uint64_t bytes, int flags, Account &account);
  void preferSmall();

  char *start = nullptr;
  uint64_t bytes = 0, held = 0;
  bool borrowed = false, remote = false;
  Account *account = nullptr;
};

} // namespace trainc

#endif // TRAINC_CORE_PAGES_H
