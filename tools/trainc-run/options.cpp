//===- options.cpp - The command line of trainc-run -----------------------===//

#include "options.h"
#include "support.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace trainc::run {

static const char help[] =
    R"(usage: trainc-run MODEL.so [option ...]
Trains a model that trainc compiled. Options with a value: --name=VALUE or --name VALUE.

Data (a short last batch is masked: ignored targets, or zeros in an input 'weights' or 'mask')
  --data NAME=FILE.npy     examples of input NAME, counted by the first dimension
  --data FILE.npy          a stream of tokens (1-D, integers) cut into windows; or the only input
  --data FILE.safetensors  examples of all inputs that the file has, by name
  --no-shuffle             in the order of the file; default: another order in every epoch
  --eval-data ...          like --data, to evaluate on, at the end of the training
Training
  --steps N                train until update N, counted from the very first one
  --seed N                 of initial values, dropout, order of the data and sampling (default 0)
  --init FILE              take parameters from a .safetensors file, by name
  --set NAME=VALUE         set a scalar, for example a learning rate
  --eval-every N           evaluate every N steps, too
  --entry NAME, --eval-entry NAME          if the model has more than one step or eval
  --threads N, --memory-limit SIZE[K|M|G]  default: all processors, no limit
  --device cpu | cuda | cuda:N             default: a GPU, if the model has code for one and one is there
Checkpoints
  --checkpoint-dir DIR     save here at the end, and when stopped by a signal; one run at a time
  --checkpoint-every N     and every N steps
  --keep N                 remove all but the last N of this run and of the one it resumes (default 0: keep all)
  --overwrite              although DIR has checkpoints of another run: as long as they are not replaced they stay
  --resume[=PATH]          go on from the latest checkpoint of DIR, or from PATH, bit by bit
  --save FILE              save the state to FILE, after all other work
  --convert dtype=TYPE[,what=WHAT][,integers]
                           in the type f64, f32, bf16 or f16; WHAT is some of parameters+gradients+states+buffers
                           (default: all); with integers, tensors of integers, too
Several ranks (mpirun -np 4 trainc-run ..., srun, torchrun; MODEL.so compiled with --mesh)
  --comm mpi | tcp:HOST:PORT | file:PATH   how they find each other (default: from the environment)
  --deadline SECONDS       that a collective may wait for a rank (default 60)
  --no-window              exchange by MPI between ranks of one host, too
  --preflight              check mesh, memory, files, free space; measure collectives and rates for trainc --estimate
Reports (of several ranks: .rankN in the names of files)
  --log FILE.jsonl         one JSON object per step and evaluation
  --svg FILE               the loss curve
  --profile FILE.json      Chrome trace of the first 10 steps, one span per command, with its limit on this processor
  --roofline               of those steps, the commands that are farthest from their limits, at the end
  --check-finite=ops       stop at the first operation that writes a NaN or an infinity
  --memory-report          bytes per arena
Other work
  --eval[=ENTRY]           evaluate only; with --out DIR the outputs go to DIR/NAME.npy
  --sample N               write N characters; with --prompt TEXT, --temperature T (0: greedy)
  --benchmark N            time N steps: one line of JSON (without --data on generated inputs)
  --serve                  the same for every line "N" of stdin
  --check-workgroups N     run N steps and each eval once; of each command, run every workgroup (call of a kernel) alone:
                           stop if two write the same byte, or one reads what another writes or what nothing has written
                           (without --data on generated inputs; a test of compiler and runtime, slow)
  --inspect FILE           list the tensors of a .safetensors file; needs no model
  --help, --version
Exit status: 0 done; 1 error, a report that could not be written, or 100 updates in a row, or all, skipped as not
finite; 130 stopped by SIGINT, SIGTERM, SIGHUP, SIGXCPU or SIGUSR1 at the end of a step (each if it was not ignored).
)";

