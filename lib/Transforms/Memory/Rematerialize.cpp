//===- Rematerialize.cpp - Which values are computed again ----------------===//
//
// A search over schedules that compute values again instead of keeping them. Each
// move ends the life of a value at a use and begins it anew before the next one; what
// the value is made from lives on until then, or is computed again as well. Chosen
// is the move that takes away most of the excess (the bytes over the limit, summed over
// the commands) per second; the excess falls with each, so the search ends. At
// last, moves that turn out not to be needed are taken back, the dearest first.
//
//===----------------------------------------------------------------------===//
#include "Rematerialize.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace mlir;
using namespace trainc;

namespace {
/// How a move comes by what a value is made from, where that is no longer there.
enum class Inputs { Keep, KeepSmall, Again };

/// One life of an item: from where it is made to its last use.
struct Life {
  unsigned item;
  /// The recomputation, or null: where the list makes it.
  const std::pair<const std::pair<int64_t, unsigned>, unsigned> *made;
  int64_t first, last;          // steps, see Schedule
  SmallVector<int64_t, 4> uses; // positions, ascending
};

/// The list with its recomputations: steps are commands and recomputations in order.
struct Schedule {
  Schedule(ArrayRef<Item> items, const Again &again);

  std::vector<Life> lives;
  /// Lives of item i: from begin[i] to begin[i + 1], by position.
  std::vector<size_t> begin;
  SmallVector<Lifetime> extras;
  int64_t numSteps = 0;

  SmallVector<Lifetime> lifetimes(ArrayRef<Item> items) const;
  std::vector<int64_t> alive(ArrayRef<Item> items) const;
  /// The life of `item` from which a command at `position` takes it.
  const Life &lifeAt(unsigned item, int64_t position) const {
    return lives[indexAt(item, position)];
  }

private:
  size_t indexAt(unsigned item, int64_t position) const;
};
} // namespace

/// Whether the recomputation comes with the one before it: the same command, whole.
static bool isShared(ArrayRef<Item> items, Again::const_iterator it,
                     const Again &again) {
  if (it == again.begin())
    return false;
  auto before = std::prev(it);
  const Item &item = items[it->first.second];
  const Item &other = items[before->first.second];
  return before->first.first == it->first.first && other.first == item.first &&
         item.recipes[it->second].whole && other.recipes[before->second].whole;
}

Schedule::Schedule(ArrayRef<Item> items, const Again &again) {
  // Where recomputations stand among the steps.
  SmallVector<int64_t> before;
  for (const auto &[key, recipe] : again)
    before.push_back(key.first);
  auto stepOf = [&](int64_t position) {
    return position + (llvm::upper_bound(before, position) - before.begin());
  };
  begin.assign(items.size() + 1, 0);
  for (const auto &[key, recipe] : again)
    ++begin[key.second + 1];
  for (size_t i = 0; i < items.size(); ++i)
    begin[i + 1] += begin[i] + 1;
  lives.resize(begin.back());
  std::vector<size_t> next(begin.begin(), begin.end() - 1);
  int64_t last = 0;
  for (auto [i, item] : llvm::enumerate(items)) {
    int64_t step = stepOf(item.first);
    lives[next[i]++] = {unsigned(i), nullptr, step, step, {}};
    last = std::max(last, step);
  }
  int64_t count = 0;
  for (const auto &entry : again) {
    int64_t step = entry.first.first + count++;
    lives[next[entry.first.second]++] = {
        entry.first.second, &entry, step, step, {}};
  }
  auto use = [&](unsigned item, int64_t position, int64_t step) {
    Life &life = lives[indexAt(item, position)];
    life.last = std::max(life.last, step);
    life.uses.push_back(position);
    last = std::max(last, step);
  };
  for (auto [i, item] : llvm::enumerate(items))
    for (int64_t position : item.uses)
      use(i, position, stepOf(position));
  count = 0;
  for (auto it = again.begin(); it != again.end(); ++it) {
    const Recipe &recipe = items[it->first.second].recipes[it->second];
    int64_t step = it->first.first + count++;
    for (unsigned other : recipe.items)
      use(other, it->first.first, step);
    if (recipe.extra && !isShared(items, it, again))
      extras.push_back({recipe.extra, step, step});
  }
  for (Life &life : lives)
    llvm::sort(life.uses);
  numSteps = last + 1;
}

size_t Schedule::indexAt(unsigned item, int64_t position) const {
  size_t at = begin[item + 1] - 1;
  while (at > begin[item] && lives[at].made->first.first > position)
    --at;
  return at;
}

