"""Files on a disk or in a bucket: paths, whole writes, digests, JSON of untrusted files."""
