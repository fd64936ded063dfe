//===- sandbox.cpp - Memory in which writes are seen ----------------------===//

#include "sandbox.h"
#include "support.h"
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace trainc::run {

/// Addresses before and behind a region that nothing has.
static constexpr uint64_t aroundBytes = 64 << 10;

const uint64_t Sandbox::pageBytes =
    static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

static Sandbox *active = nullptr;
static Sandbox::Fault found;
static sigjmp_buf leave;
/// Libraries use the stack pointer for other things.
alignas(64) static char handlerStack[64 << 10];

static void protect(char *pages, uint64_t count, int access) {
  if (mprotect(pages, count * Sandbox::pageBytes, access) != 0)
    fail("cannot protect memory: %s", std::strerror(errno));
}

Sandbox::Sandbox(std::vector<Region> regions) : all(std::move(regions)) {
  for (Region &region : all) {
    uint64_t needed = region.bytes + 64;
    region.numPages = (needed + pageBytes - 1) / pageBytes;
    void *memory =
        mmap(nullptr, region.numPages * pageBytes + 2 * aroundBytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      fail("no memory for a copy of %llu bytes",
           static_cast<unsigned long long>(region.bytes));
    region.pages = static_cast<char *>(memory) + aroundBytes;
    protect(region.pages, region.numPages, PROT_READ | PROT_WRITE);
    uint64_t last = region.numPages * pageBytes - region.bytes;
    region.lead = last - ((last - region.alignment) & 63);
    region.isMarked.resize(region.numPages);
    region.marked.reserve(region.numPages); // the handler allocates nothing
  }
}

Sandbox::~Sandbox() {
  for (Region &region : all)
    munmap(region.pages - aroundBytes,
           region.numPages * pageBytes + 2 * aroundBytes);
}

void Sandbox::open(size_t region, uint64_t page) {
  Region &r = all[region];
  if (r.isMarked[page])
    return;
  protect(r.pages + page * pageBytes, 1, PROT_READ | PROT_WRITE);
  r.isMarked[page] = true;
  r.marked.push_back(static_cast<uint32_t>(page));
}

void Sandbox::openAll() {
  for (Region &r : all) {
    protect(r.pages, r.numPages, PROT_READ | PROT_WRITE);
    r.marked.clear();
    for (uint64_t page = 0; page < r.numPages; ++page)
      r.marked.push_back(static_cast<uint32_t>(page));
    r.isMarked.assign(r.numPages, true);
  }
}

void Sandbox::closeMarked() {
  for (Region &r : all) {
    if (r.marked.size() == r.numPages)
      protect(r.pages, r.numPages, PROT_READ);
    else
      for (uint32_t page : r.marked)
        protect(r.pages + page * pageBytes, 1, PROT_READ);
    for (uint32_t page : r.marked)
      r.isMarked[page] = false;
    r.marked.clear();
  }
}

/// Opens the page if code may write there; else notes the fault.
bool Sandbox::allow(char *address, bool write) {
  for (size_t i = 0; i < all.size(); ++i) {
    Region &r = all[i];
    if (address < r.pages - aroundBytes ||
        address >= r.pages + r.numPages * pageBytes + aroundBytes)
      continue;
    found = {i, address - r.data(), write};
    uint64_t page = static_cast<uint64_t>(address - r.pages) / pageBytes;
    if (address < r.pages || page >= r.numPages || !write || !r.writable ||
        r.isMarked[page])
      return false;
    open(i, page);
    return true;
  }
  found = {std::nullopt, 0, write};
  return false;
}

/// Whether it was a write that the system stopped.
static bool isWrite(const mcontext_t &machine) {
#if defined(__x86_64__)
  return (machine.gregs[REG_ERR] & 2) != 0;
#else
  // The record with the exception's syndrome, whose bit 6 (WnR) tells.
  const unsigned char *record = machine.__reserved;
  for (_aarch64_ctx head;; record += head.size) {
    std::memcpy(&head, record, sizeof head);
    if (head.magic == 0 || head.size == 0)
      return true; // there is none
    esr_context syndrome;
    if (head.magic != ESR_MAGIC)
      continue;
    std::memcpy(&syndrome, record, sizeof syndrome);
    return (syndrome.esr >> 6 & 1) != 0;
  }
#endif
}

void Sandbox::handle(int, void *info, void *context) {
  auto *address = static_cast<char *>(static_cast<siginfo_t *>(info)->si_addr);
  const auto &machine = static_cast<const ucontext_t *>(context)->uc_mcontext;
  if (!active->allow(address, isWrite(machine)))
    siglongjmp(leave, 1);
}

std::optional<Sandbox::Fault> Sandbox::run(const std::function<void()> &code) {
  struct sigaction action = {}, segmentation, bus;
  action.sa_sigaction = [](int signal, siginfo_t *info, void *context) {
    handle(signal, info, context);
  };
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  stack_t stack = {}, oldStack;
  stack.ss_sp = handlerStack;
  stack.ss_size = sizeof(handlerStack);
  sigaltstack(&stack, &oldStack);
  sigaction(SIGSEGV, &action, &segmentation);
  sigaction(SIGBUS, &action, &bus);
  active = this;
  bool ended = sigsetjmp(leave, /*savesigs=*/1) == 0;
  if (ended)
    code();
  active = nullptr;
  sigaction(SIGSEGV, &segmentation, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
  sigaltstack(&oldStack, nullptr);
  return ended ? std::nullopt : std::optional(found);
}

} // namespace trainc::run
