// Threads in every kind of wait, each inside a traced function. No wait may end early, or for
// another reason than its own; the traced callers must return correctly afterwards. Prints "ready",
// and wakes all threads when its input ends. Arguments: names of waits (all if none).
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

struct wait {
    int a[2], b[2], id;
    long pid;
    void *memory;
    sem_t semaphore;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    int open;
    volatile int handled;
    pthread_t thread;
    char path[64];
};
typedef struct wait W;
static __thread W *own;
#define SECONDS 2
static const struct timespec TWO = {SECONDS, 0};
// Longer than the test: a time limit that expires would look like an interrupted call.
static const struct timeval HOUR = {3600, 0};

static void handler(int signal) { (void)signal; if (own) own->handled++; }
static void piped(W *w) { if (pipe(w->a)) abort(); }
static void paired(W *w, int type) { if (socketpair(AF_UNIX, type, 0, w->a)) abort(); }
static void limit(int fd) { setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &HOUR, sizeof HOUR); setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &HOUR, sizeof HOUR); }
static void pipe_wake(W *w) { KEEP(write(w->a[1], "x", 1)); }
static void filled(W *w) {
    piped(w);
    fcntl(w->a[1], F_SETFL, O_NONBLOCK);
    static const char zeros[4096];
    while (write(w->a[1], zeros, sizeof zeros) > 0) {}
    fcntl(w->a[1], F_SETFL, 0);
}
static void drain(W *w) { static char room[1 << 16]; KEEP(read(w->a[0], room, sizeof room)); }
static void user(W *w) { pthread_kill(w->thread, SIGUSR1); }
static void none(W *w) { (void)w; }

// Each wait returns 0 if its result is right.
static int bad(const char *what, long got) { static char text[100]; (void)text; fprintf(stderr, "%s: %ld, errno %d\n", what, got, errno); return 1; }
#define IS(call, value) ({ errno = 0; long is_ = (long)(call); is_ == (long)(value) ? 0 : bad(#call, is_); })

