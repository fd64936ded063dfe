//===- mover.h - Moving tensors between arenas ------------------*- C++ -*-===//
//
// Moves the tensors of one state into the arenas of another, converting them
// piece by piece: pages of the old arenas go back to the system as soon as all
// of their tensors have moved, pages of the new ones are taken when they are
// first written. What grows moves last. So both states together never hold more
// than the larger of them, one piece and, where neighbours of one state are none
// in the other, a page or two.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_MOVER_H
#define TRAINC_CORE_MOVER_H

#include "core/trainer.h"

namespace trainc {

class Mover {
public:
  Mover(State &source, State &target) : source(source), target(target) {}

  /// A tensor to move.
  void add(uint32_t from, uint32_t to);

  /// An arena that becomes one of the target, with all that is in it.
  void keep(uint32_t from, uint32_t to) { kept.push({from, to}); }

  /// To be called after the last add(). Refuses tensors that overlap.
  trainc_status prepare();

  /// The most bytes above those held now that run() will hold at any time.
  uint64_t peak() { return walk(/*real=*/false); }

  /// Needs reserved pages in the target, for all arenas that are not kept.
  void run() { walk(/*real=*/true); }

private:
  struct Pair {
    uint32_t from, to; // arenas
  };
  struct Item {
    uint32_t from, to;       // tensors
    size_t fromSpan, toSpan; // their spans
    bool grows, moved;
  };
  /// Bytes of a moved tensor in an arena.
  struct Span {
    uint32_t arena;
    uint32_t item;
    uint64_t begin, end;
  };

  trainc_status findSpans(bool targets, Array<Span> &spans);
  bool isKept(uint32_t from) const;
  bool isShared(const Array<Span> &spans, size_t span, uint64_t page,
                bool moved) const;
  uint64_t walk(bool real);
  void dropGaps();
  void move(Item &item);
  void take(uint32_t arena, uint64_t begin, uint64_t end);
  void drop(uint32_t arena, uint64_t begin, uint64_t end);

  State &source, &target;
  Array<Pair> kept;
  Array<Item> items;
  Array<Span> sources, targets; // in the order of the addresses
  bool real = false;
  int64_t held = 0, most = 0; // bytes since the start
};

} // namespace trainc

#endif // TRAINC_CORE_MOVER_H
