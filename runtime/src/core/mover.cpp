//===- mover.cpp - Moving tensors between arenas --------------------------===//

#include "core/mover.h"
#include "core/convert.h"
#include "core/match.h"
#include "core/parts.h"

using namespace trainc;

void Mover::add(uint32_t from, uint32_t to) {
  if (source.state.tensors[from].bytes)
    items.push({from, to, {}, {}, 0, 0, false, false, false, false});
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// The same on all ranks: of one they are the addresses.
void Mover::sortItems() {
  if (items.size())
    qsort_r(
        items.data(), items.size(), sizeof(Item),
        [](const void *a, const void *b, void *context) {
          auto *all = static_cast<const trainc_tensor *>(context);
          uint32_t i = static_cast<const Item *>(a)->from;
          uint32_t j = static_cast<const Item *>(b)->from;
          if (all[i].arena != all[j].arena)
            return all[i].arena < all[j].arena ? -1 : 1;
          if (all[i].offset != all[j].offset)
            return all[i].offset < all[j].offset ? -1 : 1;
          return i < j ? -1 : static_cast<int>(i > j);
        },
        const_cast<trainc_tensor *>(source.d.tensors));
}

/// Finds out which elements ranks have before and after.
trainc_status Mover::findParts(Item &item) {
  uint64_t before = 0, after = 0;
  item.divided = !haveSameParts(source.d.tensors[item.from], source.ranks,
                                target.d.tensors[item.to], target.ranks);
  item.exchanged = item.divided;
  for (uint32_t rank = 0; rank < source.ranks.size(); ++rank) {
    Range from = rangeOf(source.d, source.ranks, item.from, rank);
    Range to = rangeOf(target.d, target.ranks, item.to, rank);
    before += from.count;
    after += to.count;
    item.exchanged |=
        to.count && (to.first < from.first || to.end() > from.end());
  }
  const trainc_tensor &tensor = source.state.tensors[item.from];
  // Elements of a part have one number on ranks with different parts.
  item.divided |= item.exchanged && partAxes(tensor) != 0;
  if (item.exchanged && tensor.role == TRAINC_ROLE_GRADIENT &&
      !isSum(source.d, source.ranks, item.from))
    return fail(TRAINC_UNSUPPORTED,
                "the gradient of '%s' is each rank's own: it cannot be divided "
                "otherwise",
                tensor.name);
  item.grows = after * trainc_dtype_size(target.state.tensors[item.to].dtype) >
               before * trainc_dtype_size(tensor.dtype);
  item.source = rangeIn(source.state, source.d, source.ranks, item.from);
  item.target = rangeIn(target.state, target.d, target.ranks, item.to);
  return TRAINC_OK;
}

/// The spans of one side, sorted.
trainc_status Mover::findSpans(bool targets, Array<Span> &spans) {
  for (uint32_t i = 0; i < items.size(); ++i) {
    const Range &range = targets ? items[i].target : items[i].source;
    const trainc_tensor &tensor = targets ? target.state.tensors[items[i].to]
                                          : source.state.tensors[items[i].from];
    uint64_t bytes = range.count * trainc_dtype_size(tensor.dtype);
    if (bytes)
      spans.push({tensor.arena, i, range.offset, range.offset + bytes});
  }
  if (spans.size())
    qsort(spans.data(), spans.size(), sizeof(Span),
          [](const void *a, const void *b) {
            auto *x = static_cast<const Span *>(a);
            auto *y = static_cast<const Span *>(b);
            if (x->arena != y->arena)
              return x->arena < y->arena ? -1 : 1;
            return x->begin < y->begin ? -1
                                       : static_cast<int>(x->begin > y->begin);
          });
  for (size_t i = 0; i < spans.size(); ++i) {
    Item &item = items[spans[i].item];
    (targets ? item.toSpan : item.fromSpan) = i;
    if (i && spans[i].arena == spans[i - 1].arena &&
        spans[i].begin < spans[i - 1].end)
      return fail(TRAINC_UNSUPPORTED,
                  "tensors '%s' and '%s' overlap: they cannot be converted",
                  source.state.tensors[items[spans[i - 1].item].from].name,
                  source.state.tensors[item.from].name);
  }
  return TRAINC_OK;
}

trainc_status Mover::prepare() {
  sortItems();
  for (Item &item : items)
    TRAINC_TRY(findParts(item));
  TRAINC_TRY(findSpans(/*targets=*/false, sources));
  return findSpans(/*targets=*/true, targets);
}

//===----------------------------------------------------------------------===//
// Pages
//===----------------------------------------------------------------------===//

void Mover::take(uint32_t arena, uint64_t begin, uint64_t end) {
  if (begin >= end)
    return;
  held += static_cast<int64_t>((end - begin) * pageBytes());
  most = held > most ? held : most;
  if (real)
    target.state.pages[arena].take(end - begin);
}

void Mover::drop(uint32_t arena, uint64_t begin, uint64_t end) {
  if (begin >= end)
    return;
  held -= static_cast<int64_t>((end - begin) * pageBytes());
  if (real)
    source.state.pages[arena].drop(begin, end - begin);
}

/// Has another tensor in `page`, beside that of `span`, moved, or not moved?
bool Mover::isShared(const Array<Span> &spans, size_t span, uint64_t page,
                     bool moved) const {
  uint64_t begin = page * pageBytes(), end = begin + pageBytes();
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
  for (uint32_t arena = 0; arena < source.state.arenas.size(); ++arena) {
    uint64_t page = 0;
    for (; next < sources.size() && sources[next].arena == arena; ++next) {
      drop(arena, page, sources[next].begin / pageBytes());
      page = alignUp(sources[next].end, pageBytes()) / pageBytes();
    }
    if (!isKept(arena))
      drop(arena, page, source.state.pages[arena].size() / pageBytes());
  }
}

//===----------------------------------------------------------------------===//
// Moving
//===----------------------------------------------------------------------===//

/// The first rank that has `element` before; `end` is where its part ends.
uint32_t Mover::findOwner(const Item &item, uint64_t element,
                          uint64_t &end) const {
  uint32_t rank = 0;
  Range range = {};
  for (; rank < source.ranks.size(); ++rank) {
    range = rangeOf(source.d, source.ranks, item.from, rank);
    if (element >= range.first && element < range.end())
      break;
  }
  end = range.end();
  return rank;
}

/// Elements [begin, end) of the part of `owner`, for all.
const char *Mover::exchange(const Item &item, uint32_t owner, uint64_t begin,
                            uint64_t end) {
  const trainc_tensor &tensor = source.state.tensors[item.from];
  uint64_t size = trainc_dtype_size(tensor.dtype);
  Collective broadcast;
  broadcast.kind = TRAINC_BROADCAST;
  broadcast.group = worldGroup(*source.ranks.communicator());
  broadcast.dtype = tensor.dtype;
  broadcast.count = end - begin;
  broadcast.label = tensor.name;
  broadcast.root = owner;
  buffer.resize(pieceBytes);
  broadcast.data = buffer.data();
  if (broadcast.root == source.ranks.rank())
    broadcast.data = source.state.pages[tensor.arena].data() +
                     item.source.offset + (begin - item.source.first) * size;
  if (status == TRAINC_OK)
    status = trainc::run(*source.ranks.communicator(), broadcast, nullptr);
  return static_cast<char *>(broadcast.data);
}

/// Takes the pages of what this rank gets, up to element `end`.
void Mover::takeTo(const Item &item, uint64_t end) {
  const trainc_tensor &to = target.state.tensors[item.to];
  const Range &has = item.target;
  uint64_t bytes = has.offset + (end - has.first) * trainc_dtype_size(to.dtype);
  uint64_t page = alignUp(bytes, pageBytes()) / pageBytes();
  page -= isShared(targets, item.toSpan, page - 1, /*moved=*/true);
  take(to.arena, taken, page);
  taken = page > taken ? page : taken;
}

/// Drops the pages of what this rank had, up to element `end`.
void Mover::dropTo(const Item &item, uint64_t end) {
  const trainc_tensor &from = source.state.tensors[item.from];
  const Range &had = item.source;
  uint64_t bytes =
      had.offset + (end - had.first) * trainc_dtype_size(from.dtype);
  uint64_t page = bytes / pageBytes();
  if (end == had.end() && bytes % pageBytes())
    page += !isShared(sources, item.fromSpan, page, /*moved=*/false);
  drop(from.arena, dropped, page);
  dropped = page > dropped ? page : dropped;
}

/// Is `rank` the first that has what it has of the tensor before?
bool Mover::isOwner(const Item &item, uint32_t rank) const {
  const trainc_tensor &tensor = source.d.tensors[item.from];
  PartMap map(tensor, source.ranks, rank);
  Range range = rangeOf(source.d, source.ranks, item.from, rank);
  bool first = range.count > 0;
  for (uint32_t i = 0; first && i < rank; ++i) {
    Range other = rangeOf(source.d, source.ranks, item.from, i);
    first = other.first != range.first || other.count != range.count ||
            !map.equals(PartMap(tensor, source.ranks, i));
  }
  return first;
}

/// Moves a tensor of which ranks have other parts afterwards.
void Mover::moveDivided(const Item &item) {
  if (item.target.count)
    takeTo(item, item.target.end());
  const trainc_tensor &from = source.state.tensors[item.from];
  const trainc_tensor &to = target.state.tensors[item.to];
  uint64_t fromSize = trainc_dtype_size(from.dtype);
  uint64_t toSize = trainc_dtype_size(to.dtype);
  const Range &has = item.target;
  PartMap after(target.d.tensors[item.to], target.ranks, target.ranks.rank());
  const char *data = nullptr;
  auto takeRun = [&](uint64_t at, uint64_t element, uint64_t count) {
    auto convertRun = [&](uint64_t place, uint64_t found, uint64_t run) {
      uint64_t low = place > has.first ? place : has.first;
      uint64_t high = place + run < has.end() ? place + run : has.end();
      if (low < high)
        convert(from.dtype,
                data + (at + (found - element) + (low - place)) * fromSize,
                to.dtype,
                target.state.pages[to.arena].data() + has.offset +
                    (low - has.first) * toSize,
                high - low);
      return TRAINC_OK;
    };
    return element == PartMap::none
               ? TRAINC_OK
               : after.forWhole(element, element + count, convertRun);
  };
  for (uint32_t rank = 0; real && rank < source.ranks.size(); ++rank) {
    if (!isOwner(item, rank))
      continue;
    Range range = rangeOf(source.d, source.ranks, item.from, rank);
    PartMap before(source.d.tensors[item.from], source.ranks, rank);
    (void)forPieces(from.dtype, to.dtype, range.count,
                    [&](uint64_t first, uint64_t count) {
                      uint64_t begin = range.first + first;
                      data = exchange(item, rank, begin, begin + count);
                      if (status == TRAINC_OK)
                        (void)before.forPart(
                            begin, begin + count,
                            [&](uint64_t at, uint64_t element, uint64_t run) {
                              return takeRun(at - begin, element, run);
                            });
                      return TRAINC_OK;
                    });
  }
  if (item.source.count)
    dropTo(item, item.source.end());
}

/// Moves what this rank has of elements [begin, end).
void Mover::movePiece(const Item &item, uint64_t begin, uint64_t end) {
  const trainc_tensor &from = source.state.tensors[item.from];
  const trainc_tensor &to = target.state.tensors[item.to];
  uint64_t fromSize = trainc_dtype_size(from.dtype);
  uint64_t toSize = trainc_dtype_size(to.dtype);
  const Range &had = item.source, &has = item.target;
  uint64_t low = begin > has.first ? begin : has.first;
  uint64_t high = end < has.end() ? end : has.end();
  if (low < high)
    takeTo(item, high);
  if (real) {
    uint64_t ownerEnd = 0;
    const char *data =
        item.exchanged
            ? exchange(item, findOwner(item, begin, ownerEnd), begin, end)
            : source.state.pages[from.arena].data() + had.offset +
                  (begin - had.first) * fromSize;
    if (low < high && status == TRAINC_OK)
      convert(from.dtype, data + (low - begin) * fromSize, to.dtype,
              target.state.pages[to.arena].data() + has.offset +
                  (low - has.first) * toSize,
              high - low);
  }
  high = end < had.end() ? end : had.end();
  if (had.count && high > had.first)
    dropTo(item, high);
}

void Mover::move(Item &item) {
  const Range &had = item.source, &has = item.target;
  dropped = had.offset / pageBytes();
  taken = has.offset / pageBytes();
  if (had.count)
    dropped += isShared(sources, item.fromSpan, dropped, /*moved=*/false);
  if (has.count)
    taken += isShared(targets, item.toSpan, taken, /*moved=*/true);
  if (item.divided) {
    moveDivided(item);
    item.moved = true;
    return;
  }
  const trainc_tensor &from = source.state.tensors[item.from];
  const trainc_tensor &to = target.state.tensors[item.to];
  uint64_t first = item.exchanged ? 0 : had.first;
  uint64_t count = item.exchanged ? elementCount(from) : had.count;
  forPieces(from.dtype, to.dtype, count, [&](uint64_t at, uint64_t size) {
    uint64_t begin = first + at, end = begin + size;
    while (begin < end) {
      uint64_t next = end;
      if (item.exchanged)
        findOwner(item, begin, next);
      next = next < end ? next : end;
      movePiece(item, begin, next);
      begin = next;
    }
    return TRAINC_OK;
  });
  item.moved = true;
}

void Mover::walk() {
  held = most = 0;
  for (Item &item : items)
    item.moved = false;
  for (const Pair &pair : kept)
    if (real)
      target.state.pages[pair.to].swap(source.state.pages[pair.from]);
  dropGaps();
  for (bool grows : {false, true})
    for (Item &item : items)
      if (item.grows == grows)
        move(item);
}

uint64_t Mover::peak() {
  real = false;
  walk();
  return static_cast<uint64_t>(most);
}

trainc_status Mover::run() {
  real = true;
  walk();
  return status;
}
