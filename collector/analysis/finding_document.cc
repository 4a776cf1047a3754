#include "collector/analysis/finding_document.h"

#include <utility>

namespace gpuprobe::analysis {

// Of the generated file (embed_documents.cmake).
extern const std::pair<std::string_view, std::string_view> kFindingPages[];
extern const unsigned kFindingPageCount;

std::string_view FindingDocument(std::string_view id) {
  for (unsigned i = 0; i < kFindingPageCount; ++i) {
    if (kFindingPages[i].first == id) return kFindingPages[i].second;
  }
  return {};
}

std::string_view FindingExplanation(std::string_view id) {
  const std::string_view page = FindingDocument(id);
  const size_t first = page.find("\n## ");
  return first == std::string_view::npos ? std::string_view() : page.substr(first + 1);
}

}  // namespace gpuprobe::analysis
