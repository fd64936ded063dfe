// Converting the state of several ranks, of which each has pieces, between random
// layouts: other types, buckets, meshes and kinds of memory. All values arrive, the
// copies are those of the masters, the padding is zero; each rank needs the memory that
// it says, and one that has a byte less is why all refuse.
//
// RUN: rm -rf %t.dir && mkdir %t.dir && cd %t.dir
// RUN: %cxx -std=c++20 -O2 -Wall -Wextra -Werror -I%runtime_src -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o test
// RUN: ./test

#include "ranks.h"
#include "struct_bytes.h"
#include <algorithm>

static constexpr uint64_t page = 4096, mebibyte = 1 << 20;
static constexpr uint32_t scalarArena = 0, workspaceArena = 1;

/// With MPI: "mixed" if each two ranks share memory, "plain" if none do.
static std::string hosts;

static uint64_t randomState = 7;
static uint32_t below(uint32_t limit) {
  randomState = randomState * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(randomState >> 33) % limit;
}

namespace {
/// A tensor without a layout. A parameter has a copy in bf16 if `copied`.
struct Tensor {
  std::string name;
  uint32_t role;
  int64_t count;
  bool copied;
};

struct Mesh {
  std::vector<trainc_axis> axes;
  uint32_t pieceAxes, pieces;
};

/// How a state is laid out.
struct Style {
  uint32_t firstType,
      types;    // tensor i has one of [firstType, firstType + types)
  bool divided; // parameters and states
  bool shared;  // peers read gradients
  bool shuffled;
  uint32_t bucketElements, pieceElements;
};

/// An artifact that lays tensors out and has no steps.
struct Layout {
  Layout() = default;
  Layout(const Layout &) = delete;
  ~Layout() { trainc_artifact_close(artifact); }

  std::vector<trainc_arena> arenas;
  std::vector<std::vector<trainc_bucket>> buckets;
  std::vector<trainc_tensor> tensors;
  std::vector<trainc_scalar> scalars;
  std::vector<trainc_operand> operands;
  std::vector<trainc_collective_detail> details;
  std::vector<trainc_command> commands;
  trainc_entry entry = {};
  trainc_descriptor d = {};
  trainc_artifact *artifact = nullptr;
  uint64_t largestPiece = 0; // bytes
};
} // namespace

/// Runs function(rank, comm) in `ranks` processes, or in this one of as many that MPI
/// has started and in which the tests are the same.
template <typename Function>
static void onRanks(uint32_t ranks, Function function) {
  if (hosts.empty())
    return runRanks(ranks, function);
  trainc_comm_options options = {};
  options.size = sizeof(options);
  options.deadline = 30;
  options.flags = hosts == "plain" ? TRAINC_COMM_NO_WINDOW : 0;
  trainc_comm *comm;
  OK(trainc_comm_create(&options, &comm));
  trainc_comm_info info;
  OK(trainc_comm_get_info(comm, &info));
  CHECK(info.ranks == ranks && info.hosts == (hosts == "plain" ? ranks : 2));
  function(info.rank, *comm);
  trainc_comm_destroy(comm);
}

static std::vector<Tensor> tensors;
static const trainc_functions *functions;

static void makeTensors() {
  static const uint32_t limits[] = {20, 3000, 30000, 200000};
  static const uint32_t roles[] = {TRAINC_ROLE_MASTER,   TRAINC_ROLE_MASTER,
                                   TRAINC_ROLE_STATE,    TRAINC_ROLE_COMPUTE,
                                   TRAINC_ROLE_GRADIENT, TRAINC_ROLE_BUFFER};
  tensors.clear();
  for (uint32_t i = 0, count = 1 + below(25); i < count; ++i) {
    uint32_t role = roles[below(6)];
    tensors.push_back({"t" + std::to_string(i), role,
                       1 + below(limits[below(4)]),
                       role == TRAINC_ROLE_MASTER && below(2) == 0});
  }
}

