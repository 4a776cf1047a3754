// Every threshold that decides a finding, by subject. The rules and `gpuprobe help findings` both read it.
//
// Example: input-bound compares the median rank's wait for input with kInputStepShare of the mean step, and
// the help text prints the same constant as "10 %".
//
// A name ends in its unit. Shares are fractions: StepShare of the step, RankShare of the ranks, and so on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::analysis::thresholds {

// --- steps -------------------------------------------------------------------------------------------------

// Fewer steps do not describe a job.
inline constexpr uint64_t kSteadySteps = 5;
// A tenth of the step is worth a change to the data loader.
inline constexpr double kInputStepShare = 0.10;
// A tenth of the step is worth CUDA graphs or fused kernels.
inline constexpr double kLaunchStepShare = 0.10;
// A GPU runs dry again and again if it waits for launches for this share of the time from launches to starts.
inline constexpr double kRunsDryShare = 0.2;
// Where graphs launch nearly all kernels, moving the rest into them gains little.
inline constexpr double kMostKernels = 0.9;
// Capturing and instantiating a graph costs the host as much as several launches of what it contains.
inline constexpr double kGraphLaunchesWorthIt = 2;
// Synchronising calls are easy to remove, so less of the step is enough.
inline constexpr double kSyncStepShare = 0.05;
// Hosts that wait for a CPU set the pace if that explains most of the time in which GPUs are idle because of
// their hosts, and costs as much as a synchronising call that is worth removing.
inline constexpr double kStarvedIdleShare = 0.5;
inline constexpr double kStarvedStepShare = 0.05;
// Longer than launching the next work takes after a synchronising call.
inline constexpr double kWorksAfterSyncNs = 1e6;
// A program that launched fewer kernels has no loop to look for.
inline constexpr uint64_t kKernelsOfAJob = 100;
// Pinning memory is a one-line change.
inline constexpr double kPageableStepShare = 0.01;
// Well-tuned training reaches 35 % and more.
inline constexpr double kLowMfuShare = 0.30;
// A context alone takes longer to create than this on most machines, and nobody waits for less.
inline constexpr double kDriverStartupNs = 1e8;
// Slow driver calls have no place in steady steps.
inline constexpr double kDriverStepShare = 0.02;
// Where half of the run is not training, its averages say little about training.
inline constexpr double kWarmupRunShare = 0.5;

// --- level calls -------------------------------------------------------------------------------------------

// A rank is late at collectives if the job would gain this share of the time without that, ...
inline constexpr double kLateCallsShare = 0.05;
// ... and on time again below this one: what comes and goes around one limit is one event.
inline constexpr double kOnTimeCallsShare = 0.025;
// So much above the usual step is no longer the step that was: as kLongStepMedianShare.
inline constexpr double kLongerStepsShare = 0.25;

// --- long steps --------------------------------------------------------------------------------------------

// Fewer steps have no typical length.
inline constexpr uint64_t kLongStepsCompared = 8;
// A long step exceeds the median by this share of it, ...
inline constexpr double kLongStepMedianShare = 0.25;
// ... and by this many times what the shortest step falls below it: the run's ordinary spread.
inline constexpr double kLongStepSpreadRatio = 3;
// ... and by this share of what the longest one does: others are another matter.
inline constexpr double kLongStepOfLongestShare = 0.2;
// Where more of the steps are long, long is normal.
inline constexpr double kLongStepsShare = 0.15;
// Less is lost in the noise of a step's mean.
inline constexpr double kLongStepsCostStepShare = 0.02;

// --- steps that grow
// ----------------------------------------------------------------------------------------

// The run's steps are divided into so many windows, ...
inline constexpr size_t kGrowthWindows = 16;
// ... of three steps or more, so that each has a typical one.
inline constexpr size_t kGrowthSteps = 3 * kGrowthWindows;
// Mann-Kendall z-score. Load from elsewhere comes and goes, and its windows are not independent.
inline constexpr double kGrowthZScore = 4;
// A tenth of the first steps is worth a look.
inline constexpr double kGrowthShare = 0.10;
// A part that makes up this share of the growth is what it is about; ...
inline constexpr double kGrowthPartShare = 0.5;
// ... one with this share is named.
inline constexpr double kGrowthNamedShare = 0.1;

// --- memory ------------------------------------------------------------------------------------------------

