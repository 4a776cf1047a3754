// Every call of NVTX's core interface, through its real headers, into our handlers.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <thread>

#include "injector/base/losses.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/handlers.h"
#include "injector/capture/nvtx/names.h"
#include "injector/core/self_report.h"
#include "tests/injector/live_probe.h"

// NVTX calls this on its first use, when no library is named in the environment.
const bool kPlaced = [] {
  InitializeInjectionNvtx2_fnptr = gpuprobe::injector::nvtx::PlaceHandlers;
  return true;
}();

namespace gpuprobe::injector::nvtx {
namespace {

nvtxEventAttributes_t Attributes(const char* text, uint32_t category = 0) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = category;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text;
  return attributes;
}

class Nvtx : public LiveProbe {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kPlaced);
    LiveProbe::SetUp();
  }

  // Opened ranges' names, in order.
  static std::string Names(const std::vector<SeenEvent>& events) {
    std::string names;
    for (const SeenEvent& event : events) {
      if (event.type != EventType::kRangeOpen && event.type != EventType::kMark) continue;
      names += (names.empty() ? "" : " ") + event.text;
    }
    return names;
  }
};

TEST_F(Nvtx, PushAndPopReturnTheLevelAndBecomeARange) {
  EXPECT_EQ(nvtxRangePushA("outer"), 0);
  EXPECT_EQ(nvtxRangePushA("inner"), 1);
  EXPECT_EQ(nvtxRangePop(), 1);
  EXPECT_EQ(nvtxRangePop(), 0);
  const auto events = Events();
  const auto opened = Only<RangeOpenEvent>(events);
  const auto closed = Only<RangeCloseEvent>(events);
  ASSERT_EQ(opened.size(), 2u);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_EQ(Names(events), "outer inner");
  EXPECT_EQ(opened[0].parent_id, 0u);
  EXPECT_EQ(opened[1].parent_id, opened[0].id);
  EXPECT_EQ(closed[0].id, opened[1].id);
  EXPECT_EQ(closed[1].id, opened[0].id);
  EXPECT_GE(closed[1].time_ns, opened[0].time_ns);
  EXPECT_EQ(opened[0].kind, static_cast<uint16_t>(wire::RangeKind::kRangeKindPushPop));
  EXPECT_EQ(opened[0].name_bytes, 5u);
}

TEST_F(Nvtx, EverySpellingOfTextArrives) {
  nvtxRangePushW(L"wide");
  nvtxRangePop();
  nvtxEventAttributes_t attributes = Attributes("attributes", 42);
  nvtxRangePushEx(&attributes);
  nvtxRangePop();
  attributes.messageType = NVTX_MESSAGE_TYPE_UNICODE;
  attributes.message.unicode = L"\u00e4\u20ac\U0001f680";
  nvtxRangePushEx(&attributes);
  nvtxRangePop();
  nvtxRangePushEx(nullptr);
  nvtxRangePop();
  nvtxRangePushA(nullptr);
  nvtxRangePop();
  const auto events = Events();
  EXPECT_EQ(Names(events), "wide attributes \xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80  ");
  EXPECT_EQ(Only<RangeOpenEvent>(events)[1].category, 42u);
}

TEST_F(Nvtx, WhatIsNoCharacterIsReplaced) {
  const wchar_t wide[] = {L'a', static_cast<wchar_t>(0xd800), static_cast<wchar_t>(0x110000), L'b', L'\0'};
  nvtxMarkW(wide);
  EXPECT_EQ(Events()[0].text,
            "a\xef\xbf\xbd\xef\xbf\xbd"
            "b");
}

TEST_F(Nvtx, LongNamesAreCutAtAWholeCharacter) {
  const std::string euro = "\xe2\x82\xac";
  for (size_t before = 250; before <= kMaxNameBytes; ++before) {
    nvtxMarkA((std::string(before, 'x') + euro + euro).c_str());
    const size_t whole = (kMaxNameBytes - before) / 3;
    std::string expected(before, 'x');
    for (size_t i = 0; i < whole && i < 2; ++i) expected += euro;
    EXPECT_EQ(Events()[0].text, expected) << before;
  }
  nvtxMarkA(std::string(300, '\x80').c_str());  // no text: cut where it is
  EXPECT_EQ(Events()[0].text.size(), size_t{kMaxNameBytes});
}

TEST_F(Nvtx, LongNamesAreCut) {
  const std::string name(5000, 'x');
  nvtxRangePushA(name.c_str());
  nvtxRangePop();
  const std::wstring wide(5000, L'\u20ac');
  nvtxRangePushW(wide.c_str());
  nvtxRangePop();
  const auto events = Events();
  EXPECT_EQ(events[0].text, std::string(kMaxNameBytes, 'x'));
  EXPECT_EQ(events[2].text.size(), kMaxNameBytes / 3 * 3u) << "whole characters";
}

