//===- Object.h - From LLVM IR to objects and libraries ---------*- C++ -*-===//
#ifndef TRAINC_TARGET_OBJECT_H
#define TRAINC_TARGET_OBJECT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include <memory>
#include <string>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace trainc {

/// The bytes of an object file.
using ObjectFile = llvm::SmallVector<char, 0>;

/// The machine that code is generated for: `triple` is of x86-64 or AArch64 on Linux, or
/// empty: this machine's. Null and a message otherwise.
std::unique_ptr<llvm::TargetMachine> createTargetMachine(llvm::StringRef triple,
                                                         llvm::StringRef cpu,
                                                         unsigned optimize,
                                                         std::string &error);

/// Whether it has all of these, by LLVM's names.
bool hasFeatures(const llvm::TargetMachine &machine,
                 llvm::ArrayRef<llvm::StringRef> features);

/// An equal machine, for another thread.
std::unique_ptr<llvm::TargetMachine>
cloneTargetMachine(const llvm::TargetMachine &machine);

/// Leaves no bf16 and f16 in `module` but where instructions convert f16: their bits
/// are integers. emitObject does so, too.
llvm::LogicalResult replaceNarrowTypes(llvm::Module &module,
                                       std::string &error);

/// Optimizes `module` and makes an object file of it.
llvm::LogicalResult emitObject(llvm::Module &module,
                               llvm::TargetMachine &machine, unsigned optimize,
                               ObjectFile &object, std::string &error);

/// Gives the symbols named `from` of `object` the name `to`.
llvm::LogicalResult renameSymbol(ObjectFile &object, llvm::StringRef from,
                                 llvm::StringRef to, std::string &error);

/// A symbol that one of several objects needs and none has.
struct UndefinedSymbol {
  std::string name;
  size_t object; // that needs it
};

/// What would have to come from a library. An artifact needs none.
llvm::LogicalResult
findUndefined(llvm::ArrayRef<ObjectFile> objects,
              llvm::SmallVectorImpl<UndefinedSymbol> &undefined,
              std::string &error);

/// Links objects into one, which needs no symbol. Hidden symbols become local ones of
/// it.
llvm::LogicalResult linkObject(llvm::ArrayRef<ObjectFile> objects,
                               llvm::StringRef output, std::string &error);

/// Gives what is made of `module` a note for the checksum of the library that it
/// becomes a part of (step_abi.h), which linkSharedLibrary writes.
void addChecksumNote(llvm::Module &module);

/// Links objects into a shared library, which needs no symbol. If `alias` is not empty, the library
/// exports that symbol, too, as another name of `symbol`. Objects with a note for a
/// checksum get it.
llvm::LogicalResult linkSharedLibrary(llvm::ArrayRef<ObjectFile> objects,
                                      llvm::StringRef output,
                                      llvm::StringRef alias,
                                      llvm::StringRef symbol,
                                      std::string &error);

} // namespace trainc

#endif // TRAINC_TARGET_OBJECT_H
