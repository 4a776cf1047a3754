// The wire schema keeps its promises: what was once sent keeps its number and type, and columns are packed.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "gpuprobe/v1/wire.pb.h"
#include "proto/limits.h"

namespace gpuprobe::v1 {
namespace {

namespace pb = google::protobuf;

// "Kernels.duration 2 repeated uint64", "LossReason.LOSS_UNKNOWN 0", "LaunchCost reserved 3".
void AddMessage(const pb::Descriptor& type, const std::string& name, std::set<std::string>& lines) {
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor* field = type.field(i);
    std::string type_name = field->type_name();
    if (field->message_type() != nullptr) type_name = field->message_type()->name();
    if (field->enum_type() != nullptr) type_name = field->enum_type()->name();
    lines.insert(name + "." + field->name() + " " + std::to_string(field->number()) +
                 (field->is_repeated() ? " repeated " : " ") + type_name);
  }
  for (int i = 0; i < type.reserved_range_count(); ++i) {
    for (int number = type.reserved_range(i)->start; number < type.reserved_range(i)->end; ++number)
      lines.insert(name + " reserved " + std::to_string(number));
  }
  for (int i = 0; i < type.nested_type_count(); ++i)
    AddMessage(*type.nested_type(i), name + "." + type.nested_type(i)->name(), lines);
}

std::set<std::string> SchemaLines() {
  std::set<std::string> lines;
  const pb::FileDescriptor* file = Frame::descriptor()->file();
  for (int i = 0; i < file->message_type_count(); ++i)
    AddMessage(*file->message_type(i), file->message_type(i)->name(), lines);
  for (int i = 0; i < file->enum_type_count(); ++i) {
    const pb::EnumDescriptor* type = file->enum_type(i);
    for (int j = 0; j < type->value_count(); ++j) {
      lines.insert(type->name() + "." + type->value(j)->name() + " " +
                   std::to_string(type->value(j)->number()));
    }
  }
  return lines;
}

// Fields may be added within a major version, and must then be added to the record; none may change. Of one
// that goes, the number stays reserved.
TEST(WireSchemaTest, FieldsOfThisMajorVersionKeepTheirNumbersAndTypes) {
  std::ifstream file(GPUPROBE_WIRE_RECORD);
  ASSERT_TRUE(file) << GPUPROBE_WIRE_RECORD;
  std::set<std::string> recorded;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') recorded.insert(line);
  }
  EXPECT_THAT(SchemaLines(), testing::ContainerEq(recorded));
}

TEST(WireSchemaTest, ColumnsArePacked) {
  const pb::FileDescriptor* file = Frame::descriptor()->file();
  for (int i = 0; i < file->message_type_count(); ++i) {
    const pb::Descriptor* type = file->message_type(i);
    for (int j = 0; j < type->field_count(); ++j) {
      const pb::FieldDescriptor* field = type->field(j);
      if (field->is_packable()) {
        EXPECT_TRUE(field->is_packed()) << field->full_name();
      }
    }
  }
}

TEST(WireSchemaTest, UnknownFieldsOfANewerMinorVersionAreKeptApartAndHarmless) {
  Frame frame;
  frame.mutable_hello()->set_protocol_major(wire::kProtocolMajor);
  frame.mutable_hello()->set_probe_version("x");
  std::string bytes = frame.SerializeAsString();
  bytes += std::string("\xa2\x38\x05hello", 8);  // field 900, length-delimited
  Frame parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_EQ(parsed.hello().probe_version(), "x");
}

// Reports print reasons by the enum's name without its prefix, so all need it.
TEST(WireSchemaTest, LossReasonsHaveTheirPrefix) {
  const pb::EnumDescriptor* reasons = LossReason_descriptor();
  for (int i = 0; i < reasons->value_count(); ++i) {
    EXPECT_THAT(reasons->value(i)->name(), testing::StartsWith("LOSS_"));
  }
}

}  // namespace
}  // namespace gpuprobe::v1