static uint64_t parseInteger(const std::string &option, const char *text,
                             uint64_t minimum, uint64_t maximum) {
  char *end;
  errno = 0;
  uint64_t value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno || value < minimum ||
      value > maximum)
    fail("%s expects an integer from %llu to %llu, got '%s'", option.c_str(),
         static_cast<unsigned long long>(minimum),
         static_cast<unsigned long long>(maximum), text);
  return value;
}

static double parseNumber(const std::string &option, const char *text) {
  char *end;
  double value = std::strtod(text, &end);
  if (end == text || *end || !std::isfinite(value))
    fail("%s expects a number, got '%s'", option.c_str(), text);
  return value;
}

static uint64_t parseSize(const std::string &option, const char *text) {
  std::string digits = text;
  unsigned shift = 0;
  if (!digits.empty()) {
    const char *units = "KMG";
    if (const char *unit = std::strchr(units, digits.back()); unit && *unit) {
      shift = 10 * static_cast<unsigned>(unit - units + 1);
      digits.pop_back();
    }
  }
  return parseInteger(option, digits.c_str(), 1, UINT64_MAX >> shift) << shift;
}

static std::pair<std::string, std::string> splitPair(const std::string &option,
                                                     const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    fail("%s expects NAME=VALUE, got '%s'", option.c_str(), text.c_str());
  return {text.substr(0, equals), text.substr(equals + 1)};
}

static std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

static DataArgument parseData(const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos)
    return {"", text};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

static uint32_t parseWhat(const std::string &option, const std::string &text) {
  static const std::pair<const char *, uint32_t> names[] = {
      {"parameters", TRAINC_CONVERT_PARAMETERS},
      {"gradients", TRAINC_CONVERT_GRADIENTS},
      {"states", TRAINC_CONVERT_STATES},
      {"buffers", TRAINC_CONVERT_BUFFERS}};
  uint32_t what = 0;
  for (const std::string &word : split(text, '+')) {
    auto known = std::find_if(std::begin(names), std::end(names),
                              [&](auto &pair) { return word == pair.first; });
    if (known == std::end(names))
      fail(
          "%s expects what= to be some of parameters+gradients+states+buffers, "
          "got '%s'",
          option.c_str(), text.c_str());
    what |= known->second;
  }
  return what;
}

static ConvertArgument parseConvert(const std::string &option,
                                    const std::string &text) {
  ConvertArgument convert;
  for (const std::string &part : split(text, ',')) {
    if (part == "integers")
      convert.integers = true;
    else if (part.rfind("dtype=", 0) == 0)
      convert.dtype = part.substr(6);
    else if (part.rfind("what=", 0) == 0)
      convert.what = parseWhat(option, part.substr(5));
    else
      fail("%s expects dtype=TYPE[,what=WHAT][,integers], got '%s'",
           option.c_str(), part.c_str());
  }
  if (convert.dtype.empty())
    fail("%s expects dtype=TYPE, got '%s'", option.c_str(), text.c_str());
  return convert;
}

namespace {
enum class Value { None, Optional, Required };
struct Definition {
  const char *name;
  Value value;
  /// Gets null for an optional value that is absent.
  std::function<void(const std::string &option, const char *value)> set;
};
} // namespace

