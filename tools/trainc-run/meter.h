//===- meter.h - The rates of a machine -------------------------*- C++ -*-===//
#ifndef TRAINC_RUN_METER_H
#define TRAINC_RUN_METER_H

#include "model.h"

namespace trainc::run {

/// The rates that `trainc --estimate` takes as --bandwidth, from the commands of some
/// steps on generated data, which change the state, and from collectives: the means of
/// all ranks, which all call it.
std::string measureRates(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_METER_H
