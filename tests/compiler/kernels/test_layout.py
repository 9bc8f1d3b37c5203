"""Collapsing dimensions."""

from weft.compiler.loop_ir.kernels.layout import collapse, stride_class


def test_contiguous_arrays_become_one_dimension():
    assert collapse((2, 3, 4), [(12, 4, 1), (12, 4, 1)]).sizes == (24,)


def test_broadcast_dimensions_stay_apart():
    dims = collapse((2, 3, 4), [(0, 0, 1), (12, 4, 1)], first=1)
    assert dims.sizes == (6, 4)
    assert dims.strides == ((0, 1), (4, 1))


def test_order_follows_the_first_operand():
    dims = collapse((2, 3), [(1, 2), (3, 1)])
    assert dims.sizes == (3, 2)
    assert dims.strides == ((2, 1), (1, 3))


def test_labels_keep_dimensions_apart():
    dims = collapse((2, 3, 4), [(12, 4, 1)], ["k", "r", "r"])
    assert dims.sizes == (2, 12)
    assert dims.labels == ("k", "r")


def test_single_elements_vanish():
    assert collapse((1, 5, 1), [(7, 1, 3)]).sizes == (5,)
    assert collapse((), [()]).sizes == ()


def test_stride_classes():
    assert [stride_class(x) for x in (0, 1, 2, -1, 100)] == [0, 1, 2, 2, 2]