SmallVector<Lifetime> Schedule::lifetimes(ArrayRef<Item> items) const {
  SmallVector<Lifetime> result(extras);
  for (const Life &life : lives)
    result.push_back({items[life.item].bytes, life.first, life.last});
  return result;
}

/// Bytes needed at each step.
std::vector<int64_t> Schedule::alive(ArrayRef<Item> items) const {
  std::vector<int64_t> result(numSteps + 1, 0);
  for (const Lifetime &life : lifetimes(items)) {
    result[life.first] += life.bytes;
    result[life.last + 1] -= life.bytes;
  }
  for (int64_t i = 1; i <= numSteps; ++i)
    result[i] += result[i - 1];
  return result;
}

SmallVector<Lifetime> trainc::lifetimesOf(ArrayRef<Item> items,
                                          const Again &again) {
  return Schedule(items, again).lifetimes(items);
}

double trainc::secondsOf(ArrayRef<Item> items, const Again &again) {
  double seconds = 0;
  for (auto it = again.begin(); it != again.end(); ++it)
    if (!isShared(items, it, again))
      seconds += items[it->first.second].recipes[it->second].seconds;
  return seconds;
}

/// Takes away what nothing uses.
static void dropUnused(ArrayRef<Item> items, Again &again) {
  while (true) {
    Schedule schedule(items, again);
    SmallVector<std::pair<int64_t, unsigned>> unused;
    for (const Life &life : schedule.lives)
      if (life.made && life.uses.empty())
        unused.push_back(life.made->first);
    if (unused.empty())
      return;
    for (const auto &key : unused)
      again.erase(key);
  }
}

namespace {
struct Search {
  Search(ArrayRef<Item> items, int64_t limit)
      : items(items), limit(limit), target(limit) {}

  ArrayRef<Item> items;
  int64_t limit;
  /// What the sum of bytes may be: less than `limit` where layouts have gaps.
  int64_t target;
  Again again;

  bool run();

private:
  using Key = std::pair<int64_t, unsigned>;
  struct Move {
    Again again;
    double score = -1; // not allowed
  };
  double excessOf(const Again &state) const;
  void add(const Schedule &schedule, Again &state, Key key, unsigned recipe,
           Inputs inputs, bool merge) const;
  unsigned easiestRecipe(const Schedule &schedule, Key key) const;
  SmallVector<Key> findMoves(const Schedule &schedule) const;
  Move bestMove(const Schedule &schedule, Key key, double excess,
                double seconds) const;
  bool reduceExcess();
  bool fits() const;
  void takeBack();
};
} // namespace

double Search::excessOf(const Again &state) const {
  double excess = 0;
  for (int64_t bytes : Schedule(items, state).alive(items))
    excess += std::max<int64_t>(0, bytes - target);
  return excess;
}

/// Whether `item` is there at `position` anyway.
static bool isThere(const Schedule &schedule, unsigned item, int64_t position) {
  const Life &life = schedule.lifeAt(item, position);
  return (life.made && life.made->first.first == position) ||
         (!life.uses.empty() && life.uses.back() >= position);
}

/// The recipe of an item with least to fetch before `key.first`, then the fastest.
unsigned Search::easiestRecipe(const Schedule &schedule, Key key) const {
  auto cost = [&](const Recipe &recipe) {
    int64_t bytes = 0;
    for (unsigned other : recipe.items)
      if (!isThere(schedule, other, key.first))
        bytes += items[other].bytes;
    return std::pair(bytes, recipe.seconds);
  };
  const auto &recipes = items[key.second].recipes;
  unsigned best = 0;
  for (unsigned i = 1; i < recipes.size(); ++i)
    if (cost(recipes[i]) < cost(recipes[best]))
      best = i;
  return best;
}

/// Computes an item again, with what it needs. With `merge` its later recomputations
/// go: it is kept until there.
void Search::add(const Schedule &schedule, Again &state, Key key,
                 unsigned recipe, Inputs inputs, bool merge) const {
  if (!state.try_emplace(key, recipe).second)
    return;
  auto [position, item] = key;
  if (merge) {
    for (auto it = state.upper_bound(key); it != state.end();)
      it = it->first.second == item ? state.erase(it) : std::next(it);
  }
  for (unsigned other : items[item].recipes[recipe].items) {
    bool small = items[other].bytes * 4 <= items[item].bytes;
    if (items[other].recipes.empty() || inputs == Inputs::Keep ||
        (inputs == Inputs::KeepSmall && small) ||
        isThere(schedule, other, position))
      continue;
    Key more(position, other);
    add(schedule, state, more, easiestRecipe(schedule, more), inputs, merge);
  }
}

