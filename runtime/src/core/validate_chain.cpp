//===- validate_chain.cpp - Comparing an artifact's tables for targets ----===//

#include "core/artifact.h"

using namespace trainc;

/// Both null, or equal.
static bool same(const char *a, const char *b) {
  return a && b ? !strcmp(a, b) : a == b;
}

static bool samePorts(const trainc_port *a, const trainc_port *b,
                      uint32_t count) {
  bool equal = true;
  for (uint32_t i = 0; i < count && equal; ++i) {
    equal = same(a[i].name, b[i].name) && a[i].dtype == b[i].dtype &&
            a[i].rank == b[i].rank && a[i].gradient == b[i].gradient &&
            !a[i].splits == !b[i].splits;
    for (uint32_t k = 0; equal && k < a[i].rank; ++k)
      equal = a[i].dims[k] == b[i].dims[k] &&
              (!a[i].splits || a[i].splits[k] == b[i].splits[k]);
  }
  return equal;
}

static bool sameEntry(const trainc_entry &a, const trainc_entry &b) {
  bool equal = same(a.name, b.name) && a.kind == b.kind &&
               a.accumulate == b.accumulate && a.window == b.window &&
               a.num_inputs == b.num_inputs && a.num_outputs == b.num_outputs &&
               a.num_checks == b.num_checks &&
               samePorts(a.inputs, b.inputs, a.num_inputs) &&
               samePorts(a.outputs, b.outputs, a.num_outputs);
  for (uint32_t i = 0; equal && i < a.num_checks; ++i) {
    const trainc_index_check &x = a.checks[i], &y = b.checks[i];
    equal = x.input == y.input && x.low == y.low && x.high == y.high &&
            x.has_ignore == y.has_ignore && x.ignore == y.ignore &&
            x.begin == y.begin && x.rows == y.rows && x.stride == y.stride &&
            x.run == y.run;
  }
  return equal;
}

static bool sameTensor(const trainc_tensor &a, const trainc_tensor &b) {
  bool equal = same(a.name, b.name) && same(a.state, b.state) &&
               a.role == b.role && a.dtype == b.dtype && a.rank == b.rank &&
               a.group == b.group && a.init == b.init && a.bytes == b.bytes;
  equal = equal && !a.splits == !b.splits;
  for (uint32_t i = 0; equal && i < a.rank; ++i)
    equal = a.dims[i] == b.dims[i] &&
            (!a.splits || (a.splits[i].axes == b.splits[i].axes &&
                           a.splits[i].blocks == b.splits[i].blocks));
  return equal;
}

trainc_status trainc::validateChain(const trainc_descriptor &first,
                                    const trainc_descriptor &one) {
  for (const trainc_descriptor *d = &first; d != &one; d = d->next)
    if (d->target == one.target)
      return fail(TRAINC_DATA_CORRUPT,
                  "the artifact is damaged: it has two codes for target %u",
                  one.target);
  bool equal = first.state_hash == one.state_hash &&
               first.schedule_hash == one.schedule_hash &&
               first.num_tensors == one.num_tensors &&
               first.num_scalars == one.num_scalars &&
               first.num_groups == one.num_groups &&
               first.num_entries == one.num_entries &&
               first.num_windows == one.num_windows &&
               first.num_axes == one.num_axes && first.divisor == one.divisor &&
               same(first.name, one.name);
  for (uint32_t i = 0; equal && i < one.num_axes; ++i)
    equal = first.axes[i].size == one.axes[i].size;
  for (uint32_t i = 0; equal && i < one.num_tensors; ++i)
    equal = sameTensor(first.tensors[i], one.tensors[i]);
  for (uint32_t i = 0; equal && i < one.num_scalars; ++i)
    equal = same(first.scalars[i].name, one.scalars[i].name) &&
            first.scalars[i].flags == one.scalars[i].flags;
  for (uint32_t i = 0; equal && i < one.num_entries; ++i)
    equal = sameEntry(first.entries[i], one.entries[i]);
  return equal ? TRAINC_OK
               : fail(TRAINC_DATA_CORRUPT,
                      "the artifact is damaged: its targets have other states, "
                      "entries or collectives");
}
