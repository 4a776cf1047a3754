#include "collector/cli/hub_job.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collector/cli/command.h"
#include "collector/cli/near_word.h"
#include "collector/http/fetch.h"
#include "collector/http/hub_html.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {
namespace {

constexpr size_t kMostNamesSaid = 4;  // in a message

struct HubJob {
  std::string id;
  std::string name;  // with several users: "alice/train"
  std::string own_name;
  std::string user;
  uint64_t attempt = 1;
  bool runs = false;
};

absl::StatusOr<std::vector<HubJob>> JobsOf(const std::string& url) {
  const absl::StatusOr<std::string> text = http::Fetch(url, "/api/jobs");
  if (!text.ok()) return text.status();
  const nlohmann::json list = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  std::vector<HubJob> jobs;
  try {
    for (const nlohmann::json& job : list.at("jobs")) {
      jobs.push_back({.id = job.at("id"),
                      .name = job.at("name"),
                      .own_name = job.at("name"),
                      .user = job.at("user"),
                      .attempt = job.at("attempt"),
                      .runs = job.at("ended_ns").is_null()});
    }
  } catch (const nlohmann::json::exception&) {
    return absl::DataLossError(absl::StrCat(url, " is not the page of a hub of this release"));
  }
  // Those of whoever reads everything.
  const bool several =
      std::any_of(jobs.begin(), jobs.end(), [&](const HubJob& job) { return job.user != jobs.front().user; });
  for (HubJob& job : jobs) {
    if (several) job.name = absl::StrCat(job.user, "/", job.name);
  }
  return jobs;
}

std::string NameAndNumber(const HubJob& job) { return absl::StrCat(job.name, "#", job.attempt); }

// Their names, each once, the latest first.
std::vector<std::string> NamesOf(const std::vector<HubJob>& jobs) {
  std::vector<std::string> names;
  for (const HubJob& job : jobs) {
    if (std::find(names.begin(), names.end(), job.name) == names.end()) names.push_back(job.name);
  }
  return names;
}

std::string SomeOf(const std::vector<std::string>& names) {
  std::vector<std::string> some = names;
  some.resize(std::min(names.size(), kMostNamesSaid));
  return absl::StrCat(absl::StrJoin(some, ", "), names.size() > kMostNamesSaid ? ", ..." : "");
}

// Those of which this is the name or, if there are none, a part of it.
std::vector<HubJob> Named(const std::vector<HubJob>& jobs, const std::string& name) {
  std::vector<HubJob> found;
  const auto take = [&](auto matches) {
    for (const HubJob& job : jobs) {
      if (matches(job)) found.push_back(job);
    }
  };
  take([&](const HubJob& job) { return job.name == name || job.own_name == name; });
  if (found.empty() && !name.empty())
    take([&](const HubJob& job) { return absl::StrContains(job.name, name); });
  return found;
}

absl::Status NoSuch(const std::string& given, const std::string& url, const std::vector<HubJob>& jobs) {
  std::vector<std::string> words;
  const std::vector<std::string> names = NamesOf(jobs);
  for (const std::string& name : names) {
    words.push_back(name);
    const std::vector<std::string> its = absl::StrSplit(name, ' ', absl::SkipEmpty());
    words.insert(words.end(), its.begin(), its.end());
  }
  const std::string near = DidYouMean(given, words);
  return absl::NotFoundError(absl::StrCat("the hub at ", url, " has no job '", given, "'",
                                          near.empty() ? absl::StrCat("; it has ", SomeOf(names)) : near));
}

// "NAME#3"; no attempt: 0.
std::pair<std::string, uint64_t> NameAndAttempt(const std::string& given) {
  const size_t mark = given.rfind('#');
  uint64_t attempt = 0;
  if (mark == std::string::npos || !absl::SimpleAtoi(given.substr(mark + 1), &attempt)) return {given, 0};
  return {given.substr(0, mark), attempt};
}

// `of`: attempts of which it is the latest, if none was named.
struct Choice {
  HubJob job;
  size_t of = 1;
};

absl::StatusOr<Choice> Choose(const std::string& given, const std::string& url,
                              const std::vector<HubJob>& jobs) {
  const std::string path = absl::StrCat("/", absl::StripSuffix(given, "/"));
  for (const HubJob& job : jobs) {
    const std::string id = absl::StrCat("/", job.id);
    if (absl::EndsWith(path, id) || absl::EndsWith(id, path)) return Choice{.job = job};
  }
  const auto [name, attempt] = NameAndAttempt(given);
  std::vector<HubJob> found = Named(jobs, given);
  const bool has_attempt = found.empty() && attempt > 0;
  if (has_attempt) found = Named(jobs, name);
  if (found.empty()) return NoSuch(given, url, jobs);
  const std::vector<std::string> names = NamesOf(found);
  if (names.size() > 1)
    return absl::NotFoundError(
        absl::StrCat("'", given, "' could be any of ", names.size(), " jobs at ", url, ": ", SomeOf(names)));
  if (!has_attempt) return Choice{.job = found.front(), .of = found.size()};
  const auto chosen = std::find_if(
      found.begin(), found.end(), [&, wanted = attempt](const HubJob& job) { return job.attempt == wanted; });
  if (chosen != found.end()) return Choice{.job = *chosen};
  return absl::NotFoundError(absl::StrCat("there is no attempt ", attempt, " of ", names.front(), " at ", url,
                                          ": the latest is ", found.front().attempt));
}

absl::StatusOr<HubJob> Newest(const std::string& url, const std::vector<HubJob>& jobs, bool only_running) {
  for (const HubJob& job : jobs) {
    if (only_running && !job.runs) continue;
    SayError(
        absl::StrCat(only_running ? "the newest job that runs: " : "the newest job: ", NameAndNumber(job)));
    return job;
  }
  return absl::NotFoundError(
      absl::StrCat("the hub at ", url, jobs.empty() ? " has no job yet" : " has no job that runs"));
}

}  // namespace

