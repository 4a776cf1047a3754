#include "proto/codegen/writers.h"

namespace gpuprobe::codegen {

namespace pb = google::protobuf;

void WriteTags(const pb::FileDescriptor& file, Printer& out) {
  out.Print("#pragma once\n\n#include <cstdint>\n\nnamespace gpuprobe::wire {\n");
  for (int i = 0; i < file.enum_type_count(); ++i) {
    const pb::EnumDescriptor* type = file.enum_type(i);
    out.Print("\nenum class $name$ : int32_t {\n", "name", type->name());
    for (int j = 0; j < type->value_count(); ++j) {
      out.Print("  $name$ = $number$,\n", "name", ConstantName(type->value(j)->name()), "number",
                std::to_string(type->value(j)->number()));
    }
    out.Print("};\n");
  }
  for (int i = 0; i < file.message_type_count(); ++i) {
    const pb::Descriptor* type = file.message_type(i);
    out.Print("\nenum class $name$Tag : uint32_t {\n", "name", type->name());
    for (int j = 0; j < type->field_count(); ++j) {
      out.Print("  $name$ = $number$,\n", "name", ConstantName(type->field(j)->name()), "number",
                std::to_string(type->field(j)->number()));
    }
    out.Print("};\n");
  }
  out.Print("\n}  // namespace gpuprobe::wire\n");
}

}  // namespace gpuprobe::codegen
