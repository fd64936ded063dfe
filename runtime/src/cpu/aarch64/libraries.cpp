//===- libraries.cpp - What AArch64 has no back end for -------------------===//
//
// No artifact for AArch64 asks for AMX or oneDNN; what does is refused when its plans are
// made, as on an x86-64 processor without them.
//
//===----------------------------------------------------------------------===//

#include "cpu/amx.h"
#include "cpu/onednn.h"

using namespace trainc;

bool trainc::haveAmx() { return false; }
void trainc::amxMultiply(const AmxProduct &) { abort(); }
uint64_t trainc::amxScratch(uint32_t, int64_t) { return 0; }
double trainc::amxCost(double, double) { return 1; }

bool trainc::haveOneDnn() { return false; }
bool trainc::runOneDnnSgemm(bool, bool, int64_t, int64_t, int64_t,
                            const float *, int64_t, const float *, int64_t,
                            bool, float *, int64_t) {
  return false;
}
trainc_status trainc::createMatmul(const MatmulShape &, Matmul **) {
  return fail(TRAINC_UNSUPPORTED, "there is no oneDNN for this processor");
}
void trainc::destroyMatmul(Matmul *) {}
uint64_t trainc::matmulScratch(const Matmul *) { return 0; }
bool trainc::runMatmul(const Matmul *, const void *, const void *, void *,
                       const void *, void *) {
  return false;
}
void trainc::appendOneDnn(Text &text) { text.append("no oneDNN"); }
