//===- tables.cpp - Tables of other sizes ---------------------------------===//

#include "core/tables.h"

using namespace trainc;

namespace {
template <typename Row> struct About;
#define TRAINC_STRUCT(name, bytes)                                             \
  template <> struct About<trainc_##name> {                                    \
    static constexpr trainc_struct number = TRAINC_STRUCT_##name;              \
    static constexpr const char *text = "trainc_" #name;                       \
  };
#include "trainc/step_abi_structs.def"
} // namespace

static constexpr uint32_t ownBytes[] = {
#define TRAINC_STRUCT(name, bytes) bytes,
#include "trainc/step_abi_structs.def"
};

/// What a row of struct `number` takes in the artifact.
static uint64_t bytesIn(const trainc_descriptor &d, uint32_t number) {
  return number < d.num_structs ? d.struct_bytes[number] : ownBytes[number];
}

static bool isOwn(const trainc_descriptor &d) {
  for (uint32_t i = 0; i < TRAINC_NUM_STRUCTS; ++i)
    if (bytesIn(d, i) != ownBytes[i])
      return false;
  return true;
}

template <typename Row>
const Row *Tables::copy(const Row *rows, uint64_t count) {
  if (!rows || !count || unknown)
    return rows;
  uint64_t bytes = bytesIn(*source, About<Row>::number);
  uint64_t known = bytes < sizeof(Row) ? bytes : sizeof(Row);
  auto *result = static_cast<Row *>(reallocate(nullptr, count * sizeof(Row)));
  memset(static_cast<void *>(result), 0, count * sizeof(Row));
  copies.push(result);
  const char *from = reinterpret_cast<const char *>(rows);
  for (uint64_t i = 0; i < count; ++i, from += bytes) {
    memcpy(static_cast<void *>(result + i), from, known);
    for (uint64_t at = known; at < bytes; ++at)
      if (from[at])
        unknown = About<Row>::text;
    follow(result[i]);
    followDetail(result[i]);
  }
  return result;
}

// Copies the tables that a row has.
#define TRAINC_STRUCT(name, bytes)                                             \
  void Tables::follow([[maybe_unused]] trainc_##name &row) {
#define TRAINC_END(name) }
#define TRAINC_TABLE(name, member, count)                                      \
  row.member = copy(row.member, row.count);
#define TRAINC_NEXT(name, member) row.member = copy(row.member, 1);
#define TRAINC_LISTS(name, member, count)                                      \
  for (auto &list : row.member)                                                \
    follow(list);
#include "trainc/step_abi_structs.def"

void Tables::followDetail(trainc_command &command) {
  switch (command.kind) {
  case TRAINC_COMMAND_GEMM:
    command.detail =
        copy(static_cast<const trainc_gemm_detail *>(command.detail), 1);
    break;
  case TRAINC_COMMAND_CONVOLUTION:
    command.detail =
        copy(static_cast<const trainc_convolution_detail *>(command.detail), 1);
    break;
  case TRAINC_COMMAND_REDUCE_SCATTER:
  case TRAINC_COMMAND_ALL_REDUCE:
  case TRAINC_COMMAND_ALL_GATHER:
    command.detail =
        copy(static_cast<const trainc_collective_detail *>(command.detail), 1);
    break;
  }
}

trainc_status Tables::read(const char *path,
                           const trainc_descriptor *descriptor,
                           const trainc_descriptor **out_descriptor) {
  // Lists stand in their entries, so these know their size.
  if (!descriptor->struct_bytes ||
      bytesIn(*descriptor, TRAINC_STRUCT_descriptor) <
          offsetof(trainc_descriptor, plan_hash) ||
      bytesIn(*descriptor, TRAINC_STRUCT_command_list) !=
          sizeof(trainc_command_list))
    return fail(TRAINC_DATA_CORRUPT,
                "the artifact is damaged: '%s' does not know the sizes of its "
                "tables",
                path);
  *out_descriptor = descriptor;
  if (isOwn(*descriptor))
    return TRAINC_OK;
  source = descriptor;
  *out_descriptor = copy(descriptor, 1);
  if (!unknown)
    return TRAINC_OK;
  return fail(TRAINC_ABI_MISMATCH,
              "artifact '%s' of %s uses members of %s that this runtime (%s) "
              "does not have: use a newer runtime, or compile it again",
              path, descriptor->compiler ? descriptor->compiler : "?", unknown,
              TRAINC_VERSION_STRING);
}

Tables::~Tables() {
  for (void *rows : copies)
    free(rows);
}
