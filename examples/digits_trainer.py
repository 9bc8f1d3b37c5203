"""Handwritten digits with `wf.Trainer`: metrics, validation, early stopping, checkpoints that survive `kill -9`, a loss curve.

python examples/digits_trainer.py                     # results in runs/digits-trainer
python examples/digits_trainer.py --out /tmp/mine     # kill it and start it again: it goes on, to the same bits
"""

import argparse

import weft as wf
from weft import models, nn, optim
from weft.data import DataLoader, digits, random_split, transforms
from weft.train import EarlyStopping

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="runs/digits-trainer")
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--steps", type=int, help="stop after about this many steps")
options = parser.parse_args()

wf.manual_seed(0)
train, validation = random_split(digits("train"), [0.9, 0.1])
train = train.map(transforms.RandomCrop(8, padding=1), element=0)
train_loader = DataLoader(train, batch_size=64, shuffle=True, seed=0)
val_loader = DataLoader(validation, batch_size=len(validation))
epochs = options.epochs if options.steps is None else max(1, options.steps // len(train_loader))

model = models.lenet(image_size=8, channels=(32, 64))
optimizer = optim.AdamW(model.parameters(), lr=0.006)
schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.006, total_steps=epochs * len(train_loader))

trainer = wf.Trainer(
    model,
    optimizer,
    nn.CrossEntropyLoss(label_smoothing=0.1),
    metrics=["accuracy", "top3"],
    callbacks=[EarlyStopping(patience=10)],
    scheduler=schedule,
    schedule_every="step",
    checkpoint_dir=f"{options.out}/checkpoints",
    resume="auto",
    log_dir=options.out,
)
trainer.fit(train_loader, val_loader, epochs=epochs)

test = digits("test")
result = trainer.evaluate(DataLoader(test, batch_size=len(test)))
print(f"test accuracy {result['accuracy']:.2%}")
print(f"the checkpoints, the loss curve and TensorBoard's files are in {options.out}")