TEST_F(Nvtx, StartedRangesEndInAnyOrderAndOnAnyThread) {
  const nvtxRangeId_t first = nvtxRangeStartA("first");
  const nvtxRangeId_t second = nvtxRangeStartW(L"second");
  nvtxEventAttributes_t attributes = Attributes("third");
  const nvtxRangeId_t third = nvtxRangeStartEx(&attributes);
  nvtxRangeEnd(first);
  std::thread([second] { nvtxRangeEnd(second); }).join();
  nvtxRangeEnd(third);
  const auto events = Events();
  EXPECT_EQ(Names(events), "first second third");
  EXPECT_EQ(Only<RangeCloseEvent>(events).size(), 3u);
  EXPECT_EQ(Only<RangeOpenEvent>(events)[0].kind, static_cast<uint16_t>(wire::RangeKind::kRangeKindStartEnd));
}

TEST_F(Nvtx, MarksHaveTheirTextAndTheRangeAroundThem) {
  nvtxRangePushA("step");
  nvtxMarkA("a");
  nvtxMarkW(L"w");
  nvtxEventAttributes_t attributes = Attributes("ex", 3);
  nvtxMarkEx(&attributes);
  nvtxRangePop();
  const auto events = Events();
  const auto marks = Only<MarkEvent>(events);
  ASSERT_EQ(marks.size(), 3u);
  EXPECT_EQ(Names(events), "step a w ex");
  EXPECT_EQ(marks[0].parent_id, Only<RangeOpenEvent>(events)[0].id);
  EXPECT_EQ(marks[2].category, 3u);
}

TEST_F(Nvtx, DomainsHaveNamesAndStacksOfTheirOwn) {
  const nvtxDomainHandle_t one = nvtxDomainCreateA("library.one");
  const nvtxDomainHandle_t two = nvtxDomainCreateW(L"library.two");
  EXPECT_NE(one, two);
  EXPECT_EQ(nvtxDomainCreateA("library.one"), one) << "a name is one domain";
  EXPECT_EQ(DomainName(reinterpret_cast<uint64_t>(one)), "library.one");
  EXPECT_EQ(DomainName(reinterpret_cast<uint64_t>(two)), "library.two");
  EXPECT_EQ(DomainName(0), "");

  nvtxEventAttributes_t attributes = Attributes("work");
  EXPECT_EQ(nvtxDomainRangePushEx(one, &attributes), 0);
  EXPECT_EQ(nvtxRangePushA("default"), 0);
  EXPECT_EQ(nvtxDomainRangePushEx(one, &attributes), 1);
  EXPECT_EQ(nvtxDomainRangePushEx(two, &attributes), 0);
  // Interleaved, as libraries do it.
  EXPECT_EQ(nvtxDomainRangePop(one), 1);
  EXPECT_EQ(nvtxRangePop(), 0);
  EXPECT_EQ(nvtxDomainRangePop(two), 0);
  EXPECT_EQ(nvtxDomainRangePop(one), 0);
  const auto events = Events();
  const auto opened = Only<RangeOpenEvent>(events);
  const auto closed = Only<RangeCloseEvent>(events);
  ASSERT_EQ(opened.size(), 4u);
  ASSERT_EQ(closed.size(), 4u);
  EXPECT_EQ(opened[0].domain, reinterpret_cast<uint64_t>(one));
  EXPECT_EQ(opened[1].domain, 0u);
  EXPECT_EQ(closed[0].id, opened[2].id);
  EXPECT_EQ(closed[1].id, opened[1].id);
  EXPECT_EQ(closed[2].id, opened[3].id);
  EXPECT_EQ(closed[3].id, opened[0].id);

  nvtxDomainMarkEx(two, &attributes);
  const nvtxRangeId_t started = nvtxDomainRangeStartEx(two, &attributes);
  nvtxDomainRangeEnd(two, started);
  const auto more = Events();
  EXPECT_EQ(Only<MarkEvent>(more)[0].domain, reinterpret_cast<uint64_t>(two));
  EXPECT_EQ(Only<RangeCloseEvent>(more).size(), 1u);
  nvtxDomainDestroy(two);
}

TEST_F(Nvtx, RegisteredStringsAreResolved) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("strings");
  const nvtxStringHandle_t narrow = nvtxDomainRegisterStringA(domain, "registered");
  const nvtxStringHandle_t wide = nvtxDomainRegisterStringW(domain, L"weit");
  nvtxEventAttributes_t attributes = Attributes(nullptr);
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  for (const nvtxStringHandle_t handle : {narrow, wide}) {
    attributes.message.registered = handle;
    nvtxDomainRangePushEx(domain, &attributes);
    nvtxDomainRangePop(domain);
  }
  attributes.message.registered = reinterpret_cast<nvtxStringHandle_t>(&attributes);  // not a handle
  nvtxDomainRangePushEx(domain, &attributes);
  nvtxDomainRangePop(domain);
  EXPECT_EQ(Names(Events()), "registered weit ");
}

