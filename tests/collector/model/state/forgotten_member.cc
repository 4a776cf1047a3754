// A class that forgets a member in its list, for a test that it does not compile. With -DLISTED it does.
#include <cstdint>

#include "collector/model/state/archive.h"

namespace gpuprobe::model {

class Forgetful {
 private:
  uint64_t saved_ = 0;
  bool forgotten_ = false;
  uint64_t computed_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
#ifdef LISTED
    archive.Members(this, Rebuilt(computed_), saved_, forgotten_);
#else
    archive.Members(this, Rebuilt(computed_), saved_);
#endif
  }
};

void Save(Forgetful& object) { StateWriter()(object); }

}  // namespace gpuprobe::model
