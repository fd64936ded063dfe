//===- library_file.cpp - Reading an artifact's file before it is loaded --===//
//
// The dynamic loader maps what it is given: it dies of SIGBUS in a truncated
// library, follows damaged tables, loads other libraries and runs initializers. So
// the file is read first. What is loaded is whole, has the checksum that trainc wrote
// (step_abi.h), has nothing to run, to load or to look up elsewhere, and changes no
// memory but its own; and its tables are of this ABI.
//
//===----------------------------------------------------------------------===//

#include "core/artifact.h"
#include "core/files.h"
#include <elf.h>
#include <errno.h>
#include <unistd.h>

using namespace trainc;

namespace {
/// An architecture that there is a runtime for.
struct Architecture {
  uint16_t machine;
  const char *name, *triple;
  // Relocations: by the place of the library, and to the address of a symbol.
  uint32_t relative, absolute, globalData, jumpSlot;
};
} // namespace

static constexpr Architecture architectures[] = {
    {EM_X86_64, "x86-64", "x86_64-linux-gnu", R_X86_64_RELATIVE, R_X86_64_64,
     R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT},
    {EM_AARCH64, "AArch64", "aarch64-linux-gnu", R_AARCH64_RELATIVE,
     R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT}};

/// This process's.
#if defined(__x86_64__)
static constexpr const Architecture &here = architectures[0];
#else
static constexpr const Architecture &here = architectures[1];
#endif

namespace {
class LibraryFile {
public:
  explicit LibraryFile(const char *path) : path(path) {}
  ~LibraryFile() {
    if (descriptor >= 0)
      close(descriptor);
  }

  trainc_status check() {
    TRAINC_TRY(openRegular(path, descriptor, size));
    TRAINC_TRY(checkSegments());
    TRAINC_TRY(checkChecksum());
    readDynamic();
    TRAINC_TRY(checkSymbols());
    TRAINC_TRY(checkRelocations(DT_RELA, DT_RELASZ));
    TRAINC_TRY(checkRelocations(DT_JMPREL, DT_PLTRELSZ));
    return foreign.size() ? refuseForeign() : TRAINC_OK;
  }

private:
  trainc_status checkSegments();
  bool findNote(uint64_t &place);
  bool findNoteSection();
  trainc_status checkChecksum();
  void readDynamic();
  uint64_t countHashed(uint64_t table);
  trainc_status checkSymbols();
  trainc_status checkDescriptor(uint64_t address);
  trainc_status checkRelocations(int table, int bytes);

  /// Reads bytes of the file; false if it does not have them.
  bool read(uint64_t place, void *data, uint64_t bytes) const;
  /// The same of what is at an address once the library is loaded.
  bool readAt(uint64_t address, void *data, uint64_t bytes) const;
  bool isWritable(uint64_t address) const;

  /// Keeps the first reason why this is no artifact.
  void isForeign(const char *why) {
    if (!foreign.size())
      foreign.append(why);
  }
  trainc_status refuseForeign() const {
    return fail(TRAINC_ABI_MISMATCH, "'%s' is no trainc artifact: it %s", path,
                foreign.c_str());
  }
  trainc_status isDamaged() const {
    return fail(TRAINC_DATA_CORRUPT, "'%s' is damaged", path);
  }

  const char *path;
  int descriptor = -1;
  uint64_t size = 0;
  Elf64_Ehdr header = {};
  Array<Elf64_Phdr> segments;
  uint64_t dynamic[DT_NUM] = {}; // values by tag
  uint64_t gnuHash = 0;
  uint64_t symbols = 0; // how many
  Text foreign;
};
} // namespace

bool LibraryFile::read(uint64_t place, void *data, uint64_t bytes) const {
  if (place > size || bytes > size - place)
    return false;
  for (uint64_t done = 0; done < bytes;) {
    ssize_t got = pread(descriptor, static_cast<char *>(data) + done,
                        bytes - done, static_cast<off_t>(place + done));
    if (got == 0 || (got < 0 && errno != EINTR))
      return false;
    done += got > 0 ? static_cast<uint64_t>(got) : 0;
  }
  return true;
}

bool LibraryFile::readAt(uint64_t address, void *data, uint64_t bytes) const {
  for (const Elf64_Phdr &segment : segments)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr <= segment.p_filesz &&
        bytes <= segment.p_filesz - (address - segment.p_vaddr))
      return read(segment.p_offset + (address - segment.p_vaddr), data, bytes);
  return false;
}

bool LibraryFile::isWritable(uint64_t address) const {
  for (const Elf64_Phdr &segment : segments)
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) &&
        address >= segment.p_vaddr && segment.p_memsz >= 8 &&
        address - segment.p_vaddr <= segment.p_memsz - 8)
      return true;
  return false;
}

