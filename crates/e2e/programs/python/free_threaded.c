/* An interpreter of which only its symbols exist: a free-threaded CPython 3.13, as it exports them. */
const unsigned long Py_Version = 0x030d00f0;

void _Py_DecRefShared(void *object) { (void)object; }

void Py_InitializeEx(int signals) { (void)signals; }

__attribute__((noinline)) long _PyEval_EvalFrameDefault(void *state, void *frame, int thrown)
{
	return (long)state + (long)frame + thrown;
}

int main(int count, char **words)
{
	return _PyEval_EvalFrameDefault(words, words, count) == 1;
}
