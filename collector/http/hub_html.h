// Pieces of a hub's pages, which are made on the server, so that they can be read without scripts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuprobe::http {

// Text of anybody's as text of a page.
std::string InHtml(const std::string& text);
// As the value of a parameter in the query of a URL.
std::string InQuery(const std::string& text);
// "2026-11-28 14:54:57 UTC"; 0: "-"
std::string TimeText(uint64_t ns);
// "323 ms"; 0: "-"
std::string GpuTime(double seconds);
struct Column {
  const char* name;
  bool is_text = false;  // its cells have the class "text"
};
// The cells above a table.
std::string Head(const std::vector<Column>& columns);
// "+3.1 %", "+202 %"
std::string ChangeText(double share);
// A table of its own, in a section, between `lead` and `note`. All but `id` and `title` are HTML.
std::string Section(const char* id, const char* title, const std::string& columns, const std::string& rows,
                    const std::string& note, const std::string& lead = "");
// The whole page; `count`: beside its heading, `main`: HTML. A script renews both.
std::string HubPage(const std::string& hub, const std::string& count, const std::string& main);

}  // namespace gpuprobe::http
