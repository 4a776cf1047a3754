#include "collector/report/words.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "collector/report/communication.h"
#include "google/protobuf/descriptor.h"

namespace gpuprobe::report {

std::string EnumeratorWord(std::string_view function) {
  // gcc: "... [with auto value = gpuprobe::analysis::Severity::kInfo]"; clang without "with".
  function = function.substr(function.rfind("value = ") + 8);
  function = function.substr(0, function.find_first_of(";]"));
  const size_t name = function.rfind("::k");
  if (name == std::string_view::npos || function.front() == '(') return "";
  std::string word;
  for (const char c : function.substr(name + 3)) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !word.empty()) word += '_';
    word += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return word;
}

const std::string& WordOf(const Words& words, int64_t value) {
  const auto known =
      std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.first == value; });
  return (known != words.end() ? *known : words.front()).second;
}

Words WireWords(const google::protobuf::EnumDescriptor& type) {
  std::string prefix;
  for (const char c : type.name()) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  Words words;
  for (int i = 0; i < type.value_count(); ++i) {
    const google::protobuf::EnumValueDescriptor& value = *type.value(i);
    words.emplace_back(value.number(), absl::AsciiStrToLower(
                                           absl::StripPrefix(absl::string_view(value.name()), prefix + "_")));
  }
  // A newer minor version's values.
  if (!ValueOf(words, "unknown").has_value()) words.emplace(words.begin(), -1, "unknown");
  return words;
}

std::optional<int64_t> ValueOf(const Words& words, const std::string& word) {
  for (const auto& [value, known] : words) {
    if (known == word) return value;
  }
  return std::nullopt;
}

Words EnumWords<analysis::CommunicationRole>::Of() {
  using Role = analysis::CommunicationRole;
  Words words;
  for (const auto& [role, word] :
       {std::pair(Role::kReplicas, "hybrid sharded data parallel (HSDP)"),
        {Role::kSharded, "fully sharded data parallel (FSDP, ZeRO stage 3)"},
        {Role::kSharedState, "data parallel with sharded optimizer state (ZeRO stage 1 or 2)"},
        {Role::kSharedUnknown, "sharded data parallel (FSDP, ZeRO)"},
        {Role::kTensor, "tensor parallel"},
        {Role::kTensorSequence, "tensor and sequence parallel"},
        {Role::kExpert, "expert parallel (all-to-all)"},
        {Role::kRing, "context parallel (ring)"},
        {Role::kPipeline, "pipeline"},
        {Role::kData, "data parallel (DDP)"},
        {Role::kTensorOrData, "tensor or grouped data parallel"},
        {Role::kOther, ""}})
    words.emplace_back(static_cast<int64_t>(role), word);
  return words;
}

}  // namespace gpuprobe::report
