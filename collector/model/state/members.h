// How a class lists the members that make up its state, where it declares them.
//
//   uint64_t count_ = 0;
//   std::vector<Range> ranges_;
//   size_t limit_;
//
//   friend StateAccess;  // if Visit is private
//   template <typename Archive>
//   void Visit(Archive& archive) {
//     archive.Members(this, Rebuilt(limit_), count_, ranges_);
//     archive.Require(ranges_.size() <= kMost);
//   }
//
// One list serves saving and loading. Members that are not saved are named in Rebuilt: their owner sets them,
// or Visit computes them from others. A member that is in neither place does not compile.
#pragma once

#include <cstddef>

namespace gpuprobe::model {

template <typename... T>
struct Rebuilt {
  explicit Rebuilt(const T&...) {}
};

// Reaches the private Visit of the classes that befriend it.
class StateAccess {
 public:
  template <typename T, typename Archive>
  static constexpr bool HasVisit() {
    return requires(T & object, Archive & archive) { object.Visit(archive); };
  }
  template <typename T, typename Archive>
  static void Visit(T& object, Archive& archive) {
    object.Visit(archive);
  }
  // Compiles only for a class with so many members.
  template <size_t members, typename T>
  static constexpr void CheckMembers(T& t) {
    // clang-format off
    if constexpr (members == 1) { [[maybe_unused]] auto& [m1] = t; }
    else if constexpr (members == 2) { [[maybe_unused]] auto& [m1, m2] = t; }
    else if constexpr (members == 3) { [[maybe_unused]] auto& [m1, m2, m3] = t; }
    else if constexpr (members == 4) { [[maybe_unused]] auto& [m1, m2, m3, m4] = t; }
    else if constexpr (members == 5) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5] = t; }
    else if constexpr (members == 6) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6] = t; }
    else if constexpr (members == 7) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7] = t; }
    else if constexpr (members == 8) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8] = t; }
    else if constexpr (members == 9) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9] = t; }
    else if constexpr (members == 10) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10] = t; }
    else if constexpr (members == 11) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11] = t; }
    else if constexpr (members == 12) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12] = t; }
    else if constexpr (members == 13) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13] = t; }
    else if constexpr (members == 14) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14] = t; }
    else if constexpr (members == 15) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15] = t; }
    else if constexpr (members == 16) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16] = t; }
    else if constexpr (members == 17) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17] = t; }
    else if constexpr (members == 18) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18] = t; }
    else if constexpr (members == 19) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19] = t; }
    else if constexpr (members == 20) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20] = t; }
    else if constexpr (members == 21) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21] = t; }
    else if constexpr (members == 22) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22] = t; }
    else if constexpr (members == 23) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23] = t; }
    else if constexpr (members == 24) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24] = t; }
    else if constexpr (members == 25) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25] = t; }
    else if constexpr (members == 26) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26] = t; }
    else if constexpr (members == 27) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27] = t; }
    else if constexpr (members == 28) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28] = t; }
    else if constexpr (members == 29) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29] = t; }
    else if constexpr (members == 30) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30] = t; }
    else if constexpr (members == 31) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31] = t; }
    else if constexpr (members == 32) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32] = t; }
    else if constexpr (members == 33) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33] = t; }
    else if constexpr (members == 34) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34] = t; }
    else if constexpr (members == 35) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35] = t; }
    else if constexpr (members == 36) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36] = t; }
    else if constexpr (members == 37) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37] = t; }
    else if constexpr (members == 38) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38] = t; }
    else if constexpr (members == 39) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39] = t; }
    else if constexpr (members == 40) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39, m40] = t; }
    else if constexpr (members == 41) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39, m40, m41] = t; }
    else if constexpr (members == 42) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39, m40, m41, m42] = t; }
    else if constexpr (members == 43) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39, m40, m41, m42, m43] = t; }
    else if constexpr (members == 44) { [[maybe_unused]] auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39, m40, m41, m42, m43, m44] = t; }
    else static_assert(members == 0, "more members than this table has rows");
    // clang-format on
  }
};

}  // namespace gpuprobe::model
