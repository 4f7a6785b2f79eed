"""A device that is none: NumPy's arrays in a wrapper that, like CuPy's, mixes with no others and is never copied in silence."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from headcount._device import Device


def _inner(value):
    """NumPy's array in a wrapper; numbers as they are; arrays that are not on the device are refused."""
    if isinstance(value, Array):
        return value.inner
    if isinstance(value, (list, tuple)):
        return type(value)(_inner(v) for v in value)
    if isinstance(value, dict):
        return {k: _inner(v) for k, v in value.items()}
    if (isinstance(value, np.ndarray) and value.ndim) or sparse.issparse(value):
        raise TypeError("an array of NumPy's is mixed with one of the device")
    return value


def _outer(value):
    if isinstance(value, np.ndarray) or np.isscalar(value):
        return Array(np.asarray(value))
    if isinstance(value, (list, tuple)):
        return type(value)(_outer(v) for v in value)
    return value


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on the device."""

    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion to an array of NumPy's; use host()")

    def __array_namespace__(self):
        return Namespace()

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if method != "__call__":
            return NotImplemented
        if out is not None:
            kwargs["out"] = _inner(out)
        made = getattr(ufunc, method)(*_inner(inputs), **kwargs)
        return out[0] if out is not None else _outer(made)

    def __array_function__(self, function, types, args, kwargs):
        return _outer(function(*_inner(args), **_inner(kwargs)))

    def __deepcopy__(self, memo):
        return Array(self.inner.copy())

    def get(self):
        return self.inner.copy()

    def __getitem__(self, key):
        return _outer(self.inner[_inner(key)])

    def __setitem__(self, key, value):
        self.inner[_inner(key)] = _inner(value)

    def __matmul__(self, other):
        return NotImplemented if isinstance(other, Csr) else _outer(self.inner @ _inner(other))

    def __float__(self):
        return float(self.inner)

    def __bool__(self):
        return bool(self.inner)

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        return (Array(row) for row in self.inner)

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name in {"shape", "ndim", "size", "dtype"}:
            return found
        if callable(found):
            return lambda *args, **kwargs: _outer(found(*_inner(args), **_inner(kwargs)))
        return _outer(found)


class Namespace:
    """NumPy's functions on the device: what they make is there, and only arrays of NumPy's that are put there."""

    __name__ = "fake"

    class add:  # noqa: D106
        @staticmethod
        def at(array, where, values):
            np.add.at(array.inner, _inner(where), _inner(values))

    class linalg:  # noqa: D106
        @staticmethod
        def cholesky(matrix):
            return Array(np.linalg.cholesky(matrix.inner))

    @staticmethod
    def solve_triangular(factor, right, trans, lower):
        return Array(solve_triangular(factor.inner, right.inner, trans=trans, lower=lower))

    @staticmethod
    def asarray(values, *args):
        return values if isinstance(values, Array) else Array(np.array(values))

    def __getattr__(self, name):
        function = getattr(np, name)
        return lambda *args, **kwargs: _outer(function(*_inner(args), **_inner(kwargs)))


class Csr:
    """A csr matrix on the device."""

    def __init__(self, given, shape=None):
        self.inner = sparse.csr_array(_inner(given), shape=shape) if shape is not None else given

    data = property(lambda self: Array(self.inner.data))
    indices = property(lambda self: Array(self.inner.indices))
    indptr = property(lambda self: Array(self.inner.indptr))
    shape = property(lambda self: self.inner.shape)
    size = nnz = property(lambda self: self.inner.nnz)
    T = property(lambda self: Csr(self.inner.T.tocsr()))

    def __matmul__(self, other):
        return Array(self.inner @ _inner(other))

    def __gt__(self, other):
        return Csr(self.inner > other)

    def astype(self, kind):
        return Csr(self.inner.astype(kind))

    def power(self, n):
        return Csr(self.inner.power(n))

    def sum(self, axis):
        return Array(np.asarray(self.inner.sum(axis=axis)).reshape(-1, 1))

    def toarray(self):
        return Array(self.inner.toarray())


def fake_device(free=10**12):
    """The device, with so many bytes free."""
    return Device(Namespace(), Csr, lambda: free)
