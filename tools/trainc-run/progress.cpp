//===- progress.cpp - Showing how far a training has come -----------------===//

#include "progress.h"
#include "ranks.h"
#include <algorithm>
#include <sys/ioctl.h>
#include <unistd.h>

namespace trainc::run {

Progress::Progress(uint64_t first, uint64_t last, const char *unit)
    : first(first), last(last),
      interval(std::max<uint64_t>(1, (last - first) / 20)), unit(unit),
      isTerminal(isatty(STDERR_FILENO)), start(now()) {}

/// "812", "12.3k", "4.56M".
static std::string shortCount(double value) {
  if (value < 1e4)
    return format("%.0f", value);
  return value < 1e6 ? format("%.1fk", value / 1e3)
                     : format("%.2fM", value / 1e6);
}

static std::string clockText(double seconds) {
  uint64_t s = static_cast<uint64_t>(seconds + 0.5);
  auto part = [](uint64_t value) { return static_cast<unsigned>(value); };
  return s < 3600 ? format("%u:%02u", part(s / 60), part(s % 60))
                  : format("%u:%02u:%02u", part(s / 3600), part(s / 60 % 60),
                           part(s % 60));
}

static size_t terminalWidth() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 80;
  return size.ws_col;
}

void Progress::update(uint64_t step, uint64_t count,
                      const trainc_step_result &result,
                      std::optional<double> learningRate) {
  if (!isFirst())
    return;
  double time = now();
  bool shown = isTerminal ? time - drawn > 0.1 : (step - first) % interval == 0;
  if (!shown && step != last && step != first + 1)
    return;
  drawn = time;
  double elapsed = std::max(time - start, 1e-9);
  std::string text = format("loss %.4f", result.window_loss);
  if (learningRate)
    text += format("  lr %.3g", *learningRate);
  text +=
      format("  norm %.3g  %s %s/s", result.grad_norm,
             shortCount(static_cast<double>(count) / elapsed).c_str(), unit);
  unsigned long long done = step, all = last;
  if (!isTerminal) {
    std::fprintf(stderr, "step %llu/%llu  %s\n", done, all, text.c_str());
    return;
  }
  double left = elapsed / static_cast<double>(step - first) *
                static_cast<double>(last - step);
  text = format("%llu/%llu  %s  %s left", done, all, text.c_str(),
                clockText(left).c_str());
  size_t width = terminalWidth();
  size_t room = width > text.size() + 6 ? width - text.size() - 5 : 0;
  size_t length = std::min<size_t>(room, 30);
  size_t filled = length * step / std::max<uint64_t>(last, 1);
  std::string bar;
  if (length >= 4)
    bar = "[" + std::string(filled, '=') + std::string(length - filled, ' ') +
          "] ";
  text = bar + text;
  if (text.size() >= width)
    text.resize(width - 1);
  std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
  lineIsOpen = true;
}

void Progress::finish() {
  if (lineIsOpen)
    std::fputc('\n', stderr);
  lineIsOpen = false;
}

} // namespace trainc::run
