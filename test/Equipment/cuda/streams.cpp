//===- streams.cpp - Streams, events and graphs of the driver of tests ----===//

#include "calls.h"
#include <unistd.h>

using namespace trainc;
using namespace trainc::cuda;

static CUresult checkEvent(CUevent event) {
  CHECK(checkContext());
  NEED(fake.events.has(event), CUDA_ERROR_INVALID_HANDLE, "not an event");
  NEED(event->context == current(), CUDA_ERROR_INVALID_HANDLE,
       "an event of another context");
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

CUresult trainc::cuda::cuStreamCreate(CUstream *stream, unsigned flags) {
  Lock lock;
  CHECK(checkContext());
  NEED(flags == CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE,
       "a stream that waits for the default one");
  *stream = fake.streams.make();
  **stream = {};
  (*stream)->context = current();
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuStreamDestroy_v2(CUstream stream) {
  Lock lock;
  NEED(fake.streams.has(stream), CUDA_ERROR_INVALID_HANDLE, "not a stream");
  NEED(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
       "a stream that is captured is destroyed");
  finish(stream->last);
  fake.streams.drop(stream);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuStreamQuery(CUstream stream) {
  Lock lock;
  CHECK(checkStream(stream));
  CHECK(checkNoCapture("cuStreamQuery"));
  ++fake.counts.queries;
  advance(stream->last);
  CHECK(current()->failed);
  return isDone(stream->last) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult trainc::cuda::cuEventCreate(CUevent *event, unsigned flags) {
  Lock lock;
  CHECK(checkContext());
  NEED((flags & ~CU_EVENT_DISABLE_TIMING) == 0, CUDA_ERROR_INVALID_VALUE,
       "cuEventCreate: unknown flags 0x%x", flags);
  *event = fake.events.make();
  **event = {};
  (*event)->context = current();
  (*event)->timed = flags == 0;
  return CUDA_SUCCESS;
}

/// A piece of work takes a microsecond, on whatever stream.
CUresult trainc::cuda::cuEventElapsedTime(float *milliseconds, CUevent begin,
                                          CUevent end) {
  Lock lock;
  CUevent both[] = {begin, end};
  for (CUevent event : both) {
    CHECK(checkEvent(event));
    NEED(event->timed, CUDA_ERROR_INVALID_HANDLE, "an event without a time");
    if (!isDone(event->work))
      return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = 1e-3f * static_cast<float>(end->time - begin->time);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuEventDestroy_v2(CUevent event) {
  Lock lock;
  NEED(fake.events.has(event), CUDA_ERROR_INVALID_HANDLE, "not an event");
  fake.events.drop(event);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuEventRecord(CUevent event, CUstream stream) {
  Lock lock;
  CHECK(checkEvent(event));
  CHECK(checkStream(stream));
  event->stale = false;
  event->capture = stream->capture;
  event->captured = stream->captured;
  event->work = stream->capture ? 0 : stream->last;
  event->time = fake.forgotten + fake.work.size();
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuEventQuery(CUevent event) {
  Lock lock;
  CHECK(checkEvent(event));
  CHECK(checkNoCapture("cuEventQuery"));
  NEED(!event->capture && !event->stale, CUDA_ERROR_CAPTURED_EVENT,
       "a query of an event that was captured");
  ++fake.counts.queries;
  advance(event->work);
  CHECK(current()->failed);
  return isDone(event->work) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult trainc::cuda::cuStreamWaitEvent(CUstream stream, CUevent event,
                                         unsigned flags) {
  Lock lock;
  CHECK(checkStream(stream));
  CHECK(checkEvent(event));
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE, "cuStreamWaitEvent: flags 0x%x",
       flags);
  NEED(!event->stale, CUDA_ERROR_CAPTURED_EVENT,
       "a wait for an event of a capture that has ended");
  ++fake.counts.event_waits;
  Work work = {};
  if (Capture *capture = event->capture) {
    NEED(!stream->capture || stream->capture == capture,
         CUDA_ERROR_STREAM_CAPTURE_MERGE, "a wait for another capture");
    if (!stream->capture) {
      stream->capture = capture;
      stream->captured = 0;
    }
    work.after[1] = event->captured;
  } else {
    if (stream->capture) {
      stream->capture->invalid = true;
      return refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                    "a captured stream waits for an event outside of it");
    }
    work.after[1] = event->work;
  }
  enqueue(stream, work);
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

CUresult trainc::cuda::cuStreamBeginCapture_v2(CUstream stream,
                                               CUstreamCaptureMode mode) {
  Lock lock;
  CHECK(checkStream(stream));
  NEED(mode <= 2, CUDA_ERROR_INVALID_VALUE, "an unknown mode of captures");
  NEED(!stream->capture, CUDA_ERROR_INVALID_VALUE,
       "the stream is captured already");
  stream->capture = fake.captures.make();
  stream->capture->origin = stream;
  stream->capture->thread = pthread_self();
  stream->capture->mode = mode;
  stream->captured = 0;
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  Lock lock;
  *graph = nullptr;
  CHECK(checkContext());
  NEED(fake.streams.has(stream), CUDA_ERROR_INVALID_HANDLE, "not a stream");
  Capture *capture = stream->capture;
  NEED(capture, CUDA_ERROR_INVALID_VALUE, "the stream is not captured");
  NEED(capture->origin == stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
       "the capture did not begin on this stream");
  bool joined = isJoined(*capture);
  for (CUstream one : fake.streams.objects)
    if (one->capture == capture)
      one->capture = nullptr;
  for (CUevent event : fake.events.objects)
    if (event->capture == capture) {
      event->capture = nullptr;
      event->stale = true;
    }
  CUresult result = CUDA_SUCCESS;
  if (failsBySetting("endcapture", ++fake.ended)) {
    result =
        refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the end of the capture");
  } else if (capture->invalid) {
    result = refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                    "the capture was invalidated");
  } else if (!joined) {
    result = refuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                    "the capture ends before work of another stream");
  } else {
    *graph = fake.graphs.make();
    (*graph)->last = stream->captured;
    copyWork(capture->work, (*graph)->work);
  }
  clearWork(capture->work);
  fake.captures.drop(capture);
  return result;
}

/// Everything that the graph launches is still there.
static CUresult checkGraph(const CUgraph_st &graph) {
  for (const Work &work : graph.work)
    NEED(work.kind != Work::Launch || fake.functions.has(work.function),
         CUDA_ERROR_INVALID_HANDLE, "a graph of a module that was unloaded");
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuGraphInstantiateWithFlags(CUgraphExec *executable,
                                                   CUgraph graph,
                                                   unsigned long long flags) {
  Lock lock;
  CHECK(checkContext());
  NEED(fake.graphs.has(graph), CUDA_ERROR_INVALID_HANDLE, "not a graph");
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE, "a graph with flags 0x%llx",
       flags);
  CHECK(checkGraph(*graph));
  NEED(!failsBySetting("instantiate", ++fake.instantiated),
       CUDA_ERROR_NOT_SUPPORTED, "a graph of %zu pieces of work",
       static_cast<size_t>(graph->work.size()));
  *executable = fake.executables.make();
  (*executable)->last = graph->last;
  (*executable)->context = current();
  copyWork(graph->work, (*executable)->work);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuGraphDestroy(CUgraph graph) {
  Lock lock;
  NEED(fake.graphs.has(graph), CUDA_ERROR_INVALID_HANDLE, "not a graph");
  clearWork(graph->work);
  fake.graphs.drop(graph);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  Lock lock;
  CHECK(checkStream(stream));
  NEED(fake.executables.has(executable), CUDA_ERROR_INVALID_HANDLE,
       "not a graph");
  NEED(executable->context == current(), CUDA_ERROR_INVALID_HANDLE,
       "a graph of another context");
  NEED(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
       "a graph inside of a capture");
  CHECK(checkGraph(*executable));
  NEED(isBehindLanes(stream, *executable), CUDA_ERROR_INVALID_VALUE,
       "a graph whose collectives are not put behind the last one before it");
  ++fake.counts.graph_launches;
  while (fake.counts.graph_launches == fake.stuck)
    pause();
  enqueueGraph(stream, *executable);
  return CUDA_SUCCESS;
}

CUresult trainc::cuda::cuGraphExecDestroy(CUgraphExec executable) {
  Lock lock;
  NEED(fake.executables.has(executable), CUDA_ERROR_INVALID_HANDLE,
       "not a graph");
  clearWork(executable->work);
  fake.executables.drop(executable);
  return CUDA_SUCCESS;
}
