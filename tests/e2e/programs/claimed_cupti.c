// A libcupti of a release that the simulated node has none of: for who reads the file, and calls nothing.
int cuptiGetVersion(unsigned* version) {
  if (version == 0) return 1;
  *version = CLAIMED_VERSION;
  return 0;
}
