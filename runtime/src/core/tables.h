//===- tables.h - Tables of other sizes -------------------------*- C++ -*-===//
#ifndef TRAINC_CORE_TABLES_H
#define TRAINC_CORE_TABLES_H

#include "core/status.h"

namespace trainc {

/// Tables of an artifact with this runtime's structs: the artifact's own where these have
/// the same members, else copies in which a member that it lacks is 0. A member that this
/// runtime lacks must be 0 in all rows.
class Tables {
public:
  Tables() = default;
  Tables(const Tables &) = delete;
  Tables &operator=(const Tables &) = delete;
  ~Tables();

  /// Gives the tables of `descriptor`, whose ABI is known, and of those that follow it;
  /// they live as long as this and the artifact do.
  trainc_status read(const char *path, const trainc_descriptor *descriptor,
                     const trainc_descriptor **out_descriptor);

private:
  template <typename Row> const Row *copy(const Row *rows, uint64_t count);
  template <typename Row> void followDetail(Row &) {}
  void followDetail(trainc_command &command);
#define TRAINC_STRUCT(name, bytes) void follow(trainc_##name &row);
#include "trainc/step_abi_structs.def"

  const trainc_descriptor *source = nullptr;
  const char *unknown = nullptr; // a struct with members that are not known
  Array<void *> copies;
};

} // namespace trainc

#endif // TRAINC_CORE_TABLES_H