static std::vector<Definition> definitions(Options &o) {
  auto text = [](std::string &to) {
    return [&to](const std::string &, const char *value) { to = value; };
  };
  auto flag = [](bool &to, bool value = true) {
    return [&to, value](const std::string &, const char *) { to = value; };
  };
  auto count = [](uint64_t &to, uint64_t minimum = 1,
                  uint64_t maximum = UINT32_MAX) {
    return [=, &to](const std::string &option, const char *value) {
      to = parseInteger(option, value, minimum, maximum);
    };
  };
  auto data = [](std::vector<DataArgument> &to) {
    return [&to](const std::string &, const char *value) {
      to.push_back(parseData(value));
    };
  };
  using Option = const std::string &;
  return {
      {"data", Value::Required, data(o.data)},
      {"no-shuffle", Value::None, flag(o.shuffle, false)},
      {"eval-data", Value::Required, data(o.evalData)},
      {"steps", Value::Required,
       [&](Option option, const char *value) {
         o.steps = parseInteger(option, value, 1, UINT64_C(1) << 53);
       }},
      {"seed", Value::Required,
       [&](Option option, const char *value) {
         o.seed = parseInteger(option, value, 0, (UINT64_C(1) << 53) - 1);
       }},
      {"init", Value::Required, text(o.init)},
      {"set", Value::Required,
       [&](Option option, const char *value) {
         auto [name, number] = splitPair(option, value);
         o.scalars.emplace_back(name,
                                parseNumber("--set " + name, number.c_str()));
       }},
      {"eval-every", Value::Required, count(o.evalEvery)},
      {"entry", Value::Required, text(o.entry)},
      {"eval-entry", Value::Required, text(o.evalEntry)},
      {"threads", Value::Required, count(o.threads, 1, 65536)},
      {"memory-limit", Value::Required,
       [&](Option option, const char *value) {
         o.memoryLimit = parseSize(option, value);
       }},
      {"device", Value::Required, text(o.device)},
      {"checkpoint-dir", Value::Required, text(o.checkpointDir)},
      {"checkpoint-every", Value::Required, count(o.checkpointEvery)},
      {"keep", Value::Required, count(o.keep, 0)},
      {"overwrite", Value::None, flag(o.overwrite)},
      {"resume", Value::Optional,
       [&](Option, const char *value) { o.resume = value ? value : ""; }},
      {"save", Value::Required, text(o.save)},
      {"convert", Value::Required,
       [&](Option option, const char *value) {
         o.convert = parseConvert(option, value);
       }},
      {"comm", Value::Required, text(o.comm)},
      {"deadline", Value::Required,
       [&](Option option, const char *value) {
         o.deadline = parseNumber(option, value);
         if (o.deadline <= 0)
           fail("%s expects more than 0 seconds, got '%s'", option.c_str(),
                value);
       }},
      {"no-window", Value::None, flag(o.window, false)},
      {"preflight", Value::None, flag(o.preflight)},
      {"log", Value::Required, text(o.log)},
      {"svg", Value::Required, text(o.svg)},
      {"profile", Value::Required, text(o.profile)},
      {"roofline", Value::None, flag(o.roofline)},
      {"check-finite", Value::Required,
       [&](Option option, const char *value) {
         if (std::strcmp(value, "ops") != 0)
           fail("%s expects 'ops', got '%s'", option.c_str(), value);
         o.checkFinite = true;
       }},
      {"memory-report", Value::None, flag(o.memoryReport)},
      {"eval", Value::Optional,
       [&](Option, const char *value) {
         o.eval = true;
         if (value)
           o.evalEntry = value;
       }},
      {"out", Value::Required, text(o.out)},
      {"sample", Value::Required, count(o.sample)},
      {"prompt", Value::Required, text(o.prompt)},
      {"temperature", Value::Required,
       [&](Option option, const char *value) {
         o.temperature = parseNumber(option, value);
         if (o.temperature < 0)
           fail("%s expects 0 or more, got '%s'", option.c_str(), value);
       }},
      {"benchmark", Value::Required, count(o.benchmark)},
      {"serve", Value::None, flag(o.serve)},
      {"check-workgroups", Value::Required, count(o.checkWorkgroups)},
      {"inspect", Value::Required, text(o.inspect)},
      {"help", Value::None,
       [](Option, const char *) {
         std::fputs(help, stdout);
         std::exit(0);
       }},
      {"version", Value::None,
       [](Option, const char *) {
         std::printf("trainc-run %s\n%s\n", trainc_version(),
                     trainc_runtime_info());
         std::exit(0);
       }},
  };
}

