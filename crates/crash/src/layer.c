/* The power-cut layer: it is loaded into a server by LD_PRELOAD, passes every call on
 * files below one directory to the kernel, and appends what happened to a journal.
 * The journal is written by write(2): it survives a SIGKILL of the server.
 *
 * CRASH_LAYER_ROOT  the directory that is watched, an absolute path
 * CRASH_LAYER_HOME  beside it: `journal`, `control`, and `grave/INO`, a hard link
 *                   to each file that was unlinked or replaced
 *
 * Order. A write is recorded after it returned, a sync before it begins and when it has
 * ended: a sync covers what was recorded before its beginning. Bytes that are about to
 * be overwritten or cut off are recorded before, so that the change can be undone.
 *
 * A program that calls the kernel without libc, or writes through a mapping, is not seen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, SYNC_BEGIN, SYNC_END, RESIZE, RENAME, UNLINK, MKDIR, OLD, LINK };
/* Words of the control file, which the tester writes and this process maps. */
enum { SYNC_DELAY_MS, SYNC_ERRNO, WRITE_ERRNO, SHORT_WRITES, FAILURES, CONTROL_WORDS = 16 };
enum { MAX_FDS = 65536, CHUNK = 65536 };

struct record {
    uint32_t op, path_len, to_len, data_len;
    uint64_t ino, offset, len;
    int64_t result;
};

static char root[PATH_MAX], home[PATH_MAX];
static size_t root_len;
static int journal = -1;
static volatile uint32_t *control;
static uint64_t syncs;
/* 1: below the root; 2: opened with O_SYNC or O_DSYNC, too. */
static unsigned char watched[MAX_FDS];

__attribute__((constructor)) static void begin(void) {
    const char *r = getenv("CRASH_LAYER_ROOT"), *h = getenv("CRASH_LAYER_HOME");
    char path[PATH_MAX + 16];
    if (!r || !h || strlen(r) >= PATH_MAX || strlen(h) >= PATH_MAX) return;
    strcpy(home, h);
    snprintf(path, sizeof path, "%s/control", h);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *map = mmap(NULL, 4 * CONTROL_WORDS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (map == MAP_FAILED) return;
    control = map;
    snprintf(path, sizeof path, "%s/journal", h);
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0) return;
    strcpy(root, r);
    root_len = strlen(r);
}

static void note(struct record r, const char *path, const char *to, const void *data) {
    int saved = errno;
    r.path_len = path ? (uint32_t)strlen(path) : 0;
    r.to_len = to ? (uint32_t)strlen(to) : 0;
    struct iovec parts[4] = {{&r, sizeof r}, {(void *)path, r.path_len}, {(void *)to, r.to_len}, {(void *)data, r.data_len}};
    if (syscall(SYS_writev, journal, parts, 4) < 0) abort(); /* a run without its journal proves nothing */
    errno = saved;
}

/* The path relative to the root, or NULL if it is not below. The root itself is "". */
static const char *below(int dir, const char *path, char *buffer) {
    if (!root_len || !path) return NULL;
    if (path[0] != '/') {
        char link[64];
        ssize_t n;
        if (dir == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        n = readlink(link, buffer, PATH_MAX - 1);
        if (n < 0 || (size_t)n + strlen(path) + 2 > PATH_MAX) return NULL;
        buffer[n] = '/';
        strcpy(buffer + n + 1, path);
        path = buffer;
    }
    if (strncmp(path, root, root_len) != 0) return NULL;
    if (path[root_len] == 0) return "";
    if (path[root_len] != '/') return NULL;
    path += root_len;
    while (*path == '/') path++;
    return path;
}

static int is_watched(int fd) { return fd >= 0 && fd < MAX_FDS && watched[fd]; }
static void watch(int fd, int how) { if (fd >= 0 && fd < MAX_FDS) watched[fd] = (unsigned char)how; }

/* Records the bytes `from .. to` of a file, which are about to change. */
static void keep_old(int fd, uint64_t ino, uint64_t from, uint64_t to) {
    char link[64], bytes[CHUNK];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    if (reader < 0) return;
    while (from < to) {
        size_t want = to - from < CHUNK ? to - from : CHUNK;
        ssize_t got = syscall(SYS_pread64, reader, bytes, want, from);
        if (got <= 0) break;
        note((struct record){.op = OLD, .ino = ino, .offset = from, .len = got, .data_len = got}, 0, 0, bytes);
        from += got;
    }
    syscall(SYS_close, reader);
}

/* A second name for a file that loses one: its bytes may be needed once more. */
static void bury(int dir, const char *path) {
    struct stat st;
    char to[PATH_MAX + 64];
    if (fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) return;
    snprintf(to, sizeof to, "%s/grave/%llu", home, (unsigned long long)st.st_ino);
    syscall(SYS_linkat, dir, path, AT_FDCWD, to, 0);
}

static int open_it(int dir, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *rel = below(dir, path, buffer);
    struct stat before, after;
    if (!rel) {
        int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
        watch(fd, 0);
        return fd;
    }
    int existed = !fstatat(dir, path, &before, 0);
    int fd = (int)syscall(SYS_openat, dir, path, flags & ~O_TRUNC, mode);
    if (fd < 0) return fd;
    watch(fd, flags & (O_DSYNC | O_SYNC) ? 2 : 1);
    if (fstat(fd, &after)) return fd;
    if (!existed) note((struct record){.op = CREATE, .ino = after.st_ino}, rel, 0, 0);
    if (flags & O_TRUNC && S_ISREG(after.st_mode) && after.st_size > 0) {
        keep_old(fd, after.st_ino, 0, after.st_size);
        if (syscall(SYS_ftruncate, fd, 0) == 0) note((struct record){.op = RESIZE, .ino = after.st_ino}, 0, 0, 0);
    }
    return fd;
}

static mode_t mode_of(int flags, va_list args) {
    return flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(args, mode_t) : 0;
}
#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list args; va_start(args, flags); mode_t mode = mode_of(flags, args); va_end(args); \
    return open_it(AT_FDCWD, path, flags, mode); }