/// Indices of tensors are the same in all layouts: copies come after the rest.
static uint32_t indexOfCopy(uint32_t tensor) {
  uint32_t index = static_cast<uint32_t>(tensors.size());
  for (uint32_t i = 0; i < tensor; ++i)
    index += tensors[i].copied;
  return index;
}

static void place(Layout &l, uint32_t index, uint32_t tensor, uint32_t role,
                  uint32_t dtype, uint32_t arena, uint64_t element) {
  const Tensor &t = tensors[tensor];
  uint64_t size = trainc_dtype_size(dtype);
  l.tensors[index] = {t.name.c_str(),
                      role == TRAINC_ROLE_STATE ? "m" : nullptr,
                      role,
                      dtype,
                      1,
                      arena,
                      element * size,
                      static_cast<uint64_t>(t.count) * size,
                      &t.count,
                      nullptr,
                      -1,
                      TRAINC_INIT_CONSTANT,
                      0,
                      0,
                      nullptr};
}

/// Adds arenas for tensors of one role and type: their own and, if some have copies,
/// that of the copies, which lie at the same elements. `rest`: frozen parameters that
/// go to the copies.
static void addArenas(Layout &l, const Mesh &mesh, const Style &style,
                      uint32_t role, uint32_t dtype,
                      const std::vector<uint32_t> &order,
                      std::vector<uint32_t> &rest) {
  uint32_t number = static_cast<uint32_t>(l.arenas.size());
  bool divided = style.divided &&
                 (role == TRAINC_ROLE_MASTER || role == TRAINC_ROLE_STATE);
  uint64_t size = trainc_dtype_size(dtype), pieces = divided ? mesh.pieces : 1;
  uint64_t unit = pieces * style.pieceElements;
  uint64_t first = 0, element = 0, local = 0; // elements
  bool copied = false;
  std::vector<trainc_bucket> buckets, copies;
  auto close = [&] {
    uint64_t count = (element - first + unit - 1) / unit * unit;
    buckets.push_back({first * size, count * size, local * size, pieces});
    copies.push_back({first * 2, count * 2, first * 2, 1});
    l.largestPiece = std::max(l.largestPiece, count / pieces * size);
    element = first += count;
    local += count / pieces;
  };
  for (uint32_t tensor : order) {
    if (element - first >= style.bucketElements)
      close();
    element = (element + 63) / 64 * 64;
    place(l, tensor, tensor, role, dtype, number, element);
    if (tensors[tensor].copied)
      place(l, indexOfCopy(tensor), tensor, TRAINC_ROLE_COMPUTE, TRAINC_BF16,
            number + 1, element);
    copied |= tensors[tensor].copied;
    element += static_cast<uint64_t>(tensors[tensor].count);
  }
  close();
  l.arenas.push_back({"arena", role, dtype, local * size, 0,
                      divided ? mesh.pieceAxes : 0, nullptr});
  l.buckets.push_back(buckets);
  if (!copied)
    return;
  for (uint32_t tensor : rest) {
    place(l, tensor, tensor, TRAINC_ROLE_COMPUTE, TRAINC_BF16, number + 1,
          element);
    element += static_cast<uint64_t>(tensors[tensor].count);
  }
  rest.clear();
  copies.push_back({first * 2, (element - first) * 2, first * 2, 1});
  l.arenas.push_back(
      {"copies", TRAINC_ROLE_COMPUTE, TRAINC_BF16, element * 2, 0, 0, nullptr});
  l.buckets.push_back(copies);
}

