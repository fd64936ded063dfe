//===- convert.cpp - Converting between types -----------------------------===//

#include "core/convert.h"

using namespace trainc;

/// The pairs that large tensors are converted between, as simple loops.
template <typename To, typename From, To (*function)(From)>
static void convertAll(const void *from, void *to, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    static_cast<To *>(to)[i] = function(static_cast<const From *>(from)[i]);
}

void trainc::convert(uint32_t fromType, const void *from, uint32_t toType,
                     void *to, uint64_t count) {
  if (fromType == toType)
    memcpy(to, from, count * trainc_dtype_size(toType));
  else if (fromType == TRAINC_F32 && toType == TRAINC_BF16)
    convertAll<uint16_t, float, f32ToBf16>(from, to, count);
  else if (fromType == TRAINC_BF16 && toType == TRAINC_F32)
    convertAll<float, uint16_t, bf16ToF32>(from, to, count);
  else if (fromType == TRAINC_F32 && toType == TRAINC_F16)
    convertAll<uint16_t, float, f32ToF16>(from, to, count);
  else if (fromType == TRAINC_F16 && toType == TRAINC_F32)
    convertAll<float, uint16_t, f16ToF32>(from, to, count);
  else
    for (uint64_t i = 0; i < count; ++i)
      storeElement(toType, to, i, loadElement(fromType, from, i));
}