static int w_read(W *w) { char c; return IS(read(w->a[0], &c, 1), 1); }
static int w_write(W *w) { return IS(write(w->a[1], "x", 1), 1); }
static int epoll_on(int fd) {
    int ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);
    return ep;
}
static int w_epoll(W *w) { struct epoll_event e; return IS(epoll_wait(epoll_on(w->a[0]), &e, 1, -1), 1); }
static int w_epoll_time(W *w) { struct epoll_event e; return IS(epoll_wait(epoll_on(w->a[0]), &e, 1, SECONDS * 1000), 0); }
static int w_epoll_pwait(W *w) { struct epoll_event e; sigset_t set; sigemptyset(&set); return IS(epoll_pwait(epoll_on(w->a[0]), &e, 1, -1, &set), 1); }
static int w_poll(W *w) { struct pollfd p = {w->a[0], POLLIN, 0}; return IS(poll(&p, 1, -1), 1); }
static int w_poll_time(W *w) { struct pollfd p = {w->a[0], POLLIN, 0}; return IS(poll(&p, 1, SECONDS * 1000), 0); }
static int w_ppoll(W *w) { struct pollfd p = {w->a[0], POLLIN, 0}; sigset_t set; sigfillset(&set); return IS(ppoll(&p, 1, NULL, &set), 1); }
static int w_ppoll_time(W *w) { struct pollfd p = {w->a[0], POLLIN, 0}; sigset_t set; sigfillset(&set); return IS(ppoll(&p, 1, &TWO, &set), 0); }
static int w_select(W *w) { fd_set s; FD_ZERO(&s); FD_SET(w->a[0], &s); return IS(select(w->a[0] + 1, &s, NULL, NULL, NULL), 1); }
static int w_select_time(W *w) { (void)w; struct timeval t = {SECONDS, 0}; return IS(select(0, NULL, NULL, NULL, &t), 0); }
static int w_pselect(W *w) { fd_set s; FD_ZERO(&s); FD_SET(w->a[0], &s); sigset_t set; sigemptyset(&set); return IS(pselect(w->a[0] + 1, &s, NULL, NULL, NULL, &set), 1); }
static int w_nanosleep(W *w) { (void)w; return IS(nanosleep(&TWO, NULL), 0); }
static int w_clock_nanosleep(W *w) { (void)w; struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); t.tv_sec += SECONDS; return IS(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL), 0); }
static int w_sleep(W *w) { (void)w; return IS(sleep(SECONDS), 0); }
static int w_sem_wait(W *w) { return IS(sem_wait(&w->semaphore), 0); }
static void m_sem(W *w) { sem_init(&w->semaphore, 0, 0); }
static void sem_wake(W *w) { sem_post(&w->semaphore); }
static int w_sem_time(W *w) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); t.tv_sec += SECONDS; errno = 0; return sem_clockwait(&w->semaphore, CLOCK_MONOTONIC, &t) == -1 && errno == ETIMEDOUT ? 0 : bad("sem_clockwait", 0); }
static void m_cond(W *w) { pthread_mutex_init(&w->mutex, NULL); pthread_cond_init(&w->condition, NULL); }
static int w_cond(W *w) { pthread_mutex_lock(&w->mutex); while (!w->open) pthread_cond_wait(&w->condition, &w->mutex); pthread_mutex_unlock(&w->mutex); return 0; }
static void cond_wake(W *w) { pthread_mutex_lock(&w->mutex); w->open = 1; pthread_cond_signal(&w->condition); pthread_mutex_unlock(&w->mutex); }
static int w_cond_time(W *w) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += SECONDS;
    pthread_mutex_lock(&w->mutex);
    int got = pthread_cond_clockwait(&w->condition, &w->mutex, CLOCK_MONOTONIC, &t);
    pthread_mutex_unlock(&w->mutex);
    return IS(got, ETIMEDOUT);
}
static void m_mutex(W *w) { pthread_mutex_init(&w->mutex, NULL); pthread_mutex_lock(&w->mutex); }
static int w_mutex(W *w) { return IS(pthread_mutex_lock(&w->mutex), 0); }
static void mutex_wake(W *w) { pthread_mutex_unlock(&w->mutex); }
static void m_pi(W *w) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&w->mutex, &a);
    pthread_mutex_lock(&w->mutex);
}
static void m_eventfd(W *w) { w->a[0] = w->a[1] = eventfd(0, 0); }
static int w_eventfd(W *w) { long n; return IS(read(w->a[0], &n, 8), 8); }
static void eventfd_wake(W *w) { long n = 1; KEEP(write(w->a[1], &n, 8)); }
static int w_timerfd(W *w) {
    long n;
    w->a[0] = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec t = {{0, 0}, TWO};
    timerfd_settime(w->a[0], 0, &t, NULL);
    return IS(read(w->a[0], &n, 8), 8);
}
static void m_inotify(W *w) { strcpy(w->path, "./watched"); close(open(w->path, O_CREAT | O_RDWR, 0600)); w->a[0] = inotify_init(); inotify_add_watch(w->a[0], w->path, IN_ATTRIB); }
static int w_inotify(W *w) { char room[4096]; return IS(read(w->a[0], room, sizeof room) > 0, 1); }
static void inotify_wake(W *w) { chmod(w->path, 0644); }
static int w_signalfd(W *w) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct signalfd_siginfo info;
    return IS(read(signalfd(-1, &set, 0), &info, sizeof info), sizeof info);
}
static void user2(W *w) { pthread_kill(w->thread, SIGUSR2); }
static void m_listen(W *w) {
    w->a[0] = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(w->path, sizeof w->path, "./%lx.socket", (long)w);
    strcpy(address.sun_path, w->path);
    if (bind(w->a[0], (struct sockaddr *)&address, sizeof address) || listen(w->a[0], 0)) abort();
}
static int connect_to(W *w, int fd) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, w->path);
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}
static void m_listen_limit(W *w) { m_listen(w); limit(w->a[0]); }
static int w_accept(W *w) { return IS(accept(w->a[0], NULL, NULL) > 0, 1); }
static int w_accept4(W *w) { return IS(accept4(w->a[0], NULL, NULL, SOCK_CLOEXEC) > 0, 1); }
static void accept_wake(W *w) { connect_to(w, socket(AF_UNIX, SOCK_STREAM, 0)); }
static void m_backlog(W *w) { m_listen(w); connect_to(w, socket(AF_UNIX, SOCK_STREAM, 0)); }
static int w_connect(W *w) { return IS(connect_to(w, socket(AF_UNIX, SOCK_STREAM, 0)), 0); }
static int w_connect_limit(W *w) { int fd = socket(AF_UNIX, SOCK_STREAM, 0); limit(fd); return IS(connect_to(w, fd), 0); }
static void connect_wake(W *w) { accept(w->a[0], NULL, NULL); }
static void m_stream(W *w) { paired(w, SOCK_STREAM); }
static void m_stream_limit(W *w) { paired(w, SOCK_STREAM); limit(w->a[0]); }
static void m_datagram_limit(W *w) { paired(w, SOCK_DGRAM); limit(w->a[0]); }
static int w_recv(W *w) { char c; return IS(recv(w->a[0], &c, 1, 0), 1); }
static int w_recv_all(W *w) { char c[8]; return IS(recv(w->a[0], c, 8, MSG_WAITALL), 8); }
static void half(W *w) { m_stream(w); KEEP(write(w->a[1], "half", 4)); }
static void rest(W *w) { KEEP(write(w->a[1], "rest", 4)); }
static int w_recvmsg(W *w) { char c; struct iovec v = {&c, 1}; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}; return IS(recvmsg(w->a[0], &m, 0), 1); }
static int w_recvmmsg(W *w) { char c; struct iovec v = {&c, 1}; struct mmsghdr m = {{.msg_iov = &v, .msg_iovlen = 1}, 0}; return IS(recvmmsg(w->a[0], &m, 1, 0, NULL), 1); }
static void m_full_socket(W *w) {
    m_stream_limit(w);
    char c[1024] = {0};
    while (send(w->a[0], c, sizeof c, MSG_DONTWAIT) > 0) {}
}
static int w_send(W *w) { return IS(send(w->a[0], "x", 1, 0), 1); }
static int w_sendmsg(W *w) { struct iovec v = {"x", 1}; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}; return IS(sendmsg(w->a[0], &m, 0), 1); }
static int w_sendmmsg(W *w) { struct iovec v = {"x", 1}; struct mmsghdr m = {{.msg_iov = &v, .msg_iovlen = 1}, 0}; return IS(sendmmsg(w->a[0], &m, 1, 0), 1); }
static void drain_socket(W *w) { static char room[1 << 20]; KEEP(read(w->a[1], room, sizeof room)); }
static int w_write_big(W *w) { static char megabyte[1 << 20]; return IS(write(w->a[1], megabyte, sizeof megabyte), sizeof megabyte); }
static void drain_big(W *w) { static char room[1 << 16]; long sum = 0; while (sum < 1 << 20) { long got = read(w->a[0], room, sizeof room); if (got <= 0) break; sum += got; if (sum < 1 << 20 && ({ int left; ioctl(w->a[0], FIONREAD, &left); usleep(1000); ioctl(w->a[0], FIONREAD, &left); left; }) == 0) break; } }
static sigset_t only(int signal) { sigset_t set; sigemptyset(&set); sigaddset(&set, signal); return set; }
static int w_sigwait(W *w) { (void)w; sigset_t set = only(SIGUSR2); pthread_sigmask(SIG_BLOCK, &set, NULL); int got; if (sigwait(&set, &got)) return bad("sigwait", 0); return IS(got, SIGUSR2); }
static int w_sigwaitinfo(W *w) { (void)w; sigset_t set = only(SIGUSR2); pthread_sigmask(SIG_BLOCK, &set, NULL); return IS(sigwaitinfo(&set, NULL), SIGUSR2); }
static int w_sigtimedwait(W *w) { (void)w; sigset_t set = only(SIGUSR2); pthread_sigmask(SIG_BLOCK, &set, NULL); errno = 0; return sigtimedwait(&set, NULL, &TWO) == -1 && errno == EAGAIN ? 0 : bad("sigtimedwait", 0); }
static int w_pause(W *w) { pause(); return IS(w->handled, 1); }
static int w_sigsuspend(W *w) {
    sigset_t set = only(SIGUSR1), empty;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigemptyset(&empty);
    sigsuspend(&empty);
    return IS(w->handled, 1);
}
static void m_semop(W *w) { w->id = semget(IPC_PRIVATE, 1, 0600); semctl(w->id, 0, SETVAL, 0); }
static int w_semop(W *w) { struct sembuf b = {0, -1, 0}; return IS(semop(w->id, &b, 1), 0); }
static int w_semtimedop(W *w) { struct sembuf b = {0, -1, 0}; errno = 0; return semtimedop(w->id, &b, 1, &TWO) == -1 && errno == EAGAIN ? 0 : bad("semtimedop", 0); }
static void semop_wake(W *w) { struct sembuf b = {0, 1, 0}; semop(w->id, &b, 1); }
struct message { long type; char text[8192]; };
static void m_queue(W *w) { w->id = msgget(IPC_PRIVATE, 0600); }
static int w_msgrcv(W *w) { struct message m; return IS(msgrcv(w->id, &m, sizeof m.text, 0, 0), 4); }
static void msgrcv_wake(W *w) { struct message m = {1, "abc"}; msgsnd(w->id, &m, 4, 0); }
static void m_full_queue(W *w) { m_queue(w); struct message m = {1, ""}; while (msgsnd(w->id, &m, sizeof m.text, IPC_NOWAIT) == 0) {} }
static int w_msgsnd(W *w) { struct message m = {1, ""}; return IS(msgsnd(w->id, &m, sizeof m.text, 0), 0); }
static void msgsnd_wake(W *w) { struct message m; msgrcv(w->id, &m, sizeof m.text, 0, 0); }
static void m_mq(W *w) { snprintf(w->path, sizeof w->path, "/w%d.%lx", getpid(), (long)w & 0xffff); struct mq_attr a = {.mq_maxmsg = 1, .mq_msgsize = 8}; w->id = mq_open(w->path, O_CREAT | O_RDWR, 0600, &a); mq_unlink(w->path); }
static int w_mq(W *w) { if (w->id < 0) return 0; char c[8]; return IS(mq_receive(w->id, c, 8, NULL), 3); }
static void mq_wake(W *w) { if (w->id >= 0) mq_send(w->id, "abc", 3, 0); }
static void m_flock(W *w) { snprintf(w->path, sizeof w->path, "./%lx.lock", (long)w); w->a[0] = open(w->path, O_CREAT | O_RDWR, 0600); w->a[1] = open(w->path, O_RDWR); flock(w->a[0], LOCK_EX); }
static int w_flock(W *w) { return IS(flock(w->a[1], LOCK_EX), 0); }
static void flock_wake(W *w) { flock(w->a[0], LOCK_UN); }
static struct flock ofd(short type) { return (struct flock){.l_type = type, .l_whence = SEEK_SET}; }
static void m_fcntl(W *w) { m_flock(w); struct flock l = ofd(F_WRLCK); fcntl(w->a[0], F_OFD_SETLK, &l); }
static int w_fcntl(W *w) { struct flock l = ofd(F_WRLCK); return IS(fcntl(w->a[1], F_OFD_SETLKW, &l), 0); }
static void fcntl_wake(W *w) { struct flock l = ofd(F_UNLCK); fcntl(w->a[0], F_OFD_SETLK, &l); }
static void m_child(W *w) { piped(w); fcntl(w->a[1], F_SETFD, FD_CLOEXEC); w->pid = fork(); if (w->pid == 0) { char c; close(w->a[1]); KEEP(read(w->a[0], &c, 1)); _exit(7); } }
static int w_waitpid(W *w) { int status; if (waitpid(w->pid, &status, 0) != w->pid) return bad("waitpid", 0); return IS(status, 7 << 8); }
static int w_waitid(W *w) { siginfo_t info; if (waitid(P_PID, w->pid, &info, WEXITED)) return bad("waitid", 0); return IS(info.si_status, 7); }
static void m_fifo(W *w) { snprintf(w->path, sizeof w->path, "./%lx.fifo", (long)w); mkfifo(w->path, 0600); }
static int w_fifo(W *w) { return IS(open(w->path, O_RDONLY) > 0, 1); }
static void fifo_wake(W *w) { open(w->path, O_WRONLY); }
static int w_getevents(W *w) {
    aio_context_t context = 0;
    struct io_event event;
    if (syscall(SYS_io_setup, 4, &context)) return 0;
    char c;
    struct iocb block = {.aio_fildes = w->a[0], .aio_lio_opcode = IOCB_CMD_POLL, .aio_buf = POLLIN}, *blocks[] = {&block};
    (void)c;
    if (syscall(SYS_io_submit, context, 1, blocks) != 1) return bad("io_submit", 0);
    return IS(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
}
// A ring of io_uring without a library: one poll of a pipe, and a wait for it.
struct sqe { unsigned char opcode, flags; unsigned short priority; int fd; unsigned long off, addr; unsigned len, poll; unsigned long user; unsigned long pad[3]; };
static int w_io_uring(W *w) {
    unsigned p[30] = {0};
    int ring = syscall(425, 4, p);
    if (ring < 0) return 0; // not allowed here
    unsigned *o = p + 10; // io_sqring_offsets
    char *sq = mmap(NULL, 4096 * 2, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    struct sqe *entries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0x10000000);
    memset(entries, 0, sizeof *entries);
    entries[0].opcode = 6; // IORING_OP_POLL_ADD
    entries[0].fd = w->a[0];
    entries[0].poll = POLLIN;
    unsigned *tail = (unsigned *)(sq + o[1]), *array = (unsigned *)(sq + o[6]);
    array[0] = 0;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(426, ring, 1, 0, 0, NULL, 0) != 1) return bad("io_uring submit", 0);
    return IS(syscall(426, ring, 0, 1, 1, NULL, 0), 0);
}
static int w_vfork(W *w) { // the child stays for a while before it is another program
    (void)w;
    pid_t pid = vfork();
    if (pid == 0) { struct timespec t = {1, 0}; syscall(SYS_nanosleep, &t, NULL); _exit(5); }
    int status;
    if (waitpid(pid, &status, 0) != pid) return bad("waitpid", 0);
    return IS(status, 5 << 8);
}
static int w_spawns(W *w) {
    for (int i = 0; i < 400 && !w->open; i++) {
        pid_t pid;
        char *words[] = {"true", NULL};
        if (posix_spawn(&pid, "/bin/true", NULL, NULL, words, NULL)) return bad("posix_spawn", 0);
        int status;
        if (waitpid(pid, &status, 0) != pid || status) return bad("waitpid", status);
    }
    return 0;
}
static void opened(W *w) { w->open = 1; }
static int w_fsync(W *w) { int fd = open("./synced", O_CREAT | O_RDWR, 0600); while (!w->open) { if (pwrite(fd, w, 64, 0) != 64 || fsync(fd)) return bad("fsync", 0); } return 0; }

