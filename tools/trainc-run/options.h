//===- options.h - The command line of trainc-run ---------------*- C++ -*-===//
#ifndef TRAINC_RUN_OPTIONS_H
#define TRAINC_RUN_OPTIONS_H

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainc::run {

/// "NAME=FILE", or "FILE" with an empty name.
struct DataArgument {
  std::string name, path;
};

/// --convert: as trainc_convert_options.
struct ConvertArgument {
  std::string dtype;
  uint32_t what = 0;
  bool integers = false;
};

struct Options {
  std::string model;

  std::vector<DataArgument> data, evalData;
  bool shuffle = true;

  std::optional<uint64_t> steps;
  std::optional<uint64_t> seed;
  uint64_t threads = 0, memoryLimit = 0;
  std::string device; // empty: what is there
  std::string entry, evalEntry, init;
  std::vector<std::pair<std::string, double>> scalars;
  uint64_t evalEvery = 0;

  std::string checkpointDir;
  uint64_t checkpointEvery = 0, keep = 0;
  bool overwrite = false;
  /// Set by --resume; empty means the checkpoint folder.
  std::optional<std::string> resume;
  std::optional<ConvertArgument> convert;
  std::string save;

  /// How ranks find each other; empty: from the environment.
  std::string comm;
  double deadline = 0;
  bool window = true;

  std::string log, svg, profile;
  bool checkFinite = false, roofline = false;

  bool eval = false, serve = false, memoryReport = false, preflight = false;
  std::string out, inspect;
  uint64_t benchmark = 0, sample = 0, checkWorkgroups = 0;
  std::string prompt = "\n";
  double temperature = 0.8;
};

/// Reads the command line; ends the program on --help, --version and errors.
Options parseOptions(int argc, char **argv);

} // namespace trainc::run

#endif // TRAINC_RUN_OPTIONS_H
