#include "collector/model/process/host_frames.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "collector/model/steps/work_roles.h"
#include "collector/records/python_files.h"

namespace gpuprobe::model {
namespace {

struct KnownCode {
  HostTask task;
  std::string_view file;           // is part of the path
  std::string_view function = {};  // is part of the name; empty: any
};

constexpr KnownCode kKnown[] = {
    {HostTask::kLoads, "/torch/utils/data/"},
    {HostTask::kLoads, "/torchdata/"},
    {HostTask::kLoads, "/webdataset/"},
    {HostTask::kLoads, "/nvidia/dali"},
    {HostTask::kLoads, "-packages/datasets/"},
    {HostTask::kLoads, "-packages/streaming/"},
    {HostTask::kLoads, "/litdata/"},
    {HostTask::kSaves, "/torch/serialization.py", "save"},
    {HostTask::kSaves, "/torch/serialization.py", "write"},
    {HostTask::kSaves, "/torch/distributed/checkpoint/"},
    {HostTask::kSaves, "/safetensors/", "save"},
    {HostTask::kCompiles, "/torch/_dynamo/convert_frame.py"},
    {HostTask::kCompiles, "/torch/_inductor/"},
    {HostTask::kCompiles, "/torch/_functorch/aot_autograd.py"},
    {HostTask::kCompiles, "/triton/compiler/"},
    {HostTask::kLogs, "/logging/__init__.py"},
    {HostTask::kLogs, "/tensorboard"},
    {HostTask::kLogs, "/wandb/"},
    {HostTask::kLogs, "/mlflow/"},
    {HostTask::kEmptiesCache, "/torch/cuda/memory.py", "empty_cache"},
    {HostTask::kOptimizes, "/torch/optim/"},
};
// Of a Dataset of the program's own.
constexpr std::string_view kDatasetFunctions[] = {"__getitem__", "__getitems__", "collate_fn", "collate"};

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What a frame in this file does for its caller. An optimizer that is given a closure calls the whole step.
HostTask Inherited(HostTask of_caller, std::string_view file) {
  const bool is_step = Has(file, "/torch/nn/modules/") || Has(file, "/torch/autograd/");
  return of_caller == HostTask::kOptimizes && is_step ? HostTask::kUnknown : of_caller;
}

HostTask TaskOf(std::string_view function, std::string_view file, bool library) {
  const auto known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const KnownCode& code) {
    return Has(file, code.file) && Has(function, code.function);
  });
  if (known != std::end(kKnown)) return known->task;
  if (library) return HostTask::kUnknown;
  function.remove_prefix(std::min(function.rfind('.') + 1, function.size()));  // npos + 1 is 0
  const bool dataset = std::find(std::begin(kDatasetFunctions), std::end(kDatasetFunctions), function) !=
                       std::end(kDatasetFunctions);
  return dataset || LooksLikeInput(KindOfRange(function)) ? HostTask::kLoads : HostTask::kUnknown;
}

}  // namespace

void HostFrames::On(const v1::HostFrame& def, const ProcessNames& names) {
  if (def.id() == 0 || def.id() >= kMaxFrames) return;
  if (def.id() >= frames_.size()) {
    frames_.resize(std::max<size_t>(size_t{def.id()} + 1, std::min(frames_.size() * 2, kMaxFrames)));
  }
  Frame& frame = frames_[def.id()];
  if (frame.at.function != 0 || def.function() == 0) return;
  const Frame caller = Of(def.caller());
  const bool library = IsLibraryFile(names.String(def.file()));
  const HostTask task = TaskOf(names.String(def.function()), names.String(def.file()), library);
  const HostLine at{
      .function = names.Canonical(def.function()), .file = names.Canonical(def.file()), .line = def.line()};
  frame = {.at = at,
           .own = library ? caller.own : at,
           .task = task != HostTask::kUnknown ? task : Inherited(caller.task, names.String(def.file()))};
}

}  // namespace gpuprobe::model
