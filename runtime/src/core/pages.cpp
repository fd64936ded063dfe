//===- pages.cpp - Memory from the system ---------------------------------===//

#include "core/pages.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace trainc;

/// MADV_COLLAPSE of Linux 6.1, which older headers do not have.
static constexpr int adviceCollapse = 25;

/// Of this size and alignment a range can be all huge pages.
static constexpr uint64_t hugeBytes = 2 << 20;

uint64_t trainc::pageBytes() {
  static uint64_t known; // 0: not yet
  uint64_t bytes = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (bytes)
    return bytes;
  bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const char *wanted = getenv("TRAINC_PAGE_BYTES");
  uint64_t larger = wanted ? strtoull(wanted, nullptr, 10) : 0;
  if (larger > bytes && larger <= hugeBytes && !(larger & (larger - 1)))
    bytes = larger;
  __atomic_store_n(&known, bytes, __ATOMIC_RELAXED);
  return bytes;
}

bool Pages::map(uint64_t size, int flags, Account &newAccount) {
  release();
  account = &newAccount;
  if (size == 0)
    return true;
  size = alignUp(size, pageBytes());
  uint64_t spare = size >= hugeBytes ? hugeBytes : 0;
  void *memory = mmap(nullptr, size + spare, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  start = static_cast<char *>(memory);
  bytes = size;
  if (spare) {
    uint64_t address = reinterpret_cast<uintptr_t>(memory);
    uint64_t before = alignUp(address, hugeBytes) - address;
    start += before;
    if (before)
      munmap(memory, before);
    munmap(start + size, spare - before);
  }
  return true;
}

bool Pages::allocate(uint64_t size, Account &newAccount) {
  if (!map(size, 0, newAccount))
    return false;
  takeRest();
  return true;
}

bool Pages::reserve(uint64_t size, Account &newAccount) {
  if (!map(size, MAP_NORESERVE, newAccount))
    return false;
  preferSmall();
  return true;
}

/// A huge page would be more than what is taken.
void Pages::preferSmall() {
  if (start)
    madvise(start, bytes, MADV_NOHUGEPAGE);
}

void Pages::take(uint64_t count) {
  held += count * pageBytes();
  account->add(count * pageBytes());
}

void Pages::takeRest() {
  if (!start)
    return;
  take((bytes - held) / pageBytes());
  // Large arenas walk fewer page tables in huge pages; only advice.
  if (!remote)
    madvise(start, bytes, MADV_HUGEPAGE);
}

void Pages::collapse() {
  if (start && !borrowed)
    madvise(start, bytes, adviceCollapse);
}

void Pages::drop(uint64_t page, uint64_t count) {
  // Shared memory would keep what is only not needed here.
  madvise(start + page * pageBytes(), count * pageBytes(),
          borrowed ? MADV_REMOVE : MADV_DONTNEED);
  held -= count * pageBytes();
  account->held -= count * pageBytes();
}

void Pages::borrow(char *memory, uint64_t size, Account &newAccount) {
  release();
  account = &newAccount;
  start = memory;
  bytes = start ? size : 0;
  borrowed = true;
  preferSmall();
}

void Pages::hold(char *address, uint64_t size, Account &newAccount) {
  release();
  account = &newAccount;
  start = address;
  bytes = start ? alignUp(size, pageBytes()) : 0;
  borrowed = remote = true;
  takeRest();
}

void Pages::release() {
  if (start && !borrowed)
    munmap(start, bytes);
  if (account)
    account->held -= held;
  start = nullptr;
  bytes = held = 0;
  borrowed = remote = false;
}

void Pages::swap(Pages &other) {
  trainc::swap(start, other.start);
  trainc::swap(bytes, other.bytes);
  trainc::swap(held, other.held);
  trainc::swap(borrowed, other.borrowed);
  trainc::swap(remote, other.remote);
  trainc::swap(account, other.account);
}
