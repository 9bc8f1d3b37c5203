"""Recurrent layers and cells."""

from __future__ import annotations

from typing import Any

from ...errors import format_shape
from ...ops.array.creation import empty, zeros
from ...ops.core.spec import MAX_LAYERS, check_size
from ...tensor import Tensor
from ...typing import DTypeLike
from .. import functional as F
from .. import init
from ..module import Module
from ..packed import PackedSequence
from ..parameter import Parameter
from .dtypes import check_dtype


class _Recurrent(Module):
    """Parameters `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0` … per layer, `_reverse` for the way back."""

    _gates: int
    _states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        op = type(self).__name__
        input_size = check_size(op, input_size, "input_size", 1)
        num_layers = check_size(op, num_layers, "num_layers", 1, MAX_LAYERS)
        hidden_size = check_size(op, hidden_size, "hidden_size", 1)
        if not 0 <= dropout <= 1:
            raise ValueError(f"{op}: dropout must be between 0 and 1. Got {dropout}.")
        if proj_size and (self._states != 2 or not 0 < proj_size < hidden_size):
            raise ValueError(
                f"{op}: proj_size is for LSTMs, and smaller than hidden_size={hidden_size}. Got {proj_size}."
            )
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.proj_size = proj_size
        self.batch_first, self.dropout, self.bidirectional = batch_first, float(dropout), bidirectional
        self._names: tuple[str, ...] = ()
        names = []
        rows, shown = self._gates * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else shown * (1 + bidirectional)
            for suffix in ("", "_reverse")[: 1 + bidirectional]:
                shapes: list[tuple[str, tuple[int, ...]]] = [
                    ("weight_ih", (rows, inputs)),
                    ("weight_hh", (rows, shown)),
                ]
                if bias:
                    shapes += [("bias_ih", (rows,)), ("bias_hh", (rows,))]
                if proj_size:
                    shapes += [("weight_hr", (proj_size, hidden_size))]
                for kind, shape in shapes:
                    name = f"{kind}_l{layer}{suffix}"
                    setattr(self, name, Parameter(empty(shape, dtype=dtype)))
                    names.append(name)
        self._names = tuple(names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new starting values: uniform in ±1/√hidden_size."""
        for parameter in self.parameters():
            init.fan_in_uniform_(parameter, self.hidden_size)

    @property
    def all_weights(self) -> list[Tensor]:
        """The parameters in the order in which the functions of `weft.nn.functional` take them."""
        return [getattr(self, name) for name in self._names]

    def _run(self, function: Any, x: Any, hx: Any, lengths: Any, **settings: Any) -> Any:
        packed = isinstance(x, PackedSequence)
        if packed:
            x, lengths = x
        op = type(self).__name__
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            layout = "(batch, time, features)" if self.batch_first else "(time, batch, features)"
            raise ValueError(
                f"{op}: expected an input {layout} or (time, features) with {self.input_size} features. "
                f"Got shape {format_shape(x.shape)}."
            )
        weights = self.all_weights
        check_dtype(self, x, weights[0])
        transposed = self.batch_first and x.ndim == 3 and not packed
        if transposed:
            x = x.transpose(0, 1)
        y, *states = function(
            x, hx, weights, num_layers=self.num_layers, bias=self.bias, dropout=self.dropout,
            training=self.training, bidirectional=self.bidirectional, lengths=lengths, **settings,
        )  # fmt: skip
        if transposed:
            y = y.transpose(0, 1)
        result = PackedSequence(y, lengths) if packed else y
        return result, states[0] if len(states) == 1 else tuple(states)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False),
            ("proj_size", 0),
        ):  # fmt: skip
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(_Recurrent):
    """Elman network: h' = tanh(W x + b + U h + c), or relu, over a sequence.

    Args:
        nonlinearity: "tanh" or "relu"; the other arguments are those of `LSTM`.

    >>> y, h = nn.RNN(4, 8)(wf.ones(5, 2, 4))
    >>> y.shape, h.shape
    ((5, 2, 8), (1, 2, 8))
    """

    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be 'tanh' or 'relu'. Got {nonlinearity!r}.")
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, x: Tensor | PackedSequence, hx: Tensor | None = None, lengths: Any = None) -> Any:
        """As `LSTM.forward`; the state is h alone."""
        return self._run(F.rnn, x, hx, lengths, nonlinearity=self.nonlinearity)


class GRU(_Recurrent):
    """Gated recurrent units over a sequence. Arguments as for `LSTM`; the state is h alone.

    >>> y, h = nn.GRU(4, 8, num_layers=2, batch_first=True)(wf.ones(2, 5, 4))
    >>> y.shape, h.shape
    ((2, 5, 8), (2, 2, 8))
    """

    _gates = 3

    def forward(self, x: Tensor | PackedSequence, hx: Tensor | None = None, lengths: Any = None) -> Any:
        """As `LSTM.forward`; the state is h alone."""
        return self._run(F.gru, x, hx, lengths)


class LSTM(_Recurrent):
    """Long short-term memory over a sequence.

    Args:
        input_size, hidden_size: features of the input and of the state.
        num_layers: number of stacked layers.
        bias: whether to learn biases.
        batch_first: inputs and outputs are (batch, time, features) instead of (time, batch, features).
        dropout: probability with which outputs between layers are dropped in training.
        bidirectional: also process the sequence in reverse; features of both directions are concatenated.
        proj_size: above 0, outputs and h are projected to this many features (`weight_hr_l0` …).

    >>> y, (h, c) = nn.LSTM(4, 8, batch_first=True)(wf.ones(2, 5, 4), lengths=[5, 3])
    >>> y.shape, h.shape
    ((2, 5, 8), (1, 2, 8))
    """

    _gates = 4
    _states = 2

    def forward(self, x: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None, lengths: Any = None) -> Any:
        """Run the network over `x`.

        Args:
            x: (T, N, input_size), (N, T, input_size) if batch_first, (T, input_size), or a `PackedSequence`.
            hx: (h0, c0), each (layers·directions, N, hidden_size); zeros by default.
            lengths: N integers: the real steps of each padded sequence.

        Returns:
            The outputs (packed if `x` was) and the last states (h, c).
        """
        return self._run(F.lstm, x, hx, lengths, proj_size=self.proj_size)


class _Cell(Module):
    _gates: int

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: DTypeLike | None = None) -> None:
        super().__init__()
        input_size = check_size(type(self).__name__, input_size, "input_size", 1)
        hidden_size = check_size(type(self).__name__, hidden_size, "hidden_size", 1)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self._gates * hidden_size
        self.weight_ih = Parameter(empty((rows, input_size), dtype=dtype))
        self.weight_hh = Parameter(empty((rows, hidden_size), dtype=dtype))
        self.bias_ih = Parameter(empty((rows,), dtype=dtype)) if bias else None
        self.bias_hh = Parameter(empty((rows,), dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new starting values: uniform in ±1/√hidden_size."""
        for parameter in self.parameters():
            init.fan_in_uniform_(parameter, self.hidden_size)

    def _start(self, x: Tensor) -> Tensor:
        check_dtype(self, x, self.weight_ih)
        return zeros((*x.shape[:-1], self.hidden_size), dtype=x.dtype)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """One step of an `RNN`: (N, input_size), (N, hidden_size) → (N, hidden_size)."""

    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype=dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity must be 'tanh' or 'relu'. Got {nonlinearity!r}.")
        self.nonlinearity = nonlinearity

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return F.rnn_cell(x, self._start(x) if hx is None else hx, *self._weights(), nonlinearity=self.nonlinearity)


class GRUCell(_Cell):
    """One step of a `GRU`: (N, input_size), (N, hidden_size) → (N, hidden_size).

    >>> nn.GRUCell(4, 8)(wf.ones(2, 4)).shape
    (2, 8)
    """

    _gates = 3

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return F.gru_cell(x, self._start(x) if hx is None else hx, *self._weights())


class LSTMCell(_Cell):
    """One step of an `LSTM`: (N, input_size) and (h, c) → (h, c).

    >>> h, c = nn.LSTMCell(4, 8)(wf.ones(2, 4))
    >>> h.shape, c.shape
    ((2, 8), (2, 8))
    """

    _gates = 4

    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hx is None:
            start = self._start(x)
            hx = (start, start)
        return F.lstm_cell(x, hx, *self._weights())
