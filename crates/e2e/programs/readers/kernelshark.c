// Prints the events of a trace file as KernelShark's library returns them, in its order.
#include <libkshark.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    struct kshark_context *context = NULL;
    struct kshark_entry **entries = NULL;
    if (argc != 2 || !kshark_instance(&context)) return 1;
    int file = kshark_open(context, argv[1]);
    if (file < 0) return 2;
    ssize_t count = kshark_load_entries(context, file, &entries);
    if (count < 0) return 3;
    for (ssize_t i = 0; i < count; i++) {
        char *task = kshark_get_task(entries[i]), *event = kshark_get_event_name(entries[i]);
        char *info = kshark_get_info(entries[i]);
        printf("%lld\t%d\t%s\t%s\t%s\n", (long long)entries[i]->ts, kshark_get_pid(entries[i]), task, event, info);
        free(task);
        free(event);
        free(info);
    }
    return 0;
}