#define OPENAT(name) int name(int dir, const char *path, int flags, ...) { \
    va_list args; va_start(args, flags); mode_t mode = mode_of(flags, args); va_end(args); \
    return open_it(dir, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)
int creat(const char *path, mode_t mode) { return open_it(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }
int close(int fd) { watch(fd, 0); return (int)syscall(SYS_close, fd); }
int dup(int fd) { int to = (int)syscall(SYS_dup, fd); watch(to, is_watched(fd)); return to; }
static int fcntl_it(int fd, int command, void *arg) {
    int got = (int)syscall(SYS_fcntl, fd, command, arg);
    if (got >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) watch(got, is_watched(fd) ? watched[fd] : 0);
    return got;
}
#define FCNTL(name) int name(int fd, int command, ...) { \
    va_list args; va_start(args, command); void *arg = va_arg(args, void *); va_end(args); \
    return fcntl_it(fd, command, arg); }
FCNTL(fcntl) FCNTL(fcntl64)

static int sync_it(int fd, long number) {
    struct stat st;
    if (!is_watched(fd) || fstat(fd, &st)) return (int)syscall(number, fd);
    uint64_t id = __atomic_add_fetch(&syncs, 1, __ATOMIC_RELAXED);
    note((struct record){.op = SYNC_BEGIN, .ino = st.st_ino, .offset = id}, 0, 0, 0);
    uint32_t delay = control[SYNC_DELAY_MS], fails = control[SYNC_ERRNO];
    if (delay) nanosleep(&(struct timespec){delay / 1000, delay % 1000 * 1000000L}, NULL);
    int result = fails ? -1 : (int)syscall(number, fd);
    if (fails) { errno = (int)fails; __atomic_add_fetch(&control[FAILURES], 1, __ATOMIC_RELAXED); }
    note((struct record){.op = SYNC_END, .ino = st.st_ino, .offset = id, .result = result ? -errno : 0}, 0, 0, 0);
    return result;
}
int fsync(int fd) { return sync_it(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_it(fd, SYS_fdatasync); }
/* It promises nothing after a power cut, so it is no sync here. */
int sync_file_range(int fd, off64_t at, off64_t len, unsigned flags) { return (int)syscall(SYS_sync_file_range, fd, at, len, flags); }

/* `at` below 0: at the file's own position. */
static ssize_t write_it(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    struct stat st;
    if (fstat(fd, &st)) return -1;
    uint64_t total = 0, from;
    struct iovec half;
    for (int i = 0; i < count; i++) total += parts[i].iov_len;
    if (at >= 0) from = at;
    else from = fcntl_it(fd, F_GETFL, NULL) & O_APPEND ? (uint64_t)st.st_size : (uint64_t)lseek(fd, 0, SEEK_CUR);
    uint32_t fails = control[WRITE_ERRNO];
    if (fails) {
        __atomic_add_fetch(&control[FAILURES], 1, __ATOMIC_RELAXED);
        if (!control[SHORT_WRITES] || parts[0].iov_len < 2) { errno = (int)fails; return -1; }
        /* The last bytes of a disk that fills. */
        control[SHORT_WRITES]--;
        half = (struct iovec){parts[0].iov_base, parts[0].iov_len / 2};
        parts = &half; count = 1; total = half.iov_len;
    }
    if (from < (uint64_t)st.st_size)
        keep_old(fd, st.st_ino, from, from + total < (uint64_t)st.st_size ? from + total : (uint64_t)st.st_size);
    ssize_t done = at < 0 && !flags ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev2, fd, parts, count, (long)at, 0L, flags);
    if (done > 0) note((struct record){.op = WRITE, .ino = st.st_ino, .offset = from, .len = done}, 0, 0, 0);
    if (done > 0 && (watched[fd] == 2 || flags & (RWF_DSYNC | RWF_SYNC)) && sync_it(fd, SYS_fdatasync)) return -1;
    return done;
}
ssize_t write(int fd, const void *bytes, size_t len) {
    if (!is_watched(fd)) return syscall(SYS_write, fd, bytes, len);
    return write_it(fd, &(struct iovec){(void *)bytes, len}, 1, -1, 0);
}
ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    if (!is_watched(fd)) return syscall(SYS_pwrite64, fd, bytes, len, at);
    return write_it(fd, &(struct iovec){(void *)bytes, len}, 1, at, 0);
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at) { return pwrite64(fd, bytes, len, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return is_watched(fd) ? write_it(fd, parts, count, -1, 0) : syscall(SYS_writev, fd, parts, count);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    return is_watched(fd) ? write_it(fd, parts, count, at, flags) : syscall(SYS_pwritev2, fd, parts, count, (long)at, 0L, flags);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) { return pwritev64v2(fd, parts, count, at, flags); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return pwritev64v2(fd, parts, count, at, 0); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev64v2(fd, parts, count, at, 0); }
/* A copy inside the kernel is refused: callers copy by read and write instead. */
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned flags) {
    if (is_watched(out)) { errno = ENOSYS; return -1; }
    return syscall(SYS_copy_file_range, in, in_at, out, out_at, len, flags);
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t len) {
    if (is_watched(out)) { errno = EINVAL; return -1; }
    return syscall(SYS_sendfile, out, in, at, len);
}
ssize_t sendfile(int out, int in, off_t *at, size_t len) { return sendfile64(out, in, at, len); }