static struct kind { const char *name; void (*make)(W *); int (*wait)(W *); void (*wake)(W *); int timed; } kinds[] = {
    {"read", piped, w_read, pipe_wake, 0}, {"write", filled, w_write, drain, 0},
    {"epoll_wait", piped, w_epoll, pipe_wake, 0}, {"epoll_wait_time", piped, w_epoll_time, none, 1}, {"epoll_pwait", piped, w_epoll_pwait, pipe_wake, 0},
    {"poll", piped, w_poll, pipe_wake, 0}, {"poll_time", piped, w_poll_time, none, 1},
    {"ppoll", piped, w_ppoll, pipe_wake, 0}, {"ppoll_time", piped, w_ppoll_time, none, 1},
    {"select", piped, w_select, pipe_wake, 0}, {"select_time", none, w_select_time, none, 1}, {"pselect", piped, w_pselect, pipe_wake, 0},
    {"nanosleep", none, w_nanosleep, none, 1}, {"clock_nanosleep", none, w_clock_nanosleep, none, 1}, {"sleep", none, w_sleep, none, 1},
    {"sem_wait", m_sem, w_sem_wait, sem_wake, 0}, {"sem_timedwait", m_sem, w_sem_time, none, 1},
    {"cond_wait", m_cond, w_cond, cond_wake, 0}, {"cond_timedwait", m_cond, w_cond_time, none, 1},
    {"mutex", m_mutex, w_mutex, mutex_wake, 0}, {"mutex_pi", m_pi, w_mutex, mutex_wake, 0},
    {"eventfd", m_eventfd, w_eventfd, eventfd_wake, 0}, {"timerfd", none, w_timerfd, none, 1}, {"inotify", m_inotify, w_inotify, inotify_wake, 0},
    {"signalfd", none, w_signalfd, user2, 0},
    {"accept", m_listen, w_accept, accept_wake, 0}, {"accept_limit", m_listen_limit, w_accept, accept_wake, 0}, {"accept4_limit", m_listen_limit, w_accept4, accept_wake, 0},
    {"connect", m_backlog, w_connect, connect_wake, 0}, {"connect_limit", m_backlog, w_connect_limit, connect_wake, 0},
    {"recv", m_stream, w_recv, pipe_wake, 0}, {"recv_limit", m_stream_limit, w_recv, pipe_wake, 0}, {"read_limit", m_stream_limit, w_read, pipe_wake, 0},
    {"recvmsg_limit", m_datagram_limit, w_recvmsg, pipe_wake, 0}, {"recvmmsg_limit", m_datagram_limit, w_recvmmsg, pipe_wake, 0},
    {"recv_all", half, w_recv_all, rest, 0},
    {"send_limit", m_full_socket, w_send, drain_socket, 0}, {"sendmsg_limit", m_full_socket, w_sendmsg, drain_socket, 0}, {"sendmmsg_limit", m_full_socket, w_sendmmsg, drain_socket, 0},
    {"write_big", piped, w_write_big, drain_big, 0},
    {"sigwait", none, w_sigwait, user2, 0}, {"sigwaitinfo", none, w_sigwaitinfo, user2, 0}, {"sigtimedwait", none, w_sigtimedwait, none, 1},
    {"pause", none, w_pause, user, 0}, {"sigsuspend", none, w_sigsuspend, user, 0},
    {"semop", m_semop, w_semop, semop_wake, 0}, {"semtimedop", m_semop, w_semtimedop, none, 1},
    {"msgrcv", m_queue, w_msgrcv, msgrcv_wake, 0}, {"msgsnd", m_full_queue, w_msgsnd, msgsnd_wake, 0}, {"mq_receive", m_mq, w_mq, mq_wake, 0},
    {"flock", m_flock, w_flock, flock_wake, 0}, {"fcntl", m_fcntl, w_fcntl, fcntl_wake, 0},
    {"waitpid", m_child, w_waitpid, pipe_wake, 0}, {"waitid", m_child, w_waitid, pipe_wake, 0}, {"fifo", m_fifo, w_fifo, fifo_wake, 0},
    {"io_getevents", piped, w_getevents, pipe_wake, 0}, {"io_uring", piped, w_io_uring, pipe_wake, 0},
    {"vfork", none, w_vfork, none, 0}, {"spawns", none, w_spawns, opened, 0}, {"fsync", none, w_fsync, opened, 0},
};
#define KINDS (sizeof kinds / sizeof *kinds)
static W all[KINDS];
static int failures;
static volatile int awake, over;