/// Refuses options that contradict each other, or whose work would be left out.
static void checkCombinations(const Options &o) {
  if (!o.inspect.empty())
    return;
  if (o.model.empty())
    fail("no model: expects trainc-run MODEL.so (see --help)");
  int works = (o.steps.has_value()) + o.eval + (o.benchmark > 0) + o.serve +
              (o.checkWorkgroups > 0);
  if (works > 1)
    fail("--steps, --eval, --benchmark, --serve and --check-workgroups exclude "
         "each other");
  if (works == 0 && !o.sample && !o.memoryReport && !o.preflight &&
      o.save.empty())
    fail("nothing to do: expects --steps N, --eval, --sample N, --benchmark N, "
         "--serve, --check-workgroups N, --save FILE, --preflight or "
         "--memory-report (see --help)");
  auto needs = [](bool given, bool has, const char *option, const char *other) {
    if (given && !has)
      fail("%s has no effect without %s", option, other);
  };
  bool training = o.steps.has_value();
  bool saving = !o.checkpointDir.empty();
  needs(!o.data.empty(), works > 0 || o.preflight, "--data",
        "--steps, --eval, --benchmark, --serve, --check-workgroups or "
        "--preflight");
  needs(!o.evalData.empty(), training || o.eval || o.preflight, "--eval-data",
        "--steps, --eval or --preflight");
  if (o.eval && !o.data.empty() && !o.evalData.empty())
    fail("--eval expects --data or --eval-data, not both");
  needs(o.evalEvery, training && !o.evalData.empty(), "--eval-every",
        "--steps and --eval-data");
  needs(!o.out.empty(), o.eval, "--out", "--eval");
  needs(!o.log.empty(), training, "--log", "--steps");
  needs(!o.svg.empty(), training, "--svg", "--steps");
  needs(!o.profile.empty(), training, "--profile", "--steps");
  needs(o.roofline, training, "--roofline", "--steps");
  needs(o.checkFinite, training, "--check-finite", "--steps");
  needs(o.checkpointEvery, training && saving, "--checkpoint-every",
        "--steps and --checkpoint-dir");
  needs(o.keep, training && saving, "--keep", "--steps and --checkpoint-dir");
  needs(o.overwrite, training && saving, "--overwrite",
        "--steps and --checkpoint-dir");
  if (o.resume && o.resume->empty() && !saving)
    fail("--resume expects --checkpoint-dir DIR, or a path: --resume=PATH");
  needs(saving, training || o.resume || o.preflight, "--checkpoint-dir",
        "--steps, --resume or --preflight");
  needs(o.convert.has_value(), !o.save.empty(), "--convert", "--save");
  if (o.resume && !o.init.empty())
    fail("--resume and --init exclude each other");
}

Options parseOptions(int argc, char **argv) {
  Options options;
  std::vector<Definition> known = definitions(options);
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.substr(0, 2) != "--") {
      if (argument.substr(0, 1) == "-" || !options.model.empty())
        fail("unexpected argument '%s' (see --help)", argument.c_str());
      options.model = argument;
      continue;
    }
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    const char *value =
        equals == std::string::npos ? nullptr : argv[i] + equals + 1;
    const Definition *definition = nullptr;
    for (const Definition &candidate : known)
      if (name.substr(2) == candidate.name)
        definition = &candidate;
    if (!definition)
      fail("unknown option '%s' (see --help)", name.c_str());
    if (definition->value == Value::None && value)
      fail("%s takes no value", name.c_str());
    if (definition->value == Value::Required && !value) {
      if (++i == argc)
        fail("%s expects a value", name.c_str());
      value = argv[i];
    }
    if (value && !*value && name != "--prompt")
      fail("%s expects a value", name.c_str());
    definition->set(name, value);
  }
  checkCombinations(options);
  return options;
}

} // namespace trainc::run
