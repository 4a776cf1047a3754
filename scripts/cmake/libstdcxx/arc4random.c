// arc4random for the bundled libstdc++, whose std::random_device calls it: the C library has it since 2.36, packages run on 2.34.
// Like the C library's it never returns without random bytes. Hidden by the library's version script, so that nothing else binds to it.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t value;
  ssize_t got;
  do
    got = getrandom(&value, sizeof value, 0);  // so few bytes come at once or not at all
  while (got < 0 && errno == EINTR);
  if (got != sizeof value)
    abort();
  return value;
}