// A process that ends this soon after a failed allocation ended because of it.
inline constexpr uint64_t kEndedByRefusalNs = 10'000'000'000;
// Tensors at a refusal, to the most that any step held: what is beyond is not a step's.
inline constexpr double kBeyondSteps = 1.5;
// Mann-Kendall z-score: chance gives one in 700 runs.
inline constexpr double kLeakZScore = 3;
// Caches and allocator granularity grow less than this share of the level.
inline constexpr double kLeakLevelShare = 0.01;
// Share of the whole slope that the last third of the run still shows: a leak does not stop.
inline constexpr double kStillRisingSlopeShare = 0.25;
// Fewer windows have no trend.
inline constexpr size_t kLeakWindows = 8;
// Windows whose level is higher than any before. The z-score takes levels to be independent, but an allocator
// that settles takes a block and keeps it: of three blocks taken at random, one case in three passes the
// rest.
inline constexpr size_t kLeakRises = 6;
// Ranks that grow at this share of the worst rank's rate grow alike.
inline constexpr double kLeakAlikeShare = 0.9;
// A device that is full sooner than this comes first in the report.
inline constexpr double kLeakUrgentNs = 24 * 3600e9;
// The context and loaded modules take a few percent, which the records do not show.
inline constexpr double kMemoryLeftShare = 0.08;
// Reserved to allocated: the field's usual threshold.
inline constexpr double kFragmentedRatio = 1.5;
// Less is the allocator's granularity.
inline constexpr uint64_t kFragmentedBytes = uint64_t{256} << 20;
// On another rank's GPU: less is a context's or a buffer of NCCL's.
inline constexpr uint64_t kStrayBytes = uint64_t{64} << 20;
// One GPU of a process computes for this share of the step, and as many times as long as the others: it has
// work of its own, such as an optimizer, and they idle.
inline constexpr double kBusyDeviceStepShare = 0.5;
inline constexpr double kBusyDeviceRatio = 2;
// As for PyTorch's allocator.
inline constexpr double kPoolRatio = 1.5;
// Less is a few granules of the driver's.
inline constexpr uint64_t kPoolBytes = uint64_t{256} << 20;

// --- slow ranks --------------------------------------------------------------------------------------------

// With only two ranks, either may be the odd one.
inline constexpr size_t kComparedRanks = 3;
// "Slower by 10 %" is the field's usual threshold for a straggler.
inline constexpr double kSlowKernelRatio = 1.10;
// Median and median absolute deviation: an ordinary z-score of n ranks cannot exceed sqrt(n - 1).
inline constexpr double kRobustZScore = 3.5;
// A rank is not judged if less of its kernel time can be compared.
inline constexpr double kComparedKernelTimeShare = 0.5;
// Smaller differences, relative to the median, come from the clock and the scheduler.
inline constexpr double kNoiseFloorShare = 0.01;

// --- stragglers --------------------------------------------------------------------------------------------

// Chance alone makes a rank late this often per run, whatever the number of ranks and steps.
inline constexpr double kLatePValue = 0.001;
// The steps in which a rank is late are longer by this share, ...
inline constexpr double kLateLongerStepShare = 0.025;
// ... and that costs the average step at least this share.
inline constexpr double kLateCostStepShare = 0.005;
// The steps in which a rank is late are long for all ranks if they are longer by this many times its
// lateness: what makes them long is not that rank's, and neither is their period.
inline constexpr double kLongForAllRatio = 2;
// A rank that is late in this share of its steps is persistently late.
inline constexpr double kPersistentStepsShare = 0.6;
// A rank that is late in more of its steps leaves too few others to compare them with.
inline constexpr double kComparedLateStepsShare = 0.75;
// Fewer on-time steps are no comparison.
inline constexpr uint64_t kOnTimeSteps = 3;
// A rank became late at a step if it has at least this many steps before it, ...
inline constexpr uint64_t kStepsBeforeLate = 5;
// ... and is late in at least this many since: fewer are a bad moment at the end.
inline constexpr uint64_t kLateStepsSince = 6;
// It is then late in this share of the steps since, ...
inline constexpr double kLateSinceStepsShare = 0.6;
// ... and in one of the last steps.
inline constexpr uint64_t kLastSteps = 3;
// A stretch of late steps holds this share of all of them.
inline constexpr double kStretchLateStepsShare = 0.8;
// Where steps cannot be compared (lost records, pipelines): the others wait this share of the step for a
// rank, ...
inline constexpr double kWaitedStepShare = 0.035;
// ... in this share of its steps.
inline constexpr double kBlamedStepsShare = 0.5;
// With only two ranks, the one at fault causes this many times the other's waiting.
inline constexpr double kWaitedOfTwoRatio = 3;
// A pipeline's slow stage exceeds the other stages by this much.
inline constexpr double kSlowStageStepShare = 0.05;
// A part of the step explains a delay if it accounts for this share of it.
inline constexpr double kExplainedDelayShare = 0.3;
// If more calls and threads explain this share of a rank's longer compute, it has more work, not slower work.
inline constexpr double kMoreWorkShare = 0.5;
// A kernel is as fast as elsewhere if it shows less than this share of the rank's slow-down. ...
inline constexpr double kAsFastShare = 0.25;
// ... Such kernels with this share of the time do not fit a slow GPU, ...
inline constexpr double kAsFastTimeShare = 0.1;
// ... and with this share they exclude it. Less is not enough if they are of other kinds than the slow ones:
// limits on power and clocks slow matrix products first.
inline constexpr double kMostTimeShare = 0.5;

