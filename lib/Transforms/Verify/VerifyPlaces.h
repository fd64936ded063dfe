//===- VerifyPlaces.h - Memory of commands that run at once -----*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_VERIFY_VERIFYPLACES_H
#define TRAINC_LIB_TRANSFORMS_VERIFY_VERIFYPLACES_H

#include "trainc/Dialect/Train/TrainLayout.h"

namespace trainc {

/// Checks what the runtime relies on when it runs commands of a planned list, and the
/// workgroups of one command, at once. It orders two commands only by the bytes of
/// their operands: where one writes what the other one touches they keep their order,
/// else they may run side by side. So every command must find its operands where the
/// commands before it, in this order, have left them, and
///
/// (P1) what stands in the workspace ends within it;
/// (P2) what is read was written through the same train.address, so that nothing else
///      has been written there since, or stands in an arena or input as the list found it
///      (an arena as a whole, or a bucket, is whatever stands in its slices);
/// (P3) what a command writes shares no byte with anything else that it touches;
/// (P4) from a start of a collective to its end nothing writes what it reads or
///      touches what it writes;
/// (P5) what is in flight is waited for once: in its list or, by name, in the one that
///      follows it. `inFlight` are the starts that those before `list` have left.
llvm::LogicalResult verifyPlaces(train::ListOp list,
                                 llvm::ArrayRef<train::StartOp> inFlight,
                                 mlir::SymbolTable &symbols,
                                 train::Layouts &layouts);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_VERIFY_VERIFYPLACES_H
