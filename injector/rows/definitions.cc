#include "injector/rows/definitions.h"

#include "injector/base/losses.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kMaxNameOnWire = size_t{16} << 10;  // longer mangled names are cut

}  // namespace

bool Definitions::Init(char* memory, size_t bytes, void (*make_room)(Definitions* self) noexcept) noexcept {
  pending_ = {memory, bytes};
  make_room_ = make_room;
  history_.Init();
  return strings_.Init();
}

// The definitions of a batch that cannot be queued pile up; when even they have no room, the new one is lost.
template <typename Fill>
void Definitions::Define(wire::BatchTag kind, size_t bytes, const Fill& fill) noexcept {
  if (pending_.room() < bytes) make_room_(this);
  const size_t before = pending_.size;
  pending_.overflowed = false;
  {
    WireWriter fields(pending_);
    WireWriter def(fields, Number(kind));
    fill(def);
  }
  if (!pending_.overflowed) return;
  pending_.size = before;
  pending_.overflowed = false;
  CountLoss(wire::LossReason::kLossDefinitionsFull);
}

void Definitions::Sent() noexcept {
  history_.Append(pending_.data, pending_.size);
  pending_.size = 0;
}

uint32_t Definitions::String(std::string_view text) noexcept {
  const Interned interned = strings_.Intern(text);
  if (interned.id == 0 && !text.empty()) CountLoss(wire::LossReason::kLossDefinitionsFull);
  if (!interned.is_new) return interned.id;
  const size_t shown = text.size() < kMaxNameOnWire ? text.size() : kMaxNameOnWire;
  Define(wire::BatchTag::kStrings, shown + 3 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_uint32(Number(wire::StringDefTag::kId), interned.id);
    def.add_bytes(Number(wire::StringDefTag::kValue), text.data(), shown);
  });
  return interned.id;
}

uint32_t Definitions::KernelName(const char* name, uint32_t epoch) noexcept {
  const Interned interned = strings_.InternPointer(name, epoch);
  if (!interned.is_new) return interned.id;
  const size_t length = strnlen(name, kMaxNameOnWire);
  Define(wire::BatchTag::kStrings, length + 3 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_uint32(Number(wire::StringDefTag::kId), interned.id);
    def.add_bytes(Number(wire::StringDefTag::kValue), name, length);
  });
  return interned.id;
}

uint32_t Definitions::Site(const SiteKey& key) noexcept {
  const Interned interned = sites_.Intern(key);
  if (interned.id == 0) CountLoss(wire::LossReason::kLossDefinitionsFull);
  if (!interned.is_new) return interned.id;
  using Tag = wire::KernelSiteTag;
  Define(wire::BatchTag::kKernelSites, 16 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_uint32(Number(Tag::kId), interned.id);
    def.add_uint32(Number(Tag::kName), key.name);
    def.add_uint32(Number(Tag::kDevice), key.device);
    def.add_uint32(Number(Tag::kContext), key.context);
    def.add_uint32(Number(Tag::kStream), key.stream);
    def.add_uint32(Number(Tag::kGridX), key.grid[0]);
    def.add_uint32(Number(Tag::kGridY), key.grid[1]);
    def.add_uint32(Number(Tag::kGridZ), key.grid[2]);
    def.add_uint32(Number(Tag::kBlockX), key.block[0]);
    def.add_uint32(Number(Tag::kBlockY), key.block[1]);
    def.add_uint32(Number(Tag::kBlockZ), key.block[2]);
    def.add_uint32(Number(Tag::kStaticSharedBytes), key.static_shared_bytes);
    def.add_uint32(Number(Tag::kDynamicSharedBytes), key.dynamic_shared_bytes);
    def.add_uint32(Number(Tag::kRegistersPerThread), key.registers_per_thread);
  });
  return interned.id;
}

uint32_t Definitions::Frame(const FrameKey& key) noexcept {
  const Interned interned = frames_.Intern(key);
  // 0 from a full table: the sample then says that its stack is not known.
  if (!interned.is_new) return interned.id;
  using Tag = wire::HostFrameTag;
  Define(wire::BatchTag::kHostFrames, 6 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_uint32(Number(Tag::kId), interned.id);
    def.add_uint32(Number(Tag::kCaller), key.caller);
    def.add_uint32(Number(Tag::kFunction), key.function);
    def.add_uint32(Number(Tag::kFile), key.file);
    def.add_uint32(Number(Tag::kLine), key.line);
  });
  return interned.id;
}