TEST_F(Nvtx, WhatWeDoNotKeepIsHarmless) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("names");
  nvtxDomainResourceDestroy(nvtxDomainResourceCreate(domain, nullptr));
  nvtxInitialize(nullptr);
  EXPECT_TRUE(Events().empty());
}

TEST_F(Nvtx, ThreadsAreNamedByNumberAndTheCallingOneByZero) {
  nvtxNameOsThreadA(77, "loader");
  nvtxNameOsThreadW(0, L"main");
  nvtxNameOsThreadA(78, nullptr);
  const auto events = Events();
  const auto names = Only<ThreadNameEvent>(events);
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(names[0].tid, 77u);
  EXPECT_EQ(events[0].text, "loader");
  EXPECT_EQ(names[1].tid, CurrentThread().tid);
  EXPECT_EQ(events[1].text, "main");
  EXPECT_EQ(events[2].text, "");
}

TEST_F(Nvtx, CategoriesAreNamedInTheirDomain) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("of categories");
  nvtxNameCategoryA(7, "seven");
  nvtxNameCategoryW(8, L"\u20ac");
  nvtxDomainNameCategoryA(domain, 7, "its seven");
  nvtxDomainNameCategoryW(domain, 8, L"its eight");
  const auto events = Events();
  const auto names = Only<CategoryNameEvent>(events);
  ASSERT_EQ(names.size(), 4u);
  EXPECT_EQ(names[0].category, 7u);
  EXPECT_EQ(names[0].domain, 0u);
  EXPECT_EQ(events[1].text, "\xe2\x82\xac");
  EXPECT_EQ(DomainName(names[2].domain), "of categories");
  EXPECT_EQ(events[3].text, "its eight");
}

TEST_F(Nvtx, NamesThatComeBeforeTheProbeIsLiveAreToldWhenItIs) {
  Switch(false);
  nvtxNameOsThreadA(77, "loader");
  nvtxNameOsThreadA(0, "main");
  nvtxNameCategoryA(7, std::string(5000, 'x').c_str());
  TellNames();
  EXPECT_TRUE(Events().empty());
  Switch(true);
  TellNames();
  const auto events = Events();
  const auto threads = Only<ThreadNameEvent>(events);
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(threads[0].tid, 77u);
  EXPECT_EQ(threads[1].tid, CurrentThread().tid);
  EXPECT_EQ(Only<CategoryNameEvent>(events).size(), 1u);
  EXPECT_EQ(events[2].text, std::string(kEarlyNameBytes, 'x'));
  TellNames();
  EXPECT_TRUE(Events().empty());
}

TEST_F(Nvtx, AnEarlyNameIsOlderThanARenameOfTheSame) {
  Switch(false);
  nvtxNameOsThreadA(77, "early");
  nvtxNameOsThreadA(77, "early, again");
  nvtxNameCategoryA(7, "early");
  Switch(true);
  std::thread([] { nvtxNameOsThreadA(77, "renamed"); }).join();
  std::thread([] { nvtxNameCategoryA(7, "renamed"); }).join();
  TellNames();
  const auto events = Events();
  uint64_t latest_early_ns = 0;
  uint64_t earliest_rename_ns = UINT64_MAX;
  std::string order;
  for (const SeenEvent& event : events) {
    const uint64_t time_ns = event.type == EventType::kThreadName ? event.As<ThreadNameEvent>().time_ns
                                                                  : event.As<CategoryNameEvent>().time_ns;
    if (event.text == "renamed") {
      earliest_rename_ns = std::min(earliest_rename_ns, time_ns);
    } else {
      latest_early_ns = std::max(latest_early_ns, time_ns);
      order += event.text + ";";
    }
  }
  EXPECT_EQ(events.size(), 5u);
  EXPECT_EQ(order, "early;early, again;early;");
  EXPECT_LT(latest_early_ns, earliest_rename_ns) << "the drain takes them in the order of their times";
}

TEST_F(Nvtx, NamesThatFindNoPlaceAreCounted) {
  Switch(false);
  const uint64_t before = LossCount(wire::LossReason::kLossDefinitionsFull);
  for (uint32_t i = 0; i < kEarlyNames + 3; ++i) nvtxNameCategoryA(i, "name");
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), before + 3);
}

TEST_F(Nvtx, NamesAfterTheEndAreNotKept) {
  CloseLifecycle();
  nvtxNameCategoryA(7, "nobody will ask");
  Switch(true);
  TellNames();
  EXPECT_TRUE(Events().empty());
}

