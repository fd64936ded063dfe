//===- ranks.h - The ranks of a run -----------------------------*- C++ -*-===//
//
// A run is one of several if a launcher or --comm says so: then every rank has its
// part of the data, the first one prints and draws, and errors end all of them.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_RUN_RANKS_H
#define TRAINC_RUN_RANKS_H

#include "options.h"
#include "support.h"

namespace trainc::run {

class Model;

/// Joins the other ranks, says where they run, and refuses ranks that were given
/// other options.
void joinRanks(const Options &options, int argc, char **argv);
void leaveRanks();

/// Null if this rank is alone.
trainc_comm *communicator();
uint32_t rank();
uint32_t ranks();
/// Does this rank print for all?
inline bool isFirst() { return rank() == 0; }

/// Ends all ranks. What fails on all is printed by the first, what fails on one alone
/// by that one, and of what a rank learns from the others nothing more: the report of
/// the communicator has said it.
[[noreturn]] void failTogether(const std::string &text,
                               void (*print)(const std::string &text));

/// Threads of this rank if none are asked for: its processors, divided by the ranks
/// that may run on them.
uint32_t defaultThreads();

/// `path` with ".rankN" before its extension if there are several ranks.
std::string pathOfRank(const std::string &path);

/// Ends the program if ranks differ in `value`.
void agree(const char *what, uint64_t value);

/// trainc-run --preflight, with the model and its data at hand: the bandwidth of every kind of collective, and the rates that trainc
/// estimates steps by.
void preflight(Model &model, const Options &options);

} // namespace trainc::run

#endif // TRAINC_RUN_RANKS_H
