// Guesses the word behind a typo: "reprot" is "report", "--hang-afer" is "--hang-after".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpuprobe::cli {

// The nearest of `words`, by typing errors (a letter too many, too few, wrong, or two exchanged), or one that
// `word` is the beginning of. Empty when none is near: a third of its letters may be wrong.
std::string NearWord(std::string_view word, const std::vector<std::string>& words);

// "; did you mean report?", or empty.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& words);

}  // namespace gpuprobe::cli