/// Items that live from one use to the next while there is too much.
SmallVector<Search::Key> Search::findMoves(const Schedule &schedule) const {
  std::vector<int64_t> alive = schedule.alive(items);
  // Steps up to each one with too many bytes.
  std::vector<int64_t> over(alive.size() + 1, 0);
  for (size_t i = 0; i < alive.size(); ++i)
    over[i + 1] = over[i] + (alive[i] > target);
  SmallVector<Key> moves;
  for (const Life &life : schedule.lives) {
    if (items[life.item].recipes.empty() || life.first == life.last ||
        over[life.last] == over[life.first + 1])
      continue;
    int64_t previous =
        life.made ? life.made->first.first : items[life.item].first;
    for (int64_t position : life.uses) {
      if (position > previous + 1)
        moves.push_back({position, life.item});
      previous = position;
    }
  }
  return moves;
}

Search::Move Search::bestMove(const Schedule &schedule, Key key, double excess,
                              double seconds) const {
  Move best;
  SmallVector<Again> tried{again};
  unsigned numRecipes = items[key.second].recipes.size();
  for (unsigned recipe = 0; recipe < numRecipes; ++recipe)
    for (Inputs inputs : {Inputs::Keep, Inputs::KeepSmall, Inputs::Again})
      for (bool merge : {false, true}) {
        Again state = again;
        add(schedule, state, key, recipe, inputs, merge);
        if (llvm::is_contained(tried, state))
          continue;
        tried.push_back(state);
        double gain = excess - excessOf(state);
        if (gain <= 0)
          continue;
        dropUnused(items, state);
        double more = secondsOf(items, state) - seconds;
        double score =
            more > 0 ? gain / more : std::numeric_limits<double>::infinity();
        if (score > best.score)
          best = {std::move(state), score};
      }
  return best;
}

/// Makes the best moves until no command needs more than `target`; false if none is
/// left before.
bool Search::reduceExcess() {
  std::map<Key, double> known; // scores when last looked at
  double excess = excessOf(again);
  while (excess > 0) {
    bool all = known.empty();
    Schedule schedule(items, again);
    double seconds = secondsOf(items, again);
    std::multimap<double, Key, std::greater<>> queue;
    for (Key key : findMoves(schedule)) {
      auto it = known.find(key);
      queue.insert({it == known.end() ? std::numeric_limits<double>::infinity()
                                      : it->second,
                    key});
    }
    // Scores change little: look again only at those that may be the best.
    Move best;
    while (!queue.empty() && queue.begin()->first > best.score) {
      Key key = queue.begin()->second;
      queue.erase(queue.begin());
      Move move = bestMove(schedule, key, excess, seconds);
      known[key] = move.score;
      if (move.score > best.score)
        best = std::move(move);
    }
    if (best.score < 0) {
      if (all)
        return false;
      known.clear();
      continue;
    }
    again = std::move(best.again);
    excess = excessOf(again);
  }
  return true;
}

bool Search::fits() const {
  SmallVector<Lifetime> lifetimes = lifetimesOf(items, again);
  return mostAlive(lifetimes) <= limit &&
         layOut(lifetimes, /*reuse=*/true).bytes <= limit;
}

/// Takes back what is not needed, the dearest first.
void Search::takeBack() {
  SmallVector<std::pair<double, Key>> order;
  for (const auto &[key, recipe] : again)
    order.push_back({-items[key.second].recipes[recipe].seconds, key});
  llvm::sort(order);
  for (const auto &[seconds, key] : order) {
    Again before = again;
    if (!again.erase(key))
      continue;
    dropUnused(items, again);
    if (!fits() || secondsOf(items, again) >= secondsOf(items, before))
      again = std::move(before);
  }
}

bool Search::run() {
  while (true) {
    if (!reduceExcess())
      return false;
    int64_t bytes = layOut(lifetimesOf(items, again), /*reuse=*/true).bytes;
    if (bytes <= limit)
      break;
    target -= bytes - limit;
    if (target <= 0)
      return false;
  }
  takeBack();
  return true;
}

std::optional<Again> trainc::chooseAgain(ArrayRef<Item> items, int64_t limit) {
  Search search(items, limit);
  if (!search.run())
    return std::nullopt;
  return search.again;
}