// --- clocks of GPUs ----------------------------------------------------------------------------------------

// One look a second: fewer say little.
inline constexpr double kClockSeconds = 2;
// GPUs of one kind under one limit differ by less: a better chip needs less power for the same clock.
inline constexpr double kLowerClockRatio = 0.95;
// Of the time, above the others': looks that come by chance are fewer.
inline constexpr double kClockLimitShare = 0.05;
// Of a slowdown, by the ratio of clocks.
inline constexpr double kClockExplainsShare = 0.5;

// --- groups of ranks, and imbalance ------------------------------------------------------------------------

// One rank alone is a straggler.
inline constexpr size_t kGroupRanks = 2;
// One in this many ranks: a smaller group consists of stragglers.
inline constexpr size_t kGroupOneIn = 4;
// Gap between the groups, as a share of the slower group's own time.
inline constexpr double kGroupsApartShare = 0.05;
// Gap between the groups, relative to the widest gap within one.
inline constexpr double kGroupsApartRatio = 3;
// Share of the difference between the groups that one part of the step must explain.
inline constexpr double kGroupsExplainedShare = 0.5;
// A tenth of the step is worth balancing.
inline constexpr double kImbalanceStepShare = 0.10;
// What varies by so many times as much as all other parts of the ranks' steps is why they arrive at different
// times ...
inline constexpr double kVariesRatio = 4;
// ... if it takes at least this share of what they wait for each other.
inline constexpr double kVariesWaitShare = 0.3;
// A rank that waits for its input is not alone if half of the others wait for this share of it.
inline constexpr double kInputOfAllShare = 0.5;
// Where stragglers explain this share of the waiting, imbalance adds nothing.
inline constexpr double kStragglersExplainShare = 0.5;
// This share of the waiting beyond an equal part points to one rank.
inline constexpr double kOneRankShare = 0.5;

// --- communication -----------------------------------------------------------------------------------------

