//===- NNRandom.h - What random words are drawn by --------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_NN_NNRANDOM_H
#define TRAINC_DIALECT_NN_NNRANDOM_H

#include "trainc/Dialect/NN/NNOps.h"

namespace trainc::nn {

/// What a random word depends on: whole numbers as i64, see nn.dropout.
struct RandomCounter {
  mlir::Value index, seed, update, microStep, site;
};

/// The word of 32 random bits, as i64, that nn.dropout draws for an element.
mlir::Value buildRandomWord(mlir::OpBuilder &b, mlir::Location loc,
                            const RandomCounter &counter);

/// The words of the four elements with indices 4 group to 4 group + 3, where group is
/// counter.index: i64, or vectors of them if group is one; the others are numbers.
std::array<mlir::Value, 4> buildRandomWords(mlir::OpBuilder &b,
                                            mlir::Location loc,
                                            const RandomCounter &counter);

/// How many of the 2^32 words are below the share `p` of them: floor(p 2^32 + 1/2).
uint64_t getDrawThreshold(double p);

/// The scores of an attention: of each head of q, `group` of which share a head of k and
/// v, queries in rows and keys in columns.
struct ScoreShape {
  int64_t batch, kvHeads, group, rows, columns;
};

/// Those of an attention or its gradients, packed or not.
ScoreShape getScoreShape(mlir::Operation *attention);

/// The strides of the index by which scores draw: of the batch, of heads of k and v, of
/// the heads of a group, and of queries. That of keys is 1.
llvm::SmallVector<int64_t> getScoreStrides(const ScoreShape &shape);

} // namespace trainc::nn

#endif // TRAINC_DIALECT_NN_NNRANDOM_H
