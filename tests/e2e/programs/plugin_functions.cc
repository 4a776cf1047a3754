// What NCCL's plugins have besides their tables: functions and data of their own whose names begin like
// NCCL's, exported, called through the library's own relocations, and listed in tables of addresses. A
// network plugin such as nccl-rdma-sharp-plugins has some seventy of them, NCCL's Inspector a few.

#define PLUGIN_EXPORT __attribute__((visibility("default")))

// The names are a plugin's. NOLINTBEGIN(readability-identifier-naming)
extern "C" {

// Of whoever loads the plugin, if they have it: NCCL does not export its own.
__attribute__((weak)) void ncclDebugLog(int level, unsigned long flags, const char* file, int line,
                                        const char* format, ...);

#define PLUGIN_FUNCTIONS(each)                                                                               \
  each(IbInit) each(IbDevices) each(IbGetProperties) each(IbListen) each(IbConnect) each(IbAccept)           \
      each(IbRegMr) each(IbRegMrDmaBuf) each(IbDeregMr) each(IbIsend) each(IbIrecv) each(IbIflush)           \
          each(IbTest) each(IbCloseSend) each(IbCloseRecv) each(IbCloseListen) each(IbMalloc) each(IbRtrQp)  \
              each(IbRtsQp) each(SocketConnect) each(SocketAccept) each(SocketListen) each(SocketProgress)   \
                  each(SocketSend) each(SocketRecv) each(SocketReady) each(SocketClose) each(FindInterfaces) \
                      each(SharpInit) each(SharpAllGather) each(SharpConnect) each(SharpIallreduce)          \
                          each(SharpFlush) each(SetThreadName) each(LoadParam) each(P2pRegister)             \
                              each(InspectorInit) each(InspectorDump)

#define PLUGIN_DEFINE(name)                   \
  PLUGIN_EXPORT int nccl##name(int argument); \
  int nccl##name(int argument) { return argument + ncclNIbDevs; }
PLUGIN_EXPORT extern int ncclNIbDevs;
int ncclNIbDevs = 2;
PLUGIN_FUNCTIONS(PLUGIN_DEFINE)
#undef PLUGIN_DEFINE

#define PLUGIN_ADDRESS(name) &nccl##name,
PLUGIN_EXPORT extern int (*const ncclIbTable[])(int);
int (*const ncclIbTable[])(int) = {PLUGIN_FUNCTIONS(PLUGIN_ADDRESS)};
#undef PLUGIN_ADDRESS

#define PLUGIN_CALL(name) +nccl##name(1)
PLUGIN_EXPORT int ncclIbCallAll();
int ncclIbCallAll() {
  if (ncclDebugLog != nullptr) ncclDebugLog(0, 0, __FILE__, __LINE__, "%s", "all called");
  return 0 PLUGIN_FUNCTIONS(PLUGIN_CALL);
}
#undef PLUGIN_CALL
}
// NOLINTEND(readability-identifier-naming)

// When it is loaded: its relocations are resolved, as after NCCL has used it for a while.
__attribute__((constructor)) static void CallAll() { ncclIbCallAll(); }
