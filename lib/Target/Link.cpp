//===- Link.cpp - Several objects as one, or as a library -----------------===//
#include "trainc/Target/Object.h"
#include "trainc/step_abi.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/ObjCopy/ConfigManager.h"
#include "llvm/ObjCopy/ObjCopy.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Object/ELF.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include <sys/mman.h>
#include <unistd.h>

using namespace trainc;

static llvm::LogicalResult failWith(std::string &error,
                                    const llvm::Twine &message) {
  error = message.str();
  return llvm::failure();
}

static llvm::MemoryBufferRef bufferOf(llvm::ArrayRef<char> object,
                                      llvm::StringRef name) {
  return llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()),
                               name);
}

/// Changes `object` as `config` says.
static llvm::LogicalResult change(ObjectFile &object,
                                  const llvm::objcopy::ConfigManager &config,
                                  std::string &error) {
  auto file =
      llvm::object::ObjectFile::createObjectFile(bufferOf(object, "object"));
  if (!file)
    return failWith(error, llvm::toString(file.takeError()));
  ObjectFile result;
  llvm::raw_svector_ostream stream(result);
  if (llvm::Error failed =
          llvm::objcopy::executeObjcopyOnBinary(config, **file, stream))
    return failWith(error, llvm::toString(std::move(failed)));
  file->reset();
  object = std::move(result);
  return llvm::success();
}

llvm::LogicalResult trainc::renameSymbol(ObjectFile &object,
                                         llvm::StringRef from,
                                         llvm::StringRef to,
                                         std::string &error) {
  llvm::objcopy::ConfigManager config;
  config.Common.SymbolsToRename[from] = to;
  return change(object, config, error);
}

llvm::LogicalResult
trainc::findUndefined(llvm::ArrayRef<ObjectFile> objects,
                      llvm::SmallVectorImpl<UndefinedSymbol> &undefined,
                      std::string &error) {
  llvm::StringSet<> defined;
  llvm::SmallVector<UndefinedSymbol> needed;
  for (auto [index, object] : llvm::enumerate(objects)) {
    auto file =
        llvm::object::ObjectFile::createObjectFile(bufferOf(object, "object"));
    if (!file)
      return failWith(error, llvm::toString(file.takeError()));
    for (llvm::object::SymbolRef symbol : (*file)->symbols()) {
      auto flags = symbol.getFlags();
      if (!flags)
        return failWith(error, llvm::toString(flags.takeError()));
      auto name = symbol.getName();
      if (!name)
        return failWith(error, llvm::toString(name.takeError()));
      if (*flags & llvm::object::SymbolRef::SF_FormatSpecific)
        continue;
      if (*flags & llvm::object::SymbolRef::SF_Undefined)
        needed.push_back({name->str(), index});
      else if (*flags & llvm::object::SymbolRef::SF_Global)
        defined.insert(*name);
    }
  }
  for (UndefinedSymbol &symbol : needed)
    if (!defined.contains(symbol.name))
      undefined.push_back(std::move(symbol));
  return llvm::success();
}

namespace {
/// A file without a name, of which nothing is left however this process ends. Programs
/// that it starts open it by its path.
struct MemoryFile {
  MemoryFile() : descriptor(memfd_create("trainc", 0)) {}
  ~MemoryFile() {
    if (isOpen())
      close(descriptor);
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  bool isOpen() const { return descriptor >= 0; }
  std::string path() const {
    return "/proc/self/fd/" + std::to_string(descriptor);
  }
  bool write(llvm::StringRef bytes) {
    while (!bytes.empty()) {
      ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR)
        continue;
      if (written <= 0)
        return false;
      bytes = bytes.drop_front(written);
    }
    return true;
  }

  int descriptor;
};
} // namespace

/// Runs the linker on `objects`, which it finds in one archive. `redirect`, if any, gets
/// its standard output.
static llvm::LogicalResult runLinker(llvm::ArrayRef<ObjectFile> objects,
                                     llvm::ArrayRef<llvm::StringRef> options,
                                     llvm::StringRef output, std::string &error,
                                     llvm::StringRef redirect = {}) {
  llvm::SmallVector<UndefinedSymbol> undefined;
  if (failed(findUndefined(objects, undefined, error)))
    return llvm::failure();
  if (!undefined.empty())
    return failWith(error,
                    "expects code that needs no library, got a use of '" +
                        undefined.front().name + "'");
  auto linker = llvm::sys::findProgramByName("ld.lld", {TRAINC_LLVM_PREFIX});
  if (!linker)
    linker = llvm::sys::findProgramByName("ld.lld-22");
  if (!linker)
    return failWith(error, "cannot find ld.lld, which links shared libraries "
                           "and objects (package lld-22)");
  std::vector<llvm::NewArchiveMember> members;
  std::vector<std::string> names;
  names.reserve(objects.size());
  for (const ObjectFile &object : objects) {
    names.push_back(std::to_string(names.size()) + ".o");
    members.emplace_back(bufferOf(object, names.back()));
  }
  auto content = llvm::writeArchiveToBuffer(
      members, llvm::SymtabWritingMode::NoSymtab, llvm::object::Archive::K_GNU,
      /*Deterministic=*/true, /*Thin=*/false);
  if (!content)
    return failWith(error, "cannot make an archive: " +
                               llvm::toString(content.takeError()));
  MemoryFile file;
  if (!file.isOpen() || !file.write((*content)->getBuffer()))
    return failWith(error, "cannot write a file in memory: " +
                               llvm::errnoAsErrorCode().message());
  std::string archive = file.path();
  llvm::SmallVector<llvm::StringRef> arguments{*linker};
  llvm::append_range(arguments, options);
  llvm::append_range(arguments, llvm::ArrayRef<llvm::StringRef>{
                                    "--whole-archive", archive, "-o", output});
  std::string message;
  llvm::SmallVector<std::optional<llvm::StringRef>> redirects;
  if (!redirect.empty())
    redirects = {std::nullopt, redirect, std::nullopt};
  if (llvm::sys::ExecuteAndWait(*linker, arguments, std::nullopt, redirects, 0,
                                0, &message) != 0)
    return failWith(error, "linking " + output + " failed " + message);
  return llvm::success();
}

