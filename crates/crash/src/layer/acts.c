/* What the layer's tests let a program do: each argument is one act. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int fd = -1;

static int act(const char *name, const char *path, const char *to, long number) {
    char bytes[65536];
    memset(bytes, 'x', sizeof bytes);
    if (!strcmp(name, "open")) return (fd = open(path, O_CREAT | O_RDWR | O_APPEND, 0600)) < 0;
    if (!strcmp(name, "reopen")) return (fd = openat(AT_FDCWD, path, O_CREAT | O_RDWR | O_TRUNC, 0600)) < 0;
    if (!strcmp(name, "directory")) return (fd = open(path, O_RDONLY | O_DIRECTORY)) < 0;
    if (!strcmp(name, "dup")) return (fd = fcntl(fd, F_DUPFD_CLOEXEC, 100)) < 0;
    if (!strcmp(name, "write")) return write(fd, bytes, number) != number;
    if (!strcmp(name, "pwrite")) return pwrite(fd, bytes, 10, number) != 10;
    if (!strcmp(name, "writev")) {
        struct iovec parts[2] = {{bytes, number}, {bytes, number}};
        return writev(fd, parts, 2) != 2 * number;
    }
    if (!strcmp(name, "sync")) return fsync(fd);
    if (!strcmp(name, "datasync")) return fdatasync(fd);
    if (!strcmp(name, "truncate")) return ftruncate(fd, number);
    if (!strcmp(name, "rename")) return rename(path, to);
    if (!strcmp(name, "unlink")) return unlink(path);
    if (!strcmp(name, "mkdir")) return mkdir(path, 0700);
    if (!strcmp(name, "kill")) return raise(9);
    return errno = EINVAL, 1;
}

/* ACT PATH TO NUMBER, again and again; prints the error of each act that failed. */
int main(int count, char **words) {
    for (int at = 1; at + 3 < count; at += 4)
        if (act(words[at], words[at + 1], words[at + 2], atol(words[at + 3])))
            printf("%s: %s\n", words[at], strerror(errno));
    return fflush(stdout);
}