/// Collectives that nobody runs make windows of arenas.
static void addCollectives(Layout &l, const Mesh &mesh, const Style &style) {
  for (uint32_t i = 0; i < l.arenas.size(); ++i) {
    const trainc_arena &arena = l.arenas[i];
    bool gathered = !strcmp(arena.name, "copies") && style.divided;
    bool summed = arena.role == TRAINC_ROLE_GRADIENT && style.shared;
    if (!gathered && !summed)
      continue;
    l.operands.push_back({i, TRAINC_READ | TRAINC_WRITE, 0,
                          l.buckets[i][0].bytes, arena.dtype, 0});
    l.details.push_back({mesh.pieceAxes, 0, arena.dtype, 0, 0});
    l.commands.push_back(
        {gathered ? TRAINC_COMMAND_ALL_GATHER : TRAINC_COMMAND_ALL_REDUCE, 0, 0,
         1, 0, nullptr, nullptr, "all", "nowhere", 0});
  }
  for (size_t i = 0; i < l.commands.size(); ++i) {
    l.commands[i].operands = &l.operands[i];
    l.commands[i].detail = &l.details[i];
  }
  l.entry.name = "all";
  l.entry.kind = TRAINC_ENTRY_EVAL;
  l.entry.lists[0] = {l.commands.size(), l.commands.data()};
}

static void makeLayout(Layout &l, const Mesh &mesh, const Style &style) {
  static uint64_t hash = 1;
  l.scalars = {
#define TRAINC_SCALAR(NAME, index, text, init, flags) {text, init, flags, 0},
#include "trainc/step_abi.def"
  };
  l.arenas = {{"scalars", TRAINC_ROLE_SCALARS, TRAINC_F64, l.scalars.size() * 8,
               0, 0, nullptr},
              {"workspace", TRAINC_ROLE_WORKSPACE, TRAINC_F32, below(3) * 5000,
               0, 0, nullptr}};
  l.buckets.resize(2);
  std::vector<uint32_t> order, frozen, types, none;
  uint32_t copies = 0;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    order.push_back(i);
    types.push_back(style.firstType + below(style.types));
    copies += tensors[i].copied;
    if (tensors[i].role == TRAINC_ROLE_COMPUTE)
      frozen.push_back(i);
  }
  l.tensors.resize(tensors.size() + copies);
  for (uint32_t i = 0; style.shuffled && i < order.size(); ++i)
    std::swap(order[i], order[below(i + 1)]);
  for (uint32_t role : {TRAINC_ROLE_MASTER, TRAINC_ROLE_STATE,
                        TRAINC_ROLE_GRADIENT, TRAINC_ROLE_BUFFER})
    for (uint32_t type = 0; type <= TRAINC_F16; ++type) {
      std::vector<uint32_t> some;
      for (uint32_t tensor : order)
        if (tensors[tensor].role == role && types[tensor] == type)
          some.push_back(tensor);
      if (!some.empty())
        addArenas(l, mesh, style, role, type, some, frozen);
    }
  if (!frozen.empty())
    addArenas(l, mesh, style, TRAINC_ROLE_COMPUTE, TRAINC_BF16, frozen, none);
  addCollectives(l, mesh, style);
  for (size_t i = 0; i < l.arenas.size(); ++i) {
    l.arenas[i].num_buckets = static_cast<uint32_t>(l.buckets[i].size());
    l.arenas[i].buckets = l.buckets[i].data();
  }
  trainc_descriptor &d = l.d;
  d.magic = TRAINC_ABI_MAGIC;
  d.abi_version = TRAINC_ABI_VERSION;
  d.num_structs = TRAINC_NUM_STRUCTS;
  d.struct_bytes = struct_bytes;
  d.name = "pieces";
  d.compiler = "by hand";
  d.triple = "x86_64-linux-gnu";
  d.cpu = "x86-64";
  d.features = "+64bit,+sse2";
  d.plan_hash = ++hash;
  d.num_arenas = static_cast<uint32_t>(l.arenas.size());
  d.num_tensors = static_cast<uint32_t>(l.tensors.size());
  d.num_scalars = static_cast<uint32_t>(l.scalars.size());
  d.num_entries = d.num_windows = 1;
  d.scalar_arena = scalarArena;
  d.workspace_arena = workspaceArena;
  d.num_axes = static_cast<uint32_t>(mesh.axes.size());
  d.arenas = l.arenas.data();
  d.tensors = l.tensors.data();
  d.scalars = l.scalars.data();
  d.entries = &l.entry;
  d.functions = &functions;
  d.axes = mesh.axes.data();
  OK(trainc_artifact_open_descriptor(&d, &l.artifact));
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// Values that every floating type holds; never 0.
static float value(uint32_t tensor, uint64_t i) {
  return static_cast<float>(1 + (tensor * 31 + i) % 199);
}

