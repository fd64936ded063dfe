//===- struct_bytes.h - What a descriptor made by hand says of its structs ===//
#ifndef STRUCT_BYTES_H
#define STRUCT_BYTES_H

#include "trainc/step_abi.h"

static const uint32_t struct_bytes[TRAINC_NUM_STRUCTS] = {
#define TRAINC_STRUCT(name, bytes) bytes,
#include "trainc/step_abi_structs.def"
};

#endif // STRUCT_BYTES_H