trainc_status LibraryFile::checkSegments() {
  bool library = read(0, &header, sizeof(header)) &&
                 memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                 header.e_ident[EI_CLASS] == ELFCLASS64 &&
                 header.e_type == ET_DYN &&
                 header.e_phentsize == sizeof(Elf64_Phdr);
  for (const Architecture &other : architectures)
    if (library && header.e_machine == other.machine && &other != &here)
      return fail(TRAINC_UNSUPPORTED,
                  "'%s' is for %s, and this process is one for %s: compile it "
                  "with --target-triple=%s",
                  path, other.name, here.name, here.triple);
  if (!library || header.e_machine != here.machine)
    return fail(TRAINC_DATA_CORRUPT, "'%s' is no shared library for %s", path,
                here.name);
  segments.resize(header.e_phnum);
  bool whole = read(header.e_phoff, segments.data(),
                    segments.size() * sizeof(Elf64_Phdr));
  for (const Elf64_Phdr &segment : segments)
    whole = whole && segment.p_filesz <= size &&
            segment.p_offset <= size - segment.p_filesz;
  if (!whole)
    return fail(TRAINC_DATA_CORRUPT, "'%s' is truncated", path);
  return TRAINC_OK;
}

//===----------------------------------------------------------------------===//
// The checksum
//===----------------------------------------------------------------------===//

/// Finds the place of the checksum; false if there is none.
bool LibraryFile::findNote(uint64_t &place) {
  struct {
    Elf64_Nhdr header;
    char name[8];
  } note;
  for (const Elf64_Phdr &segment : segments) {
    if (segment.p_type != PT_NOTE)
      continue;
    uint64_t at = segment.p_offset, end = at + segment.p_filesz;
    while (end - at >= sizeof(note) && read(at, &note, sizeof(note))) {
      uint64_t name = alignUp(note.header.n_namesz, 4);
      uint64_t bytes = alignUp(note.header.n_descsz, 4);
      if (note.header.n_type == TRAINC_NOTE_CHECKSUM &&
          note.header.n_namesz == sizeof(TRAINC_NOTE_NAME) &&
          note.header.n_descsz == 8 &&
          !memcmp(note.name, TRAINC_NOTE_NAME, sizeof(TRAINC_NOTE_NAME))) {
        place = at + sizeof(note);
        return true;
      }
      uint64_t step = sizeof(note.header) + name + bytes;
      if (step > end - at)
        break;
      at += step;
    }
  }
  return false;
}

static constexpr char noteSection[] = ".note." TRAINC_NOTE_NAME;

/// Is there the section of the note? A note that is damaged is not found, but its section
/// is.
bool LibraryFile::findNoteSection() {
  Elf64_Shdr names, section;
  auto readHeader = [&](uint64_t index, Elf64_Shdr &to) {
    uint64_t offset = index * sizeof(to);
    return header.e_shentsize == sizeof(to) && header.e_shoff <= size &&
           read(header.e_shoff + offset, &to, sizeof(to));
  };
  if (!header.e_shnum || !readHeader(header.e_shstrndx, names))
    return false;
  char name[sizeof(noteSection)] = {};
  for (uint64_t i = 0; i < header.e_shnum; ++i)
    if (readHeader(i, section) && names.sh_offset <= size &&
        read(names.sh_offset + section.sh_name, name, sizeof(name)) &&
        !memcmp(name, noteSection, sizeof(name)))
      return true;
  return false;
}

trainc_status LibraryFile::checkChecksum() {
  uint64_t place, written, sum = size;
  if (!findNote(place))
    return findNoteSection() ? isDamaged() : TRAINC_OK;
  constexpr uint64_t most = 1 << 20;
  auto *piece = static_cast<char *>(malloc(most));
  if (!piece)
    return fail(TRAINC_OUT_OF_MEMORY, "no memory to read '%s'", path);
  bool good = read(place, &written, sizeof(written));
  for (uint64_t at = 0; good && at < size; at += most) {
    uint64_t bytes = size - at < most ? size - at : most;
    good = read(at, piece, bytes);
    for (uint64_t i = place; i < place + sizeof(written); ++i)
      if (i >= at && i < at + bytes)
        piece[i - at] = 0;
    sum = trainc_checksum(sum, piece, bytes);
  }
  free(piece);
  if (!good)
    return fail(TRAINC_IO_ERROR, "cannot read '%s': %s", path,
                errnoText(errno));
  if (sum == written)
    return TRAINC_OK;
  return fail(TRAINC_DATA_CORRUPT,
              "'%s' is damaged: its checksum is %016llx, trainc wrote %016llx",
              path, static_cast<unsigned long long>(sum),
              static_cast<unsigned long long>(written));
}

//===----------------------------------------------------------------------===//
// What the loader would do
//===----------------------------------------------------------------------===//

