"""Image classification with augmentation: a ResNet-18 on coloured shapes, cropped, flipped and recoloured anew each time.

python examples/image_augmentation.py              # a few minutes
python examples/image_augmentation.py --steps 20   # a quick look
"""

import argparse
import time

import weft as wf
from weft import models, nn, optim
from weft.data import DataLoader, map_dataset, synthetic_images, transforms
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--images", type=int, default=5000)
parser.add_argument("--test-images", type=int, default=500)
parser.add_argument("--lr", type=float, default=3e-3)
options = parser.parse_args()

MEAN, STD = 0.5, 0.25
augment = transforms.Compose(
    transforms.RandomCrop(32, padding=4),
    transforms.RandomHorizontalFlip(),
    transforms.ColorJitter(brightness=0.2, contrast=0.2),
    transforms.Normalize(MEAN, STD),
)

wf.manual_seed(0)
model = models.resnet18(num_classes=10)
model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)  # made for 224 pixels, it would leave 8 of our 32
optimizer = optim.AdamW(model.parameters(), lr=options.lr, weight_decay=1e-2)
schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=max(options.steps, 2))


@wf.function
def step(images, labels):
    loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def batches():
    dataset = map_dataset(augment, synthetic_images("train", n=options.images), element=0)
    loader = DataLoader(dataset, batch_size=options.batch, shuffle=True, drop_last=True, seed=0)
    while True:  # another epoch crops, flips and recolours the same images differently
        yield from loader


started = time.perf_counter()
for number, (images, labels) in zip(range(1, options.steps + 1), batches()):
    loss = step(images, labels)
    if number < options.steps:
        schedule.step()
    if number % 25 == 0 or number == options.steps:
        speed = options.batch * number / (time.perf_counter() - started)
        print(f"step {number:4d}  loss {float(loss):.4f}  {speed:,.0f} images/s")

model.eval()
right = 0
test = map_dataset(transforms.Normalize(MEAN, STD), synthetic_images("test", n=options.test_images), element=0)
with wf.no_grad():
    for images, labels in DataLoader(test, batch_size=100):
        right += int((model(images).argmax(axis=1) == labels).sum())
print(f"test accuracy {right / len(test):.2%}")
