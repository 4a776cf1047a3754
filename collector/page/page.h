// report.html: one file that needs nothing else. It holds the page's program and styles, report.json, and the
// series of page_data.h, and makes no request to anywhere. Without scripts it shows the report's tables.
#pragma once

#include <string>
#include <string_view>

#include "collector/analysis/comparison/comparison.h"
#include "collector/model/job/job_model.h"
#include "collector/report/report.h"
#include "collector/store/run_files.h"

namespace gpuprobe::page {

// `files`: of the run, whose logs the timelines are taken from. In a build without the page's program
// (esbuild, node-d3): the tables alone.
std::string Page(const model::JobModel& job, const analysis::Report& report, const store::RunFiles& files);

// Two runs on one page.
struct ComparedJob {
  std::string name;  // of the run, as the user knows it
  const model::JobModel& job;
  const analysis::Report& report;
};
std::string ComparisonPage(const ComparedJob& a, const ComparedJob& b,
                           const analysis::Comparison& comparison);

// The page of a run without its data, for a server that has the data under /api and says when there is new
// data (collector/http): the page, and its program and styles under /page.js and /page.css.
std::string LivePage();
std::string_view LiveProgram();
std::string_view LiveStyle();

}  // namespace gpuprobe::page
