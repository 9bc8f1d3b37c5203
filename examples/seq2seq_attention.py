"""Sequence to sequence with attention: a small GNMT learns to write a sequence of tokens backwards.

python examples/seq2seq_attention.py              # most sequences right, in about a minute
python examples/seq2seq_attention.py --steps 20   # a quick look
"""

import argparse

import numpy as np

import weft as wf
from weft import models, nn, optim
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--length", type=int, default=8)
parser.add_argument("--vocabulary", type=int, default=20)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--lr", type=float, default=5e-3)
options = parser.parse_args()

START = 0  # the token that begins every target; the others carry the message

wf.manual_seed(0)
rng = np.random.default_rng(0)
model = models.gnmt_v2(options.vocabulary, options.width, layers=2, dropout=0.0)
optimizer = optim.Adam(model.parameters(), lr=options.lr)
schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps)


def make_batch(n):
    """Random sequences and the same ones backwards."""
    source = rng.integers(1, options.vocabulary, (n, options.length))
    return wf.asarray(source), wf.asarray(source[:, ::-1].copy())


def given(target):
    """What the decoder sees while it predicts `target`: START, and all but the last token."""
    start = wf.full((len(target), 1), START, dtype=target.dtype)
    return wf.concat([start, target[:, :-1]], axis=1)


@wf.function
def step(source, target):
    logits = model(source, given(target))
    loss = F.cross_entropy(logits.reshape(-1, options.vocabulary), target.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def translate(source):
    """Greedy decoding: the likeliest token is appended, one after another."""
    with wf.no_grad():
        states = model.encoder(source)
        tokens = wf.full((len(source), 1), START, dtype=source.dtype)
        for _ in range(options.length):
            likeliest = model.decoder(tokens, states)[:, -1].argmax(axis=-1)
            tokens = wf.concat([tokens, likeliest.reshape(-1, 1)], axis=1)
    return tokens[:, 1:]


for number in range(1, options.steps + 1):
    loss = step(*make_batch(options.batch))
    schedule.step()
    if number % 100 == 0 or number == options.steps:
        print(f"step {number:4d}  loss {float(loss):.4f}")

model.eval()
source, target = make_batch(200)
written = translate(source)
print(f"for example {source[0].tolist()} -> {written[0].tolist()}")
right = (written == target).numpy()
print(f"tokens right {right.mean():.2%}, whole sequences right {right.all(axis=1).mean():.2%}")
