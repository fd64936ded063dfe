//===- UpdateRule.h - One element of an update ------------------*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PLAN_UPDATERULE_H
#define TRAINC_TRANSFORMS_PLAN_UPDATERULE_H

#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// A map being made: its inputs, and inside of its region their elements.
struct MapBuilder {
  mlir::OpBuilder &b;
  mlir::Location loc;
  llvm::SmallVector<mlir::Value> inputs;
  nn::MapOp map;
  mlir::Block *block = nullptr;
  MapBuilder(mlir::OpBuilder &b, mlir::Location loc) : b(b), loc(loc) {
    map = nn::MapOp::create(b, loc, mlir::TypeRange(), mlir::ValueRange());
    block = &map.getBody().emplaceBlock();
  }
  /// The element of an input, in the type in which it is computed.
  mlir::Value add(mlir::Value input) {
    inputs.push_back(input);
    return block->addArgument(
        nn::getComputeType(nn::getTensorType(input).getElementType()), loc);
  }
  /// Ends the region; the map's results.
  mlir::ValueRange finish(mlir::TypeRange types,
                          llvm::ArrayRef<mlir::Value> values) {
    mlir::OpBuilder inner = mlir::OpBuilder::atBlockEnd(block);
    nn::YieldOp::create(inner, loc, values);
    auto finished = nn::MapOp::create(b, loc, types, inputs);
    finished.getBody().takeBody(map.getBody());
    map.erase();
    return finished.getResults();
  }
};

/// The sum of squares of `value` as rank-0 f64.
mlir::Value buildSquareSum(mlir::OpBuilder &b, mlir::Location loc,
                           mlir::Value value);

/// The direction `u` of a matrix, made orthogonal as `rule` of its optimizer says.
mlir::Value orthogonalize(mlir::OpBuilder &b, mlir::Location loc, mlir::Value u,
                          mlir::DictionaryAttr rule);

/// Scalars that the update of one element depends on.
struct UpdateElement {
  mlir::Value parameter, gradient;       // as stored, in the compute type
  mlir::Value scale, finite;             // f64, i1
  mlir::Value limit;                     // f64; null: no clip by value
  llvm::SmallVector<mlir::Value> states; // as parameter
  llvm::SmallVector<mlir::Value> hyper;  // f64
  mlir::Value average, decay;            // as parameter, f64; null: no average
  mlir::Value parameterNorm, directionNorm; // as parameter; for a second region
  mlir::Value direction;    // made before of the whole matrix, or null
  mlir::Value padding;      // i1: perhaps it fills up a part; null: it does not
  nn::RandomCounter random; // null index: rounded to the nearest
  llvm::SmallVector<mlir::Value> copies; // in arenas of copies, before
};

/// Whether ranks have parts of `param` with padding in them.
bool hasPadding(train::ParamOp param);

/// Whether an element may be padding, which is 0 and has a gradient of 0.
mlir::Value buildPadding(mlir::OpBuilder &b, mlir::Location loc,
                         const UpdateElement &element);

/// `old` where `value` is not finite in what may be padding (0 / 0, say), else `value`.
mlir::Value keepPadding(mlir::OpBuilder &b, mlir::Location loc,
                        const UpdateElement &element, mlir::Value value,
                        mlir::Value old);

/// The element type of `param` if `update` rounds it by chance, else null.
mlir::Type stochasticType(train::UpdateOp update, train::ParamOp param);

/// The number that tells the parameter's random words from those of others.
int64_t randomSite(train::ParamOp param);

/// What the optimizer's first region yields: the new parameter (or the direction)
/// and the states.
llvm::SmallVector<mlir::Value> buildFirstRegion(mlir::OpBuilder &b,
                                                mlir::Location loc,
                                                train::OptimizerOp optimizer,
                                                const UpdateElement &element);

/// What the second region yields of the first's.
llvm::SmallVector<mlir::Value>
buildSecondRegion(mlir::OpBuilder &b, mlir::Location loc,
                  train::OptimizerOp optimizer, const UpdateElement &element,
                  llvm::ArrayRef<mlir::Value> first);

/// The average after the parameter became `next`.
mlir::Value buildAverage(mlir::OpBuilder &b, mlir::Location loc,
                         const UpdateElement &element, mlir::Value next);

/// `value`, f32, rounded up or down by chance to a number of type `stored`, bf16 or
/// f16.
mlir::Value buildStochasticRounding(mlir::OpBuilder &b, mlir::Location loc,
                                    const UpdateElement &element,
                                    mlir::Value value, mlir::Type stored);

/// A step from the place of an element in a rank's part of a parameter to that in the
/// whole, along one dimension: index -> index / row * segment + index % row + start, where
/// start is `part` times the rank's place along `axes`.
struct PlaceStep {
  int64_t row = 1, segment = 1, part = 0;
  mlir::ArrayAttr axes;
};

/// In this order; none if every rank has all of it.
llvm::SmallVector<PlaceStep> stepsToWhole(train::ParamOp param);

mlir::Value buildPlaceStep(mlir::OpBuilder &b, mlir::Location loc,
                           mlir::Value index, mlir::Value row,
                           mlir::Value segment, mlir::Value start);

/// `value` where the gradients are finite, else `old`. So is what may be padding.
mlir::Value buildGuard(mlir::OpBuilder &b, mlir::Location loc,
                       const UpdateElement &element, mlir::Value value,
                       mlir::Value old);

} // namespace trainc

#endif // TRAINC_TRANSFORMS_PLAN_UPDATERULE_H
