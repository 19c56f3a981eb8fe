"""Ops of a training step in terms of ops that ONNX has, where torch's core decompositions leave them whole."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions

aten = torch.ops.aten


def training_decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's core decompositions, and those of batch norm and of the backward passes of convolution, pooling, embedding."""
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    table[aten.convolution_backward.default] = _convolution_backward
    table[aten.max_pool2d_with_indices_backward.default] = _max_pool_backward
    table[aten.avg_pool2d_backward.default] = _average_pool_backward
    table[aten.embedding_dense_backward.default] = _embedding_backward
    table[aten._native_batch_norm_legit_functional.default] = _batch_norm
    table[aten.native_batch_norm_backward.default] = _batch_norm_backward
    return table


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of a convolution of any rank, as convolutions (Dumoulin and Visin 2016, section 4).

    A transposed convolution is the backward pass of a plain one: input and gradient change places.
    """
    rank = len(stride)
    plain = [0] * rank
    input_gradient = weight_gradient = None
    if mask[0] and transposed:
        input_gradient = aten.convolution(gradient, weight, None, stride, padding, dilation, False, plain, groups)
    elif mask[0]:
        # What the strided forward pass did not reach at the end of each axis gets gradient zero.
        missed = [
            x.shape[2 + i]
            - ((gradient.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1)
            for i in range(rank)
        ]
        input_gradient = aten.convolution(gradient, weight, None, stride, padding, dilation, True, missed, groups)
    if mask[1]:
        ends = (x, gradient) if transposed else (gradient, x)
        weight_gradient = _weight_gradient(*ends, weight.shape[2:], stride, padding, dilation, groups)
    bias_gradient = gradient.sum((0, *range(2, 2 + rank))) if mask[2] else None
    return input_gradient, weight_gradient, bias_gradient


def _weight_gradient(
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """`[O, I / groups, *kernel]`: batch and channels change places within each group, stride and dilation too.

    The group goes with the channels, so that one convolution serves all groups; what overhangs is cut off.
    """
    rank = len(stride)
    images = x.transpose(0, 1)
    filters = gradient.transpose(0, 1)
    if groups > 1:
        batch, space = x.shape[0], x.shape[2:]
        members = x.view(batch, groups, -1, *space)
        images = members.permute(2, 1, 0, *range(3, 3 + rank)).reshape(-1, groups * batch, *space)
    found: Tensor = aten.convolution(images, filters, None, dilation, padding, stride, False, [0] * rank, groups)
    for axis in range(rank):
        if found.shape[2 + axis] > kernel[axis]:
            found = found.narrow(2 + axis, 0, kernel[axis])
    return found.transpose(0, 1)


def _max_pool_backward(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Each output's gradient goes to the input that won, found by its saved index in its plane."""
    planes = torch.zeros_like(x).flatten(-2)
    return planes.scatter_add(-1, indices.flatten(-2), gradient.flatten(-2)).view(x.shape)


def _embedding_backward(
    gradient: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Each row gets the sum over the places that read it.

    As a scatter of elements: what torch does otherwise becomes a ScatterND, whose sums over repeated indices ONNX Runtime
    gets wrong on several threads (onnxruntime issue 23396).
    """
    if scale_grad_by_freq:
        raise NotImplementedError("an embedding whose gradient is divided by how often each row is read")
    width = gradient.shape[-1]
    if padding_idx >= 0:
        gradient = gradient.masked_fill((indices == padding_idx).unsqueeze(-1), 0.0)
    rows = indices.reshape(-1, 1).expand(-1, width)
    return gradient.new_zeros((num_weights, width)).scatter_add(0, rows, gradient.reshape(-1, width))


def _average_pool_backward(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Each output's gradient, over the size of its window, spread by a transposed convolution of each channel."""
    kernel, pads = _pair(kernel_size), _pair(padding)
    step = _pair(stride) if stride else kernel
    channels, out = gradient.shape[1], gradient.shape[2:]
    if divisor_override or (not ceil_mode and (count_include_pad or not any(pads))):
        share, weight = gradient, 1.0 / (divisor_override or kernel[0] * kernel[1])
    else:
        rows, columns = (
            _window_sizes(x.shape[2 + i], out[i], kernel[i], step[i], pads[i], count_include_pad) for i in range(2)
        )
        share, weight = gradient / (rows[:, None] * columns).to(x.dtype), 1.0
    window = torch.full((channels, 1, *kernel), weight, dtype=x.dtype)
    missed = [x.shape[2 + i] - ((out[i] - 1) * step[i] - 2 * pads[i] + kernel[i]) for i in range(2)]
    reached = [max(0, number) for number in missed]
    found: Tensor = aten.convolution(share, window, None, step, pads, [1, 1], True, reached, channels)
    for axis in range(2):
        if missed[axis] < 0:  # windows that overhang, where the number of windows was rounded up
            found = found.narrow(2 + axis, 0, x.shape[2 + axis])
    return found


def _window_sizes(size: int, windows: int, kernel: int, step: int, pad: int, count_pad: bool) -> Tensor:
    """`[windows]`: how many elements each window along one axis is an average of."""
    first, last = (-pad, size + pad) if count_pad else (0, size)
    start = torch.arange(windows) * step - pad
    return (start + kernel).clamp(max=last) - start.clamp(min=first)


def _pair(values: Sequence[int]) -> list[int]:
    """One number per axis of an image."""
    return [*values] if len(values) == 2 else [*values] * 2


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Normalised by the batch's own statistics (Ioffe and Szegedy 2015, algorithm 1): what ONNX's op is not exported as.

    Raises:
        NotImplementedError: the running statistics normalise, which is another op of torch.
    """
    if not training:
        raise NotImplementedError("batch norm in a training step is decomposed in training mode only")
    over, shape, count = _channels(x)
    mean = x.mean(over, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(over, keepdim=True)
    inverse = (variance + epsilon).rsqrt()
    scale = inverse if weight is None else inverse * weight.view(shape)
    result = centred * scale if bias is None else centred * scale + bias.view(shape)
    new_mean = running_mean * (1 - momentum) + mean.view(-1) * momentum
    unbiased = momentum * count / (count - 1)
    new_variance = running_variance * (1 - momentum) + variance.view(-1) * unbiased
    return result, mean.view(-1), inverse.view(-1), new_mean, new_variance


def _batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    training: bool,
    epsilon: float,
    mask: Sequence[bool],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of batch norm in training mode (Ioffe and Szegedy 2015, section 3); `inverse` is 1 / deviation.

    Raises:
        NotImplementedError: the running statistics normalised.
    """
    if not training:
        raise NotImplementedError("the backward pass of batch norm is decomposed in training mode only")
    over, shape, count = _channels(x)
    mean, inverse = mean.view(shape), inverse.view(shape)
    centred = x - mean
    total = gradient.sum(over, keepdim=True)
    product = (gradient * centred).sum(over, keepdim=True) * inverse
    scale = inverse if weight is None else inverse * weight.view(shape)
    x_gradient = (gradient - total / count - centred * (product * inverse / count)) * scale
    return x_gradient, product.view(-1) if mask[1] else None, total.view(-1) if mask[2] else None


def _channels(x: Tensor) -> tuple[list[int], list[int], int]:
    """The axes that are not channels, the shape of one number per channel, and how many values a channel has."""
    over = [axis for axis in range(x.dim()) if axis != 1]
    return over, [1, -1, *[1] * (x.dim() - 2)], x.numel() // x.shape[1]
