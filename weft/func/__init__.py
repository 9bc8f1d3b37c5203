"""Function transforms and stateless calls of modules, under the names of `torch.func`.

>>> from weft.func import functional_call, grad, vmap
>>> model = nn.Linear(3, 1)
>>> params = dict(model.named_parameters())
>>> loss = lambda params, x, y: ((functional_call(model, params, (x,)) - y) ** 2).sum()
>>> per_sample = vmap(grad(loss), in_dims=(None, 0, 0))(params, wf.ones(5, 3), wf.ones(5, 1))
>>> per_sample["weight"].shape
(5, 1, 3)
"""

from __future__ import annotations

from .functional_call import functional_call as functional_call
from .functional_call import stack_module_state as stack_module_state
from .transforms import grad as grad
from .transforms import grad_and_value as grad_and_value
from .transforms import hessian as hessian
from .transforms import jacfwd as jacfwd
from .transforms import jacrev as jacrev
from .transforms import jvp as jvp
from .transforms import linearize as linearize
from .transforms import vjp as vjp
from .transforms import vmap as vmap