static void refill(trainc_trainer *t) {
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(tensors[i].count));
    for (size_t j = 0; j < values.size(); ++j)
      values[j] = value(i, j);
    OK(trainc_tensor_write(t, i, TRAINC_F32, values.data(), values.size() * 4));
  }
}

static trainc_trainer *makeState(const Layout &l, Comm &comm) {
  trainc_trainer_options options = {};
  options.size = sizeof(options);
  options.threads = 1;
  options.comm = &comm;
  trainc_trainer *t;
  OK(trainc_trainer_create(l.artifact, &options, &t));
  refill(t);
  return t;
}

/// All values, the copies too.
static void checkValues(trainc_trainer *t) {
  for (uint32_t i = 0; i < tensors.size(); ++i)
    for (bool copy : {false, true}) {
      if (copy && !tensors[i].copied)
        continue;
      std::vector<float> values(static_cast<size_t>(tensors[i].count));
      OK(trainc_tensor_read(t, copy ? indexOfCopy(i) : i, TRAINC_F32,
                            values.data(), values.size() * 4));
      for (size_t j = 0; j < values.size(); ++j)
        CHECK(values[j] == value(i, j));
    }
}

/// The state of makeState, laid out as `l` says, with zeros around the tensors.
static void checkState(trainc_trainer *t, const Layout &l) {
  checkValues(t);
  std::vector<const char *> bases(l.arenas.size());
  std::vector<uint64_t> nonzero(l.arenas.size());
  for (uint32_t i = 0; i < l.tensors.size(); ++i) {
    const trainc_tensor &tensor = l.tensors[i], *held;
    OK(trainc_tensor_get(t, i, &held));
    CHECK(!memcmp(held, &tensor, sizeof(tensor)));
    uint64_t first, count, size = trainc_dtype_size(tensor.dtype);
    void *data;
    OK(trainc_tensor_part(t, i, &first, &count));
    OK(trainc_tensor_data(t, i, &data));
    if (!count)
      continue;
    const trainc_bucket *bucket = l.arenas[tensor.arena].buckets;
    while (tensor.offset >= bucket->first + bucket->bytes)
      ++bucket;
    uint64_t offset = tensor.offset + first * size - bucket->first;
    offset = bucket->local + offset % (bucket->bytes / bucket->pieces);
    const char *bytes = static_cast<const char *>(data);
    const char *&base = bases[tensor.arena];
    CHECK(!base || base == bytes - offset);
    base = bytes - offset;
    for (uint64_t j = 0; j < count * size; ++j)
      nonzero[tensor.arena] -= bytes[j] != 0;
  }
  for (size_t i = 0; i < bases.size(); ++i) {
    for (uint64_t j = 0; bases[i] && j < l.arenas[i].bytes; ++j)
      nonzero[i] += bases[i][j] != 0;
    CHECK(nonzero[i] == 0);
  }
}

static trainc_memory memory(trainc_trainer *t) {
  trainc_memory use;
  OK(trainc_memory_use(t, &use));
  CHECK(use.total ==
        use.persistent + use.workspace + use.outputs + use.scratch);
  return use;
}

//===----------------------------------------------------------------------===//
// Tests
//===----------------------------------------------------------------------===//

