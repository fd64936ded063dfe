//===- streams.h - The streams of command lists -----------------*- C++ -*-===//
//
// Commands run on one stream. Collectives that are started apart run on another, and
// events order the two: what is started comes behind all commands so far, what waits
// for it comes behind it, and every collective comes behind the one before it. There
// is an event for each such dependency, and none between commands of one stream.
//
// All of it may be captured: the capture begins on `compute`, and every collective that
// is started in it is waited for in it.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CUDA_STREAMS_H
#define TRAINC_CUDA_STREAMS_H

#include "cuda/nccl.h"

namespace trainc::cuda {

struct Streams {
  const Device *device = nullptr;
  CUstream compute = nullptr, apart = nullptr;
  CUevent ready = nullptr;           // compute, when the next one may begin
  CUevent done[maxPending] = {};     // apart, behind each that was started
  uint32_t started = 0, awaited = 0; // collectives
  uint32_t behind = 0;               // those that compute comes behind
};

/// With a communicator: `apart` and events, too.
trainc_status openStreams(const Device &device, bool ranks, Streams &streams);
/// What openStreams made, of it what is there.
void closeStreams(Streams &streams);

/// Collectives among the commands: the next command comes behind them.
trainc_status runCollectives(Streams &streams, Communicator &communicator,
                             const DeviceCollective *collectives,
                             uint32_t count);

/// Starts collectives apart, as one. At most maxPending that are not awaited.
trainc_status startCollectives(Streams &streams, Communicator &communicator,
                               const DeviceCollective *collectives,
                               uint32_t count);

/// The next command comes behind all that was started. Does not wait.
trainc_status joinStarted(Streams &streams);

/// The next command comes behind what was started first and not awaited. Does not wait.
trainc_status awaitCollectives(Streams &streams);

} // namespace trainc::cuda

#endif // TRAINC_CUDA_STREAMS_H
