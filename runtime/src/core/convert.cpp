//===- convert.cpp - Converting between floating types --------------------===//

#include "core/convert.h"
#include "core/status.h"

using namespace trainc;

void trainc::convert(uint32_t fromType, const void *from, uint32_t toType,
                     void *to, uint64_t count) {
  if (fromType == toType) {
    memcpy(to, from, count * trainc_dtype_size(toType));
    return;
  }
  if (fromType == TRAINC_F32 && toType == TRAINC_BF16) {
    for (uint64_t i = 0; i < count; ++i)
      static_cast<uint16_t *>(to)[i] =
          f32ToBf16(static_cast<const float *>(from)[i]);
    return;
  }
  if (fromType == TRAINC_BF16 && toType == TRAINC_F32) {
    for (uint64_t i = 0; i < count; ++i)
      static_cast<float *>(to)[i] =
          bf16ToF32(static_cast<const uint16_t *>(from)[i]);
    return;
  }
  for (uint64_t i = 0; i < count; ++i)
    storeElement(toType, to, i, loadElement(fromType, from, i));
}
