//===- TrainOps.td - All operations of the train dialect --*- tablegen -*-===//
#ifndef TRAINC_TRAIN_OPS
#define TRAINC_TRAIN_OPS

include "trainc/Dialect/Train/TrainModelOps.td"
include "trainc/Dialect/Train/TrainStepOps.td"
include "trainc/Dialect/Train/TrainPlanOps.td"
include "trainc/Dialect/Train/TrainBufferOps.td"
include "trainc/Dialect/Train/TrainCommandOps.td"
include "trainc/Dialect/Train/TrainMeshOps.td"

#endif // TRAINC_TRAIN_OPS
