"""Which functions of CUDA's headers obtain or release device memory, and why the others that sound like it do not.

`named_like_memory` reads the toolkit's own headers, so that a function that a newer toolkit brings is neither called by a test nor explained here, and shows.
"""
import fnmatch
import os
import re

SOUNDS_LIKE_MEMORY = re.compile(r"alloc|free|release|import|export|create|destroy|mempool|map|ipc|multicast|register|retain|reset|trim|bind|evict|load|instantiate|"
                                r"graphlaunch|graphupload", re.IGNORECASE)
VERSION = re.compile(r"_v\d+$|_pts[dz]$")

# Why no ledger of memory needs them; a star stands for any rest.
NOT_MEMORY = {
    "streams, events and semaphores are the driver's own, whoever made them":
        "cuStream* cudaStream* cuEvent* cudaEvent* *Ipc*EventHandle *ExternalSemaphore*",
    "textures, surfaces and tensor maps look at memory that is there":
        "cuTex* cuSurf* cuTensorMap* cudaCreateTextureObject cudaCreateSurfaceObject cudaDestroyTextureObject cudaDestroySurfaceObject",
    "code and variables of modules are in the driver's own number only: no call says how large they are":
        "cuModule* cuLibrary* cudaLibrary* cuFunc* cuLink*",
    "a context's own memory is in the driver's own number only; what is allocated in one goes by calls that are tested":
        "cuGreenCtx* *ResetPersistingL2Cache",
    "the edges and parameters of graphs; memory nodes and launches are tested":
        "*GraphConditionalHandleCreate *GraphDestroyNode *GraphMem*NodeGetParams *GraphReleaseUserObject *GraphRetainUserObject",
    "reference counts of the program's own objects": "*UserObject*",
    "graphics resources belong to the other API, and end with it; what is mapped is not released by a call that releases memory": "*Graphics*",
    "a question or a setting": "*GetAttribute *SetAttribute *GetAccess *SetAccess *GetAllocationGranularity *GetAllocationPropertiesFromHandle cuMulticastGetGranularity "
                               "*GetMemoryRequirements *GetSparseProperties *GetExportTable cudaCreateChannelDesc",
    "names a part of an array that is there": "cuMipmappedArrayGetLevel cudaGetMipmappedArrayLevel",
    "call-backs of the program": "*DeviceRegisterAsyncNotification *DeviceUnregisterAsyncNotification cuLogs* cudaLogs*",
}


def reason_of(name):
    """Why the function is none that needs a test; None if there is no reason."""
    return next((reason for reason, names in NOT_MEMORY.items() if any(fnmatch.fnmatchcase(name, pattern) for pattern in names.split())), None)


def stale_patterns(names):
    """Those that no function of the headers fits any more."""
    return [pattern for patterns in NOT_MEMORY.values() for pattern in patterns.split() if not fnmatch.filter(names, pattern)]


def without_version(name):
    return VERSION.sub("", VERSION.sub("", name))


def functions_of(header):
    with open(header, encoding="utf-8", errors="replace") as file:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read(), flags=re.DOTALL)
    meant = dict(re.findall(r"^#define\s+(cu[A-Z]\w*)\s+(cu[A-Z]\w*)\s*$", text, re.MULTILINE))  # an old name for what is another function by now
    declared = {without_version(name) for name in re.findall(r"\b(cu(?:da)?[A-Z]\w*)\s*\(", text)}
    return {without_version(meant.get(name, name)) for name in declared}


def named_like_memory(build):
    """From the headers that the build uses."""
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
        folder = re.search(r"^CUDA_HEADERS_cuda_h_DIR:PATH=(.*)$", cache.read(), re.MULTILINE).group(1)
    names = set()
    for header in ("cuda.h", "cuda_runtime_api.h"):
        names |= functions_of(os.path.join(folder, header))
    return {name for name in names if SOUNDS_LIKE_MEMORY.search(name)}