// Less exposed communication is not worth a finding.
inline constexpr double kExposedStepShare = 0.03;
// Findings about bandwidth, one large bucket and unrecorded ranks need more: their evidence is indirect.
inline constexpr double kIndirectExposedStepShare = 0.10;
// With this much exposed, communication sets the pace.
inline constexpr double kBoundStepShare = 0.20;
// With this share of the calls' time in calls with unrecorded ranks, transfers can no longer be separated
// from waiting.
inline constexpr double kUnheardTimeShare = 0.1;
// Overlap efficiency below this leaves something to gain.
inline constexpr double kPoorOverlapShare = 0.85;
// no_sync is a one-line change.
inline constexpr double kRepeatedStepShare = 0.01;
// Share of the link's peak, at large sizes: healthy links reach half and more.
inline constexpr double kSlowLinkPeakShare = 0.25;
// Share of the vendor's reference design, with one adapter per device: a host with a single adapter for eight
// devices is not called slow.
inline constexpr double kSlowReferenceShare = 0.125;
// Smaller messages do not show the bandwidth.
inline constexpr uint64_t kLargeMessageBytes = uint64_t{8} << 20;
// Transfers on a shared network vary by some tens of percent; this factor is more than that.
inline constexpr double kSlowedRatio = 2;
// Step times that change by this factor and stay so have two levels, of which a mean is neither.
inline constexpr double kStepLevelRatio = 1.03;
// Blocks on each side of a change: fewer may be a hiccup.
inline constexpr size_t kSlowedBlocks = 3;
// Share of the blocks that lie on their own side of the border between the two levels.
inline constexpr double kSlowedOnItsSideShare = 0.9;
// PyTorch's bucket_cap_mb, unless somebody sets it.
inline constexpr uint64_t kUsualBucketBytes = uint64_t{25} << 20;
// A larger bucket cannot overlap what fills it.
inline constexpr uint64_t kHugeBucketBytes = uint64_t{128} << 20;
// The largest bucket's share of the bytes reduced per step.
inline constexpr double kHugeBucketBytesShare = 0.5;
// Calls per step: fewer do not add up to much latency.
inline constexpr double kTinyBucketCalls = 32;
// Mean size of these calls: in smaller ones, latency dominates.
inline constexpr uint64_t kTinyBucketBytes = uint64_t{4} << 20;
// Share of the transfer time in these calls.
inline constexpr double kTinyBucketTimeShare = 0.5;
// A tenth of the step is worth another schedule.
inline constexpr double kBubbleStepShare = 0.1;
// A bubble this many times the ideal one comes from unequal stages.
inline constexpr double kUnevenBubbleRatio = 1.3;

// --- ends and stops of ranks -------------------------------------------------------------------------------

// Ranks that one signal, or one launcher, ends together are gone within this time of each other.
inline constexpr uint64_t kEndedTogetherNs = 2'000'000'000;
// The collector looks for ends five times per second.
inline constexpr uint64_t kSeenTogetherNs = 400'000'000;
// Work launched before a collective excuses it for this many times the limit: longer than a kernel runs, and
// its record may have been lost.
inline constexpr uint64_t kHangExcuses = 5;
// A job without work is compared with the longest pause that it has made before, times this: a checkpoint or
// an evaluation takes about as long each time.
inline constexpr uint64_t kNoWorkPauses = 3;
// A job trains if it has made so many steps, after the warm-up, that go backward or update weights.
inline constexpr uint64_t kTrainingSteps = 3;
// How long before the limit to ask for records that may be held back: a process hears a request within two
// and a half seconds (its batches are two seconds apart, and it flushes twice a second).
inline constexpr uint64_t kHangAskBeforeNs = 5'000'000'000;
// How long to wait for them: 4 s on a quiet host, much more on a busy one. A probe that cannot answer does
// not keep a hang secret.
inline constexpr uint64_t kHangAnswerNs = 16'000'000'000;
// The ranks of one call report it within this time of each other.
inline constexpr uint64_t kHangHeardWithinNs = 3'000'000'000;
// A connected process sends something every two seconds, whatever it does.
inline constexpr uint64_t kHangSilentNs = 10'000'000'000;
// A rank that dies this much later than a hang begins is a consequence of the hang.
inline constexpr uint64_t kDeathAfterHangNs = 1'000'000'000;
// A stop that a single observation saw may have been a moment.
inline constexpr uint64_t kStopNs = 1'000'000'000;

// --- capture -----------------------------------------------------------------------------------------------

// A tenth of the processes' time distorts what is measured.
inline constexpr double kCostlyTimeShare = 0.10;
// The estimate for graph nodes is an upper bound, so more of it is needed.
inline constexpr double kGraphNodesTimeShare = 0.25;
// Share of the nodes without valid times: totals are then visibly low.
inline constexpr double kInvalidNodesShare = 0.01;
// One in this many records may be late: that is the noise of a busy machine.
inline constexpr uint64_t kLateRecordsOneIn = 1000;
// More than slewing moves a clock between two batches.
inline constexpr int64_t kClockStepNs = 1'000'000;

// Of the calls of a job that was stopped: what its processes had not sent yet is half a second's.
inline constexpr uint64_t kStoppedCallsOneIn = 10;

// --- options -----------------------------------------------------------------------------------------------

// No device exceeds its peak.
inline constexpr double kMostMfuShare = 1;
// In-network reduction carries a little more than the links do.
inline constexpr double kMostLinkPeakShare = 1.1;

}  // namespace gpuprobe::analysis::thresholds
