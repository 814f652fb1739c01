/* Runs SQL from standard input on a database in memory: the crate with sqlite's sources has no shell.c. */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static int row(void *unused, int columns, char **values, char **names) {
    for (int i = 0; i < columns; i++)
        printf("%s%s", i ? "|" : "", values[i] ? values[i] : "");
    putchar('\n');
    return 0;
}

int main(void) {
    size_t length = 0, room = 1 << 16, got;
    char *text = malloc(room);
    while ((got = fread(text + length, 1, room - length - 1, stdin)) > 0)
        if ((length += got) + 1 == room)
            text = realloc(text, room *= 2);
    text[length] = 0;
    sqlite3 *db;
    char *error = NULL;
    if (sqlite3_open(":memory:", &db) || sqlite3_exec(db, text, row, NULL, &error)) {
        fprintf(stderr, "sqlite3: %s\n", error ? error : sqlite3_errmsg(db));
        return 1;
    }
    sqlite3_close(db);
    free(text);
    return 0;
}
