"""What every bridge must do, over the bridges that are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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
def bridge(request: pytest.FixtureRequest, tmp_path: Path) -> Bridge:
    return load_bridge(request.param, str(tmp_path))


@pytest.fixture
def carried(bridge: Bridge, typed: DataFrame) -> DataFrame:
    """Return the columns of `typed` whose type the bridge takes; raydp takes them all."""

    def takes(field: t.StructField) -> bool:
        try:
            bridge.check(t.StructType([field]))
        except SchemaError:
            return False
        return True

    kept = [field.name for field in typed.schema.fields if takes(field)]
    left_out = {"raydp": set[str](), "parquet": {"span", "nothing"}}
    name = type(bridge).__module__.rpartition(".")[2]
    assert set(typed.columns) - set(kept) == left_out[name]
    return typed.select(*kept)


def there_and_back(bridge: Bridge, frame: DataFrame) -> DataFrame:
    with bridge.to_ray(frame) as dataset:
        dataset.context.enable_progress_bars = False
        same = dataset.map_batches(lambda table: table, batch_format="pyarrow").materialize()
    return bridge.to_spark(same, frame.schema, frame.sparkSession)


def nullable(schema: t.StructType) -> t.StructType:
    return t.StructType([t.StructField(f.name, f.dataType) for f in schema.fields])


def used_bytes() -> float:
    """Return what lies in the object store of the whole cluster."""
    name = "object_store_memory"
    return ray.cluster_resources()[name] - ray.available_resources().get(name, 0)


def test_every_type_comes_back_equal_again_and_again(bridge: Bridge, carried: DataFrame, by_id: Any) -> None:
    back = there_and_back(bridge, carried)
    assert back.schema == nullable(carried.schema)
    wanted = by_id(carried)
    for _ in range(2):
        found = by_id(back)
        assert set(found) == {0, 1, 2}
        assert {n: v for i in found for n, v in found[i].items() if v != wanted[i][n]} == {}
    bridge.release(back)


@pytest.mark.parametrize("partitions", [0, 3])
def test_frame_without_rows_keeps_its_schema(
    bridge: Bridge, spark: SparkSession, carried: DataFrame, partitions: int
) -> None:
    context = spark.sparkContext
    rows: Any = context.parallelize([], partitions) if partitions else context.emptyRDD()
    empty = spark.createDataFrame(rows, carried.schema)
    assert empty.rdd.getNumPartitions() == partitions
    back = there_and_back(bridge, empty)
    assert back.schema == nullable(carried.schema)
    assert back.collect() == []


def test_rows_reach_ray_in_the_order_of_their_partitions(bridge: Bridge, spark: SparkSession) -> None:
    frame = spark.range(0, 1000, 1, 7).where("id < 300 or id > 700")
    with bridge.to_ray(frame) as dataset:
        assert [row["id"] for row in dataset.take_all()] == [*range(300), *range(701, 1000)]


def test_large_partition_crosses_whole(bridge: Bridge, spark: SparkSession) -> None:
    frame = spark.range(0, 40_000, 1, 1).withColumn("text", F.lpad(F.col("id").cast("string"), 1000, "x"))
    with bridge.to_ray(frame) as dataset:
        assert dataset.count() == 40_000
        back = bridge.to_spark(dataset, frame.schema, spark)
        assert back.exceptAll(frame).count() == 0
        assert back.count() == 40_000


def test_object_store_is_back_at_its_baseline_after_20_released_hand_offs(
    spark: SparkSession, until: Callable[..., Any]
) -> None:
    bridge = load_bridge("raydp")  # parquet keeps nothing there: its own measure is the next test
    frame = spark.range(0, 2000, 1, 1).withColumn("text", F.lpad(F.col("id").cast("string"), 1000, "x"))
    megabyte = 2**20
    before = used_bytes()
    for turn in range(20):
        with bridge.to_ray(frame) as dataset:
            back = bridge.to_spark(dataset, frame.schema, spark)
            if turn == 0:
                assert back.count() == 2000
                until(lambda: used_bytes() > before + megabyte)
        bridge.release(back)
    del dataset, back  # a reference that the test holds is no leak of the bridge's
    until(lambda: used_bytes() <= before)


def test_folder_is_empty_after_a_release_and_after_an_error(spark: SparkSession, tmp_path: Path) -> None:
    bridge = load_bridge("parquet", str(tmp_path))
    frame = spark.range(3)
    with bridge.to_ray(frame) as dataset:
        assert len(list(tmp_path.iterdir())) == 1
        back = bridge.to_spark(dataset, frame.schema, spark)
    assert back.count() == 3
    assert len(list(tmp_path.iterdir())) == 1
    bridge.release(back)
    with pytest.raises(ZeroDivisionError), bridge.to_ray(frame):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_error_inside_the_hand_off_leaves_nothing(spark: SparkSession, until: Callable[..., Any]) -> None:
    bridge = load_bridge("raydp")
    frame = spark.range(0, 2000, 1, 1).withColumn("text", F.lpad(F.col("id").cast("string"), 1000, "x"))
    before = used_bytes()
    with pytest.raises(ZeroDivisionError), bridge.to_ray(frame):
        until(lambda: used_bytes() > before + 2**20)
        raise ZeroDivisionError
    until(lambda: used_bytes() <= before)


def test_row_that_spark_cannot_compute_fails_in_sparks_words(bridge: Bridge, spark: SparkSession) -> None:
    rotten = F.raise_error(F.lit("row 3 is rotten")).cast("string")
    broken = spark.range(4).select(F.when(F.col("id") == 3, rotten).alias("x"))
    with pytest.raises(Exception, match="row 3 is rotten"), bridge.to_ray(broken):
        pytest.fail("the hand-off went on")


def test_released_frame_says_so(bridge: Bridge, spark: SparkSession) -> None:
    frame = spark.range(3)
    with bridge.to_ray(frame) as dataset:
        kept, dropped = (bridge.to_spark(dataset, frame.schema, spark) for _ in range(2))
        bridge.release(dropped.where("id > 1"))
        with pytest.raises(Exception, match=r"the answers of this frame were released|FILE_NOT_EXIST|does not exist"):
            dropped.collect()
        assert sorted(row["id"] for row in kept.collect()) == [0, 1, 2]
    bridge.release(kept)
    bridge.release(kept)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["id", "id"], r"columns \['id'\] stand twice"),
        ([], "without columns"),
        (["interval '2' month as months"], "'months' of type interval month"),
        (["array(struct(interval '1' year as y)) as deep"], "'deep' of type .*interval year"),
        (["map('k', array(null)) as voids"], "'voids' of type map<string,array<void>>"),
    ],
)
def test_what_cannot_cross_is_refused_by_name_and_type(
    bridge: Bridge, spark: SparkSession, columns: list[str], words: str
) -> None:
    frame = spark.range(1).selectExpr(*columns) if columns else spark.range(1).select()
    with pytest.raises(SchemaError, match=words), bridge.to_ray(frame):
        pytest.fail("it crossed")
