//===- NamedRule.h - Named optimizers and schedules as data -----*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_SOURCE_NAMEDRULE_H
#define TRAINC_LIB_TRANSFORMS_SOURCE_NAMEDRULE_H

#include "ScalarExpr.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include <optional>

namespace trainc::train {

/// What a named optimizer or schedule takes between `<` and `>`.
struct RuleParameter {
  enum Kind {
    number,   ///< a run-time scalar
    optional, ///< a run-time scalar that takes part only if given
    fixed,    ///< a number known at compile time
    flag      ///< true or false
  };
  llvm::StringLiteral name;
  Kind kind = number;
  /// Without a default, a number must be given.
  std::optional<double> initial = std::nullopt;
  /// Another parameter without which this one would mean nothing.
  llvm::StringLiteral needs = "";
};

/// The parameters of one use of a named rule, with defaults filled in.
struct RuleArguments {
  /// Run-time scalars in the order of the rule: a number, a schedule's symbol
  /// or the string "update".
  llvm::MapVector<llvm::StringRef, mlir::Attribute> hyper;
  llvm::StringMap<double> fixed;

  bool flag(llvm::StringRef name) const { return fixed.lookup(name) != 0.0; }
  bool has(llvm::StringRef name) const { return hyper.contains(name); }
  mlir::ArrayAttr names(mlir::Builder &b) const;
  mlir::ArrayAttr values(mlir::Builder &b) const;
};

/// Checks what is written in `names` and `values` against `parameters`; every
/// mistake is reported on `op` with what the rule `kind` takes. A schedule's
/// symbol is a number only if `allowSymbol`.
mlir::FailureOr<RuleArguments>
resolveArguments(mlir::Operation *op, llvm::StringRef kind,
                 llvm::ArrayRef<RuleParameter> parameters,
                 mlir::ArrayAttr names, mlir::ArrayAttr values,
                 bool allowSymbol);

/// Replaces a named schedule by its region.
mlir::LogicalResult expandSchedule(ScheduleOp op);

} // namespace trainc::train

#endif // TRAINC_LIB_TRANSFORMS_SOURCE_NAMEDRULE_H
