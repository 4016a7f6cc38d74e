"""The import face: existing Spark UDFs on Ray actors."""
