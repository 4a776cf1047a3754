#include "collector/report/json.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "collector/report/report_type.h"

namespace gpuprobe::report {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Type::Kind;

const void* At(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }
void* At(void* base, size_t offset) { return static_cast<char*>(base) + offset; }

template <typename Wide, typename Narrow>
Wide Load(const void* value) {
  Narrow narrow;
  std::memcpy(&narrow, value, sizeof narrow);
  return static_cast<Wide>(narrow);
}

uint64_t Unsigned(const Type& type, const void* value) {
  switch (type.bytes) {
    case 1:
      return Load<uint64_t, uint8_t>(value);
    case 4:
      return Load<uint64_t, uint32_t>(value);
    default:
      return Load<uint64_t, uint64_t>(value);
  }
}

int64_t Signed(const Type& type, const void* value) {
  switch (type.bytes) {
    case 1:
      return Load<int64_t, int8_t>(value);
    case 4:
      return Load<int64_t, int32_t>(value);
    default:
      return Load<int64_t, int64_t>(value);
  }
}

double Number(const void* value) { return *static_cast<const double*>(value); }
const std::string& Text(const void* value) { return *static_cast<const std::string*>(value); }
const std::string& WordAt(const Type& type, const void* value) {
  return WordOf(*type.words, Signed(type, value));
}

bool IsZero(const Type& type, const void* value) {
  switch (type.kind) {
    case Kind::kSigned:
      return Signed(type, value) == 0;
    case Kind::kUnsigned:
      return Unsigned(type, value) == 0;
    case Kind::kNumber:
      return !(Number(value) > 0);
    case Kind::kText:
      return Text(value).empty();
    case Kind::kWord:
      return WordAt(type, value).empty();
    default:
      return false;
  }
}

// `summaries`: entries of the fields that summarise are written in short. `summary`: this is one.
class Writer {
 public:
  Writer(bool summaries, bool summary) : summaries_(summaries), summary_(summary) {}

  Json Write(const Type& type, const void* value) const {
    switch (type.kind) {
      case Kind::kBool:
        return *static_cast<const bool*>(value);
      case Kind::kSigned:
        return Signed(type, value);
      case Kind::kUnsigned:
        return Unsigned(type, value);
      case Kind::kNumber:
        return Number(value);
      case Kind::kText:
        return Text(value);
      case Kind::kWord:
        return WordAt(type, value);
      case Kind::kOptional: {
        Json out;
        type.each(value, [&](const std::string*, const void* inner) { out = Write(*type.inner, inner); });
        return out;
      }
      case Kind::kList: {
        Json out = Json::array();
        auto& list = out.get_ref<Json::array_t&>();
        type.each(value,
                  [&](const std::string*, const void* inner) { list.push_back(Write(*type.inner, inner)); });
        return out;
      }
      case Kind::kMap: {
        Json out = Json::object();
        Entries(type, value, out);
        return out;
      }
      case Kind::kObject:
        break;
    }
    return WriteObject(*type.object, value);
  }

 private:
  static void Append(Json& object, const std::string& key, Json value) {
    // Keys differ, and ordered_map's own functions would look for each.
    static_cast<Json::object_t::Container&>(object.get_ref<Json::object_t&>())
        .emplace_back(key, std::move(value));
  }

  void Entries(const Type& type, const void* map, Json& out) const {
    type.each(map, [&](const std::string* key, const void* inner) {
      Json entry = Write(*type.inner, inner);
      // A summary leaves out what there was nothing of.
      const bool nothing =
          summary_ && std::all_of(entry.begin(), entry.end(), [](const Json& v) { return v == 0; });
      if (!nothing) Append(out, *key, std::move(entry));
    });
  }

  Json WriteObject(const Object& object, const void* value) const {
    if (object.known != nullptr && !object.known(value)) return nullptr;
    Json out = Json::object();
    for (const Field& field : object.fields) {
      if (summary_ && !field.in_summary) continue;
      if (*field.name == '\0') {
        Entries(*field.type, At(value, field.at), out);
        continue;
      }
      Json written = WriteField(field, value);
      if (!field.absent_if_empty || !written.empty()) Append(out, field.name, std::move(written));
    }
    return out;
  }

  Json WriteField(const Field& field, const void* object) const {
    const void* const owner = At(object, field.owner);
    if (field.known != nullptr && !field.known(owner)) return nullptr;
    if (field.get != nullptr) {
      Json out;
      field.get(owner, [&](const void* value) { out = Write(*field.type, value); });
      return out;
    }
    const void* const value = At(object, field.at);
    if (field.null_if_zero && IsZero(*field.type, value)) return nullptr;
    return field.summarises && summaries_ ? Writer(false, true).Write(*field.type, value)
                                          : Write(*field.type, value);
  }