void LibraryFile::readDynamic() {
  for (const Elf64_Phdr &segment : segments) {
    if (segment.p_type != PT_DYNAMIC)
      continue;
    Elf64_Dyn entry = {};
    uint64_t end = segment.p_vaddr + segment.p_filesz;
    for (uint64_t at = segment.p_vaddr;
         end - at >= sizeof(entry) && readAt(at, &entry, sizeof(entry)) &&
         entry.d_tag != DT_NULL;
         at += sizeof(entry)) {
      if (entry.d_tag == DT_GNU_HASH)
        gnuHash = entry.d_un.d_val;
      else if (entry.d_tag >= 0 && entry.d_tag < DT_NUM)
        dynamic[entry.d_tag] = entry.d_un.d_val;
      switch (entry.d_tag) {
      case DT_NEEDED:
      case DT_FILTER:
      case DT_AUXILIARY:
      case DT_VERNEED:
        isForeign("needs other libraries");
        break;
      case DT_INIT:
      case DT_INIT_ARRAY:
      case DT_PREINIT_ARRAY:
      case DT_FINI:
      case DT_FINI_ARRAY:
        isForeign("has code that runs when it is loaded or unloaded");
        break;
      case DT_REL:
      case DT_RELR:
        isForeign("has relocations that no artifact has");
        break;
      }
    }
  }
}

/// How many symbols there are, by the table that finds them by hash.
uint64_t LibraryFile::countHashed(uint64_t table) {
  struct {
    uint32_t buckets, first, words, shift;
  } hash;
  if (!readAt(table, &hash, sizeof(hash)))
    return 0;
  uint64_t buckets = table + sizeof(hash) + uint64_t(hash.words) * 8;
  uint64_t chains = buckets + uint64_t(hash.buckets) * 4;
  uint32_t last = 0, value;
  for (uint32_t i = 0; i < hash.buckets; ++i) {
    if (!readAt(buckets + uint64_t(i) * 4, &value, sizeof(value)))
      return 0;
    last = value > last ? value : last;
  }
  if (last < hash.first)
    return hash.first;
  do
    if (!readAt(chains + uint64_t(last - hash.first) * 4, &value,
                sizeof(value)))
      return 0;
  while (last++ < UINT32_MAX && !(value & 1));
  return last;
}

trainc_status LibraryFile::checkSymbols() {
  uint32_t counts[2] = {}; // buckets, symbols
  if (gnuHash)
    symbols = countHashed(gnuHash);
  else if (readAt(dynamic[DT_HASH], counts, sizeof(counts)))
    symbols = counts[1];
  uint64_t found = 0;
  Text needed;
  for (uint64_t i = 1; i < symbols; ++i) {
    Elf64_Sym symbol;
    char name[64] = {};
    if (!readAt(dynamic[DT_SYMTAB] + i * sizeof(symbol), &symbol,
                sizeof(symbol)))
      return isDamaged();
    uint64_t room = dynamic[DT_STRSZ] - symbol.st_name;
    if (symbol.st_name >= dynamic[DT_STRSZ] ||
        !readAt(dynamic[DT_STRTAB] + symbol.st_name, name,
                room < sizeof(name) - 1 ? room : sizeof(name) - 1))
      return isDamaged();
    if (!strcmp(name, "trainc_descriptor"))
      found = symbol.st_value;
    if (symbol.st_shndx == SHN_UNDEF && !needed.size())
      needed.format("needs the symbol '%s' of another library", name);
    else if (ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC)
      isForeign("has code that runs when it is loaded or unloaded");
  }
  if (!found) {
    foreign.clear();
    isForeign("has no trainc_descriptor");
    return refuseForeign();
  }
  if (needed.size())
    isForeign(needed.c_str());
  return checkDescriptor(found);
}

trainc_status LibraryFile::checkDescriptor(uint64_t address) {
  trainc_descriptor d = {};
  if (!readAt(address, &d, sizeof(d.magic) + sizeof(d.abi_version)))
    return isDamaged();
  return checkAbi(path, d);
}

trainc_status LibraryFile::checkRelocations(int table, int bytes) {
  uint64_t count = dynamic[bytes] / sizeof(Elf64_Rela);
  Elf64_Rela pieces[64];
  for (uint64_t i = 0; i < count; ++i) {
    if (i % 64 == 0 &&
        !readAt(dynamic[table] + i * sizeof(Elf64_Rela), pieces,
                (count - i < 64 ? count - i : 64) * sizeof(Elf64_Rela)))
      return isDamaged();
    const Elf64_Rela &one = pieces[i % 64];
    uint64_t type = ELF64_R_TYPE(one.r_info), symbol = ELF64_R_SYM(one.r_info);
    bool known = type == here.relative ||
                 (symbol && symbol < symbols &&
                  (type == here.absolute || type == here.globalData ||
                   type == here.jumpSlot));
    if (!known || !isWritable(one.r_offset))
      isForeign("has relocations that no artifact has");
  }
  return TRAINC_OK;
}

trainc_status trainc::checkLibraryFile(const char *path) {
  return LibraryFile(path).check();
}