bool IsHubJob(const std::string& url) { return http::IsUrl(url) && absl::StrContains(url, "/jobs/"); }

void HubOption::AddTo(CLI::App& app) {
  app.add_option_function<std::string>(
         "--hub",
         [this](const std::string& given) {
           url = given.empty() ? kHubHere : std::string(absl::StripSuffix(given, "/"));
           if (!http::IsUrl(*url))
             throw CLI::ValidationError("--hub", absl::StrCat("'", given, "' is no URL, such as ", kHubHere,
                                                              "; name the job before --hub"));
         },
         absl::StrCat("of a job of this hub (its --http), named as gpuprobe jobs lists it: by its name or a "
                      "part of that, NAME#ATTEMPT, or its run's folder [",
                      kHubHere, "]"))
      ->expected(0, 1)
      ->default_str(kHubHere)
      ->option_text("[URL]");
}

absl::Status HubOption::Resolve(std::string& given, bool only_running) const {
  if (!url.has_value() || http::IsUrl(given)) return absl::OkStatus();
  const absl::StatusOr<std::vector<HubJob>> jobs = JobsOf(*url);
  if (!jobs.ok()) return jobs.status();
  if (given.empty() || jobs->empty()) {
    const absl::StatusOr<HubJob> newest = Newest(*url, *jobs, only_running);
    if (!newest.ok()) return newest.status();
    given = absl::StrCat(*url, "/jobs/", newest->id);
    return absl::OkStatus();
  }
  const absl::StatusOr<Choice> choice = Choose(given, *url, *jobs);
  if (!choice.ok()) return choice.status();
  if (choice->of > 1)
    SayError(absl::StrCat("the latest of ", choice->of, " attempts: ", NameAndNumber(choice->job)));
  given = absl::StrCat(*url, "/jobs/", choice->job.id);
  return absl::OkStatus();
}

absl::StatusOr<HubAttempts> FindAttempts(const std::string& url, const std::string& given) {
  const absl::StatusOr<std::vector<HubJob>> jobs = JobsOf(url);
  if (!jobs.ok()) return jobs.status();
  if (jobs->empty()) return absl::NotFoundError(absl::StrCat("the hub at ", url, " has no job yet"));
  const absl::StatusOr<Choice> choice = Choose(given, url, *jobs);
  if (!choice.ok()) return choice.status();
  return HubAttempts{.path = absl::StrCat("/api/attempts?job=", http::InQuery(choice->job.own_name),
                                          "&user=", http::InQuery(choice->job.user)),
                     .name = choice->job.name};
}

}  // namespace gpuprobe::cli
