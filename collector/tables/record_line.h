// One line of the export under construction: a JSON object of a record's fields, in the order in which they
// are put.
//
// wire_lines.h, generated from wire.proto, says which fields a record's line has; this says how a value is
// printed.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collector/analysis/names.h"
#include "collector/records/definitions.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::tables {

// A value that is JSON already; empty: there is none.
struct JsonValue {
  std::string text;
};
std::string Quoted(std::string_view text);

class Line {
 public:
  // `definitions`: with quoted names.
  Line(std::string_view kind, const v1::Identity& who, const model::Definitions& definitions)
      : definitions_(definitions), text_("{\"kind\":\"") {
    text_.append(kind).append("\"");
    Put("rank", who.rank());
    Put("pid", who.pid());
  }

  void Put(std::string_view name, std::integral auto value) { Append(name, std::to_string(value)); }
  void Put(std::string_view name, bool value) { Append(name, value ? "true" : "false"); }
  void Put(std::string_view name, const JsonValue& value) { Append(name, value.text); }
  void Put(std::string_view name, v1::CopyDirection value) { Word(name, analysis::DirectionName(value)); }
  void Put(std::string_view name, v1::MemoryKind value) { Word(name, analysis::MemoryName(value)); }
  void Put(std::string_view name, v1::SyncKind value) { Word(name, analysis::SyncName(value)); }
  void Put(std::string_view name, v1::CallSource value);
  // Any other enum.
  template <typename Enum>
  requires google::protobuf::is_proto_enum<Enum>::value void Put(std::string_view name, Enum value) {
    Word(name, analysis::EnumWord(value));
  }
  template <typename T>
  void Put(std::string_view name, const std::optional<T>& value) {
    Put(name, *value);
  }
  void PutString(std::string_view name, uint32_t id) { Append(name, definitions_.String(id)); }
  // A word needs no quoting.
  void Word(std::string_view name, std::string_view word) {
    Append(name, std::string("\"").append(word).append("\""));
  }

  // Whether a field that may be left out has anything to say.
  static bool Says(std::integral auto value) { return value != 0; }
  static bool Says(const JsonValue& value) { return !value.text.empty(); }
  template <typename T>
  static bool Says(const std::optional<T>& value) {
    return value.has_value();
  }

  std::string End() && { return std::move(text_) + "}"; }

 private:
  void Append(std::string_view name, std::string_view value) {
    text_.append(",\"").append(name).append("\":").append(value);
  }

  const model::Definitions& definitions_;
  std::string text_;
};

}  // namespace gpuprobe::tables
