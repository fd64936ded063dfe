//===- streams.cpp - The streams of command lists -------------------------===//

#include "cuda/streams.h"

using namespace trainc;
using namespace trainc::cuda;

trainc_status trainc::cuda::openStreams(const Device &device, bool ranks,
                                        Streams &streams) {
  streams.device = &device;
  TRAINC_TRY(createStream(device, &streams.compute));
  if (!ranks)
    return TRAINC_OK;
  TRAINC_TRY(createStream(device, &streams.apart));
  TRAINC_TRY(createEvent(device, &streams.ready));
  for (CUevent &event : streams.done)
    TRAINC_TRY(createEvent(device, &event));
  return TRAINC_OK;
}

void trainc::cuda::closeStreams(Streams &streams) {
  if (!streams.device)
    return;
  for (CUevent event : streams.done)
    destroyEvent(*streams.device, event);
  destroyEvent(*streams.device, streams.ready);
  destroyStream(*streams.device, streams.apart);
  destroyStream(*streams.device, streams.compute);
  streams = {};
}

/// Puts compute behind the first `count` that were started.
static trainc_status join(Streams &streams, uint32_t count) {
  if (static_cast<int32_t>(count - streams.behind) <= 0)
    return TRAINC_OK;
  Current current(*streams.device);
  TRAINC_TRY(current.status());
  // They are done in their order.
  TRAINC_CU(*streams.device->driver, cuStreamWaitEvent, streams.compute,
            streams.done[(count - 1) % maxPending], 0);
  streams.behind = count;
  return TRAINC_OK;
}

trainc_status trainc::cuda::runCollectives(Streams &streams,
                                           Communicator &communicator,
                                           const DeviceCollective *collectives,
                                           uint32_t count) {
  TRAINC_TRY(joinStarted(streams));
  return enqueue(communicator, collectives, count, streams.compute);
}

trainc_status trainc::cuda::joinStarted(Streams &streams) {
  return join(streams, streams.started);
}

trainc_status
trainc::cuda::startCollectives(Streams &streams, Communicator &communicator,
                               const DeviceCollective *collectives,
                               uint32_t count) {
  if (streams.started - streams.awaited == maxPending)
    return fail(TRAINC_INVALID_ARGUMENT,
                "more than %u collectives are started and not awaited",
                maxPending);
  const Driver &driver = *streams.device->driver;
  Current current(*streams.device);
  TRAINC_TRY(current.status());
  TRAINC_CU(driver, cuEventRecord, streams.ready, streams.compute);
  TRAINC_CU(driver, cuStreamWaitEvent, streams.apart, streams.ready, 0);
  TRAINC_TRY(enqueue(communicator, collectives, count, streams.apart));
  TRAINC_CU(driver, cuEventRecord, streams.done[streams.started % maxPending],
            streams.apart);
  ++streams.started;
  return TRAINC_OK;
}

trainc_status trainc::cuda::awaitCollectives(Streams &streams) {
  if (streams.awaited == streams.started)
    return fail(TRAINC_INVALID_ARGUMENT,
                "no collective was started that could be awaited");
  return join(streams, ++streams.awaited);
}
