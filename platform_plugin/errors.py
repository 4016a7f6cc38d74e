"""Every error this project raises, as one tree.

    PlatformPluginError
    ├── ConfigError (also ValueError)           the caller wrote something wrong; driver, before any work
    │   ├── UnknownPluginError                  no such engine or bridge; lists the ones found
    │   ├── ProfileError                        conf/models/<name>.yaml absent or not valid
    │   ├── PlacementError                      can never fit this cluster; says what is there
    │   ├── UnsupportedTaskError                the engine cannot do this task
    │   └── MissingDependencyError (also ImportError)   names the extra to install
    ├── SchemaError (also ValueError)           column absent, already there, reserved, or of a type that cannot cross
    ├── BridgeError
    │   ├── HandOffError                        Spark -> Ray
    │   └── RejoinError                         Ray -> Spark, or a row without an answer
    ├── EngineError
    │   ├── EngineStartError                    the model cannot load; do not retry
    │   └── EngineDiedError                     engine lost; the replica is replaced and the batch asked again
    ├── RunError                                the run as a whole
    │   ├── InvalidRowsError                    handleInvalid="error"
    │   ├── ErrorRateError                      maxErrorRate passed
    │   ├── StalledError                        no answer came back for requestTimeout
    │   ├── GateError                           evaluate(require=...) not met
    │   └── CancelledError                      interrupted by the user
    ├── UdfError
    │   ├── UnsupportedUdfError                 a UDF, or what it uses, that cannot run on an actor
    │   ├── UdfContractError                    a UDF that does not do what it was set to do
    │   └── UdfDiedError                        the process that ran a UDF was lost, again and again
    └── SessionError                            the session cannot start, or is not the one that is needed

A message says what was given, what was expected and what to do. Errors cross processes, so each must pickle:
everything it knows goes positionally into ``super().__init__``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class PlatformPluginError(Exception):
    """Base of every error of this project."""


class ConfigError(PlatformPluginError, ValueError):
    """Raised on the driver, before any work, for what the caller wrote."""


class UnknownPluginError(ConfigError):
    """Raised for an engine or bridge name that no file defines."""


class ProfileError(ConfigError):
    """Raised for a model profile that is absent or not valid."""


class PlacementError(ConfigError):
    """Raised for resources that this cluster can never give."""


class UnsupportedTaskError(ConfigError):
    """Raised where an engine cannot do the task it is asked for."""


class MissingDependencyError(ConfigError, ImportError):
    """Raised where a package is absent; names the extra to install."""


class SchemaError(PlatformPluginError, ValueError):
    """Raised for a column that is absent, already there, reserved, or cannot cross."""


class BridgeError(PlatformPluginError):
    """Base of the errors of the hand-off between Spark and Ray."""


class HandOffError(BridgeError):
    """Raised where requests could not be handed from Spark to Ray."""


class RejoinError(BridgeError):
    """Raised where answers could not be joined back to their rows."""


class EngineError(PlatformPluginError):
    """Base of the errors of an engine."""


class EngineStartError(EngineError):
    """Raised where an engine cannot start; carries the engine's own words."""


class EngineDiedError(EngineError):
    """Raised where an engine was lost in mid-run."""


class RunError(PlatformPluginError):
    """Base of the errors that end a run as a whole."""


class InvalidRowsError(RunError):
    """Raised by ``handleInvalid="error"``.

    Args:
        counts: failed rows by error type.
        messages: the first five messages.
    """

    def __init__(self, counts: Mapping[str, int], messages: list[str]) -> None:
        super().__init__(dict(counts), list(messages))
        self.counts = dict(counts)
        self.messages = list(messages)

    def __str__(self) -> str:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.counts.items()))
        shown = "\n  ".join(self.messages)
        return (
            f"{sum(self.counts.values())} rows have no answer ({kinds}); the first:\n  {shown}\n"
            'Mend the rows, or set handleInvalid to "keep" (an error column) or "skip".'
        )


class ErrorRateError(RunError):
    """Raised where more of the requests fail than ``maxErrorRate`` allows."""


class StalledError(RunError):
    """Raised where no answer came back for ``requestTimeout``; names the step."""


class GateError(RunError):
    """Raised where ``evaluate(require=...)`` is not met, after all is logged.

    Args:
        failures: one line for each model and condition, such as "short: macro_f1 = 0.41, wanted >= 0.6".

    Attributes:
        result: the whole EvaluationResult, where ``evaluate`` raised it.
    """

    result: object = None

    def __init__(self, failures: list[str]) -> None:
        super().__init__(list(failures))
        self.failures = list(failures)

    def __str__(self) -> str:
        shown = "\n  ".join(self.failures)
        return f"{len(self.failures)} of the required conditions are not met:\n  {shown}"


class CancelledError(RunError):
    """Raised in the workers of a run that the user interrupted."""


class UdfError(PlatformPluginError):
    """Base of the errors of Spark UDFs on Ray actors; a user's own exception is never one of them."""


class UnsupportedUdfError(UdfError):
    """Raised where a UDF is made, for a kind or feature that is not carried over; says what to do."""


class UdfContractError(UdfError):
    """Raised where a UDF does not keep to what an option demands of it."""


class UdfDiedError(UdfError):
    """Raised where the process that runs a UDF is lost and cannot take the same rows again."""


class SessionError(PlatformPluginError):
    """Raised where the Spark-on-Ray session cannot start or is not the one needed."""


def near(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return " Did you mean ...?" with the names nearest to `name`, or an empty text."""
    known = list(known)
    matches = difflib.get_close_matches(name, known, n=most, cutoff=0.6)
    if not matches:
        # max_tokens for maxTokens, top_p for topP: the same letters in another style.
        flat = {k.replace("_", "").lower(): k for k in known}
        hit = flat.get(name.replace("_", "").lower())
        matches = [hit] if hit else []
    return f" Did you mean {', '.join(repr(m) for m in matches)}?" if matches else ""
