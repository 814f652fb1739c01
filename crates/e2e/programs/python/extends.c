/* An extension module in C that Python calls, and that calls Python. */
#include <Python.h>

__attribute__((noinline)) long extends_inner(long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++)
		sum += i * i;
	__asm__ volatile("" : "+r"(sum));
	return sum;
}

__attribute__((noinline)) PyObject *extends_add(PyObject *self, PyObject *n)
{
	(void)self;
	return PyLong_FromLong(extends_inner(PyLong_AsLong(n)) + 1);
}

/* Calls a function of Python with each number below 10, and adds the results up. */
__attribute__((noinline)) PyObject *extends_each(PyObject *self, PyObject *function)
{
	long sum = 0;

	(void)self;
	for (long i = 0; i < 10; i++) {
		PyObject *result = PyObject_CallFunction(function, "l", i);

		if (!result)
			return NULL;
		sum += PyLong_AsLong(result);
		Py_DECREF(result);
	}
	return PyLong_FromLong(sum);
}

static PyMethodDef methods[] = {
	{ "add", extends_add, METH_O, NULL },
	{ "each", extends_each, METH_O, NULL },
	{ NULL, NULL, 0, NULL },
};

static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "extends", NULL, -1, methods, NULL, NULL, NULL, NULL };

PyMODINIT_FUNC PyInit_extends(void)
{
	return PyModule_Create(&module);
}
