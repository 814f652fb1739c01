/* Runs a lua script: the crate with lua's sources has no lua.c. */
#include "lua.h"
#include "lauxlib.h"
#include "lualib.h"
#include <stdio.h>

int main(int argc, char **argv) {
    lua_State *state = luaL_newstate();
    if (!state || argc < 2) {
        fprintf(stderr, "usage: lua SCRIPT [ARG...]\n");
        return 2;
    }
    luaL_openlibs(state);
    lua_createtable(state, argc, 0);
    for (int i = 1; i < argc; i++) {
        lua_pushstring(state, argv[i]);
        lua_rawseti(state, -2, i - 1);
    }
    lua_setglobal(state, "arg");
    int failed = luaL_dofile(state, argv[1]);
    if (failed)
        fprintf(stderr, "lua: %s\n", lua_tostring(state, -1));
    lua_close(state);
    return failed;
}
