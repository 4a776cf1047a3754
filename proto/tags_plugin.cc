// protoc plugin: writes the field numbers of each message as an enum for protozero, and each enum of the
// schema as itself, and how many columns each table of the schema has.
//
// Separate from libprotobuf's own output because the injector may not link libprotobuf; generated rather than
// written by hand so that the injector's encoder and the collector's decoder cannot disagree. Runs at build
// time only.
#include <google/protobuf/compiler/code_generator.h>
#include <google/protobuf/compiler/plugin.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

namespace {

namespace pb = google::protobuf;

// "start_delta" -> "kStartDelta", "COPY_DIRECTION_H2D" -> "kCopyDirectionH2d"
std::string ConstantName(const std::string& snake) {
  std::string result = "k";
  bool upper = true;
  for (const char c : snake) {
    if (c == '_') {
      upper = true;
      continue;
    }
    result += static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
    upper = false;
  }
  return result;
}

// The repeated scalar fields of a message are the columns of a table.
void PrintColumns(const pb::Descriptor& type, pb::io::Printer& out) {
  int first = 0;
  int last = 0;
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    if (!field.is_packed()) continue;
    first = first == 0 ? field.number() : std::min(first, field.number());
    last = std::max(last, field.number());
  }
  if (first == 0) return;
  out.Print(
      "template <>\nstruct ColumnsOf<$name$Tag> {\n  static constexpr int kFirst = $first$;\n  static "
      "constexpr "
      "int kCount = $count$;\n};\n",
      "name", type.name(), "first", std::to_string(first), "count", std::to_string(last - first + 1));
}

class TagsGenerator : public pb::compiler::CodeGenerator {
 public:
  bool Generate(const pb::FileDescriptor* file, const std::string& /*parameter*/,
                pb::compiler::GeneratorContext* context, std::string* /*error*/) const override {
    std::string name = file->name();
    name.replace(name.rfind(".proto"), std::string::npos, "_tags.h");
    const std::unique_ptr<pb::io::ZeroCopyOutputStream> stream(context->Open(name));
    pb::io::Printer out(stream.get(), '$');
    out.Print(
        "// Generated from $file$. Do not edit.\n#pragma once\n\n#include <cstdint>\n\nnamespace "
        "gpuprobe::wire {\n\n// The field numbers that are columns of a table.\ntemplate <typename Tag>\n"
        "struct ColumnsOf;\n",
        "file", file->name());
    for (int i = 0; i < file->enum_type_count(); ++i) {
      const pb::EnumDescriptor* type = file->enum_type(i);
      out.Print("\nenum class $name$ : int32_t {\n", "name", type->name());
      for (int j = 0; j < type->value_count(); ++j) {
        out.Print("  $name$ = $number$,\n", "name", ConstantName(type->value(j)->name()), "number",
                  std::to_string(type->value(j)->number()));
      }
      out.Print("};\n");
    }
    for (int i = 0; i < file->message_type_count(); ++i) {
      const pb::Descriptor* type = file->message_type(i);
      out.Print("\nenum class $name$Tag : uint32_t {\n", "name", type->name());
      for (int j = 0; j < type->field_count(); ++j) {
        out.Print("  $name$ = $number$,\n", "name", ConstantName(type->field(j)->name()), "number",
                  std::to_string(type->field(j)->number()));
      }
      out.Print("};\n");
      PrintColumns(*type, out);
    }
    out.Print("\n}  // namespace gpuprobe::wire\n");
    return true;
  }
};

}  // namespace

int main(int argc, char* argv[]) {
  const TagsGenerator generator;
  return pb::compiler::PluginMain(argc, argv, &generator);
}