TEST_F(Nvtx, UnbalancedCallsAreCounted) {
  const uint64_t pops = SelfCount(SelfCounter::kRangePopWithoutPush);
  const uint64_t ends = SelfCount(SelfCounter::kRangeEndWithoutStart);
  EXPECT_LT(nvtxRangePop(), 0);
  const nvtxRangeId_t id = nvtxRangeStartA("once");
  nvtxRangeEnd(id);
  nvtxRangeEnd(id);
  nvtxRangeEnd(123456789);
  EXPECT_EQ(SelfCount(SelfCounter::kRangePopWithoutPush), pops + 1);
  EXPECT_EQ(SelfCount(SelfCounter::kRangeEndWithoutStart), ends + 2);
  EXPECT_EQ(Only<RangeCloseEvent>(Events()).size(), 1u);
}

TEST_F(Nvtx, DeepStacksKeepTheirDepth) {
  for (int i = 0; i < 200; ++i) EXPECT_EQ(nvtxRangePushA("deep"), i);
  for (int i = 199; i >= 0; --i) EXPECT_EQ(nvtxRangePop(), i);
  const auto events = Events();
  EXPECT_EQ(Only<RangeOpenEvent>(events).size(), static_cast<size_t>(kMaxRangeDepth));
  EXPECT_EQ(Only<RangeCloseEvent>(events).size(), static_cast<size_t>(kMaxRangeDepth));
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), 200u - kMaxRangeDepth);
}

TEST_F(Nvtx, WithTheProbeOffOnlyTheDepthIsKept) {
  Switch(false);
  EXPECT_EQ(nvtxRangePushA("before CUDA"), 0);
  EXPECT_EQ(nvtxRangeStartA("nothing"), 0u);
  nvtxMarkA("nothing");
  Switch(true);
  EXPECT_EQ(nvtxRangePushA("seen"), 1);
  EXPECT_EQ(nvtxRangePop(), 1);
  const uint64_t pops = SelfCount(SelfCounter::kRangePopWithoutPush);
  EXPECT_EQ(nvtxRangePop(), 0);
  EXPECT_EQ(SelfCount(SelfCounter::kRangePopWithoutPush), pops);
  const auto events = Events();
  EXPECT_EQ(Names(events), "seen");
  EXPECT_EQ(Only<RangeCloseEvent>(events).size(), 1u);
}

TEST_F(Nvtx, TheMainThreadsInnermostRangeIsPublished) {
  EXPECT_EQ(main_thread_range.load(), 0u);
  nvtxRangePushA("backward");
  const uint64_t id = Only<RangeOpenEvent>(Events())[0].id;
  EXPECT_EQ(main_thread_range.load(), id);
  std::thread([] {
    nvtxRangePushA("elsewhere");
    nvtxRangePop();
  }).join();
  EXPECT_EQ(main_thread_range.load(), id);
  nvtxRangePop();
  EXPECT_EQ(main_thread_range.load(), 0u);
}

TEST_F(Nvtx, TablesThatAreFullGiveHandlesWithoutNames) {
  for (size_t i = 0; i < kMaxDomains * 2; ++i) {
    EXPECT_NE(CreateDomain("domain" + std::to_string(i)), nullptr);
  }
  void* last = CreateDomain("one more");
  EXPECT_EQ(DomainName(reinterpret_cast<uint64_t>(last)), "");
  EXPECT_GT(LossCount(wire::LossReason::kLossDefinitionsFull), 0u);
  for (size_t i = 0; i < kMaxStrings + 10; ++i) RegisterString("text");
  EXPECT_EQ(RegisteredText(RegisterString("late")), "");
  // More open ranges than places: every one still ends properly.
  std::vector<uint64_t> ids;
  for (size_t i = 1; i <= kMaxOpenRanges + 100; ++i) ids.push_back(OpenRange(i));
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(CloseRange(ids[i]), i + 1);
}

TEST_F(Nvtx, StrangeTablesAreRefused) {
  EXPECT_EQ(PlaceHandlers(nullptr), 0);
  EXPECT_EQ(PlaceHandlers([](uint32_t) -> const void* { return nullptr; }), 0);
  static const NvtxExportTableCallbacks short_table = {sizeof(size_t), nullptr};
  EXPECT_EQ(PlaceHandlers([](uint32_t) -> const void* { return &short_table; }), 0);
  static const NvtxExportTableCallbacks refusing = {
      sizeof(NvtxExportTableCallbacks),
      [](NvtxCallbackModule, NvtxFunctionTable*, unsigned int*) { return 0; }};
  EXPECT_EQ(PlaceHandlers([](uint32_t) -> const void* { return &refusing; }), 0);
}

}  // namespace
}  // namespace gpuprobe::injector::nvtx
