// Functions with names of the kernel's functions, called all the time, for the kernel's own tests
// of ftrace. Argument: a module, which is open from SIGUSR1 to SIGUSR2; meanwhile there is a file
// of its name with `.open`.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile long calls;
#define FUNCTION(name) __attribute__((noinline)) void name(void) { calls++; }
FUNCTION(scheduler_tick)
FUNCTION(_raw_spin_lock)
FUNCTION(_raw_spin_unlock)
FUNCTION(_raw_spin_trylock)
FUNCTION(mutex_lock)
FUNCTION(mutex_unlock)
FUNCTION(mutex_trylock)
FUNCTION(mutex_lock_io)
FUNCTION(do_IRQ)
FUNCTION(sched_clock)
FUNCTION(do_softirq)
FUNCTION(vfs_read)
FUNCTION(smp_apic_timer)
FUNCTION(SyS_read)
FUNCTION(sys_write)
FUNCTION(printk_deferred)
FUNCTION(trylock_page)
FUNCTION(cgroup_unlock)
__attribute__((noinline)) void schedule(void) { usleep(500); calls++; }
__attribute__((noinline)) void kernel_clone(void) { _raw_spin_lock(); _raw_spin_unlock(); calls++; }
static volatile sig_atomic_t wanted;
static void want(int signal) { wanted = signal == SIGUSR1; }
static void *work(void *argument) {
    char note[4096];
    snprintf(note, sizeof note, "%s.open", argument ? (char *)argument : "");
    for (void *module = NULL;;) {
        if (wanted && !module && (module = dlopen(argument, RTLD_NOW))) fclose(fopen(note, "w"));
        void (*in_module)(void) = module ? dlsym(module, "trace_printk_irq_work") : NULL;
        if (in_module) in_module();
        if (!wanted && module && !dlclose(module)) { module = NULL; remove(note); }
        schedule();
        kernel_clone();
        scheduler_tick();
        _raw_spin_lock();
        _raw_spin_unlock();
        _raw_spin_trylock();
        mutex_lock();
        mutex_unlock();
        mutex_trylock();
        mutex_lock_io();
        do_IRQ();
        sched_clock();
        do_softirq();
        vfs_read();
        smp_apic_timer();
        SyS_read();
        sys_write();
        printk_deferred();
        trylock_page();
        cgroup_unlock();
    }
    return argument;
}
int main(int argc, char **argv) {
    pthread_t thread;
    signal(SIGUSR1, want);
    signal(SIGUSR2, want);
    pthread_create(&thread, NULL, work, argc > 1 ? argv[1] : NULL);
    puts("ready");
    fflush(stdout);
    for (char c; read(0, &c, 1) == 1;) {}
    return 0;
}
