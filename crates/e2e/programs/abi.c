// Passes and returns values in every way of the ABI, each through a traced function.
#include "e2e.h"
#include <complex.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdarg.h>

struct dd { double a, b; };
struct ld { long a; double b; };
struct dl { double a; long b; };
struct ll { long a, b; };
struct big { long v[9]; };
typedef float f4 __attribute__((vector_size(16)));
COUNTED(make_dd); COUNTED(make_ld); COUNTED(make_dl); COUNTED(make_ll); COUNTED(make_big); COUNTED(make_long_double);
COUNTED(make_complex); COUNTED(make_long_complex); COUNTED(make_f4); COUNTED(make_int128); COUNTED(stack_arguments);
COUNTED(sum_variadic); COUNTED(tail_to_variadic); COUNTED(first_of_thread); COUNTED(mixed); COUNTED(by_value);
#define LOOPS 30000

TRACED struct dd make_dd(double x) { HIT(make_dd); return (struct dd){x * 2, x * 3}; }
TRACED struct ld make_ld(double x) { HIT(make_ld); return (struct ld){(long)x + 7, x * 5}; }
TRACED struct dl make_dl(double x) { HIT(make_dl); return (struct dl){x * 7, (long)x + 9}; }
TRACED struct ll make_ll(long x) { HIT(make_ll); return (struct ll){x ^ 0x5555, x * 11}; }
TRACED struct big make_big(long x) { HIT(make_big); struct big r; for (int i = 0; i < 9; i++) r.v[i] = x + i; return r; }
TRACED long double make_long_double(long double x) { HIT(make_long_double); return x * 1.25L + 1; }
TRACED double complex make_complex(double complex x) { HIT(make_complex); return x * (2.0 + 1.0 * I); }
TRACED long double complex make_long_complex(long double complex x) { HIT(make_long_complex); return x + (1.0L + 0.5L * I); }
TRACED f4 make_f4(f4 x, f4 y) { HIT(make_f4); return x * y + x; }
TRACED __int128 make_int128(__int128 x) { HIT(make_int128); return x * 3 + ((__int128)1 << 80); }
TRACED long by_value(struct big b, struct dd d) { HIT(by_value); return b.v[0] + b.v[8] + (long)(d.a + d.b); }
TRACED double mixed(int a, double b, long c, float d, short e, long double f, char g, double h) {
    HIT(mixed);
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * (double)f + 7 * g + 8 * h;
}
TRACED double stack_arguments(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j,
                              double k, double l, double m, double n, double o, double p, double q, double r, double s, double t) {
    HIT(stack_arguments);
    return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k + 12*l + 13*m + 14*n + 15*o + 16*p + 17*q + 18*r + 19*s + 20*t;
}
TRACED double sum_variadic(const char *kinds, ...) {
    HIT(sum_variadic);
    double sum = 0;
    va_list all;
    va_start(all, kinds);
    for (; *kinds; kinds++)
        switch (*kinds) {
        case 'd': sum += va_arg(all, double); break;
        case 'i': sum += va_arg(all, int); break;
        case 'L': sum += (double)va_arg(all, long double); break;
        }
    va_end(all);
    return sum;
}
TRACED double tail_to_variadic(const char *kinds, double a, double b, double c) {
    HIT(tail_to_variadic);
    return sum_variadic(kinds, a, b, c);
}

