"""One engine as a deployment of Ray Serve: what a replica needs, how many there are, when they stop."""

from __future__ import annotations

from typing import Any

from platform_plugin.config import Placement, Replicas
from platform_plugin.engines import EngineSpec
from platform_plugin.errors import PlacementError
from platform_plugin.replica import Replica

# Batches that one replica takes at once: enough that the engine's own scheduler always has a queue.
BATCHES_PER_REPLICA = 64
ROUTER = "platform_plugin.routing.SpanRouter"


def target(spec: EngineSpec, name: str, replicas: Replicas) -> Any:
    """Return what Serve is to run as application `name`. Runs on: driver."""
    from ray import serve
    from ray.serve.config import RequestRouterConfig

    placement = spec.placement()
    options: dict[str, Any] = {"num_cpus": placement.num_cpus, "num_gpus": placement.num_gpus}
    groups: dict[str, Any] = {}
    if placement.bundles:
        groups = {
            "placement_group_bundles": [dict(b) for b in placement.bundles],
            "placement_group_strategy": placement.strategy,
        }
        options = {"num_cpus": placement.bundles[0].get("CPU", 0), "num_gpus": 0}
    deployment: Any = serve.deployment(
        Replica,
        name=name,
        ray_actor_options=options,
        max_ongoing_requests=BATCHES_PER_REPLICA,
        max_constructor_retry_count=1,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=10,
        health_check_period_s=2,
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),  # type: ignore[arg-type]
        autoscaling_config={
            "min_replicas": 0,
            "initial_replicas": replicas.min_replicas,
            "max_replicas": replicas.max_replicas,
            "downscale_to_zero_delay_s": replicas.idle_timeout_s,
            "downscale_delay_s": replicas.idle_timeout_s,
            "upscale_delay_s": 1.0,
            "look_back_period_s": 11.0,  # Serve wants more than its metrics interval of 10
            "target_ongoing_requests": 4,
        },
        **groups,
    )
    # Without a version of ours Serve takes each deployment for new code and restarts the replicas.
    deployment = deployment.options(version=spec.config.signature(), _internal=True)
    return serve.RunTarget(deployment.bind(spec), name=name, route_prefix=None)


def check_placement(placement: Placement) -> None:
    """Raise PlacementError where no node of the cluster could ever hold a replica. Runs on: driver."""
    import ray

    nodes = [
        n["Resources"]
        for n in ray.nodes()  # type: ignore[no-untyped-call]
        if n["Alive"]
    ]
    bundles = placement.bundles or ({"CPU": placement.num_cpus, "GPU": placement.num_gpus},)
    for bundle in bundles:
        if not any(all(node.get(k, 0) >= v for k, v in bundle.items()) for node in nodes):
            there = {k: sum(n.get(k, 0) for n in nodes) for k in ("CPU", "GPU")}
            raise PlacementError(
                f"a replica needs {bundle}, and no node of this cluster has that (in all: {there}).\n"
                "Choose a smaller model or tensorParallelSize, or join a cluster with ray_address."
            )
