// A program with an interpreter inside, which it ends and begins anew; with further interpreters,
// one after the other.
#include <Python.h>

static const char *code = "def square(x):\n"
                          "    return x * x\n"
                          "for n in range(7):\n"
                          "    square(n)\n";

int main(void) {
    int wrong = 0;
    for (int turn = 0; turn < 3; turn++) {
        Py_Initialize();
        wrong |= PyRun_SimpleString(code);
        PyThreadState *own = PyThreadState_Get();
        for (int more = 0; more < 2; more++) {
            PyThreadState *other = Py_NewInterpreter();
            wrong |= PyRun_SimpleString(code);
            Py_EndInterpreter(other);
            PyThreadState_Swap(own);
        }
        wrong |= Py_FinalizeEx();
    }
    puts(wrong ? "wrong" : "right");
    return wrong != 0;
}
