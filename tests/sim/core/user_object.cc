// User objects: what the application wants to be destroyed once no graph needs it any more.
#include <set>

#include "tests/sim/core/graph.h"

namespace gpusim {
namespace {

std::set<CUuserObject>& LiveObjects() {
  static auto* objects = new std::set<CUuserObject>;
  return *objects;
}

}  // namespace

CUuserObject NewUserObject(void* object, CUhostFn destroy, unsigned references) {
  auto* created = new CUuserObject_st{object, destroy, references};
  LiveObjects().insert(created);
  return created;
}

CUresult RetainUserObjectLocked(CUuserObject object, uint64_t count) {
  if (count == 0 || LiveObjects().count(object) == 0) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult ReleaseUserObjectLocked(CUuserObject object, uint64_t count, const OpPtr& after) {
  if (count == 0 || LiveObjects().count(object) == 0 || object->references < count)
    return CUDA_ERROR_INVALID_VALUE;
  object->references -= count;
  if (object->references != 0) return CUDA_SUCCESS;
  LiveObjects().erase(object);
  auto op = std::make_shared<Op>();
  op->work.kind = WorkKind::kHost;
  op->work.host = [destroy = object->destroy, what = object->object] { destroy(what); };
  op->ready_ns = NowNs();
  Schedule::Get().Submit(op, {after});
  delete object;
  return CUDA_SUCCESS;
}

CUresult RetainInGraphLocked(CUgraph graph, CUuserObject object, unsigned count, bool move) {
  if (!IsLive(graph) || count == 0 || LiveObjects().count(object) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!move) object->references += count;
  graph->objects[object] += count;
  return CUDA_SUCCESS;
}

CUresult ReleaseInGraphLocked(CUgraph graph, CUuserObject object, unsigned count) {
  if (!IsLive(graph)) return CUDA_ERROR_INVALID_VALUE;
  const auto held = graph->objects.find(object);
  if (held == graph->objects.end() || held->second < count) return CUDA_ERROR_INVALID_VALUE;
  held->second -= count;
  if (held->second == 0) graph->objects.erase(held);
  return ReleaseUserObjectLocked(object, count, nullptr);
}

void RetainObjectsOfLocked(CUgraph graph, CUgraph copy) {
  for (const auto& [object, count] : graph->objects) {
    object->references += count;
    copy->objects[object] += count;
  }
}

void ReleaseObjectsLocked(CUgraph graph, const OpPtr& after) {
  for (const auto& [object, count] : graph->objects) ReleaseUserObjectLocked(object, count, after);
  graph->objects.clear();
}

}  // namespace gpusim
