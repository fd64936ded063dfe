//===- parts.cpp - Which elements of a tensor are a rank's ----------------===//

#include "core/parts.h"

using namespace trainc;

uint32_t trainc::partAxes(const trainc_tensor &tensor) {
  uint32_t axes = 0;
  for (uint32_t i = 0; tensor.splits && i < tensor.rank; ++i)
    for (uint64_t rest = tensor.splits[i].axes; rest; rest >>= 8)
      axes |= 1u << ((rest & 255) - 1);
  return axes;
}

uint64_t trainc::wholeCount(const trainc_tensor &tensor) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < tensor.rank; ++i)
    count *= static_cast<uint64_t>(tensor.dims[i]);
  return count;
}

uint64_t trainc::partSize(uint64_t size, uint64_t blocks, uint64_t parts) {
  return blocks * ((size / blocks + parts - 1) / parts);
}

PartMap::PartMap(const trainc_tensor &tensor, const Ranks &ranks,
                 uint32_t rank) {
  uint32_t count = tensor.splits ? tensor.rank : 0;
  while (count && !tensor.splits[count - 1].axes)
    --count;
  uint64_t inner = 1;
  for (uint32_t i = count; i < tensor.rank; ++i)
    inner *= static_cast<uint64_t>(tensor.dims[i]);
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t size = static_cast<uint64_t>(tensor.dims[i]);
    uint64_t blocks = tensor.splits[i].blocks, index = 0, parts = 1;
    for (uint64_t rest = tensor.splits[i].axes; rest; rest >>= 8) {
      uint32_t axis = 1u << ((rest & 255) - 1);
      index = index * ranks.countIn(axis) + ranks.indexIn(axis, rank);
      parts *= ranks.countIn(axis);
    }
    uint64_t part = partSize(size, blocks, parts) / blocks;
    dims.push({size, blocks, size / blocks, part, index * part});
  }
  rowLength = rowElements = segmentLength = inner;
  if (!count)
    return;
  const Dim &last = dims[count - 1];
  uint64_t rest = last.begin < last.range ? last.range - last.begin : 0;
  rowLength = last.count * inner;
  rowElements = (rest < last.count ? rest : last.count) * inner;
  segmentLength = last.range * inner;
  segmentStart = last.begin * inner;
}

bool PartMap::equals(const PartMap &other) const {
  bool equal = dims.size() == other.dims.size();
  for (size_t i = 0; equal && i < dims.size(); ++i)
    equal = dims[i].blocks == other.dims[i].blocks &&
            dims[i].count == other.dims[i].count &&
            dims[i].begin == other.dims[i].begin;
  return equal;
}

/// The first element of a row of the part, or none.
uint64_t PartMap::findRow(uint64_t row) const {
  if (!dims.size())
    return 0;
  uint64_t blocks = dims[dims.size() - 1].blocks;
  uint64_t segment = row % blocks, factor = blocks;
  row /= blocks;
  for (size_t i = dims.size() - 1; i-- > 0;) {
    const Dim &dim = dims[i];
    uint64_t local = row % (dim.blocks * dim.count);
    row /= dim.blocks * dim.count;
    uint64_t at = dim.begin + local % dim.count;
    if (at >= dim.range)
      return none;
    segment += (local / dim.count * dim.range + at) * factor;
    factor *= dim.size;
  }
  return segment * segmentLength + segmentStart;
}

/// The row of the part that is of a segment of the whole, or none.
uint64_t PartMap::findSegment(uint64_t segment) const {
  if (!dims.size())
    return 0;
  uint64_t blocks = dims[dims.size() - 1].blocks;
  uint64_t row = segment % blocks, factor = blocks;
  segment /= blocks;
  for (size_t i = dims.size() - 1; i-- > 0;) {
    const Dim &dim = dims[i];
    uint64_t element = segment % dim.size;
    segment /= dim.size;
    uint64_t at = element % dim.range;
    if (at < dim.begin || at - dim.begin >= dim.count)
      return none;
    row += (element / dim.range * dim.count + at - dim.begin) * factor;
    factor *= dim.blocks * dim.count;
  }
  return row;
}

bool trainc::haveSameParts(const trainc_tensor &a, const Ranks &ranksOfA,
                           const trainc_tensor &b, const Ranks &ranksOfB) {
  bool same = true;
  for (uint32_t rank = 0; same && rank < ranksOfA.size(); ++rank)
    same = PartMap(a, ranksOfA, rank).equals(PartMap(b, ranksOfB, rank));
  return same;
}
