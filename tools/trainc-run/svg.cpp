//===- svg.cpp - The loss curve -------------------------------------------===//

#include "svg.h"
#include "support.h"
#include <algorithm>
#include <cmath>

namespace trainc::run {

static constexpr double width = 720, height = 400;
static constexpr double left = 64, right = 24, top = 48, bottom = 48;

namespace {
/// Maps values to pixels, with ticks at round values.
struct Axis {
  Axis(double low, double high, double from, double to, bool integers)
      : from(from), to(to) {
    // What differs in the last digits alone is flat: a tick must move a value.
    double least = 1e-9 * std::max(std::abs(low), std::abs(high));
    if (!(high - low > least))
      high = low + std::max(least, 1.0);
    double raw = (high - low) / 5;
    double power = std::pow(10.0, std::floor(std::log10(raw)));
    tick = power * (raw > 5 * power   ? 10
                    : raw > 2 * power ? 5
                    : raw > power     ? 2
                                      : 1);
    if (integers)
      tick = std::max(tick, 1.0);
    begin = integers ? low : std::floor(low / tick) * tick;
    end = integers ? high : std::ceil(high / tick) * tick;
  }
  double at(double value) const {
    return from + (value - begin) / (end - begin) * (to - from);
  }
  double from, to, begin, end, tick;
};
} // namespace

static std::string escape(const std::string &text) {
  std::string result;
  for (char c : text)
    result += c == '<'   ? std::string("&lt;")
              : c == '&' ? std::string("&amp;")
                         : std::string(1, c);
  return result;
}

static std::string polyline(const std::vector<Point> &points, const Axis &x,
                            const Axis &y, const char *style) {
  std::string text =
      "<polyline fill=\"none\" " + std::string(style) + " points=\"";
  for (const Point &point : points)
    text += format("%.1f,%.1f ", x.at(static_cast<double>(point.step)),
                   y.at(point.loss));
  return text + "\"/>\n";
}

/// At most `limit` points, each the mean of its neighbours.
static std::vector<Point> thin(const std::vector<Point> &points, size_t limit) {
  size_t group = (points.size() + limit - 1) / limit;
  std::vector<Point> result;
  for (size_t i = 0; i < points.size(); i += group) {
    size_t end = std::min(i + group, points.size());
    double sum = 0;
    for (size_t k = i; k < end; ++k)
      sum += points[k].loss;
    result.push_back(
        {points[(i + end - 1) / 2].step, sum / static_cast<double>(end - i)});
  }
  return result;
}

/// Mean over a window of 1/20 of the curve, centred.
static std::vector<Point> smooth(const std::vector<Point> &points) {
  size_t reach = points.size() / 40;
  std::vector<Point> result;
  for (size_t i = 0; i < points.size(); ++i) {
    size_t near = std::min({reach, i, points.size() - 1 - i});
    double sum = 0;
    for (size_t k = i - near; k <= i + near; ++k)
      sum += points[k].loss;
    result.push_back({points[i].step, sum / static_cast<double>(2 * near + 1)});
  }
  return result;
}

static std::string axes(const Axis &x, const Axis &y) {
  std::string text;
  auto label = [&](double px, double py, const char *anchor, double value) {
    text +=
        format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.10g</text>\n",
               px, py, anchor, value);
  };
  for (double value = y.begin; value < y.end + y.tick / 2; value += y.tick) {
    double rounded = std::abs(value) < y.tick * 1e-6 ? 0 : value;
    text += format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                   "stroke=\"#ddd\"/>\n",
                   left, width - right, y.at(value), y.at(value));
    label(left - 8, y.at(value) + 4, "end", std::round(rounded * 1e9) / 1e9);
  }
  for (double value = std::ceil(x.begin / x.tick) * x.tick; value <= x.end;
       value += x.tick) {
    text +=
        format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
               "stroke=\"#888\"/>\n",
               x.at(value), x.at(value), height - bottom, height - bottom + 4);
    label(x.at(value), height - bottom + 18, "middle", value);
  }
  text += format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                 "stroke=\"#888\"/>\n",
                 left, width - right, height - bottom, height - bottom);
  text +=
      format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">step</text>\n",
             (left + width - right) / 2, height - 10);
  return text;
}

void writeLossCurve(const std::string &path, const std::string &title,
                    const Curve &losses, const Curve &evaluations) {
  std::vector<Point> raw = thin(losses.points(), 1000);
  std::vector<Point> mean = smooth(raw), evals = evaluations.points();
  double low = INFINITY, high = -INFINITY, first = INFINITY, last = 0;
  for (const std::vector<Point> *points : {&raw, &evals})
    for (const Point &point : *points) {
      low = std::min(low, point.loss);
      high = std::max(high, point.loss);
      first = std::min(first, static_cast<double>(point.step));
      last = std::max(last, static_cast<double>(point.step));
    }
  if (!(low <= high))
    low = first = 0, high = last = 1;
  Axis x(first, last, left, width - right, /*integers=*/true);
  Axis y(low, high, height - bottom, top, /*integers=*/false);

  std::string text = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%.1f\" y=\"24\" font-size=\"15\">%s</text>\n",
      width, height, left, escape(title).c_str());
  text += axes(x, y);
  text += polyline(raw, x, y, R"(stroke="#9ecae1" stroke-width="1")");
  text += polyline(mean, x, y, R"(stroke="#08519c" stroke-width="2")");
  auto legend = [](double x, const char *color, const char *name) {
    return format(
        R"(<text x="%.1f" y="24" text-anchor="end" fill="%s">%s</text>)"
        "\n",
        x, color, name);
  };
  text += legend(evals.empty() ? width - right : width - right - 80, "#08519c",
                 "training loss");
  if (!evals.empty()) {
    text += polyline(
        evals, x, y,
        R"(stroke="#d94801" stroke-width="1.5" stroke-dasharray="5 3")");
    for (const Point &point : evals)
      text += format(R"(<circle cx="%.1f" cy="%.1f" r="3" fill="#d94801"/>)"
                     "\n",
                     x.at(static_cast<double>(point.step)), y.at(point.loss));
    text += legend(width - right, "#d94801", "evaluation");
  }
  text += "</svg>\n";
  OutputFile file(path, "wb", /*tolerant=*/true);
  file.write(text);
  file.close();
}

} // namespace trainc::run
