"""Devices: where values live and ops run.

A device is (job, task, kind, index), written `/job:worker/task:0/cpu:1`; the short form `cpu:1` leaves out what is
local. Eager tensors live on `cpu:0`; graphs may place ops on further (virtual) CPU devices and on the `ref` device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS = ("cpu", "ref")


class Device(NamedTuple):
    """A device on which values are stored and ops run. Printed in the shortest form.

    >>> wf.zeros(2).device
    device('cpu:0')
    """

    kind: str = "cpu"
    index: int = 0  # type: ignore[assignment]  # hides tuple.index
    job: str = "local"
    task: int = 0

    def __str__(self) -> str:
        short = f"{self.kind}:{self.index}"
        return short if (self.job, self.task) == ("local", 0) else f"/job:{self.job}/task:{self.task}/{short}"

    def __repr__(self) -> str:
        return f"device('{self}')"

    @property
    def type(self) -> str:
        """PyTorch's word for `kind`."""
        return self.kind


CPU = Device()


def as_device(device: Any) -> Device:
    """A Device from a Device or from text: `cpu`, `cpu:1`, `/job:worker/task:3/cpu:0`."""
    if isinstance(device, Device):
        return device
    if isinstance(getattr(device, "value", None), Device):  # `wf.device("cpu")`
        return device.value
    if not isinstance(device, str):
        raise TypeError(f"device: expected a Device or a string such as 'cpu:0'. Got {device!r}.")
    kind, index, job, task = "cpu", 0, "local", 0
    try:
        for part in device.strip("/").split("/"):
            name, _, value = part.partition(":")
            if name == "job":
                job = value
            elif name == "task":
                task = int(value)
            elif name in KINDS:
                kind, index = name, int(value or 0)
            else:
                raise ValueError(name)
        if index < 0 or task < 0 or not job:
            raise ValueError(device)
    except ValueError:
        raise ValueError(
            f"device: cannot read {device!r}. Expected a kind of {KINDS} with an index, such as 'cpu:0', or "
            "'/job:worker/task:0/cpu:0'."
        ) from None
    return Device(kind, index, job, task)


def device_of(data: Any) -> Device:
    """The device of `data`, an array or a graph value."""
    return getattr(data, "device", None) if not hasattr(data, "__array_interface__") else CPU  # type: ignore[return-value]
