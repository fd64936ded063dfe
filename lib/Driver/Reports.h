//===- Reports.h - What an artifact needs, before it runs -------*- C++ -*-===//
#ifndef TRAINC_LIB_DRIVER_REPORTS_H
#define TRAINC_LIB_DRIVER_REPORTS_H

#include "Tables.h"
#include "trainc/Driver/Compiler.h"

namespace trainc {

/// The memory report, as text or JSON.
std::string buildMemoryReport(const Tables &tables, bool json);

/// The estimate of each entry's time per window on one rank, what of it is communication,
/// and of memory, as text or JSON. Failure, with a message that says which rate is needed,
/// if one is not known.
///
/// The time is the sum over commands. On a GPU collectives that are started apart
/// move data beside the commands behind, one after another; on a processor while ranks
/// wait.
llvm::FailureOr<std::string> buildEstimate(const Tables &tables,
                                           const Rates &rates, bool json,
                                           std::string &message);

/// What each step of `module`, in form 1, has to compute and move however it is compiled, as
/// text or JSON: the arithmetic without recomputation, and the bytes of parameters, states,
/// and what gradients of products read of the forward pass. It changes the module.
std::string buildWorkReport(mlir::ModuleOp module, llvm::StringRef name,
                            bool json);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_REPORTS_H
