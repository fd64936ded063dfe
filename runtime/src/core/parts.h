//===- parts.h - Which elements of a tensor are a rank's --------*- C++ -*-===//
//
// A tensor with splits (step_abi.h) lies in parts, one for all ranks that have the same
// place along its axes. A part is a tensor of its own, row major; what is cut into
// buckets, pieces and bytes is the part. Here its elements are found in the whole.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_PARTS_H
#define TRAINC_CORE_PARTS_H

#include "core/ranks.h"
#include "trainc/step_abi.h"
#include <string.h>

namespace trainc {

/// The axes along which ranks have different parts of a tensor: bit i is axis i.
uint32_t partAxes(const trainc_tensor &tensor);

/// Elements of all parts together, without what fills up short ones.
uint64_t wholeCount(const trainc_tensor &tensor);

/// The size of a dimension of a part. `parts`: how many there are along it.
uint64_t partSize(uint64_t size, uint64_t blocks, uint64_t parts);

/// Where the elements of a rank's part are in the whole. Both have the same order.
class PartMap {
public:
  /// In place of the element of the whole where there is none.
  static constexpr uint64_t none = UINT64_MAX;

  PartMap(const trainc_tensor &tensor, const Ranks &ranks, uint32_t rank);

  /// Are the elements of two parts the same ones, in the same places?
  bool equals(const PartMap &other) const;

  /// Calls function(at, element, count) for elements [begin, end) of the part, run by
  /// run, while it returns TRAINC_OK: `count` from `at` on are those from `element` on
  /// of the whole, or zeros that fill the part up.
  template <typename Function>
  trainc_status forPart(uint64_t begin, uint64_t end, Function function) const {
    while (begin < end) {
      uint64_t row = begin / rowLength, within = begin % rowLength;
      uint64_t element = findRow(row);
      uint64_t limit =
          within < rowElements && element != none ? rowElements : rowLength;
      uint64_t count = limit - within;
      count = count < end - begin ? count : end - begin;
      bool filled = within >= rowElements || element == none;
      TRAINC_TRY(function(begin, filled ? none : element + within, count));
      begin += count;
    }
    return TRAINC_OK;
  }

  /// The same for what the part has of elements [begin, end) of the whole.
  template <typename Function>
  trainc_status forWhole(uint64_t begin, uint64_t end,
                         Function function) const {
    while (begin < end) {
      uint64_t segment = begin / segmentLength;
      uint64_t low = segment * segmentLength + segmentStart;
      uint64_t high = low + rowElements, row = findSegment(segment);
      uint64_t first = begin > low ? begin : low;
      uint64_t last = end < high ? end : high;
      if (row != none && first < last)
        TRAINC_TRY(
            function(row * rowLength + (first - low), first, last - first));
      begin = (segment + 1) * segmentLength;
    }
    return TRAINC_OK;
  }

  /// Writes elements [begin, begin + count) of the part, of `size` bytes each, to `to`:
  /// write(to, element, count) those from `element` on of the whole, zeros here.
  template <typename Function>
  trainc_status writePart(char *to, uint64_t size, uint64_t begin,
                          uint64_t count, Function write) const {
    return forPart(begin, begin + count,
                   [&](uint64_t at, uint64_t element, uint64_t run) {
                     char *place = to + (at - begin) * size;
                     if (element != none)
                       return write(place, element, run);
                     memset(place, 0, run * size);
                     return TRAINC_OK;
                   });
  }

private:
  struct Dim {
    uint64_t size, blocks;
    uint64_t range, count; // elements of a block: of the whole, of a part
    uint64_t begin;        // of the part in each block
  };

  uint64_t findRow(uint64_t row) const;
  uint64_t findSegment(uint64_t segment) const;

  /// Up to the last one that is split. Each of its blocks is a segment of the whole, of
  /// which the part has a row.
  Array<Dim> dims;
  uint64_t rowLength = 1, rowElements = 1;
  uint64_t segmentLength = 1, segmentStart = 0;
};

/// Has every rank the same elements, in the same places, of a tensor that lies as two
/// tables say?
bool haveSameParts(const trainc_tensor &a, const Ranks &ranksOfA,
                   const trainc_tensor &b, const Ranks &ranksOfB);

} // namespace trainc

#endif // TRAINC_CORE_PARTS_H
