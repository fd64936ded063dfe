//===- indices.h - 0, 1, ... as template arguments --------------*- C++ -*-===//
//
// As std::index_sequence, without the C++ library. Types only, so that files
// compiled per processor level may share it.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CPU_INDICES_H
#define TRAINC_CPU_INDICES_H

namespace trainc {

template <int... I> struct Sequence {};
template <int N, int... I>
struct MakeSequence : MakeSequence<N - 1, N - 1, I...> {};
template <int... I> struct MakeSequence<0, I...> {
  using Type = Sequence<I...>;
};

/// Sequence<0, ..., N - 1>.
template <int N> using Indices = typename MakeSequence<N>::Type;

} // namespace trainc

#endif // TRAINC_CPU_INDICES_H
