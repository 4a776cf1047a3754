// The screen that a stream of ours goes to: how wide it is, and whether it shows colours.
#pragma once

#include "collector/render/text_layout.h"

namespace gpuprobe::cli {

// Of descriptor `fd`. Not a terminal: 118 columns and no colours. A terminal: its width, and colours unless
// `no_color`, NO_COLOR or TERM=dumb says otherwise.
render::Screen ScreenOf(int fd, bool no_color);

// Whether lines can be erased on `fd`: it is a terminal, and not a dumb one.
bool CanRedraw(int fd);

}  // namespace gpuprobe::cli
