//===- spans.c - How often each command ran and for how long --------------===//

#include "trainc/runtime.h"

struct spans {
  uint64_t begin;
  struct {
    uint64_t runs, ns;
  } *of[TRAINC_NUM_LISTS]; // per command of the observed entry
};

int trainc_bench_observe(void *context, const trainc_event *event) {
  struct spans *spans = context;
  if (!event->end) {
    spans->begin = event->time_ns;
    return 0;
  }
  spans->of[event->list][event->index].runs += 1;
  spans->of[event->list][event->index].ns += event->time_ns - spans->begin;
  return 0;
}