llvm::LogicalResult trainc::linkObject(llvm::ArrayRef<ObjectFile> objects,
                                       llvm::StringRef output,
                                       std::string &error) {
  MemoryFile joined;
  if (!joined.isOpen())
    return failWith(error, "cannot make a file in memory: " +
                               llvm::errnoAsErrorCode().message());
  if (failed(runLinker(objects, {"-r"}, "-", error, joined.path())))
    return llvm::failure();
  auto file = llvm::MemoryBuffer::getFile(joined.path());
  if (!file)
    return failWith(error, "cannot read what the linker made: " +
                               file.getError().message());
  llvm::StringRef bytes = (*file)->getBuffer();
  ObjectFile object(bytes.begin(), bytes.end());
  llvm::objcopy::ConfigManager config;
  config.ELF.LocalizeHidden = true;
  if (failed(change(object, config, error)))
    return llvm::failure();
  std::error_code code;
  llvm::raw_fd_ostream stream(output, code, llvm::sys::fs::OF_None);
  if (!code) {
    stream.write(object.data(), object.size());
    stream.close();
    code = stream.error();
    stream.clear_error();
  }
  if (code)
    return failWith(error, "cannot write " + output + ": " + code.message());
  return llvm::success();
}

//===----------------------------------------------------------------------===//
// Shared libraries
//===----------------------------------------------------------------------===//

void trainc::addChecksumNote(llvm::Module &module) {
  llvm::LLVMContext &context = module.getContext();
  auto *word = llvm::Type::getInt32Ty(context);
  auto number = [&](uint32_t value) {
    return llvm::ConstantInt::get(word, value);
  };
  llvm::SmallString<8> name(TRAINC_NOTE_NAME);
  uint32_t nameBytes = name.size() + 1;
  name.resize(llvm::alignTo(nameBytes, 4), 0);
  llvm::Constant *note = llvm::ConstantStruct::getAnon(
      {number(nameBytes), number(sizeof(uint64_t)),
       number(TRAINC_NOTE_CHECKSUM),
       llvm::ConstantDataArray::getString(context, name, /*AddNull=*/false),
       number(0), number(0)});
  auto *global = new llvm::GlobalVariable(
      module, note->getType(), /*isConstant=*/true,
      llvm::GlobalValue::PrivateLinkage, note, "checksum");
  global->setSection(".note." TRAINC_NOTE_NAME);
  global->setAlignment(llvm::Align(4));
  llvm::appendToUsed(module, {global});
}

/// Where the checksum is in a library, or null.
static llvm::Expected<const uint8_t *>
findChecksum(const llvm::object::ELF64LEFile &file) {
  auto segments = file.program_headers();
  if (!segments)
    return segments.takeError();
  llvm::Error failed = llvm::Error::success();
  const uint8_t *found = nullptr;
  for (const auto &segment : *segments) {
    if (segment.p_type != llvm::ELF::PT_NOTE)
      continue;
    for (const auto &note : file.notes(segment, failed))
      if (note.getName() == TRAINC_NOTE_NAME &&
          note.getType() == TRAINC_NOTE_CHECKSUM)
        found = note.getDesc(segment.p_align).data();
    if (failed)
      return std::move(failed);
  }
  return found;
}

static llvm::LogicalResult writeChecksum(llvm::StringRef path,
                                         std::string &error) {
  auto buffer = llvm::WriteThroughMemoryBuffer::getFile(path);
  if (!buffer)
    return failWith(error,
                    "cannot read " + path + ": " + buffer.getError().message());
  char *bytes = (*buffer)->getBufferStart();
  uint64_t size = (*buffer)->getBufferSize();
  auto file = llvm::object::ELF64LEFile::create(llvm::StringRef(bytes, size));
  if (!file)
    return failWith(error, llvm::toString(file.takeError()));
  auto place = findChecksum(*file);
  if (!place)
    return failWith(error, llvm::toString(place.takeError()));
  if (!*place)
    return llvm::success();
  llvm::support::endian::write64le(
      bytes + (reinterpret_cast<const char *>(*place) - bytes),
      trainc_checksum(size, bytes, size));
  return llvm::success();
}

llvm::LogicalResult
trainc::linkSharedLibrary(llvm::ArrayRef<ObjectFile> objects,
                          llvm::StringRef output, llvm::StringRef alias,
                          llvm::StringRef symbol, std::string &error) {
  std::string definition = ("--defsym=" + alias + "=" + symbol).str();
  llvm::SmallVector<llvm::StringRef> options{"-shared", "--no-undefined", "-z",
                                             "relro", "--build-id=none"};
  if (!alias.empty())
    options.push_back(definition);
  if (failed(runLinker(objects, options, output, error)))
    return llvm::failure();
  return writeChecksum(output, error);
}
