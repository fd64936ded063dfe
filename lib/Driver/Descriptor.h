//===- Descriptor.h - The tables as constants -------------------*- C++ -*-===//
#ifndef TRAINC_LIB_DRIVER_DESCRIPTOR_H
#define TRAINC_LIB_DRIVER_DESCRIPTOR_H

#include "Tables.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace trainc {

/// Adds the descriptors of all targets to `module`, which has the CPU's kernels. The
/// first is exported and leads to the others.
void emitDescriptors(llvm::Module &module, llvm::ArrayRef<Tables> targets,
                     const llvm::TargetMachine &machine);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_DESCRIPTOR_H
