// protoc plugin: writes what the injector, the collector and the tests need to know of the schema beyond
// libprotobuf's own output (writers.h lists the files).
//
// The injector may not link libprotobuf, and a record kind is described once: generated from one description,
// the injector's encoder, the collector's reader and the export cannot disagree. Runs at build time only.
#include <google/protobuf/compiler/code_generator.h>
#include <google/protobuf/compiler/plugin.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include "proto/codegen/writers.h"

namespace gpuprobe::codegen {
namespace {

namespace pb = google::protobuf;

class Generator : public pb::compiler::CodeGenerator {
 public:
  bool Generate(const pb::FileDescriptor* file, const std::string& /*parameter*/,
                pb::compiler::GeneratorContext* context, std::string* error) const override {
    std::vector<TableSpec> tables;
    if (!TablesOf(*file, &tables, error)) return false;
    const std::string stem = file->name().substr(0, file->name().rfind(".proto"));
    const auto write = [&](const char* suffix, const std::function<void(Printer&)>& content) {
      const std::unique_ptr<pb::io::ZeroCopyOutputStream> stream(context->Open(stem + suffix));
      Printer out(stream.get(), '$');
      if (std::string(suffix).ends_with(".h"))
        out.Print("// Generated from $file$. Do not edit.\n", "file", file->name());
      content(out);
    };
    write("_tags.h", [&](Printer& out) { WriteTags(*file, out); });
    std::vector<TableSpec> of_process;
    std::copy_if(tables.begin(), tables.end(), std::back_inserter(of_process),
                 [](const TableSpec& table) { return !table.options.of_collector(); });
    write("_rows.h", [&](Printer& out) { WriteRows(of_process, out); });
    write("_records.h", [&](Printer& out) { WriteRecords(tables, out); });
    write("_writers.h", [&](Printer& out) { WriteWriters(tables, out); });
    write("_lines.h", [&](Printer& out) { WriteLines(tables, out); });
    write("_lines.json", [&](Printer& out) { WriteLinesJson(tables, out); });
    return true;
  }
};

}  // namespace
}  // namespace gpuprobe::codegen

int main(int argc, char* argv[]) {
  const gpuprobe::codegen::Generator generator;
  return google::protobuf::compiler::PluginMain(argc, argv, &generator);
}
