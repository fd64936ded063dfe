//===- Emulation.h - A module on its way to the emulator --------*- C++ -*-===//
#ifndef TRAINC_LIB_TARGET_GPU_EMULATION_H
#define TRAINC_LIB_TARGET_GPU_EMULATION_H

#include "trainc/Target/GPU/emulator_abi.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/LogicalResult.h"
#include <string>

namespace trainc {

/// A variable in a block's memory; 0 bytes: the dynamic part.
struct SharedVariable {
  llvm::GlobalVariable *variable;
  uint64_t offset, bytes;
  llvm::Align align;
};

/// A module of LLVM IR with NVVM's intrinsics, while it becomes code for the
/// emulator. The steps are run in this order.
struct Emulation {
  llvm::Module &module;
  std::string &error;
  llvm::SmallVector<llvm::Function *> kernels = {};
  llvm::SmallVector<SharedVariable> shared = {};
  uint64_t dynamicOffset = 0;
  /// Where accesses are in the source; the first one is unknown.
  llvm::SmallVector<std::string> sites = {""};
  llvm::StringMap<uint32_t> siteNumbers = {};

  /// Finds kernels and makes all functions ordinary ones of the host.
  llvm::LogicalResult takeKernels();
  /// Puts a checked access before each instruction that accesses memory.
  llvm::LogicalResult checkAccesses();
  /// Replaces NVVM's intrinsics, libdevice's functions and what the host has no
  /// instructions for by calls of the emulator.
  llvm::LogicalResult replaceCalls();
  /// Gives variables in shared memory their place in the block's memory.
  llvm::LogicalResult placeShared();
  /// Adds the image's tables, and bodies to the emulator's functions.
  void addTables();

  llvm::LogicalResult refuse(const llvm::Twine &message) {
    error = message.str();
    return llvm::failure();
  }
  /// The number in `sites` of where an instruction comes from.
  uint32_t siteOf(const llvm::Instruction *instruction);
  /// The emulator's function of this name in emulator_abi.def.
  llvm::FunctionCallee getFunction(llvm::StringRef name);
  /// The same for a function of libm; null if there is none.
  llvm::FunctionCallee findMath(llvm::StringRef name);
};

} // namespace trainc

#endif // TRAINC_LIB_TARGET_GPU_EMULATION_H
