#include "collector/http/open_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace gpuprobe::http {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr char kTotal[] = "_total";
constexpr char kInfo[] = "_info";
constexpr const char* kUnits[] = {"seconds", "bytes", "ratio", "hertz", "watts", "celsius"};

// A metric's name as a family, its kind, and what its samples add to the name.
struct Kind {
  std::string family;
  const char* name;
  std::string suffix;
};

Kind KindOf(const MetricFamily& family) {
  const std::string& name = family.name;
  const auto without = [&](std::string_view suffix) { return name.substr(0, name.size() - suffix.size()); };
  if (family.type == MetricType::Histogram) return {name, "histogram", ""};
  if (family.type == MetricType::Counter && name.ends_with(kTotal))
    return {without(kTotal), "counter", kTotal};
  if (name.ends_with(kInfo)) return {without(kInfo), "info", kInfo};
  return {name, "gauge", ""};
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}});
}

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  constexpr size_t kMostDigits = 32;
  char text[kMostDigits];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return error == std::errc() ? std::string(text, end) : "NaN";
}

// "1.0" where Number says "1".
std::string Bound(double value) {
  const std::string number = Number(value);
  return number.find_first_not_of("0123456789") == std::string::npos ? number + ".0" : number;
}

void AppendSample(std::string& out, const std::string& name, const Labels& labels, const std::string& value) {
  absl::StrAppend(&out, name);
  for (size_t i = 0; i < labels.size(); ++i)
    absl::StrAppend(&out, i == 0 ? "{" : ",", labels[i].name, "=\"", Escaped(labels[i].value), "\"");
  absl::StrAppend(&out, labels.empty() ? "" : "}", " ", value, "\n");
}

void AppendHistogram(std::string& out, const std::string& name, const ClientMetric& metric) {
  for (const ClientMetric::Bucket& bucket : metric.histogram.bucket) {
    Labels labels = metric.label;
    labels.push_back({"le", Bound(bucket.upper_bound)});
    AppendSample(out, name + "_bucket", labels, absl::StrCat(bucket.cumulative_count));
  }
  AppendSample(out, name + "_count", metric.label, absl::StrCat(metric.histogram.sample_count));
  AppendSample(out, name + "_sum", metric.label, Number(metric.histogram.sample_sum));
}

void AppendFamily(std::string& out, const MetricFamily& family) {
  const Kind kind = KindOf(family);
  absl::StrAppend(&out, "# TYPE ", kind.family, " ", kind.name, "\n");
  for (const char* unit : kUnits) {
    if (kind.family.ends_with(absl::StrCat("_", unit)))
      absl::StrAppend(&out, "# UNIT ", kind.family, " ", unit, "\n");
  }
  absl::StrAppend(&out, "# HELP ", kind.family, " ", Escaped(family.help), "\n");
  for (const ClientMetric& metric : family.metric) {
    if (family.type == MetricType::Histogram) {
      AppendHistogram(out, kind.family, metric);
      continue;
    }
    const bool counter = family.type == MetricType::Counter;
    AppendSample(out, kind.family + kind.suffix, metric.label,
                 Number(counter ? metric.counter.value : metric.gauge.value));
  }
}

// A media range of an Accept header: "application/openmetrics-text;version=1.0.0;q=0.5".
struct Range {
  std::string type;
  std::string version;  // empty: any
  double weight = 1;
};

Range RangeOf(const std::string& text) {
  constexpr std::string_view kVersion = "version=";
  constexpr std::string_view kWeight = "q=";
  Range range;
  std::vector<std::string> parts = absl::StrSplit(absl::AsciiStrToLower(text), ';');
  for (std::string& part : parts) {
    absl::StripAsciiWhitespace(&part);
    if (range.type.empty()) range.type = part;
    if (part.starts_with(kVersion)) range.version = part.substr(kVersion.size());
    if (part.starts_with(kWeight) && !absl::SimpleAtod(part.substr(kWeight.size()), &range.weight))
      range.weight = 0;
  }
  return range;
}

}  // namespace

std::string OpenMetricsText(const std::vector<MetricFamily>& families) {
  std::string out;
  for (const MetricFamily& family : families) AppendFamily(out, family);
  return out;
}

bool PrefersOpenMetrics(std::string_view accept) {
  double open = 0;
  double plain = 0;
  const std::vector<std::string> ranges = absl::StrSplit(std::string(accept), ',');
  for (const std::string& text : ranges) {
    const Range range = RangeOf(text);
    if (range.type == "application/openmetrics-text" && (range.version.empty() || range.version == "1.0.0"))
      open = std::max(open, range.weight);
    if (range.type == "text/plain") plain = std::max(plain, range.weight);
  }
  return open > 0 && open >= plain;
}

}  // namespace gpuprobe::http
