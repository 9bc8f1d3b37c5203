"""The record format of event files: length, checksum of the length, data, checksum of the data.

Checksums are CRC-32C (Castagnoli), "masked" by a rotation and an addition, because the CRC of data that contains CRCs is
weak.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator


def _table() -> tuple[int, ...]:
    rows = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # the Castagnoli polynomial, bits reversed
        rows.append(crc)
    return tuple(rows)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C of `data`.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The masked checksum that the file stores."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """`data` framed as one record."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def read_records(data: bytes) -> Iterator[bytes]:
    """The records of a file's content, without an incomplete last one (its writer is busy, or died).

    Raises:
        ValueError: a checksum is wrong.
    """
    start = 0
    while start + 12 <= len(data):
        length, check = struct.unpack_from("<QI", data, start)
        if check != masked_crc32c(data[start : start + 8]):
            raise ValueError(f"event file: the length at byte {start} has a wrong checksum.")
        if start + 16 + length > len(data):
            return
        body = data[start + 12 : start + 12 + length]
        if struct.unpack_from("<I", data, start + 12 + length)[0] != masked_crc32c(body):
            raise ValueError(f"event file: the record at byte {start} has a wrong checksum.")
        yield body
        start += 16 + length
