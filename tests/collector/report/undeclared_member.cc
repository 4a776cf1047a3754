// A struct of the report that forgets a member in its declaration, for a test that it does not compile. With
// -DDECLARED it does.
#include "collector/report/fields.h"

namespace gpuprobe::report {

struct Forgetful {
  int written = 0;
  int forgotten = 0;
  int unwritten = 0;

  static constexpr void Declare(auto& fields) {
    fields("written", &Forgetful::written, "a number");
#ifdef DECLARED
    fields.Group("group", "of others", [](auto& group) { group("forgotten", &Forgetful::forgotten, "too"); });
#endif
    fields.Unwritten(&Forgetful::unwritten);
  }
};

const Type& TypeOfForgetful() { return TypeOf<Forgetful>(); }

}  // namespace gpuprobe::report
