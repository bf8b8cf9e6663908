// For LD_PRELOAD: calls that some file systems refuse fail with the error number that an environment
// variable gives.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int Refused(const char* name) {
  const char* value = getenv(name);
  errno = value == NULL ? 0 : atoi(value);
  return errno != 0;
}

int flock(int file, int operation) {
  if (Refused("REFUSE_FLOCK")) return -1;
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(file, operation);
}

int fdatasync(int file) {
  if (Refused("REFUSE_FDATASYNC")) return -1;
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}

int fsync(int file) {
  if (Refused("REFUSE_FSYNC")) return -1;
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

// Whether the file's name ends so; what cannot be told is another file.
static int IsNamed(int file, const char* variable) {
  const char* end = getenv(variable);
  char link[32], name[4096];
  if (end == NULL) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, name, sizeof name);
  const size_t size = strlen(end);
  return length >= (ssize_t)size && memcmp(name + length - size, end, size) == 0;
}

// Of the file that REFUSE_READ_OF names.
ssize_t pread(int file, void* to, size_t size, off_t offset) {
  if (IsNamed(file, "REFUSE_READ_OF") && Refused("REFUSE_READ")) return -1;
  return ((ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread"))(file, to, size, offset);
}

ssize_t pread64(int file, void* to, size_t size, off_t offset) {
  return pread(file, to, size, offset);
}

ssize_t read(int file, void* to, size_t size) {
  if (IsNamed(file, "REFUSE_READ_OF") && Refused("REFUSE_READ")) return -1;
  return ((ssize_t(*)(int, void*, size_t))dlsym(RTLD_NEXT, "read"))(file, to, size);
}

// Regular files that are mapped for reading alone; programs' own parts go through.
void* mmap(void* at, size_t size, int access, int flags, int file, off_t offset) {
  struct stat info;
  const char* name =
      (flags & MAP_TYPE) == MAP_SHARED ? "REFUSE_SHARED_MMAP" : "REFUSE_PRIVATE_MMAP";
  if (file >= 0 && access == PROT_READ && fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
      Refused(name))
    return MAP_FAILED;
  return ((void* (*)(void*, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap"))(
      at, size, access, flags, file, offset);
}

void* mmap64(void* at, size_t size, int access, int flags, int file, off_t offset) {
  return mmap(at, size, access, flags, file, offset);
}
