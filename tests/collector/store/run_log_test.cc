#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <random>
#include <sstream>

#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "collector/store/run_log_label.h"
#include "collector/store/run_log_reader.h"
#include "collector/store/run_log_writer.h"
#include "tests/collector/testing/batch_builder.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::store {
namespace {

using gpuprobe::testing::kSecond;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;
using gpuprobe::testing::TempDir;
using gpuprobe::testing::TrainingRank;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<RunLogWriter>> CreateLog(const std::filesystem::path& path) {
  return RunLogWriter::Create(*Directory::Make(path.parent_path()), path.filename(), "test", kStart);
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

// A chunk for every `frames_per_chunk` frames.
void WriteLog(const std::string& path, const std::vector<v1::Frame>& frames, size_t frames_per_chunk) {
  auto writer = CreateLog(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  size_t n = 0;
  for (const v1::Frame& frame : frames) {
    ASSERT_TRUE((*writer)->Append(frame.SerializeAsString(), 0).ok());
    if (++n % frames_per_chunk == 0) {
      ASSERT_TRUE((*writer)->Flush().ok());
    }
  }
}

struct Read {
  std::vector<std::string> frames;
  std::optional<Damage> damage;
};

Read ReadLog(std::string_view bytes, bool passes_over = false) {
  Read read;
  RunLogReader reader("rank-0.gpr", bytes);
  reader.PassOver(passes_over);
  v1::Frame frame;
  std::string_view raw;
  while (reader.Next(frame, raw)) read.frames.emplace_back(raw);
  read.damage = reader.damage();
  return read;
}

std::vector<std::string> Bytes(const std::vector<v1::Frame>& frames) {
  std::vector<std::string> out;
  for (const v1::Frame& frame : frames) out.push_back(frame.SerializeAsString());
  return out;
}

class RunLogTest : public ::testing::Test {
 protected:
  TempDir dir_;
  std::string path_ = dir_.File("rank-0.gpr");
  std::vector<v1::Frame> frames_ = TrainingRank(0, 1, 6);
};

TEST_F(RunLogTest, GivesBackTheFramesAsTheyCame) {
  WriteLog(path_, frames_, 2);
  const std::string bytes = ReadAll(path_);
  const Read read = ReadLog(bytes);
  EXPECT_FALSE(read.damage.has_value());
  EXPECT_EQ(read.frames, Bytes(frames_));
}

TEST_F(RunLogTest, CutAtAnyByteGivesEverythingBeforeTheCutChunk) {
  WriteLog(path_, frames_, 2);
  const std::string bytes = ReadAll(path_);
  const std::vector<std::string> whole = Bytes(frames_);
  size_t most = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Read read = ReadLog(std::string_view(bytes).substr(0, size));
    ASSERT_LE(read.frames.size(), whole.size());
    EXPECT_TRUE(std::equal(read.frames.begin(), read.frames.end(), whole.begin())) << size;
    EXPECT_GE(read.frames.size(), most) << "a longer file gives no less";
    most = std::max(most, read.frames.size());
    // Between two chunks a file ends well; anywhere else it must say so.
    if (!read.damage.has_value()) {
      EXPECT_EQ(read.frames.size() % 2, 0u) << size;
    } else {
      EXPECT_LE(read.damage->byte, size);
    }
  }
  EXPECT_GE(most, whole.size() - 2);
}

TEST_F(RunLogTest, AFlippedBitIsNeverReadAsData) {
  WriteLog(path_, frames_, 2);
  const std::string bytes = ReadAll(path_);
  const std::vector<std::string> whole = Bytes(frames_);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const Read read = ReadLog(damaged);
    ASSERT_LE(read.frames.size(), whole.size()) << at;
    EXPECT_TRUE(std::equal(read.frames.begin(), read.frames.end(), whole.begin())) << at;
    EXPECT_TRUE(read.damage.has_value() || read.frames == whole) << "silent loss, byte " << at;
  }
}

TEST_F(RunLogTest, NamesAWrongChecksumAndItsPlace) {
  WriteLog(path_, frames_, 2);
  std::string bytes = ReadAll(path_);
  bytes[bytes.size() - 1] ^= 1;  // the last chunk's checksum
  const Read read = ReadLog(bytes);
  ASSERT_TRUE(read.damage.has_value());
  EXPECT_EQ(read.damage->what, "bad checksum");
  EXPECT_GT(read.damage->byte, 0u);
  EXPECT_GT(read.damage->after_s, 0);
}

// Frames of which one in three stands apart.
class ApartTest : public RunLogTest {
 protected:
  void SetUp() override {
    auto writer = CreateLog(path_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (size_t i = 0; i < frames_.size(); ++i) {
      const std::string frame = frames_[i].SerializeAsString();
      ASSERT_TRUE((i % 3 == 2 ? (*writer)->AppendApart(frame) : (*writer)->Append(frame, 0)).ok());
      whole_.push_back(frame);
      if (i % 3 != 2) others_.push_back(frame);
    }
    ASSERT_TRUE((*writer)->Flush().ok());
    EXPECT_EQ((*writer)->file_bytes(), std::filesystem::file_size(path_));
    bytes_ = ReadAll(path_);
  }

  std::vector<std::string> whole_;
  std::vector<std::string> others_;
  std::string bytes_;
};

TEST_F(ApartTest, IsReadInItsPlaceOrPassedOver) {
  const Read all = ReadLog(bytes_);
  EXPECT_FALSE(all.damage.has_value());
  EXPECT_EQ(all.frames, whole_);
  const Read some = ReadLog(bytes_, true);
  EXPECT_FALSE(some.damage.has_value());
  EXPECT_EQ(some.frames, others_);
}

TEST_F(ApartTest, CutAnywhereItIsDamageFromItsLabelOn) {
  for (const bool passes_over : {false, true}) {
    const std::vector<std::string>& expected = passes_over ? others_ : whole_;
    for (size_t size = 0; size < bytes_.size(); ++size) {
      const std::string_view cut = std::string_view(bytes_).substr(0, size);
      const Read read = ReadLog(cut, passes_over);
      ASSERT_LE(read.frames.size(), expected.size());
      EXPECT_TRUE(std::equal(read.frames.begin(), read.frames.end(), expected.begin())) << size;
      // Both readers find the damage at the same byte.
      const std::optional<Damage> other = ReadLog(cut, !passes_over).damage;
      ASSERT_EQ(read.damage.has_value(), other.has_value()) << size;
      if (other.has_value()) {
        EXPECT_EQ(read.damage->byte, other->byte) << size;
      }
    }
  }
}

TEST_F(ApartTest, AFlippedBitIsNeverReadAsData) {
  for (size_t at = 0; at < bytes_.size(); ++at) {
    std::string damaged = bytes_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const Read read = ReadLog(damaged);
    EXPECT_TRUE(std::equal(read.frames.begin(), read.frames.end(), whole_.begin())) << at;
    EXPECT_TRUE(read.damage.has_value() || read.frames == whole_) << "silent loss, byte " << at;
  }
}

TEST_F(ApartTest, WhatIsHalfWrittenIsPassedOverOnceItIsWhole) {
  const size_t label = bytes_.find(LabelOf(0).substr(0, 8));
  ASSERT_NE(label, std::string::npos);
  for (const size_t half : {label + 5, label + kLabelBytes, label + kLabelBytes + 9}) {
    std::ofstream(path_, std::ios::binary) << bytes_.substr(0, half);
    std::unique_ptr<MappedFile> file = *MappedFile::Open(path_);
    RunLogReader reader("rank-0.gpr", *file);
    reader.PassOver(true);
    v1::Frame frame;
    std::string_view raw;
    std::vector<std::string> read;
    while (reader.Next(frame, raw)) read.emplace_back(raw);
    ASSERT_TRUE(reader.damage().has_value());
    EXPECT_EQ(reader.damage()->what, "cut off");
    std::ofstream(path_, std::ios::binary) << bytes_;
    const std::unique_ptr<MappedFile> grown = *MappedFile::Open(path_);
    reader.GoOn(*grown);
    while (reader.Next(frame, raw)) read.emplace_back(raw);
    EXPECT_FALSE(reader.damage().has_value());
    EXPECT_EQ(read, others_);
  }
}

// A log of many pages, so that the rest of the last page does not hide the end of the file.
class RunLogFileTest : public RunLogTest {
 protected:
  void SetUp() override {
    std::mt19937 random(1);
    for (int i = 0; i < 40; ++i) {
      std::string noise(20'000, '\0');
      for (char& c : noise) c = static_cast<char>(random());
      frames_.emplace_back().mutable_model_state()->set_part(noise);
    }
    WriteLog(path_, frames_, 2);
    auto opened = MappedFile::Open(path_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    file_ = *std::move(opened);
  }

  Read ReadFile(size_t cut_after, size_t to_bytes) {
    Read read;
    RunLogReader reader("rank-0.gpr", *file_);
    v1::Frame frame;
    std::string_view raw;
    while (reader.Next(frame, raw)) {
      read.frames.emplace_back(raw);
      if (read.frames.size() == cut_after) std::filesystem::resize_file(path_, to_bytes);
    }
    read.damage = reader.damage();
    return read;
  }

  std::unique_ptr<MappedFile> file_;
};

TEST_F(RunLogFileTest, AFileIsReadAsItsBytesAre) {
  const Read read = ReadFile(0, 0);
  EXPECT_FALSE(read.damage.has_value());
  EXPECT_EQ(read.frames, Bytes(frames_));
  EXPECT_EQ(file_->Read(file_->size() - 3, 100), ReadAll(path_).substr(file_->size() - 3));
  EXPECT_EQ(file_->Read(file_->size(), 1), "");
}

TEST_F(RunLogFileTest, AFileThatIsRemovedMeanwhileIsReadToItsEnd) {
  std::filesystem::remove(path_);
  EXPECT_EQ(ReadFile(0, 0).frames, Bytes(frames_));
}

TEST_F(RunLogFileTest, AFileThatIsCutOffMeanwhileIsDamagedFromThereOn) {
  const std::vector<std::string> whole = Bytes(frames_);
  const std::string bytes = ReadAll(path_);
  const size_t size = bytes.size();
  for (const size_t rest : {size - 1, size / 2, size_t{4096}, size_t{1}, size_t{0}}) {
    std::ofstream(path_, std::ios::binary) << bytes;
    const Read read = ReadFile(2, rest);
    ASSERT_TRUE(read.damage.has_value()) << rest;
    EXPECT_EQ(read.damage->what, "became shorter while it was read");
    EXPECT_GE(read.frames.size(), 2u);
    EXPECT_TRUE(std::equal(read.frames.begin(), read.frames.end(), whole.begin()));
  }
}

TEST_F(RunLogTest, TextAndNoiseAreNoLogs) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "this is not a log\n";
  EXPECT_TRUE(ReadLog(text).damage.has_value());
  EXPECT_TRUE(ReadLog("").damage.has_value());
  EXPECT_TRUE(ReadLog(std::string(1000, '\0')).damage.has_value());
}

TEST_F(RunLogTest, AnotherMajorVersionIsRefusedByName) {
  v1::Frame header;
  header.mutable_file_header()->set_protocol_major(9);
  // The writer puts its own header first; a second one stands for a file of the future.
  frames_.insert(frames_.begin(), header);
  WriteLog(path_, frames_, 100);
  const std::string bytes = ReadAll(path_);
  const Read read = ReadLog(bytes);
  ASSERT_TRUE(read.damage.has_value());
  EXPECT_THAT(read.damage->what, HasSubstr("protocol 9.0"));
}

TEST_F(RunLogTest, WritesWhatIsASecondOldOrAMegabyteLarge) {
  auto writer = CreateLog(path_);
  ASSERT_TRUE(writer.ok());
  const std::string frame = frames_[1].SerializeAsString();
  ASSERT_TRUE((*writer)->Append(frame, 5 * kSecond).ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  const auto size = [&] { return std::filesystem::file_size(path_); };
  const auto before = size();
  ASSERT_TRUE((*writer)->Append(frame, 10 * kSecond).ok());
  ASSERT_TRUE((*writer)->FlushIfDue(10 * kSecond + RunLogWriter::kMaxAgeNs - 1).ok());
  EXPECT_EQ(size(), before);
  ASSERT_TRUE((*writer)->FlushIfDue(10 * kSecond + RunLogWriter::kMaxAgeNs).ok());
  const auto after = size();
  EXPECT_GT(after, before);
  for (size_t bytes = 0; bytes < RunLogWriter::kChunkBytes; bytes += frame.size()) {
    ASSERT_TRUE((*writer)->Append(frame, 20 * kSecond).ok());
  }
  EXPECT_GT(size(), after);
}

// A limit on file size stands for a full disk.
TEST_F(RunLogTest, AFullDiskEndsRecordingAndCountsWhatIsMissing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  auto writer = CreateLog(path_);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(frames_[0].SerializeAsString(), 0).ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  std::mt19937_64 random(5);
  std::string noise(RunLogWriter::kChunkBytes - 1000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  rlimit small = unlimited;
  small.rlim_cur = noise.size() / 2;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ASSERT_TRUE((*writer)->Append(noise, 0).ok());
  const absl::Status failed = (*writer)->Flush();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  EXPECT_FALSE(failed.ok());
  EXPECT_TRUE((*writer)->Append(frames_[1].SerializeAsString(), 0).ok()) << "said once";
  EXPECT_EQ((*writer)->unrecorded_frames(), 2u);
  writer->reset();
  const std::string bytes = ReadAll(path_);
  const Read read = ReadLog(bytes);
  EXPECT_FALSE(read.damage.has_value()) << "cut back to its last good chunk";
  EXPECT_EQ(read.frames.size(), 1u);
}

TEST_F(RunLogTest, ReplayFeedsTheModelAndNamesDamage) {
  for (int rank = 0; rank < 3; ++rank) {
    WriteLog(dir_.File("rank-" + std::to_string(rank) + ".gpr"), TrainingRank(rank, 3, 20), 5);
  }
  std::filesystem::resize_file(dir_.File("rank-1.gpr"),
                               std::filesystem::file_size(dir_.File("rank-1.gpr")) * 2 / 3);
  model::JobModel job;
  const auto replayed = Replay(dir_.path(), job);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  const std::vector<Damage>& damages = replayed->damages;
  ASSERT_EQ(damages.size(), 1u);
  EXPECT_EQ(damages.front().file, "rank-1.gpr");
  EXPECT_EQ(damages.front().what, "cut off");
  ASSERT_EQ(job.processes().size(), 3u);
  for (const auto& process : job.processes()) {
    if (process->identity().rank() == 1) {
      EXPECT_GT(process->totals().kernels, 0u);
      EXPECT_LT(process->totals().kernels, 80u);
      EXPECT_EQ(process->end_state(), model::EndState::kCutOff);
    } else {
      EXPECT_EQ(process->totals().kernels, 80u);
      EXPECT_EQ(process->end_state(), model::EndState::kSaidBye);
    }
  }
}

TEST_F(RunLogTest, NamesOfLogs) {
  const Directory directory = *Directory::Make(dir_.path());
  v1::Identity id = MakeHello(3, 4, 77).identity();
  EXPECT_EQ(LogName(directory, id), "rank-3");
  EXPECT_EQ(LogName(directory, id, {"rank-3"}), "rank-3-77");
  std::ofstream(dir_.File("rank-3.gpr")) << "x";
  EXPECT_EQ(LogName(directory, id), "rank-3-77");
  id = MakeHello(-1, 0, 77).identity();
  EXPECT_EQ(LogName(directory, id), "pid-77");
}

TEST(RunDirectory, DefaultNameHasTheTimeAndTheProgram) {
  EXPECT_EQ(DefaultRunDirectory("train", 1'795'197'662'000'000'000), "gpuprobe-runs/20261120T180102Z-train");
  EXPECT_THAT(DefaultRunDirectory("../a b", kStart), ::testing::EndsWith("Z-_a_b"));
}

TEST(RunDirectory, ARunIsCalledAfterItsScriptOrProgram) {
  v1::Identity id;
  id.set_executable("/usr/bin/ddp_train");
  EXPECT_EQ(RunName(id), "ddp_train");
  id.set_executable("/opt/venv/bin/python3.11");
  for (const char* argument : {"python", "-u", "/work/train.py", "--lr"}) id.add_command_line(argument);
  EXPECT_EQ(RunName(id), "train");
}

TEST(RunDirectory, RefusesWhatIsNoRunDirectory) {
  const TempDir dir;
  EXPECT_EQ(ListRun(dir.File("nowhere")).status().code(), absl::StatusCode::kNotFound);
  const auto empty = ListRun(dir.path());
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("is not a run directory"));
  std::ofstream(dir.File("file")) << "x";
  EXPECT_FALSE(ListRun(dir.File("file")).ok());
}

TEST(RunDirectory, RefusesToRecordOverARunOrWhereItCannotWrite) {
  const TempDir dir;
  EXPECT_TRUE(PrepareRunDirectory(dir.File("new/deep")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(dir.File("new/deep")));
  std::ofstream(dir.File("rank-0.gpr")) << "x";
  EXPECT_EQ(PrepareRunDirectory(dir.path()).status().code(), absl::StatusCode::kAlreadyExists);
  const absl::Status unwritable = PrepareRunDirectory("/dev/null/out").status();
  EXPECT_THAT(std::string(unwritable.message()), HasSubstr("/dev/null/out"));
}

}  // namespace
}  // namespace gpuprobe::store