  const bool summaries_;
  const bool summary_;
};

template <typename Integer>
bool FitsIn(const Json& json) {
  return json.is_number_unsigned() ? std::in_range<Integer>(json.get<uint64_t>())
                                   : json.is_number_integer() && std::in_range<Integer>(json.get<int64_t>());
}

bool FitsInteger(const Json& json, const Type& type) {
  const bool is_signed = type.kind == Kind::kSigned;
  switch (type.bytes) {
    case 1:
      return is_signed ? FitsIn<int8_t>(json) : FitsIn<uint8_t>(json);
    case 4:
      return is_signed ? FitsIn<int32_t>(json) : FitsIn<uint32_t>(json);
    default:
      return is_signed ? FitsIn<int64_t>(json) : FitsIn<uint64_t>(json);
  }
}

// Whether `json` can be a value of the type; what cannot is left out.
bool Fits(const Json& json, const Type& type) {
  switch (type.kind) {
    case Kind::kBool:
      return json.is_boolean();
    case Kind::kSigned:
    case Kind::kUnsigned:
      return FitsInteger(json, type);
    case Kind::kNumber:
      return json.is_number() || json.is_null();  // JSON has no other word for what is no number
    case Kind::kText:
      return json.is_string();
    case Kind::kWord:
      return json.is_string() && ValueOf(*type.words, json.get_ref<const std::string&>()).has_value();
    case Kind::kOptional:
      return !json.is_null() && Fits(json, *type.inner);
    case Kind::kList:
      return json.is_array();
    case Kind::kMap:
    case Kind::kObject:
      break;
  }
  return json.is_object();
}

void ReadInteger(const Json& json, const Type& type, void* value) {
  const uint64_t number =
      json.is_number_unsigned() ? json.get<uint64_t>() : static_cast<uint64_t>(json.get<int64_t>());
  std::memcpy(value, &number, type.bytes);  // little-endian, as all that CUDA runs on
}

void Read(const Json& json, const Type& type, void* value);

void ReadObject(const Json& json, const Object& object, void* value) {
  for (const Field& field : object.fields) {
    if (*field.name == '\0') {
      for (const auto& [key, entry] : json.items()) {
        const bool is_field = std::any_of(object.fields.begin(), object.fields.end(),
                                          [&, name = &key](const Field& f) { return *name == f.name; });
        if (!is_field) Read(entry, *field.type->inner, field.type->add(At(value, field.at), 0, key));
      }
      continue;
    }
    const auto found = json.find(field.name);
    if (found == json.end() || (field.get != nullptr && field.set == nullptr)) continue;
    if (field.set != nullptr) {
      field.set(At(value, field.owner), [&](void* computed) { Read(*found, *field.type, computed); });
    } else if (!found->is_null() || (field.known == nullptr && !field.null_if_zero)) {
      Read(*found, *field.type, At(value, field.at));
    }
  }
  if (object.learn != nullptr) object.learn(value);
}

void Read(const Json& json, const Type& type, void* value) {
  if (value == nullptr || !Fits(json, type)) return;
  switch (type.kind) {
    case Kind::kBool:
      *static_cast<bool*>(value) = json.get<bool>();
      return;
    case Kind::kSigned:
    case Kind::kUnsigned:
      return ReadInteger(json, type, value);
    case Kind::kNumber:
      *static_cast<double*>(value) =
          json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
      return;
    case Kind::kText:
      *static_cast<std::string*>(value) = json.get<std::string>();
      return;
    case Kind::kWord: {
      const auto number = ValueOf(*type.words, json.get_ref<const std::string&>());
      std::memcpy(value, &*number, type.bytes);
      return;
    }
    case Kind::kOptional:
      return Read(json, *type.inner, type.add(value, 0, ""));
    case Kind::kList:
      for (size_t i = 0; i < json.size(); ++i) Read(json[i], *type.inner, type.add(value, i, ""));
      return;
    case Kind::kMap:
      for (const auto& [key, entry] : json.items()) Read(entry, *type.inner, type.add(value, 0, key));
      return;
    case Kind::kObject:
      return ReadObject(json, *type.object, value);
  }
}

}  // namespace

Json ToJson(const analysis::Report& report, bool summaries) {
  return Writer(summaries, false).Write(ReportType(), &report);
}

Json ToJson(const analysis::LastMoments& moments) {
  return Writer(false, false).Write(LastMomentsType(), &moments);
}
Json ToJson(const analysis::RankReport& rank) { return Writer(false, false).Write(RankType(), &rank); }

absl::StatusOr<analysis::Report> FromJson(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("it is not a report");
  analysis::Report report;
  Read(json, ReportType(), &report);
  return report;
}

}  // namespace gpuprobe::report