int ftruncate64(int fd, off64_t len) {
    struct stat st;
    if (!is_watched(fd) || fstat(fd, &st)) return (int)syscall(SYS_ftruncate, fd, len);
    if (len < st.st_size) keep_old(fd, st.st_ino, len, st.st_size);
    int result = (int)syscall(SYS_ftruncate, fd, len);
    if (!result) note((struct record){.op = RESIZE, .ino = st.st_ino, .len = len}, 0, 0, 0);
    return result;
}
int ftruncate(int fd, off_t len) { return ftruncate64(fd, len); }
int fallocate64(int fd, int mode, off64_t at, off64_t len) {
    struct stat st;
    uint32_t fails = is_watched(fd) ? control[WRITE_ERRNO] : 0;
    if (fails) { errno = (int)fails; return -1; }
    int result = (int)syscall(SYS_fallocate, fd, mode, at, len);
    if (!result && is_watched(fd) && !fstat(fd, &st)) note((struct record){.op = RESIZE, .ino = st.st_ino, .len = st.st_size}, 0, 0, 0);
    return result;
}
int fallocate(int fd, int mode, off_t at, off_t len) { return fallocate64(fd, mode, at, len); }
int posix_fallocate64(int fd, off64_t at, off64_t len) { return fallocate64(fd, 0, at, len) ? errno : 0; }
int posix_fallocate(int fd, off_t at, off_t len) { return posix_fallocate64(fd, at, len); }

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    char a[PATH_MAX], b[PATH_MAX];
    const char *x = below(from_dir, from, a), *y = below(to_dir, to, b);
    if (y) bury(to_dir, to);
    int result = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (!result && x && y) note((struct record){.op = RENAME}, x, y, 0);
    return result;
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) { return renameat2(from_dir, from, to_dir, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char b[PATH_MAX];
    const char *y = below(to_dir, to, b);
    struct stat st;
    int result = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    if (!result && y && !fstatat(to_dir, to, &st, 0)) note((struct record){.op = LINK, .ino = st.st_ino}, y, 0, 0);
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
/* Removes a directory as rmdir does, but it lies in the grave then: a file that is made later must not
 * get its inode's number, by which the journal tells files apart. */
static int bury_directory(int dir, const char *path) {
    struct stat st;
    char entries[1024], to[PATH_MAX + 64];
    int fd = (int)syscall(SYS_openat, dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    long got = fstat(fd, &st) ? 0 : syscall(SYS_getdents64, fd, entries, sizeof entries);
    /* Its own two entries, of 24 bytes each: what is longer is not empty. */
    if (got > 48) {
        syscall(SYS_close, fd);
        errno = ENOTEMPTY;
        return -1;
    }
    syscall(SYS_close, fd);
    snprintf(to, sizeof to, "%s/grave/%llu", home, (unsigned long long)st.st_ino);
    return (int)syscall(SYS_renameat, dir, path, AT_FDCWD, to);
}

int unlinkat(int dir, const char *path, int flags) {
    char a[PATH_MAX];
    const char *x = below(dir, path, a);
    if (x && !(flags & AT_REMOVEDIR)) bury(dir, path);
    int is_directory = x && (flags & AT_REMOVEDIR);
    int result = is_directory ? bury_directory(dir, path) : (int)syscall(SYS_unlinkat, dir, path, flags);
    if (!result && x) note((struct record){.op = UNLINK}, x, 0, 0);
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int dir, const char *path, mode_t mode) {
    char a[PATH_MAX];
    const char *x = below(dir, path, a);
    struct stat st;
    int result = (int)syscall(SYS_mkdirat, dir, path, mode);
    if (!result && x && !fstatat(dir, path, &st, 0)) note((struct record){.op = MKDIR, .ino = st.st_ino}, x, 0, 0);
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
