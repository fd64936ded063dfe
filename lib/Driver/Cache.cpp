//===- Cache.cpp - What was compiled before, in a folder ------------------===//
#include "Cache.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace trainc;
namespace fs = llvm::sys::fs;

/// Also the version of the format.
static constexpr llvm::StringLiteral kMagic = "trainc cache 1\n";
static constexpr llvm::StringLiteral kExtension = ".trainc-cache";
static constexpr llvm::StringLiteral kTemporary = ".trainc-cache.tmp";
/// A file that is this old and not yet renamed is of a compiler that was ended.
static constexpr std::chrono::hours kAbandoned{1};

/// One line at once: several threads may have something to say.
static void warn(const llvm::Twine &message) {
  std::string line = ("trainc: warning: " + message + "\n").str();
  llvm::errs() << line;
}

//===----------------------------------------------------------------------===//
// The compiler
//===----------------------------------------------------------------------===//

/// The linker's hash of the loaded `object`; empty if it has none.
static llvm::ArrayRef<uint8_t> buildID(const dl_phdr_info &object) {
  for (const ElfW(Phdr) &segment :
       llvm::ArrayRef(object.dlpi_phdr, object.dlpi_phnum)) {
    if (segment.p_type != PT_NOTE)
      continue;
    auto *notes =
        reinterpret_cast<const uint8_t *>(object.dlpi_addr + segment.p_vaddr);
    uint64_t align = segment.p_align == 8 ? 8 : 4;
    for (uint64_t at = 0; at + sizeof(ElfW(Nhdr)) <= segment.p_memsz;) {
      auto &note = *reinterpret_cast<const ElfW(Nhdr) *>(notes + at);
      uint64_t name = at + sizeof note;
      uint64_t data = llvm::alignTo(name + note.n_namesz, align);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          llvm::StringRef(reinterpret_cast<const char *>(notes + name), 3) ==
              "GNU")
        return {notes + data, note.n_descsz};
      at = llvm::alignTo(data + note.n_descsz, align);
    }
  }
  return {};
}

namespace {
struct CompilerHash {
  llvm::BLAKE3 hasher;
  std::string error;
};
} // namespace

/// Adds what identifies the code of a loaded object: the program, LLVM, MLIR, and
/// the C library, whose functions fold constants.
static int addObject(dl_phdr_info *object, size_t, void *data) {
  auto &hash = *static_cast<CompilerHash *>(data);
  llvm::StringRef name = object->dlpi_name;
  // The kernel's part of a process computes nothing.
  if (name.starts_with("linux-vdso"))
    return 0;
  if (llvm::ArrayRef<uint8_t> id = buildID(*object); !id.empty()) {
    hash.hasher.update("id");
    hash.hasher.update(id);
    return 0;
  }
  auto file =
      llvm::MemoryBuffer::getFile(name.empty() ? "/proc/self/exe" : name.str());
  if (!file) {
    hash.error = "cannot read '" + name.str() +
                 "', part of the compiler: " + file.getError().message();
    return 1;
  }
  hash.hasher.update("content");
  hash.hasher.update((*file)->getBuffer());
  return 0;
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

/// Who else may change what `status` is of: what it holds becomes code that runs as
/// this user. Empty if nobody may.
static std::string whoElseWrites(const struct stat &status) {
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return "belongs to user " + std::to_string(status.st_uid);
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    return "can be written by others";
  return "";
}

std::unique_ptr<Cache> Cache::open(llvm::StringRef folder, std::string &error) {
  error.clear();
  fs::perms mode = fs::owner_all | fs::group_read | fs::group_exe |
                   fs::others_read | fs::others_exe;
  if (std::error_code code =
          fs::create_directories(folder, /*IgnoreExisting=*/true, mode)) {
    error = "cannot make the folder of the cache, '" + folder.str() +
            "': " + code.message();
    return nullptr;
  }
  struct stat status;
  if (stat(folder.str().c_str(), &status)) {
    error = "cannot read the folder of the cache, '" + folder.str() +
            "': " + llvm::errnoAsErrorCode().message();
    return nullptr;
  }
  if (std::string who = whoElseWrites(status); !who.empty()) {
    warn("the folder of the cache, '" + folder + "', " + who +
         ": it is not used");
    return nullptr;
  }
  auto cache = std::make_unique<Cache>();
  cache->folder = folder;
  // Whether it can be written is known when it is done.
  llvm::SmallString<128> path;
  std::error_code code =
      fs::createUniqueFile(folder + "/%%%%%%%%%%%%" + kTemporary, path);
  if (!code)
    code = fs::remove(path);
  if (code) {
    error = "cannot write to the folder of the cache, '" + folder.str() +
            "': " + code.message();
    return nullptr;
  }
  CompilerHash hash;
  if (dl_iterate_phdr(addObject, &hash)) {
    error = hash.error;
    return nullptr;
  }
  cache->compiler = hash.hasher.final<>();
  return cache;
}

static std::array<char, 8> sizeOf(llvm::StringRef text) {
  std::array<char, 8> size;
  llvm::support::endian::write64le(size.data(), text.size());
  return size;
}

Cache::Key Cache::keyOf(llvm::ArrayRef<llvm::StringRef> inputs) const {
  llvm::BLAKE3 hasher;
  hasher.update(kMagic);
  hasher.update(llvm::ArrayRef<uint8_t>(compiler));
  for (llvm::StringRef input : inputs) {
    // With its length: what ends here must not begin the next.
    std::array<char, 8> size = sizeOf(input);
    hasher.update(llvm::StringRef(size.data(), size.size()));
    hasher.update(input);
  }
  return hasher.final<>();
}

static llvm::StringRef textOf(const Cache::Key &bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

static Cache::Key hashOf(llvm::StringRef content) {
  return llvm::BLAKE3::hash<>(llvm::arrayRefFromStringRef(content));
}

std::string Cache::pathOf(const Key &key) const {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path,
                          llvm::toHex(key, /*LowerCase=*/true) + kExtension);
  return path.str().str();
}

/// The content of the file at `path`; null if there is none, or it is not to be used, of
/// which a message says why.
static std::unique_ptr<llvm::MemoryBuffer> readFile(const std::string &path) {
  // A pipe would not open before somebody writes to it.
  int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno != ENOENT)
      warn("cannot read '" + path + "': " + llvm::errnoAsErrorCode().message());
    return nullptr;
  }
  llvm::scope_exit close(
      [&] { llvm::sys::Process::SafelyCloseFileDescriptor(descriptor); });
  struct stat status;
  if (fstat(descriptor, &status) || !S_ISREG(status.st_mode)) {
    warn("cannot read '" + path + "': it is no regular file");
    return nullptr;
  }
  if (std::string who = whoElseWrites(status); !who.empty()) {
    warn("'" + path + "' " + who + ": it is not used");
    return nullptr;
  }
  // Read, not mapped: another process may change the file.
  auto file = llvm::MemoryBuffer::getOpenFile(descriptor, path, status.st_size,
                                              /*RequiresNullTerminator=*/false,
                                              /*IsVolatile=*/true);
  if (!file) {
    warn("cannot read '" + path + "': " + file.getError().message());
    return nullptr;
  }
  return std::move(*file);
}

