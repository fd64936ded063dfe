//===- mover.cpp - Moving tensors between arenas --------------------------===//

#include "core/mover.h"
#include "core/convert.h"

using namespace trainc;

void Mover::add(uint32_t from, uint32_t to) {
  uint64_t bytes = source.tensors[from].bytes;
  if (bytes)
    items.push({from, to, 0, 0, target.tensors[to].bytes > bytes, false});
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// The spans of one side, sorted.
trainc_status Mover::findSpans(bool targets, Array<Span> &spans) {
  for (uint32_t i = 0; i < items.size(); ++i) {
    const trainc_tensor &tensor =
        targets ? target.tensors[items[i].to] : source.tensors[items[i].from];
    spans.push({tensor.arena, i, tensor.offset, tensor.offset + tensor.bytes});
  }
  if (spans.size())
    qsort(spans.data(), spans.size(), sizeof(Span),
          [](const void *a, const void *b) {
            auto *x = static_cast<const Span *>(a);
            auto *y = static_cast<const Span *>(b);
            if (x->arena != y->arena)
              return x->arena < y->arena ? -1 : 1;
            return x->begin < y->begin ? -1 : x->begin > y->begin;
          });
  for (size_t i = 0; i < spans.size(); ++i) {
    Item &item = items[spans[i].item];
    (targets ? item.toSpan : item.fromSpan) = i;
    if (i && spans[i].arena == spans[i - 1].arena &&
        spans[i].begin < spans[i - 1].end)
      return fail(TRAINC_UNSUPPORTED,
                  "tensors '%s' and '%s' overlap: they cannot be converted",
                  source.tensors[items[spans[i - 1].item].from].name,
                  source.tensors[item.from].name);
  }
  return TRAINC_OK;
}

trainc_status Mover::prepare() {
  TRAINC_TRY(findSpans(/*targets=*/false, sources));
  return findSpans(/*targets=*/true, targets);
}

//===----------------------------------------------------------------------===//
// Pages
//===----------------------------------------------------------------------===//

void Mover::take(uint32_t arena, uint64_t begin, uint64_t end) {
  if (begin >= end)
    return;
  held += static_cast<int64_t>((end - begin) * pageBytes);
  most = held > most ? held : most;
  if (real)
    target.pages[arena].take(end - begin);
}

void Mover::drop(uint32_t arena, uint64_t begin, uint64_t end) {
  if (begin >= end)
    return;
  held -= static_cast<int64_t>((end - begin) * pageBytes);
  if (real)
    source.pages[arena].drop(begin, end - begin);
}

/// Has another tensor in `page`, beside that of `span`, moved, or not moved?
bool Mover::isShared(const Array<Span> &spans, size_t span, uint64_t page,
                     bool moved) const {
  uint64_t begin = page * pageBytes, end = begin + pageBytes;
  uint32_t arena = spans[span].arena;
  for (size_t i = span; i-- > 0 && spans[i].arena == arena;) {
    if (spans[i].end <= begin)
      break;
    if (items[spans[i].item].moved == moved)
      return true;
  }
  for (size_t i = span + 1; i < spans.size() && spans[i].arena == arena; ++i) {
    if (spans[i].begin >= end)
      break;
    if (items[spans[i].item].moved == moved)
      return true;
  }
  return false;
}

bool Mover::isKept(uint32_t from) const {
  for (const Pair &pair : kept)
    if (pair.from == from)
      return true;
  return false;
}

/// Drops the pages in which no tensor is that moves.
void Mover::dropGaps() {
  size_t next = 0;
  for (uint32_t arena = 0; arena < source.arenas.size(); ++arena) {
    uint64_t page = 0;
    for (; next < sources.size() && sources[next].arena == arena; ++next) {
      drop(arena, page, sources[next].begin / pageBytes);
      page = alignUp(sources[next].end, pageBytes) / pageBytes;
    }
    if (!isKept(arena))
      drop(arena, page, source.pages[arena].size() / pageBytes);
  }
}

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

void Mover::move(Item &item) {
  const trainc_tensor &from = source.tensors[item.from];
  const trainc_tensor &to = target.tensors[item.to];
  uint64_t fromSize = trainc_dtype_size(from.dtype);
  uint64_t toSize = trainc_dtype_size(to.dtype);
  uint64_t count = elementCount(from);
  // The first pages of either side that this tensor has not dropped or taken.
  uint64_t dropped = from.offset / pageBytes, taken = to.offset / pageBytes;
  dropped += isShared(sources, item.fromSpan, dropped, /*moved=*/false);
  taken += isShared(targets, item.toSpan, taken, /*moved=*/true);
  forPieces(from.dtype, to.dtype, count, [&](uint64_t begin, uint64_t size) {
    uint64_t fromEnd = from.offset + (begin + size) * fromSize;
    uint64_t toEnd = to.offset + (begin + size) * toSize;
    uint64_t page = alignUp(toEnd, pageBytes) / pageBytes;
    page -= isShared(targets, item.toSpan, page - 1, /*moved=*/true);
    take(to.arena, taken, page);
    taken = page > taken ? page : taken;
    if (real)
      convert(from.dtype,
              source.pages[from.arena].data() + from.offset + begin * fromSize,
              to.dtype,
              target.pages[to.arena].data() + to.offset + begin * toSize, size);
    page = fromEnd / pageBytes;
    if (begin + size == count && fromEnd % pageBytes)
      page += !isShared(sources, item.fromSpan, page, /*moved=*/false);
    drop(from.arena, dropped, page);
    dropped = page > dropped ? page : dropped;
    return TRAINC_OK;
  });
  item.moved = true;
}

uint64_t Mover::walk(bool isReal) {
  real = isReal;
  held = most = 0;
  for (Item &item : items)
    item.moved = false;
  for (const Pair &pair : kept)
    if (real)
      target.pages[pair.to].swap(source.pages[pair.from]);
  dropGaps();
  for (bool grows : {false, true})
    for (const Span &span : sources)
      if (items[span.item].grows == grows)
        move(items[span.item]);
  return static_cast<uint64_t>(most);
}
