"""`weft.backends.mkldnn`: whether oneDNN, which was called MKL-DNN, is used."""

from __future__ import annotations

enabled: bool = True


def is_available() -> bool:
    """Whether oneDNN can be used.

    >>> import weft.backends.mkldnn
    >>> isinstance(weft.backends.mkldnn.is_available(), bool)
    True
    """
    from .onednn.library import available

    return available()
