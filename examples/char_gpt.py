"""A small GPT that learns to write like a text, character by character, and then writes some.

python examples/char_gpt.py                          # Alice in Wonderland, a few minutes
python examples/char_gpt.py --text my.txt --steps 2000 --layers 6 --width 192
"""

import argparse
import time

import weft as wf
from weft import models, optim
from weft.data import CharacterDataset, DataLoader, text_corpus
from weft.nn import functional as F
from weft.nn.utils import clip_grad_norm_

parser = argparse.ArgumentParser()
parser.add_argument("--text", help="a text file; without it Alice in Wonderland")
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--block", type=int, default=64, help="characters the model looks back")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--sample", type=int, default=400, help="characters to write at the end")
options = parser.parse_args()

text = open(options.text, encoding="utf-8").read() if options.text else text_corpus("alice")
cut = int(0.9 * len(text))
data = CharacterDataset(text[:cut], options.block, vocabulary=sorted(set(text)))
held_out = CharacterDataset(text[cut:], options.block, stride=options.block, vocabulary=data.vocabulary)

wf.manual_seed(0)
model = models.gpt(len(data.vocabulary), options.block, options.layers, options.heads, options.width)
decayed = [p for p in model.parameters() if p.ndim >= 2]
others = [p for p in model.parameters() if p.ndim < 2]
optimizer = optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
    lr=options.lr,
    betas=(0.9, 0.99),
)
warmup = max(1, options.steps // 20)
schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, (t + 1) / warmup) * max(0.05, 1 - t / options.steps))
print(
    f"{sum(p.size for p in model.parameters()):,} parameters, {len(data):,} windows, {len(data.vocabulary)} characters"
)


def loss_of(x, y):
    scores = model(x)
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))


@wf.function
def step(x, y):
    optimizer.zero_grad()
    loss = loss_of(x, y)
    loss.backward()
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


loader = DataLoader(data, batch_size=options.batch, shuffle=True, drop_last=True, seed=0)
started = time.perf_counter()
for number, (x, y) in zip(range(1, options.steps + 1), loader):
    loss = step(x, y)
    schedule.step()
    if number % 100 == 0 or number == options.steps:
        speed = number * options.batch * options.block / (time.perf_counter() - started)
        print(f"step {number:5d}  loss {float(loss):.4f}  {speed:,.0f} characters/s", flush=True)

model.eval()
with wf.no_grad():
    losses = [float(loss_of(x, y)) for x, y in DataLoader(held_out, batch_size=64, drop_last=len(held_out) >= 64)]
print(f"held-out loss {sum(losses) / len(losses):.4f} per character\n")

start = data.encode("\n")[None]
print(data.decode(model.generate(start, options.sample, temperature=0.8, top_k=20)).strip())
