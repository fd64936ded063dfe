// Every kind of collective, element type, size, place and group against what each
// rank computes by itself: bitwise, so that all ways of exchange agree bitwise.
//
// usage: collectives fork RANKS            processes of one host
//        collectives mpi window|mixed|plain  under mpirun; mixed: ranks 0 and 1 are
//                                            on a host, each other one on its own

#include "core/convert.h"
#include "ranks.h"

static const uint32_t floats[] = {TRAINC_F32, TRAINC_F64, TRAINC_BF16,
                                  TRAINC_F16};

/// Element i of what rank `rank` has in test number `test`.
static double valueOf(uint32_t test, uint32_t rank, uint64_t i) {
  uint64_t x =
      (test * UINT64_C(1000003) + rank) * UINT64_C(0x9E3779B97F4A7C15) +
      i * UINT64_C(0xD1B54A32D192ED03);
  x ^= x >> 29;
  x *= UINT64_C(0xBF58476D1CE4E5B9);
  x ^= x >> 32;
  static const double scales[] = {1, 0.5, 0.25, 0.125, -1, -0.5, -0.03125, -4};
  return (static_cast<double>(x >> 40) * 0x1p-24 + 0.5) * scales[x & 7];
}

static void fill(uint32_t test, uint32_t rank, uint32_t dtype, uint64_t count,
                 void *to) {
  for (uint64_t i = 0; i < count; ++i)
    storeElement(dtype, to, i, valueOf(test, rank, i));
}

/// The sum of elements [begin, end) of all members, as comm.h defines it.
static void sumAll(const Group &group, uint32_t test, uint32_t dtype,
                   uint64_t begin, uint64_t end, char *to) {
  uint64_t one = 0;
  for (uint64_t i = begin; i < end; ++i) {
    double sum = 0;
    for (uint32_t m = 0; m < groupSize(group); ++m) {
      storeElement(dtype, &one, 0, valueOf(test, groupRank(group, m), i));
      double value = loadElement(dtype, &one, 0);
      if (m == 0)
        sum = value;
      else if (dtype == TRAINC_F64)
        sum += value;
      else
        sum = static_cast<float>(sum) + static_cast<float>(value);
    }
    storeElement(dtype, to, i - begin, sum);
  }
}

struct Test {
  trainc_comm &comm;
  Window *window;
  Pool *pool;
  uint32_t number = 0;
  uint64_t expected[TRAINC_NUM_COLLECTIVES] = {};

  void run(const Group *group, trainc_collective_kind kind, uint32_t dtype,
           uint64_t count, bool inWindow, bool apart);
  void runAll(const Group *group, uint32_t dtype, uint64_t piece);
};

void Test::run(const Group *group, trainc_collective_kind kind, uint32_t dtype,
               uint64_t count, bool inWindow, bool apart) {
  uint32_t me = groupIndex(*group), n = groupSize(*group);
  uint64_t size = trainc_dtype_size(dtype), piece = count / n;
  uint32_t root = ++number % n;
  std::vector<char> own(count * size + 8),
      target((apart ? n : 0) * count * size + 8),
      want((apart ? n : 1) * count * size + 8);
  OK(fence(comm));
  uint64_t offset = 64 * (number % 5);
  char *range = inWindow ? window->data + offset : own.data();
  fill(number, groupRank(*group, me), dtype, count, range);
  memset(target.data(), 0xEE, target.size());

  Collective call;
  call.kind = kind;
  call.group = group;
  call.dtype = dtype;
  call.root = root;
  call.count = count;
  call.window = inWindow ? window : nullptr;
  call.offset = offset;
  call.data = inWindow ? nullptr : range;
  call.target = apart ? target.data() : nullptr;
  call.label = "test";
  uint32_t token;
  OK(start(comm, call, &token));
  OK(wait(comm, token, number % 2 ? pool : nullptr));
  ++expected[kind];

  const char *got = range;
  uint64_t elements = count;
  switch (kind) {
  case TRAINC_REDUCE_SCATTER:
    got = apart ? target.data() : range + me * piece * size;
    elements = piece;
    sumAll(*group, number, dtype, me * piece, (me + 1) * piece, want.data());
    break;
  case TRAINC_ALL_REDUCE:
    sumAll(*group, number, dtype, 0, count, want.data());
    break;
  case TRAINC_ALL_GATHER:
    elements = apart ? n * count : count;
    got = apart ? target.data() : range;
    for (uint64_t i = 0; i < elements; ++i) {
      auto member = static_cast<uint32_t>(i / (apart ? count : piece));
      storeElement(
          dtype, want.data(), i,
          valueOf(number, groupRank(*group, member), apart ? i % count : i));
    }
    break;
  default:
    fill(number, groupRank(*group, root), dtype, count, want.data());
  }
  if (memcmp(got, want.data(), elements * size) == 0 &&
      (!apart || target[elements * size] == '\xEE'))
    return;
  for (uint64_t i = 0; i < elements; ++i)
    if (memcmp(got + i * size, want.data() + i * size, size)) {
      printf(
          "rank %u, kind %d, %s, %llu elements, window %d, apart %d: element "
          "%llu is %g, expected %g\n",
          groupRank(*group, me), kind, trainc_dtype_name(dtype),
          static_cast<unsigned long long>(count), inWindow, apart,
          static_cast<unsigned long long>(i), loadElement(dtype, got, i),
          loadElement(dtype, want.data(), i));
      break;
    }
  CHECK(!"a collective gives something else");
}