/// Converts with the memory that each rank needs, after a refusal with one byte less
/// on one of them. `slack`: that parts of ranks and neighbours change costs.
static void convertTo(trainc_trainer *t, uint32_t rank, Comm &comm,
                      const Layout &from, const Layout &to, uint32_t victim,
                      uint64_t slack) {
  trainc_trainer *unlimited = makeState(from, comm);
  trainc_convert_options options = {};
  options.size = sizeof(options);
  options.artifact = to.artifact;
  OK(trainc_convert(unlimited, &options));
  uint64_t peak = memory(unlimited).peak, before = memory(t).total;
  trainc_trainer_destroy(unlimited);

  options.memory_limit = peak - (rank == victim);
  CHECK(trainc_convert(t, &options) == TRAINC_OUT_OF_MEMORY);
  std::string prefix = "rank " + std::to_string(victim) + ": ";
  CHECK((strstr(trainc_last_error(), prefix.c_str()) == nullptr) ==
        (rank == victim));
  checkState(t, from);
  CHECK(memory(t).total == before);
  options.memory_limit = peak;
  OK(trainc_convert(t, &options));
  checkState(t, to);
  uint64_t after = memory(t).total, most = std::max(before, after);
  CHECK(memory(t).peak == peak && peak >= most);
  CHECK(peak <= most + mebibyte + slack);
}

static void testLayouts(const Mesh &mesh, const Mesh &other, uint32_t ranks,
                        const Style &style, const Style &otherStyle) {
  Layout a, b;
  makeTensors();
  makeLayout(a, mesh, style);
  makeLayout(b, other, otherStyle);
  uint32_t victim = below(ranks);
  bool shuffled = style.shuffled || otherStyle.shuffled;
  uint64_t slack = tensors.size() * 2 * page + a.largestPiece + b.largestPiece;
  if (shuffled) // parts come in any order
    slack = INT64_MAX / 2;
  onRanks(ranks, [&](uint32_t rank, Comm &comm) {
    trainc_trainer *t = makeState(a, comm);
    checkState(t, a);
    convertTo(t, rank, comm, a, b, victim, slack);
    OK(trainc_eval(t, 0)); // the windows are those of this layout
    refill(t);
    convertTo(t, rank, comm, b, a, victim, slack);
    OK(trainc_eval(t, 0));
    trainc_trainer_destroy(t);
  });
}

/// Tensors that lie at the same places, in arenas of the same size, but in other pairs of
/// buckets, and gradients that peers read in one of the layouts.
static void testSamePlaces(const Mesh &mesh, uint32_t ranks) {
  constexpr uint32_t pieceElements = 1024;
  int64_t count = static_cast<int64_t>(mesh.pieces) * pieceElements;
  tensors = {{"a", TRAINC_ROLE_MASTER, 2 * count, true},
             {"b", TRAINC_ROLE_MASTER, count, true},
             {"c", TRAINC_ROLE_MASTER, count, false},
             {"b", TRAINC_ROLE_STATE, count, false},
             {"b", TRAINC_ROLE_GRADIENT, count, false},
             {"d", TRAINC_ROLE_BUFFER, 5000, false}};
  Layout a, b;
  auto elements = static_cast<uint32_t>(count);
  Style style = {TRAINC_F32,   1, true, false, false, 3 * elements,
                 pieceElements};
  makeLayout(a, mesh, style);
  style.bucketElements = 2 * elements;
  style.shared = true;
  makeLayout(b, mesh, style);
  for (uint32_t i = 0; i < a.tensors.size(); ++i)
    CHECK(a.tensors[i].role == TRAINC_ROLE_COMPUTE ||
          a.tensors[i].offset == b.tensors[i].offset);
  onRanks(ranks, [&](uint32_t rank, Comm &comm) {
    trainc_trainer *t = makeState(a, comm);
    for (const Layout *to : {&b, &a, &b}) {
      void *before, *after;
      OK(trainc_tensor_data(t, 5, &before));
      convertTo(t, rank, comm, to == &b ? a : b, *to, 0, 4 * page * 8);
      OK(trainc_tensor_data(t, 5, &after));
      CHECK(before == after);
      OK(trainc_eval(t, 0));
      if (to == &a)
        continue;
      std::vector<float> values(static_cast<size_t>(count));
      OK(trainc_tensor_read(t, 4, TRAINC_F32, values.data(),
                            values.size() * 4));
      for (size_t j = 0; j < values.size(); ++j)
        CHECK(values[j] == static_cast<float>(mesh.pieces) * value(4, j));
      refill(t);
    }
    trainc_trainer_destroy(t);
  });
}