__attribute__((target("avx2"))) TRACED static __m256 make_ymm(__m256 x, __m256 y) { return _mm256_add_ps(_mm256_mul_ps(x, y), y); }
__attribute__((target("avx2"))) static void test_ymm(void) {
    __m256 x = _mm256_set_ps(1, 2, 3, 4, 5, 6, 7, 8), y = _mm256_set1_ps(0.5f);
    for (int i = 0; i < LOOPS; i++) x = make_ymm(x, y);
    float out[8];
    _mm256_storeu_ps(out, x);
    printf("ymm %g %g %g %g %g %g %g %g\n", out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]);
    printf("calls make_ymm %d\n", LOOPS);
}
__attribute__((target("avx512f"))) TRACED static __m512 make_zmm(__m512 x, __m512 y) { return _mm512_add_ps(_mm512_mul_ps(x, y), y); }
__attribute__((target("avx512f"))) static void test_zmm(void) {
    __m512 x = _mm512_set1_ps(8), y = _mm512_set1_ps(0.5f);
    for (int i = 0; i < LOOPS; i++) x = make_zmm(x, y);
    float out[16];
    _mm512_storeu_ps(out, x);
    for (int i = 0; i < 16; i++) printf("zmm %g\n", out[i]);
    printf("calls make_zmm %d\n", LOOPS);
}

TRACED double first_of_thread(double a, float b, double c, double d, double e, double f, double g, double h, double i) {
    HIT(first_of_thread);
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}
UNTRACED static void *thread(void *out) {
    *(double *)out = first_of_thread(1.5, 2.5f, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5);
    return NULL;
}

int main(void) {
    struct dd d = {0, 0}; struct ld l = {0, 0}; struct dl m = {0, 0}; struct ll p = {0, 0};
    double s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0; long s6 = 0; long double q = 0; double complex z = 1; long double complex w = 0; f4 v = {1, 2, 3, 4};
    __int128 big = 1;
    for (int i = 0; i < LOOPS; i++) {
        d = make_dd(i + d.b / 1e6); l = make_ld(i + l.b / 1e6); m = make_dl(i + m.a / 1e6); p = make_ll(i + p.b % 1000);
        s1 += d.a + d.b; s2 += l.a + l.b; s3 += m.a + m.b; s6 += p.a + p.b;
        struct big b = make_big(i);
        for (int k = 0; k < 9; k++) s6 += b.v[k];
        s6 += by_value(b, d);
        q = make_long_double(q / 3 + i);
        z = make_complex(z); z /= cabs(z);
        w = make_long_complex(w * 0.5L);
        v = make_f4(v, (f4){0.5f, 0.25f, 0.125f, 0.0625f}) * (f4){0.5f, 0.5f, 0.5f, 0.5f};
        big = make_int128(big);
        s4 += stack_arguments(i, 2, 3, 4, 5, 6, 7, 8, 9, i, i * 0.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, i * 0.25);
        s5 += sum_variadic("diddLiddddddd", 1.5, i, 2.5, i * 0.5, 3.5L, 7, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0) + tail_to_variadic("ddd", i, 0.5, 0.25);
        s5 += sum_variadic("i", i) + mixed(i, 0.5, 3, 1.5f, 4, 2.5L, 'a', i * 2.0);
    }
    printf("%.17g %.17g %.17g %.17g %.17g %ld\n%.20Lg %.17g %.17g %.20Lg %.20Lg\n", s1, s2, s3, s4, s5, s6, q, creal(z), cimag(z), creall(w), cimagl(w));
    printf("%g %g %g %g %lx%016lx\n", v[0], v[1], v[2], v[3], (long)(big >> 64), (long)big);
    double sum = 0, one;
    for (int i = 0; i < 200; i++) {
        pthread_t t;
        pthread_create(&t, NULL, thread, &one);
        pthread_join(t, NULL);
        sum += one;
    }
    printf("threads %.17g\n", sum);
    SHOW(make_dd); SHOW(make_ld); SHOW(make_dl); SHOW(make_ll); SHOW(make_big); SHOW(make_long_double); SHOW(make_complex);
    SHOW(make_long_complex); SHOW(make_f4); SHOW(make_int128); SHOW(stack_arguments); SHOW(sum_variadic); SHOW(tail_to_variadic);
    SHOW(first_of_thread); SHOW(mixed); SHOW(by_value);
    if (__builtin_cpu_supports("avx2")) test_ymm(); else printf("SKIPPED: no AVX2 here\n");
    if (__builtin_cpu_supports("avx512f")) test_zmm(); else printf("SKIPPED: no AVX-512 here\n");
    return 3;
}