void Test::runAll(const Group *group, uint32_t dtype, uint64_t piece) {
  uint64_t n = groupSize(*group);
  for (bool inWindow : {true, false}) {
    if (dtype <= TRAINC_F16) {
      run(group, TRAINC_REDUCE_SCATTER, dtype, n * piece, inWindow, false);
      run(group, TRAINC_ALL_REDUCE, dtype, n * piece, inWindow, false);
      run(group, TRAINC_ALL_REDUCE, dtype, piece, inWindow, false);
    }
    if (dtype <= TRAINC_F16 && !inWindow)
      run(group, TRAINC_REDUCE_SCATTER, dtype, n * piece, inWindow, true);
    run(group, TRAINC_ALL_GATHER, dtype, n * piece, inWindow, false);
    run(group, TRAINC_ALL_GATHER, dtype, piece, inWindow, true);
    run(group, TRAINC_BROADCAST, dtype, piece, inWindow, false);
  }
}

/// Many at once, in several groups.
static void testPending(Test &test, const std::vector<const Group *> &groups) {
  std::vector<std::vector<float>> data(maxPending);
  std::vector<uint32_t> tokens(maxPending);
  auto at = [&](uint32_t i) { return groups[i % groups.size()]; };
  for (uint32_t i = 0; i < maxPending; ++i) {
    data[i].resize(i * 5000 + 1);
    fill(1000 + i, groupRank(*at(i), groupIndex(*at(i))), TRAINC_F32,
         data[i].size(), data[i].data());
    Collective call;
    call.kind = TRAINC_ALL_REDUCE;
    call.group = at(i);
    call.count = data[i].size();
    call.data = data[i].data();
    OK(start(test.comm, call, &tokens[i]));
    ++test.expected[TRAINC_ALL_REDUCE];
  }
  Collective more;
  more.group = groups[0];
  CHECK(start(test.comm, more, nullptr) == TRAINC_INVALID_ARGUMENT);
  CHECK(fence(test.comm) == TRAINC_INVALID_ARGUMENT);
  CHECK(wait(test.comm, tokens[maxPending - 1] + 1, nullptr) ==
        TRAINC_INVALID_ARGUMENT);
  OK(wait(test.comm, tokens[3], nullptr));
  OK(wait(test.comm, tokens[1], nullptr)); // waited for already
  OK(wait(test.comm, tokens[maxPending - 1], nullptr));
  for (uint32_t i = 0; i < maxPending; ++i) {
    std::vector<float> want(data[i].size() + 1);
    sumAll(*at(i), 1000 + i, TRAINC_F32, 0, data[i].size(),
           reinterpret_cast<char *>(want.data()));
    CHECK(memcmp(want.data(), data[i].data(), data[i].size() * 4) == 0);
  }
}

static void testRefused(Test &test, const Group *world) {
  Window *window = test.window;
  float data[3] = {};
  Collective good;
  good.kind = TRAINC_ALL_REDUCE;
  good.group = world;
  good.count = 3;
  good.data = data;
  auto refuse = [&](auto change) {
    Collective call = good;
    change(call);
    CHECK(start(test.comm, call, nullptr) == TRAINC_INVALID_ARGUMENT);
  };
  refuse([](Collective &c) { c.dtype = TRAINC_I32; });
  refuse([](Collective &c) { c.dtype = 99; });
  refuse([](Collective &c) { c.kind = TRAINC_NUM_COLLECTIVES; });
  refuse([](Collective &c) { c.data = nullptr; });
  refuse([&](Collective &c) { c.window = window; });
  refuse([&](Collective &c) { c.target = data; });
  refuse([&](Collective &c) {
    c.kind = TRAINC_REDUCE_SCATTER;
    c.count = groupSize(*world);
    c.data = nullptr;
    c.window = window;
    c.target = data;
  });
  refuse([&](Collective &c) { c.root = groupSize(*world); });
  refuse([](Collective &c) { c.count = UINT64_MAX / 8; });
  refuse([&](Collective &c) {
    c.data = nullptr;
    c.window = window;
    c.offset = window->bytes - 8;
  });
  refuse([&](Collective &c) {
    c.data = nullptr;
    c.window = window;
    c.offset = 2;
  });
  if (groupSize(*world) == 2)
    refuse([](Collective &c) { c.kind = TRAINC_REDUCE_SCATTER; });
  const Group *group;
  uint32_t ranks[] = {groupSize(*world), 0, 0};
  CHECK(createGroup(test.comm, ranks, 1, &group) == TRAINC_INVALID_ARGUMENT);
  CHECK(createGroup(test.comm, ranks + 1, 2, &group) ==
        TRAINC_INVALID_ARGUMENT);
  CHECK(createGroup(test.comm, ranks, 0, &group) == TRAINC_INVALID_ARGUMENT);
}

