"""Spark ML stages whose predictions run on Ray actors with vLLM engines."""
