"""AllocateMappedFileService: keeps the next and the next-next segment ready, created, preallocated and warmed.

owns     allocate: ALLOCATED, MAKING, WARM, LOG_MIN, the flags DISK_FULL and SEGMENT_ERROR; the set of segment files
         (the log's writer makes one by the same function when we are late), the file `reserve`, the transient pool's
         free buffers
reads    WANTED: the base of the segment the writer is in; APPENDED, the durable file and what slaves hold, to clean
asks     nobody
answers  nobody; the writer finds the file
dies     safely at any point: a segment is built in staging/ and linked into commitlog/ whole
"""
