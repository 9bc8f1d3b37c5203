"""Optimising an input instead of weights: which image does a trained network call the clearest 3?

python examples/optimise_an_input.py              # seconds
python examples/optimise_an_input.py --digit 7
"""

import argparse

import numpy as np

import weft as wf
from weft import models, optim
from weft.data import DataLoader, digits
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300, help="steps of training, and then of changing the image")
parser.add_argument("--digit", type=int, default=3, choices=range(10))
parser.add_argument("--smooth", type=float, default=2.0, help="how much differences between neighbours cost")
options = parser.parse_args()

# A network that knows digits -----------------------------------------------------------------------------------------
wf.manual_seed(0)
model = models.lenet(image_size=8)
optimizer = optim.Adam(model.parameters(), lr=3e-3)


@wf.function
def train(images, labels):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def batches():
    loader = DataLoader(digits("train"), batch_size=64, shuffle=True, drop_last=True, seed=0)
    while True:
        yield from loader


for _, (images, labels) in zip(range(options.steps), batches()):
    train(images, labels)

# The image: everything else stands still ------------------------------------------------------------------------------
model.eval()
for p in model.parameters():
    p.requires_grad_(False)
raw = (0.1 * wf.randn(1, 1, 8, 8)).requires_grad_()  # sigmoid(raw) is the image, so that every pixel stays in [0, 1]
painter = optim.Adam([raw], lr=0.05)


@wf.function
def paint():
    image = wf.sigmoid(raw)
    score = F.log_softmax(model(image), axis=-1)[0, options.digit]
    rough = F.mse_loss(image[:, :, 1:], image[:, :, :-1]) + F.mse_loss(image[:, :, :, 1:], image[:, :, :, :-1])
    loss = -score + options.smooth * rough
    painter.zero_grad()
    loss.backward()
    painter.step()
    return score.exp()


first = float(paint())
for _ in range(options.steps):
    last = float(paint())

with wf.no_grad():
    picture = wf.sigmoid(raw)[0, 0].numpy()
print("\n".join("".join(" .:-=+*#%@"[int(9.99 * pixel)] * 2 for pixel in row) for row in picture))

known = digits("test")
likes = [image.reshape(8, 8) for image, label in known if int(label) == options.digit]
agreement = np.corrcoef(np.mean(likes, axis=0).ravel(), picture.ravel())[0, 1]
print(f"probability of {options.digit}: {first:.4f} before, {last:.4f} after")
print(f"correlation with the average {options.digit} of the test set: {agreement:.2f}")
