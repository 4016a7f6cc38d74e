"""A user's function on the driver, wrapped so that Spark takes it for the function and its tasks find the actors."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

from platform_plugin.errors import PlatformPluginError, UnsupportedUdfError
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.packing import check_function, pack


class Carried:
    """A function that runs on Ray actors wherever Spark's tasks call it; called on the driver, it just runs.

    Runs on: driver. What it closes over is read when Spark first uses it, as with any UDF.
    """

    def __init__(self, function: Callable[..., Any], options: UdfOptions) -> None:
        # First, since it copies what the function, an object of a class maybe, has in its own __dict__.
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options
        self.__signature__ = _bare(function)

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function here."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> Any:
        try:
            return self._reduced()
        except PlatformPluginError as exc:
            raise _past_pickle(exc) from exc.__cause__

    def _reduced(self) -> Any:
        from platform_plugin import local_ray
        from platform_plugin.connection import Connection
        from platform_plugin.udf.placing import check_place
        from platform_plugin.udf.pools import pools
        from platform_plugin.udf.relay import arrive
        from platform_plugin.udf.ticket import Ticket

        packed = pack(self.function, self.name)
        local_ray.connect()
        check_place(self.options, self.name)
        manager, _ = pools()
        ticket = Ticket(self.name, packed, self.options, Connection.of_driver(), manager)
        return arrive, (ticket, self.__signature__)


def carry(function: Callable[..., Any], options: UdfOptions) -> Carried:
    """Return `function` so that Spark's tasks run it on actors; what is carried already gets the new options.

    Raises:
        UnsupportedUdfError: it uses what has no meaning on an actor; named, with the way out.
    """
    if isinstance(function, Carried):
        function = function.function
    if not callable(function):
        raise UnsupportedUdfError(
            f"{function!r} is {type(function).__name__}, not a function; give a function or a UDF."
        )
    check_function(function, getattr(function, "__name__", type(function).__name__))
    return Carried(function, options)


def _past_pickle(error: PlatformPluginError) -> PlatformPluginError:
    """Return the error as one that PySpark's serializer lets through: it rewords all that are no PickleError."""
    kind = type(error)
    made: Any = type(kind.__name__, (kind, pickle.PicklingError), {"__module__": kind.__module__})
    told: PlatformPluginError = made(*error.args)
    return told


def _bare(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature without annotations and defaults, which may not pickle: Spark counts arguments only."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    empty = inspect.Parameter.empty
    parameters = [p.replace(annotation=empty, default=empty) for p in signature.parameters.values()]
    try:
        return inspect.Signature(parameters)
    except ValueError:  # an argument without default behind one that had one: cannot be, now that none has
        return None
