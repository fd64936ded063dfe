//===- Passes.h - Passes inside the nn and train dialects -------*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PASSES_H
#define TRAINC_TRANSFORMS_PASSES_H

#include "trainc/Transforms/Commands/Passes.h"
#include "trainc/Transforms/Memory/Passes.h"
#include "trainc/Transforms/Partition/Passes.h"
#include "trainc/Transforms/Plan/Passes.h"
#include "trainc/Transforms/Source/Passes.h"
#include "trainc/Transforms/Verify/Passes.h"

namespace trainc {

inline void registerTraincTransformsPasses() {
  registerTraincCommandsPasses();
  registerTraincMemoryPasses();
  registerTraincPartitionPasses();
  registerTraincPlanPasses();
  registerTraincSourcePasses();
  registerTraincVerifyPasses();
}

} // namespace trainc

#endif // TRAINC_TRANSFORMS_PASSES_H
