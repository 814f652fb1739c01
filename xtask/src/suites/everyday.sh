# What the scripts of `everyday.rs` work on.
export HOME="$TMPDIR" TERM=dumb TZ=UTC PYTHONDONTWRITEBYTECODE=1
awk 'BEGIN { for (i = 1; i <= 1500; i++) print i, i * 7919 % 1000, "word" i % 17, "main" i % 3 }' > words.txt
sort -k3,3 -k1,1nr words.txt > other.txt
cat > in.c <<'C'
#include <stdio.h>
static int power(int base, int n) { return n == 0 ? 1 : base * power(base, n - 1); }
int main(int count, char **words) {
    switch (count) {
    case 1: printf("%d\n", power(2, 9)); break;
    case 2: puts("two"); break;
    case 3: case 4: puts(words[1]); break;
    case 5: return 7;
    default: return 9;
    }
    return 3;
}
C
awk 'BEGIN { printf "["; for (i = 1; i <= 200; i++) printf "%s{\"n\": %d, \"s\": \"x%d\", \"l\": [1, null, true, %.3f]}", i > 1 ? "," : "", i, i % 7, i / 3; print "]" }' > in.json
awk 'BEGIN { print "<r>"; for (i = 1; i <= 200; i++) printf "<e n=\"%d\"><t>%d &amp; more</t></e>\n", i, i * i; print "</r>" }' > in.xml
awk 'BEGIN { print "P3 40 30 255"; for (i = 0; i < 1200; i++) print i % 256, i * 3 % 256, i * 7 % 256 }' > in.ppm
mkdir tree && cp in.c tree/a.c && cp words.txt tree/w && mkdir tree/deep && touch -d 2020-01-02 tree/deep/old && chmod 640 tree/w