static void testAll(uint32_t rank, trainc_comm &comm) {
  trainc_comm_info info;
  OK(trainc_comm_get_info(&comm, &info));
  CHECK(info.rank == rank);
  const Group *world = worldGroup(comm), *backwards, *half;
  std::vector<uint32_t> all, same;
  for (uint32_t i = info.ranks; i-- > 0;)
    all.push_back(i);
  for (uint32_t i = rank % 2; i < info.ranks; i += 2)
    same.push_back(i);
  OK(createGroup(comm, all.data(), info.ranks, &backwards));
  OK(createGroup(comm, same.data(), static_cast<uint32_t>(same.size()), &half));
  CHECK(groupIndex(*backwards) == info.ranks - 1 - rank);
  CHECK(groupRank(*half, groupIndex(*half)) == rank);

  Pool pool;
  OK(pool.start(2, false, nullptr, nullptr));
  Window *window, *empty;
  OK(createWindow(comm, 24 << 20, &window));
  OK(createWindow(comm, 0, &empty));
  CHECK(window->data && !empty->data && window->peers[rank] == window->data);
  Test test = {comm, window, &pool};
  for (uint32_t dtype : floats)
    for (uint64_t piece : {0, 1, 3, 1000, 17011})
      for (const Group *group : {world, backwards, half})
        test.runAll(group, dtype, piece);
  for (uint32_t dtype : {TRAINC_I8, TRAINC_I64})
    test.runAll(world, dtype, 777);
  // Several messages, slots and tiles, the last of each not full.
  test.runAll(world, TRAINC_F32, 540003);
  test.run(world, TRAINC_REDUCE_SCATTER, TRAINC_F32, info.ranks * 1300003ull,
           true, false);
  test.run(world, TRAINC_ALL_GATHER, TRAINC_F32, info.ranks * 1300003ull, true,
           false);
  test.run(world, TRAINC_BROADCAST, TRAINC_F32, 1700003, true, false);
  testPending(test, {world, half, backwards});
  testRefused(test, world);
  for (int i = 0; i < 3; ++i)
    OK(trainc_comm_barrier(&comm));
  test.expected[TRAINC_BARRIER] += 3;

  OK(trainc_comm_get_info(&comm, &info));
  for (int kind = 0; kind < TRAINC_NUM_COLLECTIVES; ++kind)
    CHECK(info.collectives[kind] == test.expected[kind]);
  CHECK(info.bytes[TRAINC_ALL_GATHER] > (5u << 20) &&
        info.bytes[TRAINC_BARRIER] == 0);
  printf("rank %u of %u, host %u of %u: ok\n", rank, info.ranks, info.host,
         info.hosts);
}

int main(int argc, char **argv) {
  std::string how = argc > 1 ? argv[1] : "", what = argc > 2 ? argv[2] : "";
  if (how == "fork") {
    runRanks(static_cast<uint32_t>(atoi(what.c_str())), testAll, 30, 100);
    return 0;
  }
  const char *number = getenv("OMPI_COMM_WORLD_RANK");
  CHECK(how == "mpi" && number);
  auto rank = static_cast<uint32_t>(atoi(number));
  if (what == "mixed")
    setenv("TRAINC_HOST", rank < 2 ? "first" : number, 1);
  trainc_comm_options options = {};
  options.size = sizeof(options);
  options.deadline = 30;
  options.flags = what == "plain" ? TRAINC_COMM_NO_WINDOW : 0;
  trainc_comm *comm;
  OK(trainc_comm_create(&options, &comm));
  trainc_comm_info info;
  OK(trainc_comm_get_info(comm, &info));
  CHECK(strstr(info.bootstrap, "mpi (") == info.bootstrap);
  CHECK(info.hosts == (what == "plain"   ? info.ranks
                       : what == "mixed" ? info.ranks - 1
                                         : 1));
  testAll(rank, *comm);
  trainc_comm_destroy(comm);
  return 0;
}
