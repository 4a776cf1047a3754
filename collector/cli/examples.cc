#include "collector/cli/examples.h"

#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {
namespace {

constexpr Example kExamples[] = {
    {"run", "gpuprobe run -- torchrun --nproc-per-node 8 train.py",
     "Record a job, and say what is wrong with it when it ends"},
    {"run", "gpuprobe run --http -- python3 train.py", "Watch it in a browser meanwhile"},
    {"run", "gpuprobe run --step-marker nvtx:step --start-step 2 --stop-step 4 -- python3 train.py",
     "Record two steps only, which the program marks with an NVTX range"},
    {"run", "gpuprobe run --level idle -- python3 train.py",
     "Record nothing until gpuprobe capture asks for some steps"},
    {"doctor", "gpuprobe doctor", "What this host allows, before a job starts"},
    {"doctor", "gpuprobe doctor -- torchrun --nproc-per-node 8 train.py",
     "What will be recorded of a command"},
    {"doctor", "gpuprobe doctor PID", "What is recorded of a program that runs, and what can still be seen"},
    {"attach", "gpuprobe attach PID --for 30s", "Half a minute of a program that runs already"},
    {"attach", "gpuprobe attach $(pgrep -f train.py) --out my-run",
     "All ranks of a job on this host, until Ctrl-C"},
    {"detach", "gpuprobe detach DIR", "End that recording from another terminal"},
    {"capture", "gpuprobe capture DIR --steps 5",
     "Five steps of a job that runs at level idle, the same on all ranks"},
    {"capture", "gpuprobe capture PID --seconds 2", "Two seconds of a program whose steps are not known"},
    {"collect", "gpuprobe collect --out my-run", "Record whatever runs under the library, until Ctrl-C"},
    {"hub", "gpuprobe hub --out all-jobs",
     "Record the hosts of all jobs that name this one (GPUPROBE_HUB=HOST), until Ctrl-C"},
    {"jobs", "gpuprobe jobs http://n3:9460", "The jobs of the hub on n3, which was started with --http"},
    {"runs", "gpuprobe runs", "What was recorded in this folder"},
    {"report", "gpuprobe report", "What stood out in the newest run, and the tables"},
    {"report", "gpuprobe report DIR", "The same of a run that is named"},
    {"report", "gpuprobe report --step 3",
     "Where the time of one step went, and what took longer in it than usual"},
    {"report", "gpuprobe report DIR --json", "For programs"},
    {"report", "gpuprobe report DIR --serve", "The page in a browser, with metrics and a JSON API"},
    {"autopsy", "gpuprobe autopsy DIR", "The last call, range and line of each process that was killed"},
    {"diff", "gpuprobe diff BEFORE AFTER", "What changed between two runs"},
    {"diff", "gpuprobe diff BEFORE AFTER --fail-above 3",
     "In CI: exit status 3 if steps take 3 % longer, beyond chance"},
    {"top", "gpuprobe top", "The job that is being recorded below this folder"},
    {"look", "gpuprobe look", "Which rank of a job that hangs is behind, and in which line"},
    {"look", "gpuprobe look PID --native", "The job of one process, with functions of C and C++"},
    {"stacks", "gpuprobe stacks",
     "What each rank of the job that is being recorded does now, the odd ones first"},
    {"stacks", "gpuprobe stacks PID", "Every thread of any Python program"},
    {"trace", "gpuprobe trace DIR -o run.pftrace", "A timeline for https://ui.perfetto.dev"},
    {"trace", "gpuprobe trace DIR -o traces --format chrome --steps 3:5",
     "Two steps for the tools that read PyTorch's traces"},
    {"export", "gpuprobe export DIR --format sqlite -o run.sqlite", "All records and tables as a database"},
    {"export", "gpuprobe export DIR --format steps", "Seconds of each step and phase, one line each"},
    {"query", "gpuprobe query DIR \"SELECT name, COUNT(*) AS calls FROM kernel GROUP BY name\"",
     "How often each kernel ran"},
    {"query", "gpuprobe query \"SELECT * FROM step LIMIT 5\"", "The first steps of the newest run"},
    {"query", "gpuprobe query DIR --schema", "List the tables and views"},
    {"simulate", "gpuprobe simulate --scenario straggler-kernels --ranks 8 --out my-run",
     "A run to try the other commands on"},
    {"simulate", "gpuprobe simulate --cluster --jobs 12 --out my-day",
     "A day of twelve jobs, for gpuprobe hub --out my-day"},
};

}  // namespace

std::vector<Example> ExamplesOf(std::string_view command) {
  std::vector<Example> examples;
  for (const Example& example : kExamples) {
    if (command == example.command) examples.push_back(example);
  }
  return examples;
}

std::string ExamplesText(std::string_view command) {
  std::string out;
  for (const Example& example : ExamplesOf(command))
    absl::StrAppend(&out, out.empty() ? "Examples:\n" : "", "  ", example.meaning, ":\n    ", example.line,
                    "\n");
  return out;
}

}  // namespace gpuprobe::cli