void Definitions::DefineThread(uint32_t id, uint32_t tid, std::string_view name, bool main,
                               std::string_view given_name) noexcept {
  using Tag = wire::ThreadDefTag;
  Define(wire::BatchTag::kThreads, name.size() + given_name.size() + 5 * kFieldOverhead,
         [&](WireWriter& def) noexcept {
           def.add_uint32(Number(Tag::kId), id);
           def.add_uint32(Number(Tag::kTid), tid);
           def.add_bytes(Number(Tag::kName), name.data(), name.size());
           def.add_uint32(Number(Tag::kMain), main ? 1 : 0);
           if (!given_name.empty()) {
             def.add_bytes(Number(Tag::kGivenName), given_name.data(), given_name.size());
           }
         });
}

void Definitions::DefineDevice(const DeviceRow& device) noexcept {
  // As nvidia-smi prints it: GPU-8-4-4-4-12.
  static constexpr char kHex[] = "0123456789abcdef";
  char uuid[40] = {'G', 'P', 'U', '-'};
  size_t length = 4;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid[length++] = '-';
    uuid[length++] = kHex[device.uuid[i] >> 4];
    uuid[length++] = kHex[device.uuid[i] & 15];
  }
  using Tag = wire::DeviceTag;
  Define(wire::BatchTag::kDevices, device.name.size() + 12 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_uint32(Number(Tag::kOrdinal), device.ordinal);
    def.add_bytes(Number(Tag::kName), device.name.data(), device.name.size());
    def.add_bytes(Number(Tag::kUuid), uuid, length);
    def.add_uint64(Number(Tag::kMemoryBytes), device.memory_bytes);
    def.add_uint32(Number(Tag::kMultiprocessors), device.multiprocessors);
    def.add_uint32(Number(Tag::kComputeMajor), device.compute_major);
    def.add_uint32(Number(Tag::kComputeMinor), device.compute_minor);
    def.add_uint64(Number(Tag::kMemoryBandwidthBytesPerS), device.memory_bandwidth_bytes_per_s);
  });
}

void Definitions::DefineVersions(const VersionsRow& versions) noexcept {
  using Tag = wire::VersionsTag;
  Define(wire::BatchTag::kVersions, versions.cupti_path.size() + 7 * kFieldOverhead,
         [&](WireWriter& def) noexcept {
           def.add_int32(Number(Tag::kCudaDriver), versions.cuda_driver);
           def.add_int32(Number(Tag::kCudaRuntime), versions.cuda_runtime);
           def.add_uint32(Number(Tag::kCupti), versions.cupti);
           def.add_int32(Number(Tag::kNccl), versions.nccl);
           def.add_bytes(Number(Tag::kCuptiPath), versions.cupti_path.data(), versions.cupti_path.size());
           def.add_uint32(Number(Tag::kCuptiPrecautions), versions.cupti_precautions);
         });
}

void Definitions::DefineCommunicator(const CommunicatorEvent& event, uint32_t name,
                                     uint32_t made_by) noexcept {
  using Tag = wire::CommunicatorTag;
  Define(wire::BatchTag::kCommunicators, 11 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_uint32(Number(Tag::kId), event.id);
    def.add_fixed64(Number(Tag::kHash), event.hash);
    def.add_uint32(Number(Tag::kParent), event.parent);
    def.add_int32(Number(Tag::kRank), event.rank);
    def.add_int32(Number(Tag::kRanks), event.ranks);
    def.add_int32(Number(Tag::kDevice), event.device);
    def.add_enum(Number(Tag::kState), event.state);
    def.add_fixed64(Number(Tag::kTimeNs), event.time_ns);
    if (name != 0) def.add_uint32(Number(Tag::kName), name);
    if (made_by != 0) def.add_uint32(Number(Tag::kMadeBy), made_by);
  });
}

void Definitions::DefineCategory(uint32_t domain, uint32_t category, uint32_t name) noexcept {
  using Tag = wire::RangeCategoryTag;
  Define(wire::BatchTag::kRangeCategories, 3 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_uint32(Number(Tag::kDomain), domain);
    def.add_uint32(Number(Tag::kCategory), category);
    def.add_uint32(Number(Tag::kName), name);
  });
}

void Definitions::DefineObjectName(const ObjectNameEvent& event, uint32_t name) noexcept {
  using Tag = wire::ObjectNameTag;
  Define(wire::BatchTag::kObjectNames, 4 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_enum(Number(Tag::kKind), static_cast<int32_t>(event.kind));
    def.add_uint32(Number(Tag::kContext), event.context);
    def.add_uint32(Number(Tag::kId), event.id);
    def.add_uint32(Number(Tag::kName), name);
  });
}

void Definitions::DefineNcclIdentity(int32_t rank, int32_t world_size) noexcept {
  using Tag = wire::NcclIdentityTag;
  Define(wire::BatchTag::kNcclIdentity, 2 * kFieldOverhead, [&](WireWriter& def) noexcept {
    def.add_int32(Number(Tag::kRank), rank);
    def.add_int32(Number(Tag::kWorldSize), world_size);
  });
}

}  // namespace gpuprobe::injector
