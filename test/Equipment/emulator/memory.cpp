//===- memory.cpp - What kernels may access, and in which order -----------===//
#include "machine.h"
#include <stdio.h>

using namespace trainc::emu;

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

static size_t pageCount(const Region &region) {
  return (region.bytes + kPageBytes - 1) / kPageBytes;
}

void trainc::emu::releasePages(Region &region) {
  if (!region.pages)
    return;
  for (size_t i = 0, e = pageCount(region); i < e; ++i)
    free(region.pages[i].cells);
  free(region.pages);
  region.pages = nullptr;
}

/// The first region that ends behind the address.
static size_t lowerRegion(trainc_emu &device, uintptr_t address) {
  size_t low = 0, high = device.regions.size;
  while (low < high) {
    size_t middle = (low + high) / 2;
    const Region &region = device.regions[middle];
    if (region.base + region.bytes <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool trainc::emu::addRegion(trainc_emu &device, uintptr_t base, size_t bytes,
                            const char *name, RegionKind kind, bool constant,
                            const void *owner) {
  size_t at = lowerRegion(device, base);
  Region region = {};
  region.base = base;
  region.bytes = bytes;
  region.kind = kind;
  region.constant = constant;
  region.owner = owner;
  region.name = strdup(name);
  region.pages = static_cast<Page *>(calloc(pageCount(region), sizeof(Page)));
  if (!region.name || !region.pages || !device.regions.push(region)) {
    free(region.name);
    free(region.pages);
    return false;
  }
  for (size_t i = device.regions.size - 1; i > at; --i)
    device.regions[i] = device.regions[i - 1];
  device.regions[at] = region;
  return true;
}

void trainc::emu::removeRegion(trainc_emu &device, size_t index) {
  releasePages(device.regions[index]);
  free(device.regions[index].name);
  for (size_t i = index + 1; i < device.regions.size; ++i)
    device.regions[i - 1] = device.regions[i];
  --device.regions.size;
}

Region *trainc::emu::findRegion(trainc_emu &device, uintptr_t address) {
  size_t &recent = device.recent[address >> 12 & 15];
  if (recent < device.regions.size) {
    Region &region = device.regions[recent];
    if (address - region.base < region.bytes)
      return &region;
  }
  size_t index = lowerRegion(device, address);
  if (index == device.regions.size ||
      address - device.regions[index].base >= device.regions[index].bytes)
    return nullptr;
  recent = index;
  return &device.regions[index];
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

bool trainc::emu::prepareShared(trainc_emu &device) {
  size_t bytes = device.launch.sharedBytes;
  if (bytes > device.sharedCapacity) {
    free(device.shared);
    free(device.initialized);
    free(device.pending);
    releasePages(device.sharedRegion);
    device.sharedCapacity = 0;
    size_t rounded = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    device.shared = static_cast<char *>(aligned_alloc(kPageBytes, rounded));
    device.initialized = static_cast<uint8_t *>(malloc(rounded));
    device.pending = static_cast<uint16_t *>(malloc(2 * rounded));
    device.sharedRegion.bytes = rounded;
    device.sharedRegion.pages =
        static_cast<Page *>(calloc(rounded / kPageBytes, sizeof(Page)));
    if (!device.shared || !device.initialized || !device.pending ||
        !device.sharedRegion.pages)
      return false;
    device.sharedCapacity = rounded;
    device.sharedRegion.base = reinterpret_cast<uintptr_t>(device.shared);
    device.sharedRegion.kind = RegionKind::Shared;
  }
  return true;
}

void trainc::emu::clearShared(trainc_emu &device) {
  size_t bytes = device.launch.sharedBytes;
  if (bytes == 0)
    return;
  // Not a number, in every type of floats.
  memset(device.shared, 0xff, bytes);
  memset(device.initialized, 0, bytes);
  memset(device.pending, 0, 2 * bytes);
  device.sharedRegion.generation = ++device.generation;
}

/// Whether the bytes belong to one variable of the block's memory, or to its
/// dynamic part. Gaps belong to none.
static bool insideShared(trainc_emu &device, uint64_t offset, size_t bytes) {
  const trainc_emu_image *image = device.launch.module->image;
  for (uint32_t i = 0; i < image->shared_count; ++i) {
    const trainc_emu_variable &variable = image->shared[i];
    uint64_t size =
        variable.bytes ? variable.bytes : device.launch.dynamicBytes;
    if (offset - variable.offset < size)
      return offset - variable.offset + bytes <= size;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Races
//===----------------------------------------------------------------------===//

[[noreturn]] static void faultMemory() {
  beginFault(TRAINC_EMU_OUT_OF_MEMORY, "no memory to remember accesses");
  endFault();
}

/// Whether an access of another block, to `address`, came before what `thread` does
/// now: by a fence, an atomic that this block has read, and a fence.
static bool isAcquired(const Launch &launch, const Thread &thread,
                       Record record, uintptr_t address) {
  uint32_t other = record.thread & ~kAtomic;
  for (size_t i = 0; i < launch.acquired.size; ++i) {
    const Acquired &known = launch.acquired[i];
    const Release &release = known.release;
    if (known.stamp == kUnfenced || record.stamp < release.begin ||
        (known.thread != thread.index && known.stamp >= launch.barrierStamp))
      continue;
    bool own = other == release.thread;
    if (record.stamp < (own ? release.fenced.own : release.fenced.end))
      return true;
    // The atomic itself needs no fence before it.
    if (own && record.thread & kAtomic && address == release.address &&
        record.stamp <= release.stamp)
      return true;
  }
  return false;
}

/// An atomic of `thread` at `address`, which orders nothing by itself.
static void observe(Thread &thread, uintptr_t address, uint32_t flags) {
  trainc_emu &device = *machine;
  Launch &launch = device.launch;
  bool fits = true;
  for (size_t i = 0; flags & TRAINC_EMU_READ && i < launch.releases.size; ++i)
    if (launch.releases[i].address == address)
      fits &=
          launch.acquired.push({launch.releases[i], thread.index, kUnfenced});
  if (flags & TRAINC_EMU_WRITE)
    fits &= launch.releases.push({address, thread.fenced, launch.blockStamp,
                                  thread.stamp, thread.index});
  if (!fits)
    faultMemory();
  thread.stamp = ++device.now; // what it does from now on came behind
}

void trainc::emu::fence() {
  trainc_emu &device = *machine;
  Launch &launch = device.launch;
  Thread &thread = *device.current;
  thread.fenced = {launch.barrierStamp, thread.stamp + 1};
  thread.stamp = ++device.now;
  for (size_t i = 0; i < launch.acquired.size; ++i)
    if (Acquired &known = launch.acquired[i];
        known.thread == thread.index && known.stamp == kUnfenced)
      known.stamp = device.now;
  size_t kept = 0;
  for (size_t i = 0; i < launch.stores.size; ++i)
    if (Record record = launch.stores[i].record;
        record.thread != thread.index && record.stamp >= launch.barrierStamp)
      launch.stores[kept++] = launch.stores[i];
  launch.stores.size = kept;
}

/// Whether a recorded access to `address` came before what `thread` does now.
static inline bool isOrdered(const Launch &launch, const Thread &thread,
                             Record record, uintptr_t address) {
  uint32_t other = record.thread & ~kAtomic;
  if (record.stamp < launch.blockStamp)
    return machine->lateStores || isAcquired(launch, thread, record, address);
  if (other == thread.index || record.stamp < launch.barrierStamp)
    return true;
  return other / kWarp == thread.index / kWarp &&
         record.stamp < thread.lanes[other % kWarp];
}

static inline bool races(const Launch &launch, const Thread &thread,
                         Record record, uintptr_t address, uint32_t flags) {
  if (record.stamp == 0 || isOrdered(launch, thread, record, address))
    return false;
  return !(record.thread & kAtomic && flags & TRAINC_EMU_ATOMIC);
}

static const char *verb(uint32_t flags) {
  if (flags & TRAINC_EMU_ATOMIC)
    return "updates atomically";
  return flags & TRAINC_EMU_WRITE ? "writes" : "reads";
}

[[noreturn]] static void reportRace(const Region &region, uintptr_t address,
                                    size_t bytes, uint32_t flags, Record record,
                                    bool write) {
  trainc_emu &device = *machine;
  const Launch &launch = device.launch;
  beginFault(TRAINC_EMU_RACE, region.kind == RegionKind::Shared
                                  ? "data race on shared memory"
                                  : "data race on global memory");
  sayAddress(device, address, bytes);
  say(device, "  this thread %s them; ", verb(flags));
  // The block that was running when the record was made.
  size_t place = launch.starts.size - 1;
  while (place > 0 && launch.starts[place] > record.stamp)
    --place;
  if (record.stamp < launch.blockStamp) {
    sayBlock(device, static_cast<uint32_t>(place));
    say(device, ", ");
  }
  sayThread(device, record.thread & ~kAtomic);
  say(device, " %s, and nothing orders the two\n",
      record.thread & kAtomic ? "updated them atomically"
      : write                 ? "wrote them"
                              : "read them");
  endFault();
}

/// Makes cells that stand for 1 << log2 bytes out of larger ones.
static bool splitPage(Page &page, uint32_t log2) {
  size_t count = kPageBytes >> log2, each = size_t(1) << (page.log2 - log2);
  Cell *cells = static_cast<Cell *>(malloc(count * sizeof(Cell)));
  if (!cells)
    return false;
  for (size_t i = 0; i < count; ++i)
    cells[i] = page.cells[i / each];
  free(page.cells);
  page.cells = cells;
  page.log2 = log2;
  return true;
}

static Page *usePage(Region &region, size_t index, uint32_t log2) {
  Page &page = region.pages[index];
  if (!page.cells) {
    page.log2 = log2;
    page.generation = region.generation;
    page.cells = static_cast<Cell *>(calloc(kPageBytes >> log2, sizeof(Cell)));
    return page.cells ? &page : nullptr;
  }
  if (page.generation != region.generation) {
    memset(page.cells, 0, (kPageBytes >> page.log2) * sizeof(Cell));
    page.generation = region.generation;
  }
  if (log2 < page.log2 && !splitPage(page, log2))
    return nullptr;
  return &page;
}

/// Remembers a read, if nothing later could tell it from those remembered.
static inline void noteRead(Cell &cell, Record record) {
  Record *reads = cell.reads;
  if (reads[0].thread != record.thread) {
    if (reads[0].thread / kWarp != record.thread / kWarp)
      reads[2] = reads[0];
    reads[1] = reads[0];
  }
  reads[0] = record;
}

/// Compares an access with those before, and remembers it.
static void checkOrder(Region &region, const Thread &thread, uintptr_t address,
                       size_t bytes, uint32_t flags) {
  trainc_emu &device = *machine;
  const Launch &launch = device.launch;
  size_t offset = address - region.base;
  uint32_t log2 = static_cast<uint32_t>(__builtin_ctzll(offset | bytes | 16));
  Record record = {thread.index | (flags & TRAINC_EMU_ATOMIC ? kAtomic : 0),
                   thread.stamp};
  for (size_t at = offset, end = offset + bytes; at < end;) {
    Page *page = usePage(region, at / kPageBytes, log2);
    if (!page)
      faultMemory();
    size_t stop = (at / kPageBytes + 1) * kPageBytes;
    if (stop > end)
      stop = end;
    size_t first = at % kPageBytes >> page->log2;
    size_t last = (stop - 1) % kPageBytes >> page->log2;
    for (size_t i = first; i <= last; ++i) {
      Cell &cell = page->cells[i];
      if (races(launch, thread, cell.write, address, flags))
        reportRace(region, address, bytes, flags, cell.write, true);
      if (!(flags & TRAINC_EMU_WRITE)) {
        noteRead(cell, record);
        continue;
      }
      for (const Record &read : cell.reads)
        if (races(launch, thread, read, address, flags))
          reportRace(region, address, bytes, flags, read, false);
      cell.write = record;
      cell.reads[0] = cell.reads[1] = cell.reads[2] = {};
    }
    at = stop;
  }
}

//===----------------------------------------------------------------------===//
// Late stores
//===----------------------------------------------------------------------===//

/// Remembers what a store of the block that runs is about to replace.
static void noteStore(const Thread &thread, uintptr_t address, size_t bytes) {
  while (bytes) {
    LateStore store = {address, {thread.index, thread.stamp}, 0, {}};
    store.bytes = bytes < sizeof(store.data) ? static_cast<uint32_t>(bytes)
                                             : sizeof(store.data);
    memcpy(store.data, reinterpret_cast<char *>(address), store.bytes);
    if (!machine->launch.stores.push(store))
      faultMemory();
    address += store.bytes;
    bytes -= store.bytes;
  }
}

void trainc::emu::hideStores(trainc_emu &device) {
  Launch &launch = device.launch;
  size_t first = launch.late.size;
  for (size_t i = 0; i < launch.stores.size; ++i)
    if (!launch.late.push(launch.stores[i]))
      return; // then they are seen at once
  for (size_t i = launch.late.size; i-- > first;) {
    LateStore &store = launch.late[i];
    char before[sizeof(store.data)];
    char *memory = reinterpret_cast<char *>(store.address);
    memcpy(before, store.data, store.bytes);
    memcpy(store.data, memory, store.bytes);
    memcpy(memory, before, store.bytes);
  }
  launch.stores.size = 0;
}

void trainc::emu::showStores(trainc_emu &device) {
  Launch &launch = device.launch;
  for (size_t i = 0; i < launch.late.size; ++i) {
    const LateStore &store = launch.late[i];
    memcpy(reinterpret_cast<char *>(store.address), store.data, store.bytes);
  }
  launch.late.size = 0;
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

[[noreturn]] static void fault(trainc_emu_status status, const char *title,
                               uintptr_t address, size_t bytes,
                               uint32_t flags) {
  beginFault(status, title);
  sayAddress(*machine, address, bytes);
  say(*machine, "  this thread %s them\n", verb(flags));
  endFault();
}

static void checkShared(Thread &thread, uintptr_t address, size_t bytes,
                        uint32_t flags) {
  trainc_emu &device = *machine;
  size_t offset = address - device.sharedRegion.base;
  if (!insideShared(device, offset, bytes))
    fault(TRAINC_EMU_OUT_OF_BOUNDS, "access outside of shared variables",
          address, bytes, flags);
  for (size_t i = offset; device.launch.copies && i < offset + bytes; ++i)
    if (device.pending[i]) {
      beginFault(TRAINC_EMU_PENDING_COPY,
                 "access to memory that a cp.async still writes");
      sayAddress(device, address, bytes);
      say(device, "  this thread %s them; the copy of ", verb(flags));
      sayThread(device, device.pending[i] - 1u);
      say(device, " to byte %zu of them was not waited for\n", i - offset);
      endFault();
    }
  uint8_t *initialized = device.initialized + offset;
  if (flags & TRAINC_EMU_READ)
    if (const void *first = memchr(initialized, 0, bytes)) {
      beginFault(TRAINC_EMU_UNINITIALIZED,
                 "read of uninitialised shared memory");
      sayAddress(device, address, bytes);
      say(device,
          "  this thread %s them; nothing wrote byte %td of them so far: is a "
          "barrier missing?\n",
          verb(flags), static_cast<const uint8_t *>(first) - initialized);
      endFault();
    }
  if (flags & TRAINC_EMU_WRITE)
    memset(initialized, 1, bytes);
  checkOrder(device.sharedRegion, thread, address, bytes, flags);
}

void trainc::emu::accessAs(Thread &thread, uintptr_t address, size_t bytes,
                           uint32_t flags) {
  trainc_emu &device = *machine;
  uint32_t space = flags >> 8;
  if (bytes == 0)
    return;
  if (++device.launch.accesses > device.limit) {
    beginFault(TRAINC_EMU_LIMIT, "launch that makes too many accesses");
    say(device, "  the limit is %llu: does a block wait for another?\n",
        static_cast<unsigned long long>(device.limit));
    endFault();
  }
  uintptr_t mask = (uintptr_t(1) << (flags >> 4 & 15)) - 1;
  if (address & mask) {
    beginFault(TRAINC_EMU_MISALIGNED, "misaligned access");
    sayAddress(device, address, bytes);
    say(device, "  this thread %s them with an instruction that needs %zu\n",
        verb(flags), static_cast<size_t>(mask + 1));
    endFault();
  }
  if (address - device.sharedRegion.base < device.launch.sharedBytes) {
    if (space == TRAINC_EMU_GLOBAL || space == TRAINC_EMU_CONSTANT)
      fault(TRAINC_EMU_OUT_OF_BOUNDS,
            "access to shared memory as if it was global", address, bytes,
            flags);
    return checkShared(thread, address, bytes, flags);
  }
  if (space == TRAINC_EMU_SHARED)
    fault(TRAINC_EMU_OUT_OF_BOUNDS, "access outside of shared memory", address,
          bytes, flags);
  Region *region = findRegion(device, address);
  if (!region) {
    // A thread's own arrays, by a generic pointer.
    uintptr_t stack = reinterpret_cast<uintptr_t>(thread.stack);
    if ((space == TRAINC_EMU_GENERIC || space == TRAINC_EMU_LOCAL) &&
        address - stack < kStackBytes)
      return;
    fault(TRAINC_EMU_OUT_OF_BOUNDS, "access outside of every allocation",
          address, bytes, flags);
  }
  if (address - region->base + bytes > region->bytes)
    fault(TRAINC_EMU_OUT_OF_BOUNDS, "access beyond the end of an allocation",
          address, bytes, flags);
  if (region->constant && flags & TRAINC_EMU_WRITE)
    fault(TRAINC_EMU_READ_ONLY, "write to a constant", address, bytes, flags);
  if (!region->constant) {
    if (region->generation < device.launch.firstGeneration) // of older launches
      region->generation = device.launch.firstGeneration;
    checkOrder(*region, thread, address, bytes, flags);
    if (flags & TRAINC_EMU_ATOMIC)
      observe(thread, address, flags);
    else if (device.lateStores && flags & TRAINC_EMU_WRITE)
      noteStore(thread, address, bytes);
  }
}

void trainc::emu::access(uintptr_t address, size_t bytes, uint32_t flags) {
  accessAs(*machine->current, address, bytes, flags);
}

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

void trainc::emu::finishCopies(Thread &thread, uint32_t group) {
  trainc_emu &device = *machine;
  size_t kept = 0;
  for (size_t i = 0; i < thread.copies.size; ++i) {
    Copy copy = thread.copies[i];
    if (copy.group >= group) {
      thread.copies[kept++] = copy;
      continue;
    }
    --device.launch.copies;
    size_t offset = copy.to - device.sharedRegion.base;
    memset(device.pending + offset, 0, 2 * copy.bytes);
    memset(reinterpret_cast<char *>(copy.to), 0, copy.bytes);
    access(copy.from, copy.read, TRAINC_EMU_READ);
    memcpy(reinterpret_cast<char *>(copy.to),
           reinterpret_cast<const char *>(copy.from), copy.read);
    access(copy.to, copy.bytes, TRAINC_EMU_WRITE);
  }
  thread.copies.size = kept;
}
