//===- kinds.h - Kinds of commands ------------------------------*- C++ -*-===//
#ifndef TRAINC_CORE_KINDS_H
#define TRAINC_CORE_KINDS_H

#include "trainc/step_abi.h"

namespace trainc {

/// Does `kind` exchange data between ranks?
inline bool isCollective(uint32_t kind) {
  return kind == TRAINC_COMMAND_REDUCE_SCATTER ||
         kind == TRAINC_COMMAND_ALL_REDUCE || kind == TRAINC_COMMAND_ALL_GATHER;
}

} // namespace trainc

#endif // TRAINC_CORE_KINDS_H
