"""What every bridge must do, over the bridges that are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from platform_plugin.bridges import Bridge, find_bridges, load_bridge
from platform_plugin.errors import SchemaError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("spark")]


@pytest.fixture(params=find_bridges())
def bridge(request: pytest.FixtureRequest) -> Bridge:
    return load_bridge(request.param)


def there_and_back(bridge: Bridge, frame: DataFrame) -> DataFrame:
    with bridge.to_ray(frame) as dataset:
        same = dataset.map_batches(lambda table: table, batch_format="pyarrow").materialize()
    return bridge.to_spark(same, frame.schema, frame.sparkSession)


def nullable(schema: t.StructType) -> t.StructType:
    return t.StructType([t.StructField(f.name, f.dataType) for f in schema.fields])


def test_every_type_comes_back_equal(bridge: Bridge, typed: DataFrame, by_id: Any) -> None:
    back = there_and_back(bridge, typed)
    assert back.schema == nullable(typed.schema)
    wanted, found = by_id(typed), by_id(back)
    assert set(found) == {0, 1, 2}
    assert {n: v for i in found for n, v in found[i].items() if v != wanted[i][n]} == {}
    bridge.release(back)
