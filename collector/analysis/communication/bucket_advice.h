// How large gradient buckets should be, and what that would gain.
//
// Separate from the findings because it is a small model of its own: gradients become ready evenly over
// backward, a bucket is reduced when it is full and the one before it is done, and a reduction takes alpha +
// n / beta by the fit over the job's own transfers. Reductions left when backward ends are exposed. Where all
// buckets are alike there is no fit: a large one shows the bandwidth, and a small one shows nothing. Pure.
//
// The result is a lower bound on exposure: it ignores gradients that are ready late (of a large last layer,
// all at once) and kernels that slow each other down. Checked against simulated runs with the advised size
// (tests/collector/analysis/communication/bucket_advice_test.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collector/report/communication.h"
#include "collector/report/links.h"

namespace gpuprobe::analysis {

struct GradientReduction {
  double bytes = 0;        // of a step
  double backward_ns = 0;  // in which they become ready
  double alpha_ns = 0;
  double ns_per_byte = 0;  // of the message
};
// Exposed communication per step with buckets of that size, the first one of `first_bytes` as DDP makes it.
double ExposedOfBuckets(const GradientReduction& reduction, uint64_t first_bytes, uint64_t bucket_bytes);

// Absent where too little is known: no backward, no other size, or calls that are not all-reduces.
std::optional<BucketAdvice> AdviseBuckets(const Buckets& buckets, const std::vector<LinkModel>& models,
                                          double backward_ns);

}  // namespace gpuprobe::analysis
