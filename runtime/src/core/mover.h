//===- mover.h - Moving tensors between arenas ------------------*- C++ -*-===//
//
// Moves the tensors of one state into the arenas of another, converting them
// piece by piece: pages of the old arenas go back to the system as soon as all
// of their tensors have moved, pages of the new ones are taken when they are
// first written. What grows moves last. So both states together never hold more
// than the larger of them, one piece and, where neighbours of one state are none
// in the other, a page or two.
//
// Of several ranks each moves its own parts. A tensor of which a rank has other
// elements afterwards goes through all ranks, piece by piece, in the same order on
// all of them. Then a rank may take its part of a bucket before it has dropped
// what it had. If it lies in parts (parts.h), a rank holds what it had and what it gets of
// this tensor, both whole.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_MOVER_H
#define TRAINC_CORE_MOVER_H

#include "core/trainer.h"

namespace trainc {

/// A state, the artifact that says which parts of it a rank has, and the ranks.
struct MoverSide {
  State &state;
  const trainc_descriptor &d;
  const Ranks &ranks;
};

class Mover {
public:
  Mover(MoverSide source, MoverSide target) : source(source), target(target) {}

  /// A tensor to move.
  void add(uint32_t from, uint32_t to);

  /// An arena that becomes one of the target, with all that is in it.
  void keep(uint32_t from, uint32_t to) { kept.push({from, to}); }

  /// To be called after the last add(). Refuses tensors that overlap, and what no
  /// rank can give to another.
  trainc_status prepare();

  /// The most bytes above those held now that run() will hold at any time.
  uint64_t peak();

  /// Needs reserved pages in the target, for all arenas that are not kept. It ends
  /// in the target in any case: if the ranks cannot exchange, with tensors that
  /// are undefined.
  trainc_status run();

private:
  struct Pair {
    uint32_t from, to; // arenas
  };
  struct Item {
    uint32_t from, to;       // tensors
    Range source, target;    // what this rank has of them
    size_t fromSpan, toSpan; // their spans, if that is anything
    bool grows, exchanged, moved;
    bool divided; // into other parts, or pieces of parts: exchanged as a whole
  };
  /// Bytes of a moved tensor in an arena.
  struct Span {
    uint32_t arena;
    uint32_t item;
    uint64_t begin, end;
  };

  void sortItems();
  trainc_status findParts(Item &item);
  trainc_status findSpans(bool targets, Array<Span> &spans);
  bool isKept(uint32_t from) const;
  bool isShared(const Array<Span> &spans, size_t span, uint64_t page,
                bool moved) const;
  void walk();
  void dropGaps();
  void move(Item &item);
  void movePiece(const Item &item, uint64_t begin, uint64_t end);
  void takeTo(const Item &item, uint64_t end);
  void dropTo(const Item &item, uint64_t end);
  void moveDivided(const Item &item);
  bool isOwner(const Item &item, uint32_t rank) const;
  uint32_t findOwner(const Item &item, uint64_t element, uint64_t &end) const;
  const char *exchange(const Item &item, uint32_t owner, uint64_t begin,
                       uint64_t end);
  void take(uint32_t arena, uint64_t begin, uint64_t end);
  void drop(uint32_t arena, uint64_t begin, uint64_t end);

  MoverSide source, target;
  Array<Pair> kept;
  Array<Item> items;            // in the order of the source's artifact
  Array<Span> sources, targets; // in the order of the addresses
  bool real = false;
  trainc_status status = TRAINC_OK; // of exchanges
  Array<char> buffer;               // a piece of another rank
  int64_t held = 0, most = 0;       // bytes since the start
  /// Of the tensor that moves: the first pages of either side that it has not
  /// dropped or taken.
  uint64_t dropped = 0, taken = 0;
};

} // namespace trainc

#endif // TRAINC_CORE_MOVER_H
