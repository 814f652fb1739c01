/* Loads a library written in Go and calls it; with "stay", once more for each line of input. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	int (*crunch)(int) = library ? (int (*)(int))dlsym(library, "Crunch") : NULL;
	char line[64];

	if (!crunch)
		return puts(dlerror()), 1;
	printf("%d\n", crunch(1000));
	if (argc > 2) {
		puts("ready");
		fflush(stdout);
		while (fgets(line, sizeof(line), stdin)) {
			printf("done %d\n", crunch(1000));
			fflush(stdout);
		}
	}
	return 0;
}
