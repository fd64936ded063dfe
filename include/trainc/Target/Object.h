//===- Object.h - From LLVM IR to objects and libraries ---------*- C++ -*-===//
#ifndef TRAINC_TARGET_OBJECT_H
#define TRAINC_TARGET_OBJECT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include <memory>
#include <string>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace trainc {

/// The machine that code is generated for; null and a message otherwise.
std::unique_ptr<llvm::TargetMachine>
createTargetMachine(llvm::StringRef cpu, unsigned optimize, std::string &error);

/// Optimizes `module` and writes it as an object file.
llvm::LogicalResult emitObject(llvm::Module &module,
                               llvm::TargetMachine &machine, unsigned optimize,
                               llvm::StringRef path, std::string &error);

/// Links an object into a shared library. If `alias` is not empty, the library
/// exports that symbol, too, as another name of `symbol`.
llvm::LogicalResult linkSharedLibrary(llvm::StringRef object,
                                      llvm::StringRef output,
                                      llvm::StringRef alias,
                                      llvm::StringRef symbol,
                                      std::string &error);

} // namespace trainc

#endif // TRAINC_TARGET_OBJECT_H
