"""Elementwise ops: scalar expression, gradient rules and test samples of each.

Names and dtype rules follow the array API; functions such as `exp` also accept integers, which are converted to the
default float. Gradient rules are written with the ops of this folder. Other files import from here what they use.
"""

from .arithmetic import NEGATIVE_POWER as NEGATIVE_POWER
from .arithmetic import abs_ as abs_
from .arithmetic import check_exponents as check_exponents
from .arithmetic import clip as clip
from .arithmetic import copysign as copysign
from .arithmetic import floor as floor
from .arithmetic import floor_divide as floor_divide
from .arithmetic import isfinite as isfinite
from .arithmetic import isinf as isinf
from .arithmetic import isnan as isnan
from .arithmetic import maximum as maximum
from .arithmetic import minimum as minimum
from .arithmetic import multiply as multiply
from .arithmetic import positive as positive
from .arithmetic import pow as pow
from .arithmetic import remainder as remainder
from .arithmetic import round as round
from .arithmetic import sign as sign
from .arithmetic import square as square
from .arithmetic import subtract as subtract
from .arithmetic import trunc as trunc
from .conversion import astype as astype
from .conversion import cast as cast
from .conversion import conj as conj
from .conversion import imag as imag
from .conversion import make_complex as make_complex
from .conversion import real as real
from .logic import equal as equal
from .logic import greater as greater
from .logic import less as less
from .logic import less_equal as less_equal
from .logic import logical_and as logical_and
from .logic import logical_not as logical_not
from .logic import logical_or as logical_or
from .logic import not_equal as not_equal
from .logic import where as where
from .transcendental import cos as cos
from .transcendental import erf as erf
from .transcendental import exp as exp
from .transcendental import expm1 as expm1
from .transcendental import log as log
from .transcendental import log1p as log1p
from .transcendental import norm_sqrt as norm_sqrt
from .transcendental import rsqrt as rsqrt
from .transcendental import sigmoid as sigmoid
from .transcendental import sin as sin
from .transcendental import sqrt as sqrt
from .transcendental import tan as tan
from .transcendental import tanh as tanh
