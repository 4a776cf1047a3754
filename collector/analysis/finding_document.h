// The documents of findings (docs/findings), which the program has with it: a page that is sent to somebody
// has no folder of documents beside it.
#pragma once

#include <string_view>

namespace gpuprobe::analysis {

// docs/findings/ID.md. Empty: there is none.
std::string_view FindingDocument(std::string_view id);
// Its sections, from "What it means" on, in Markdown: without the screen and the picture that it begins with.
std::string_view FindingExplanation(std::string_view id);

}  // namespace gpuprobe::analysis
