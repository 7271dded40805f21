"""AllocateMappedFileService: keeps the next and the next-next segment ready, created, preallocated and warmed.

owns     ALLOCATED; the set of segment files (the log's writer makes one by the same function when we are late)
reads    WANTED: the base of the segment the writer is in
asks     nobody
answers  nobody; the writer looks for the file
dies     safely at any point: a segment is built in staging/ and linked into commitlog/ whole
"""