TRACED static int wait_in(struct kind *kind, W *w, int depth) {
    int failed = depth ? wait_in(kind, w, depth - 1) : kind->wait(w);
    KEEP(&failed);
    return failed;
}
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void *thread(void *p) {
    struct kind *kind = p;
    own = &all[kind - kinds];
    double start = now();
    int failed = wait_in(kind, own, 5);
    double took = now() - start;
    if (kind->timed && took < SECONDS) failed = bad("too early, ms", took * 1000);
    if (!kind->timed && !awake && kind->wait != w_vfork && kind->wait != w_spawns && !(kind->wait == w_mq && own->id < 0)) failed = bad("woken without a reason", 0);
    if (failed) { fprintf(stderr, "FAILED: %s\n", kind->name); __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED); }
    return NULL;
}
TRACED static long work(long n) { KEEP(&n); return n * 3 + 1; }
static void *busy(void *p) { long n = (long)p; while (!over) for (int i = 0; i < 1000; i++) n = work(n) & 0xffff; return NULL; }
static int wanted(int argc, char **argv, const char *name) {
    int names = 0;
    for (int i = 1; i < argc; i++) { if (argv[i][0] == '-') continue; names++; if (!strcmp(argv[i], name)) return 1; }
    return !names && strcmp(name, "vfork") && strcmp(name, "recv_all") && strcmp(name, "write_big") && strcmp(name, "fsync") && strcmp(name, "spawns") && strcmp(name, "io_uring") && strcmp(name, "recvmmsg_limit") && strcmp(name, "sendmmsg_limit") && strcmp(name, "connect_limit");
}
int main(int argc, char **argv) { // -bN: N busy threads; -xN: so often each wait
    int busies = 0;
    pthread_t t[256];
    for (int i = 1; i < argc; i++) if (!strncmp(argv[i], "-b", 2)) busies = atoi(argv[i] + 2);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    signal(SIGCHLD, SIG_DFL);
    sigset_t set = only(SIGUSR2); // blocked in main, so that no other thread gets it
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (unsigned i = 0; i < KINDS; i++) if (wanted(argc, argv, kinds[i].name)) kinds[i].make(&all[i]);
    for (unsigned i = 0; i < KINDS; i++) if (wanted(argc, argv, kinds[i].name)) pthread_create(&all[i].thread, NULL, thread, &kinds[i]);
    for (long i = 0; i < busies; i++) pthread_create(&t[i], NULL, busy, (void *)i);
    usleep(100000);
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) {}
    awake = 1;
    for (unsigned i = 0; i < KINDS; i++) if (wanted(argc, argv, kinds[i].name)) kinds[i].wake(&all[i]);
    for (unsigned i = 0; i < KINDS; i++) if (wanted(argc, argv, kinds[i].name)) pthread_join(all[i].thread, NULL);
    over = 1;
    for (int i = 0; i < busies; i++) pthread_join(t[i], NULL);
    for (unsigned i = 0; i < KINDS; i++) { if (all[i].id > 0) { if (kinds[i].make == m_semop) semctl(all[i].id, 0, IPC_RMID); if (kinds[i].make == m_queue || kinds[i].make == m_full_queue) msgctl(all[i].id, IPC_RMID, NULL); } }
    printf("failures %d\n", failures);
    return failures != 0;
}
