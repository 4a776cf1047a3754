#include "collector/framing/frame_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "proto/limits.h"

namespace gpuprobe::framing {
namespace {

std::vector<std::string> TakeAll(FrameDecoder& decoder) {
  std::vector<std::string> frames;
  while (true) {
    auto next = decoder.Take();
    EXPECT_TRUE(next.ok()) << next.status();
    if (!next.ok() || !next->has_frame) return frames;
    frames.emplace_back(next->frame);
  }
}

TEST(FrameDecoder, TakesFramesHoweverTheBytesAreCut) {
  const std::vector<std::string> frames{"", "a", std::string(127, 'b'), std::string(128, 'c'),
                                        std::string(70000, 'd')};
  std::string stream;
  for (const std::string& frame : frames) AppendDelimited(frame, stream);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{1000}, stream.size()}) {
    FrameDecoder decoder;
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.Append(std::string_view(stream).substr(at, piece));
      for (std::string& frame : TakeAll(decoder)) got.push_back(std::move(frame));
    }
    EXPECT_EQ(got, frames) << "pieces of " << piece;
    EXPECT_EQ(decoder.buffered(), 0u);
  }
}

TEST(FrameDecoder, WaitsForTheRestOfAFrame) {
  FrameDecoder decoder;
  decoder.Append(
      "\x05"
      "abc");
  auto next = decoder.Take();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->has_frame);
  EXPECT_EQ(decoder.buffered(), 4u);
  decoder.Append("de");
  next = decoder.Take();
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->frame, "abcde");
}

TEST(FrameDecoder, RefusesAClaimOf4GiBWithoutTakingMemoryForIt) {
  FrameDecoder decoder;
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  decoder.Append(std::string_view("\x80\x80\x80\x80\x10", 5));
  EXPECT_EQ(decoder.Take().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(mallinfo2().uordblks + mallinfo2().hblkhd, before + 65536);
}

// Whoever bounds the memory of unfinished frames can add up their lengths, however their bytes arrive.
TEST(FrameDecoder, HoldsNoMoreThanTheFrameThatItWaitsFor) {
  std::string bytes;
  AppendDelimited(std::string(1'000'000, 'x'), bytes);
  for (const size_t part : {997u, 65'536u, 212'992u, 262'144u, 700'000u}) {
    FrameDecoder decoder;
    for (size_t at = 0; at < bytes.size(); at += part) {
      decoder.Append(std::string_view(bytes).substr(at, part));
      const auto next = decoder.Take();
      ASSERT_TRUE(next.ok());
      EXPECT_EQ(next->has_frame, at + part >= bytes.size()) << part;
      EXPECT_LE(decoder.held(), bytes.size()) << part << " at " << at;
    }
  }
}

TEST(FrameDecoder, RefusesAnythingAboveTheLimitAndAcceptsTheLimitItself) {
  std::string at_limit;
  AppendDelimited(std::string(wire::kMaxFrameBytes, 'x'), at_limit);
  FrameDecoder decoder;
  decoder.Append(at_limit);
  auto next = decoder.Take();
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->frame.size(), wire::kMaxFrameBytes);

  uint64_t length = wire::kMaxFrameBytes + 1;
  std::string above;
  for (; length >= 0x80; length >>= 7) above.push_back(static_cast<char>((length & 0x7f) | 0x80));
  above.push_back(static_cast<char>(length));
  FrameDecoder other;
  other.Append(above);
  EXPECT_FALSE(other.Take().ok());
}

TEST(FrameDecoder, RefusesALengthThatDoesNotEndAndStaysRefused) {
  FrameDecoder decoder;
  decoder.Append(std::string(10, '\x80'));
  EXPECT_FALSE(decoder.Take().ok());
  decoder.Append("more");
  EXPECT_FALSE(decoder.Take().ok());
}

}  // namespace
}  // namespace gpuprobe::framing
