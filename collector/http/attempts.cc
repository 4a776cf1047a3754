#include "collector/http/attempts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/units.h"
#include "collector/http/hub_html.h"
#include "collector/http/job_server.h"
#include "collector/text/characters.h"

namespace gpuprobe::http {
namespace {

using Json = nlohmann::ordered_json;

std::vector<const ListedJob*> AttemptsOf(const JobList& list, const std::string& name, std::string user) {
  std::vector<const ListedJob*> attempts;
  for (const ListedJob& job : list.jobs) {
    if (job.name != name) continue;
    if (user.empty()) user = UserOf(job, list);
    if (UserOf(job, list) == user) attempts.push_back(&job);
  }
  return attempts;
}

std::string AttemptRow(const ListedJob& job) {
  const auto cell = [](const std::string& text) { return absl::StrCat("<td>", InHtml(text), "</td>"); };
  std::string cells = absl::StrCat(
      "<tr><th scope=\"row\">",
      job.page.empty() ? absl::StrCat(job.attempt)
                       : absl::StrCat("<a href=\"/jobs/", InHtml(job.id), "/\">", job.attempt, "</a>"),
      "</th><td class=\"text\">", InHtml(job.state), "</td>", cell(TimeText(job.begun_ns)),
      cell(absl::StrCat(job.ranks)));
  if (job.steps == nullptr) {
    absl::StrAppend(&cells, cell("-"),
                    cell(job.step_ns.has_value() ? analysis::Duration(*job.step_ns) : "-"));
    for (int i = 0; i < 5; ++i) cells += cell("-");
    return cells + "</tr>\n";
  }
  const ListedSteps& steps = *job.steps;
  cells += cell(absl::StrCat(steps.count));
  for (const double ns :
       {steps.total_ns, steps.compute_ns, steps.exposed_comm_ns, steps.copy_ns, steps.idle_ns})
    cells += cell(analysis::Duration(ns));
  const std::optional<double> change = StepChange(job);
  cells += cell(change.has_value() ? ChangeText(*change) : "-");
  return cells + "</tr>\n";
}

// What the job's comparison with the attempt before says.
std::string ComparedSection(const ListedJob& job) {
  const ComparedAttempt& compared = *job.steps->compared;
  std::string rows;
  for (const ListedPart& part : compared.parts) {
    const bool known = part.before_ns > 0;
    absl::StrAppend(&rows, "<tr><th scope=\"row\" class=\"text\">", InHtml(part.name), "</th><td>",
                    analysis::Duration(part.before_ns), "</td><td>", analysis::Duration(part.ns), "</td><td>",
                    known ? ChangeText(part.ns / part.before_ns - 1) : "-", "</td><td>",
                    known ? absl::StrCat(ChangeText(part.low_ns / part.before_ns), " to ",
                                         ChangeText(part.high_ns / part.before_ns))
                          : "-",
                    "</td><td class=\"text\">", part.significant ? "more than chance" : "-", "</td></tr>\n");
  }
  const std::string id = absl::StrCat("attempt-", job.attempt);
  const std::string title = absl::StrCat("Attempt ", job.attempt, " against ", compared.before);
  std::string lead = absl::StrCat("<p>A is attempt ", compared.before, ", B attempt ", job.attempt, ". ",
                                  InHtml(compared.verdict), "</p>\n");
  if (!compared.changes.empty()) {
    absl::StrAppend(&lead, "<ul>");
    for (const std::string& change : compared.changes)
      absl::StrAppend(&lead, "<li>", InHtml(change), "</li>");
    absl::StrAppend(&lead, "</ul>\n");
  }
  return Section(
      id.c_str(), title.c_str(),
      Head({{"part of a step", true}, {"A"}, {"B"}, {"change"}, {"95 % interval"}, {"significance", true}}),
      rows, "", lead);
}

}  // namespace

std::optional<double> StepChange(const ListedJob& job) {
  if (job.steps == nullptr || !job.steps->compared.has_value()) return std::nullopt;
  const std::vector<ListedPart>& parts = job.steps->compared->parts;
  if (parts.empty() || !parts.front().significant || parts.front().before_ns <= 0) return std::nullopt;
  return parts.front().ns / parts.front().before_ns - 1;
}

Json StepsJson(const ListedSteps& steps) {
  Json json = {{"count", steps.count},
               {"total_ns", steps.total_ns},
               {"compute_ns", steps.compute_ns},
               {"exposed_comm_ns", steps.exposed_comm_ns},
               {"copy_ns", steps.copy_ns},
               {"idle_ns", steps.idle_ns},
               {"compared", nullptr}};
  if (!steps.compared.has_value()) return json;
  Json parts = Json::array();
  for (const ListedPart& part : steps.compared->parts) {
    parts.push_back({{"name", part.name},
                     {"before_ns", part.before_ns},
                     {"ns", part.ns},
                     {"low_ns", part.low_ns},
                     {"high_ns", part.high_ns},
                     {"significant", part.significant}});
  }
  Json changes = Json::array();
  for (const std::string& change : steps.compared->changes) changes.push_back(text::ValidUtf8(change));
  json["compared"] = {{"before", steps.compared->before},
                      {"verdict", text::ValidUtf8(steps.compared->verdict)},
                      {"changes", std::move(changes)},
                      {"parts", std::move(parts)}};
  return json;
}

ListedSteps StepsFromJson(const nlohmann::json& json) {
  ListedSteps steps{.count = json.at("count"),
                    .total_ns = json.at("total_ns"),
                    .compute_ns = json.at("compute_ns"),
                    .exposed_comm_ns = json.at("exposed_comm_ns"),
                    .copy_ns = json.at("copy_ns"),
                    .idle_ns = json.at("idle_ns"),
                    .compared = std::nullopt};
  const nlohmann::json& from = json.at("compared");
  if (from.is_null()) return steps;
  ComparedAttempt& compared = steps.compared.emplace();
  compared.before = from.at("before");
  compared.verdict = from.at("verdict");
  compared.changes = from.at("changes");
  for (const nlohmann::json& part : from.at("parts")) {
    compared.parts.push_back({.name = part.at("name"),
                              .before_ns = part.at("before_ns"),
                              .ns = part.at("ns"),
                              .low_ns = part.at("low_ns"),
                              .high_ns = part.at("high_ns"),
                              .significant = part.at("significant")});
  }
  return steps;
}

std::string AttemptsJson(const JobList& list, const std::string& name, const std::string& user) {
  Json attempts = Json::array();
  std::string whose;
  for (const ListedJob* job : AttemptsOf(list, name, user)) {
    whose = UserOf(*job, list);
    attempts.push_back({{"attempt", job->attempt},
                        {"id", text::ValidUtf8(job->id)},
                        {"state", job->state},
                        {"begun_ns", job->begun_ns},
                        {"ranks", job->ranks},
                        {"step_ns", nullptr},
                        {"step_change", nullptr},
                        {"steps", nullptr}});
    if (job->step_ns.has_value()) attempts.back()["step_ns"] = *job->step_ns;
    if (const std::optional<double> change = StepChange(*job)) attempts.back()["step_change"] = *change;
    if (job->steps != nullptr) attempts.back()["steps"] = StepsJson(*job->steps);
  }
  if (attempts.empty()) return "";
  const Json all = {
      {"name", text::ValidUtf8(name)}, {"user", text::ValidUtf8(whose)}, {"attempts", std::move(attempts)}};
  return text::SafeJson(all.dump()) + "\n";
}

std::string AttemptsPage(const JobList& list, const std::string& name, const std::string& user) {
  const std::vector<const ListedJob*> attempts = AttemptsOf(list, name, user);
  if (attempts.empty()) return "";
  std::string rows;
  std::string compared;
  for (const ListedJob* job : attempts) {
    rows += AttemptRow(*job);
    if (job->steps != nullptr && job->steps->compared.has_value()) compared += ComparedSection(*job);
  }
  const std::string table = Section(
      "attempts", "Attempts",
      Head({{"attempt"},
            {"state", true},
            {"began"},
            {"ranks"},
            {"steps"},
            {"step"},
            {"compute"},
            {"exposed comm"},
            {"copy"},
            {"idle"},
            {"against the one before"}}),
      rows, "<p>Means per step and rank. A change of the step is shown if it is more than chance.</p>\n");
  return HubPage(
      list.hub,
      absl::StrCat(InHtml(name), ", ", attempts.size(), attempts.size() == 1 ? " attempt" : " attempts"),
      table + compared);
}

}  // namespace gpuprobe::http
