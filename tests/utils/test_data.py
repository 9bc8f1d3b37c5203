"""`weft.utils`: the modules of `torch.utils` that programs import, with PyTorch's arguments."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.utils import checkpoint, data, dlpack
from weft.utils.data.distributed import DistributedSampler


class Squares(data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        info = data.get_worker_info()
        return index, float(getattr(Squares, "start", -1)) if info is not None else float(index**2)


def initialize(worker):
    Squares.start = 10 + worker


def test_loaders_take_pytorchs_arguments():
    dataset = data.TensorDataset(wf.arange(6), wf.ones(6))
    loader = data.DataLoader(
        dataset, 4, True, None, None, 0, None, True, False, 0, None, None, wf.Generator(0), pin_memory_device="cuda"
    )
    seen = [x for batch in loader for x in batch[0].tolist()]
    assert sorted(seen) == list(range(6)) and len(loader) == 2 and loader.dataset is dataset
    assert [x.tolist() for x, _ in data.DataLoader(dataset, batch_size=4, drop_last=True)] == [[0, 1, 2, 3]]
    subset = data.SubsetRandomSampler([1, 3, 5])
    assert sorted(x for batch, _ in data.DataLoader(dataset, 2, sampler=subset) for x in batch.tolist()) == [1, 3, 5]
    single = data.DataLoader(dataset, batch_size=None, shuffle=False)
    assert [int(x) for x, _ in single] == list(range(6))


@pytest.mark.xdist_group("distributed")
def test_worker_init_fn_runs_in_each_worker():
    loader = data.DataLoader(Squares(), batch_size=3, num_workers=1, worker_init_fn=initialize, timeout=60)
    assert [y.tolist() for _, y in loader] == [[10.0] * 3, [10.0] * 3]
    loader.close()


def test_samplers_and_datasets():
    assert sorted(data.RandomSampler(Squares(), True, 20)) != list(range(20))
    assert len(list(data.RandomSampler(Squares(), num_samples=4))) == 4
    shares = [list(DistributedSampler(Squares(), num_replicas=2, rank=r, seed=3)) for r in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(6))
    with pytest.raises(ValueError, match="pass num_replicas and rank"):
        DistributedSampler(Squares())

    class Numbers(data.IterableDataset):
        def __iter__(self):
            return iter([1, 2])

    assert list(data.ChainDataset([Numbers(), Numbers()])) == [1, 2, 1, 2]
    stacked = data.StackDataset(Squares(), [chr(97 + i) for i in range(6)])
    assert stacked[1] == ((1, 1.0), "b") and len(stacked) == 6
    with pytest.raises(ValueError, match="one length"):
        data.StackDataset([1], [1, 2])
    with pytest.raises(ValueError, match="either by position or by name"):
        data.StackDataset()
    converted = data.default_convert([np.ones(2), {"a": np.float32(1)}, "text"])
    assert isinstance(converted[0], wf.Tensor) and converted[2] == "text"
    first, second = data.random_split(Squares(), [4, 2])
    assert len(first) == 4 and len(second) == 2


def test_modules_are_importable_where_pytorch_has_them():
    import weft.optim.lr_scheduler
    import weft.utils.data.dataloader
    import weft.utils.data.dataset
    import weft.utils.data.sampler
    import weft.utils.tensorboard

    assert weft.utils.tensorboard.SummaryWriter is wf.io.SummaryWriter
    assert weft.optim.lr_scheduler.StepLR and weft.utils.data.sampler.SubsetRandomSampler
    from weft.nn.utils import stateless
    from weft.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence, unpack_sequence, unpad_sequence

    parts = [wf.ones(3, 2), 2 * wf.ones(1, 2)]
    packed = pack_sequence(parts)
    assert isinstance(packed, PackedSequence)
    for a, b in zip(unpack_sequence(packed), parts, strict=True):
        assert a.tolist() == b.tolist()
    padded = pad_sequence(parts, batch_first=True)
    assert [x.shape for x in unpad_sequence(padded, wf.tensor([3, 1]), batch_first=True)] == [(3, 2), (1, 2)]
    with pytest.raises(ValueError, match="expected 2 lengths"):
        unpad_sequence(padded, [3], batch_first=True)
    assert stateless.functional_call is wf.func.functional_call


def test_checkpoints_give_the_same_gradients():
    wf.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 1))
    x = wf.randn(5, 3)
    results = []
    for run in (
        lambda: model(x),
        lambda: checkpoint.checkpoint(model, x, use_reentrant=False, preserve_rng_state=True),
        lambda: checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=False),
    ):
        wf.manual_seed(1)
        model.zero_grad()
        run().sum().backward()
        results.append([p.grad.numpy().copy() for p in model.parameters()])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(ValueError, match="segments must be from 1 to 4"):
        checkpoint.checkpoint_sequential(model, 9, x)


def test_dlpack_shares_memory():
    x = wf.zeros(3)
    y = np.from_dlpack(x)
    x[0] = 7.0
    assert y[0] == 7 and type(dlpack.to_dlpack(x)).__name__ == "PyCapsule"
    assert dlpack.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
