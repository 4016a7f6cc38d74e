"""Spark UDFs on Ray actors.

The function that Spark is given (`carried`) makes PySpark's worker move the JVM's bytes (`relay`, `framing`, `sending`)
to actors (`pools`, `replica`), where PySpark's own worker code runs the user's function on them. So values, coercion,
checks and error texts are Spark's by construction; how Spark calls a function is said in `kinds`, one file a kind.
"""
