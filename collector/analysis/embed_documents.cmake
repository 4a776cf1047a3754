# Writes OUTPUT, a C++ file with the pages of FOLDER (docs/findings) as collector/analysis/finding_document.h declares them.
file(GLOB pages ${FOLDER}/*.md)
list(SORT pages)
set(entries "")
foreach(page IN LISTS pages)
  get_filename_component(id ${page} NAME_WE)
  if(id STREQUAL "README")
    continue()
  endif()
  file(READ ${page} text)
  string(APPEND entries "    {\"${id}\", R\"page(${text})page\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include <string_view>\n#include <utility>\n\nnamespace gpuprobe::analysis {\n\n\
extern const std::pair<std::string_view, std::string_view> kFindingPages[];\nextern const unsigned kFindingPageCount;\n\n\
const std::pair<std::string_view, std::string_view> kFindingPages[] = {\n${entries}};\n\
const unsigned kFindingPageCount = sizeof(kFindingPages) / sizeof(kFindingPages[0]);\n\n}  // namespace gpuprobe::analysis\n")
