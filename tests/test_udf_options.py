"""Options, packing and refusals of UDFs on Ray: all that is found out without Spark."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.accumulators import Accumulator, AddingAccumulatorParam
from pyspark.serializers import CloudPickleSerializer

import udf_compat
from platform_plugin.errors import ConfigError, UdfContractError, UnsupportedUdfError
from platform_plugin.udf.carried import Carried, carry
from platform_plugin.udf.kinds import find_kinds, kind_of
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.packing import pack, unpack
from platform_plugin.udf.prologue import SharedPrologue
from platform_plugin.udf.settings import options_with

COUNT = Accumulator(7, 0, AddingAccumulatorParam(0))


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    udf_compat.configure()


def counts(x: int) -> int:
    COUNT.add(1)
    return x


def calls_one_that_counts(x: int) -> int:
    return counts(x)


def same(x: int) -> int:
    return x


def test_own_options_stand_over_what_configure_set() -> None:
    udf_compat.configure(replicas=(2, 4), num_gpus=1)
    assert options_with({"num_gpus": 0}) == UdfOptions(replicas=(2, 4), num_gpus=0)
    udf_compat.configure(replicas=3)
    assert options_with(None) == UdfOptions(replicas=(3, 3))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replica": 2}, "'replica' is no option.*Did you mean 'replicas'"),
        ({"numGpus": 1}, "Did you mean 'num_gpus'"),
        ({"replicas": (3, 1)}, "least <= most"),
        ({"replicas": (0, 0)}, "most >= 1"),
        ({"num_cpus": -1}, "num_cpus"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"idle_timeout": 0}, "idle_timeout"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        udf_compat.configure(**options)
    with pytest.raises(ConfigError, match=words):
        udf_compat.on_ray(lambda x: x, **options)


@pytest.mark.parametrize("function", [counts, calls_one_that_counts, functools.partial(counts)])
def test_accumulator_is_refused_when_the_udf_is_made(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedUdfError, match=r"uses an accumulator(.|\n)*on_spark"):
        udf_compat.on_ray(function)


def test_accumulator_deep_in_what_is_closed_over_is_refused_when_it_is_packed() -> None:
    hidden = {"deep": [COUNT]}
    function = carry(lambda x: hidden["deep"][0].add(x), UdfOptions())
    with pytest.raises(UnsupportedUdfError, match="accumulator"):
        pack(function.function, "deep")


def test_attribute_of_the_same_name_as_a_driver_object_is_no_use_of_it() -> None:
    assert isinstance(carry(lambda x: x.COUNT, UdfOptions()), Carried)


def test_what_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def waits(x: int) -> int:
        with lock:
            return x

    with pytest.raises(UnsupportedUdfError, match=r"'waits' cannot be sent(.|\n)*closes over lock \(lock\)"):
        pack(waits, "waits")


def test_not_a_function_is_refused() -> None:
    with pytest.raises(UnsupportedUdfError, match="3 is int, not a function"):
        udf_compat.on_ray(3)


def test_state_of_a_stream_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedUdfError, match=r"applyInPandasWithState(.|\n)*on_spark"):
        kind_of(208, "counter")
    assert 208 not in find_kinds()


def test_carried_function_runs_on_the_driver_and_looks_like_the_users() -> None:
    carried = carry(same, UdfOptions())
    assert carried(3) == 3
    assert carried.__name__ == "same"  # type: ignore[attr-defined]
    assert carry(carried, UdfOptions(num_cpus=2)).function is same


def test_function_is_unpacked_once_a_process() -> None:
    loaded: list[int] = []
    packed = cloudpickle.dumps(lambda: loaded)
    assert unpack(packed, False) is unpack(bytes(bytearray(packed)), False)
    assert unpack(packed, False) is not unpack(cloudpickle.dumps(lambda: [*loaded]), False)


def loads_a_model(begun: list[int]) -> Callable[[Iterator[int]], Iterator[int]]:
    def predict(batches: Iterator[int]) -> Iterator[int]:
        begun.append(1)
        for batch in batches:
            if batch == 7:
                raise ValueError("rotten")
            yield batch * 10

    return predict


def test_shared_prologue_runs_once_for_all_partitions() -> None:
    begun: list[int] = []
    shared = SharedPrologue(loads_a_model(begun))
    first, second = shared(iter([1, 2])), shared(iter([3, 4, 5]))
    assert [next(first), next(second), next(second), next(first), *second] == [10, 30, 40, 20, 50]
    assert begun == [1]


def test_shared_prologue_begins_anew_after_an_error() -> None:
    begun: list[int] = []
    shared = SharedPrologue(loads_a_model(begun))
    with pytest.raises(ValueError, match="rotten"):
        list(shared(iter([1, 7])))
    assert list(shared(iter([2]))) == [20]
    assert len(begun) == 2


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda batches: iter([sum(batches)]), "a second batch before it yielded"),
        (lambda batches: iter([next(batches)]), "ended before its batches did"),
    ],
)
def test_shared_prologue_names_a_function_that_does_not_answer_batch_by_batch(
    function: Callable[..., Any], words: str
) -> None:
    with pytest.raises(UdfContractError, match=words):
        list(SharedPrologue(function)(iter([1, 2])))


def test_refusal_reaches_the_user_through_sparks_serializer() -> None:
    lock = threading.Lock()
    with pytest.raises(UnsupportedUdfError, match=r"closes over lock \(lock\)"):
        CloudPickleSerializer().dumps((carry(lambda x: lock, UdfOptions()), None))