/// To a type, in which copies may have to move, and back by the artifact.
static void testTypes(const Mesh &mesh, uint32_t ranks, const Style &style) {
  Layout a;
  makeTensors();
  makeLayout(a, mesh, style);
  onRanks(ranks, [&](uint32_t, Comm &comm) {
    trainc_trainer *t = makeState(a, comm);
    for (uint32_t what : {0, 1, 3, 4, 8, 15})
      for (const char *type : {"f64", "bf16", "f16"}) {
        uint64_t before = memory(t).total;
        trainc_convert_options options = {};
        options.size = sizeof(options);
        options.dtype = type;
        options.what = what;
        OK(trainc_convert(t, &options));
        checkValues(t);
        trainc_memory use = memory(t);
        uint64_t most = std::max(before, use.total);
        CHECK(use.peak >= most && use.peak <= most + mebibyte);
        if (below(2)) // to another one first
          continue;
        options.dtype = nullptr;
        options.what = 0;
        options.artifact = a.artifact;
        OK(trainc_convert(t, &options));
        checkState(t, a);
      }
    trainc_trainer_destroy(t);
  });
}

int main(int argc, char **argv) {
  if (argc > 1) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    CHECK(rank);
    hosts = argv[1];
    if (hosts == "mixed")
      setenv("TRAINC_HOST", atoi(rank) < 2 ? "first" : "second", 1);
  }
  Mesh three = {{{"data", 3}}, 1, 3}, four = {{{"data", 4}}, 1, 4};
  Mesh hybrid = {{{"host", 2}, {"data", 2}}, 2, 2};
  Mesh whole = {{{"host", 2}, {"data", 2}}, 3, 4};
  auto style = [](uint32_t first, uint32_t types, bool divided,
                  bool shuffled) -> Style {
    static const uint32_t pieces[] = {64, 1024, 4096};
    return {first,    types,         divided,         below(2) == 0,
            shuffled, below(200000), pieces[below(3)]};
  };
  bool forked = hosts.empty(); // into any number of ranks
  if (forked)
    testSamePlaces(three, 3);
  testSamePlaces(hybrid, 4);
  for (int i = 0; i < (forked ? 2 : 1); ++i) {
    if (forked) {
      testLayouts(three, three, 3, style(TRAINC_F32, 1, true, false),
                  style(TRAINC_BF16, 1, true, false));
      testLayouts(three, three, 3, style(TRAINC_F32, 1, false, false),
                  style(TRAINC_F32, 1, true, false));
      testTypes(three, 3, style(TRAINC_F32, 1, true, false));
    }
    testLayouts(four, hybrid, 4, style(TRAINC_F32, 1, true, false),
                style(TRAINC_F32, 1, true, false));
    testLayouts(hybrid, whole, 4, style(TRAINC_F64, 1, true, false),
                style(TRAINC_F16, 1, true, false));
    testLayouts(four, hybrid, 4, style(TRAINC_F32, 4, true, true),
                style(TRAINC_F32, 4, true, i == 1));
    testLayouts(hybrid, four, 4, style(TRAINC_F32, 4, true, true),
                style(TRAINC_BF16, 1, false, false));
    testTypes(hybrid, 4, style(TRAINC_F32, 4, true, true));
  }
  return 0;
}