void Cache::reportDamage(const Key &key) const {
  warn("'" + pathOf(key) + "' is damaged; compiling again");
}

/// Takes the next part of a file's content from the front of `rest`; nullopt if there is
/// none that is whole.
static std::optional<std::string> takePart(llvm::StringRef &rest) {
  if (rest.size() < sizeof(uint64_t))
    return std::nullopt;
  uint64_t size = llvm::support::endian::read64le(rest.data());
  rest = rest.drop_front(sizeof size);
  if (rest.size() < size)
    return std::nullopt;
  std::string part = rest.take_front(size).str();
  rest = rest.drop_front(size);
  return part;
}

std::optional<std::vector<std::string>> Cache::load(const Key &key,
                                                    size_t count) const {
  std::string path = pathOf(key);
  auto file = readFile(path);
  if (!file)
    return std::nullopt;
  llvm::StringRef rest = file->getBuffer();
  bool whole = rest.consume_front(kMagic) && rest.consume_front(textOf(key)) &&
               rest.size() >= key.size();
  if (whole) {
    llvm::StringRef hash = rest.take_front(key.size());
    rest = rest.drop_front(key.size());
    whole = hash == textOf(hashOf(rest));
  }
  std::vector<std::string> parts;
  while (whole && !rest.empty()) {
    auto part = takePart(rest);
    whole = part.has_value();
    if (part)
      parts.push_back(std::move(*part));
  }
  if (!whole || parts.size() != count) {
    reportDamage(key);
    return std::nullopt;
  }
  // Used now: `prune` keeps it. A file of root keeps its time.
  int descriptor;
  if (!fs::openFileForReadWrite(path, descriptor, fs::CD_OpenExisting,
                                fs::OF_None)) {
    fs::setLastAccessAndModificationTime(descriptor,
                                         std::chrono::system_clock::now());
    llvm::sys::Process::SafelyCloseFileDescriptor(descriptor);
  }
  return parts;
}

void Cache::store(const Key &key, llvm::ArrayRef<llvm::StringRef> parts) {
  if (!writable)
    return;
  std::string content;
  for (llvm::StringRef part : parts) {
    std::array<char, 8> size = sizeOf(part);
    content.append(size.begin(), size.end());
    content += part;
  }
  std::string path = pathOf(key);
  auto file = fs::TempFile::create(folder + "/%%%%%%%%%%%%" + kTemporary,
                                   fs::owner_read | fs::owner_write |
                                       fs::group_read | fs::others_read);
  llvm::Error failed = file.takeError();
  if (!failed) {
    llvm::raw_fd_ostream stream(file->FD, /*shouldClose=*/false);
    stream << kMagic << textOf(key) << textOf(hashOf(content)) << content;
    stream.flush();
    std::error_code code = stream.error();
    stream.clear_error();
    failed =
        code ? llvm::joinErrors(llvm::errorCodeToError(code), file->discard())
             : file->keep(path);
  }
  // One message will do.
  if (failed && writable.exchange(false))
    warn("cannot write '" + path + "': " + llvm::toString(std::move(failed)) +
         "; what is compiled is not kept");
  else
    llvm::consumeError(std::move(failed));
}

void Cache::prune(uint64_t bytes) const {
  struct Entry {
    llvm::sys::TimePoint<> used;
    uint64_t size;
    std::string path;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; it != end && !code;
       it.increment(code)) {
    llvm::StringRef path = it->path();
    bool temporary = path.ends_with(kTemporary);
    if (!temporary && !path.ends_with(kExtension))
      continue;
    auto status = it->status();
    if (!status)
      continue; // gone meanwhile
    if (!temporary) {
      total += status->getSize();
      entries.push_back(
          {status->getLastModificationTime(), status->getSize(), path.str()});
    } else if (status->getLastModificationTime() + kAbandoned <
               std::chrono::system_clock::now()) {
      fs::remove(path);
    }
  }
  llvm::sort(entries, [](const Entry &a, const Entry &b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  for (const Entry &entry : entries) {
    if (total <= bytes)
      break;
    fs::remove(entry.path);
    total -= entry.size;
  }
}
