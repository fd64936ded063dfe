//===- IndexChecks.h - Which values of integer inputs are indices -*- C++ -*-===//
#ifndef TRAINC_LIB_DRIVER_INDEXCHECKS_H
#define TRAINC_LIB_DRIVER_INDEXCHECKS_H

#include "mlir/IR/Value.h"
#include "trainc/step_abi.h"
#include <vector>

namespace trainc {

/// What the runtime checks of an integer input of a step or an eval: the elements that are
/// rows of tables or classes, as they are, through casts and reshapes, or cut out. Of those
/// that are computed, or cut out twice, nothing is checked.
std::vector<trainc_index_check> findIndexChecks(mlir::BlockArgument input);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_INDEXCHECKS_H
