// attention-server's memory comes from jemalloc, which is linked before the C
// library. It keeps freed blocks for the next message, where glibc gives large
// ones back at once and has every page of them faulted in again, and gives them
// back when the server is quiet, where glibc keeps them in its arenas for good.
#include <jemalloc/jemalloc.h>

// Read by jemalloc at its start. A thread of its own gives back what has not
// been used for thirty seconds; an arena for each processor, not four, keeps
// less unused meanwhile. Blocks from 4 MiB on, not 8, share an arena whatever
// the processor: tensors of that size meet half as many page faults there, from
// 1 MiB on four times as many. (Huge pages, thp:always, would spare a call of
// 12 MiB most of its page faults, but took half as much again as the memory
// limit under pressure.) MALLOC_CONF in the environment wins over it.
const char* malloc_conf =
    "background_thread:true,percpu_arena:percpu,dirty_decay_ms:30000,"
    "muzzy_decay_ms:0,oversize_threshold:4194304";
