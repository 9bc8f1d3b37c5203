"""Model zoo, one readable file per model. Constructors are in lower case (`lenet()`), classes in CamelCase (`LeNet`)."""

from __future__ import annotations

from .alexnet import AlexNet as AlexNet
from .alexnet import alexnet as alexnet
from .gnmt import GNMT as GNMT
from .gnmt import gnmt_v2 as gnmt_v2
from .gpt import GPT as GPT
from .gpt import gpt as gpt
from .lenet import LeNet as LeNet
from .lenet import lenet as lenet
from .mlp import MLP as MLP
from .mlp import mlp as mlp
from .mobilenet import MobileNetV1 as MobileNetV1
from .mobilenet import MobileNetV2 as MobileNetV2
from .mobilenet import mobilenet_v1 as mobilenet_v1
from .mobilenet import mobilenet_v2 as mobilenet_v2
from .ncf import NeuMF as NeuMF
from .ncf import ncf as ncf
from .registry import build as build
from .registry import constructors as constructors
from .registry import load as load
from .resnet import ResNet as ResNet
from .resnet import resnet18 as resnet18
from .resnet import resnet34 as resnet34
from .resnet import resnet50 as resnet50
from .vgg import VGG as VGG
from .vgg import vgg11 as vgg11
from .vgg import vgg16 as vgg16
from .vgg import vgg19 as vgg19
from .vit import ViT as ViT
from .vit import vit_b_16 as vit_b_16
from .vit import vit_tiny as vit_tiny
