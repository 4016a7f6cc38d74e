"""Whether the cluster can ever hold one actor of a UDF: found out on the driver, before Spark starts."""

from __future__ import annotations

from platform_plugin.errors import PlacementError
from platform_plugin.udf.options import UdfOptions


def check_place(options: UdfOptions, name: str) -> None:
    """Raise PlacementError where neither a live node nor the autoscaler's most could hold an actor. Runs on: driver."""
    import ray

    wanted = {"CPU": options.num_cpus, "GPU": options.num_gpus}
    nodes = [
        node["Resources"]
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]
    if any(all(node.get(kind, 0) >= amount for kind, amount in wanted.items()) for node in nodes):
        return
    most = _autoscalers_most()
    if most is not None and all(most.get(kind, 0) >= amount for kind, amount in wanted.items()):
        return
    there = "; ".join(f"CPU {node.get('CPU', 0):g}, GPU {node.get('GPU', 0):g}" for node in nodes[:8])
    grows = f"it may grow to {most}" if most is not None else "it has no autoscaler"
    raise PlacementError(
        f"an actor of UDF {name!r} wants num_cpus={options.num_cpus:g}, num_gpus={options.num_gpus:g}, and no node of "
        f"this cluster has that (nodes: {there}; {grows}).\n"
        "Set num_cpus and num_gpus with udf_compat.configure(...) or on_ray={...}, or join a cluster that has them."
    )


def _autoscalers_most() -> dict[str, int] | None:
    from ray._private.state import state

    try:
        most: dict[str, int] | None = state.get_max_resources_from_cluster_config()
    except Exception:  # a Ray that knows no cluster config
        return None
    return most
