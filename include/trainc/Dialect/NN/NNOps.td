//===- NNOps.td - All operations of the nn dialect --------*- tablegen -*-===//
#ifndef TRAINC_NN_OPS
#define TRAINC_NN_OPS

include "trainc/Dialect/NN/NNPointwiseOps.td"
include "trainc/Dialect/NN/NNRandomOps.td"
include "trainc/Dialect/NN/NNReductionOps.td"
include "trainc/Dialect/NN/NNShapeOps.td"
include "trainc/Dialect/NN/NNLinearOps.td"
include "trainc/Dialect/NN/NNNormOps.td"
include "trainc/Dialect/NN/NNEmbeddingOps.td"
include "trainc/Dialect/NN/NNAttentionOps.td"
include "trainc/Dialect/NN/NNConvOps.td"
include "trainc/Dialect/NN/NNLossOps.td"

#endif // TRAINC_NN_OPS
