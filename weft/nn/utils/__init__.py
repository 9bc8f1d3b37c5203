"""Training utilities: gradient clipping, parametrizations, flattened parameters, sequence packing."""

from __future__ import annotations

from . import parametrizations as parametrizations
from . import parametrize as parametrize
from . import rnn as rnn
from .clip_grad import clip_grad_norm_ as clip_grad_norm_
from .clip_grad import clip_grad_value_ as clip_grad_value_
from .clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from .clip_grad import get_total_norm as get_total_norm
from .convert_parameters import count_parameters as count_parameters
from .convert_parameters import parameters_to_vector as parameters_to_vector
from .convert_parameters import vector_to_parameters as vector_to_parameters
from .rnn import pack_padded_sequence as pack_padded_sequence
from .rnn import pack_sequence as pack_sequence
from .rnn import pad_packed_sequence as pad_packed_sequence
from .rnn import pad_sequence as pad_sequence
from .rnn import unpack_sequence as unpack_sequence
from .rnn import unpad_sequence as unpad_sequence
from .spectral_norm import remove_spectral_norm as remove_spectral_norm
from .spectral_norm import spectral_norm as spectral_norm
from .weight_norm import remove_weight_norm as remove_weight_norm
from .weight_norm import weight_norm as weight_norm
