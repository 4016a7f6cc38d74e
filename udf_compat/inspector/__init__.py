"""What moves to Ray of the UDFs and stages in Python files, notebooks and saved pipelines: ``platform-plugin migrate``.

Everything here reads text. No Spark, Ray or model is imported, and no line of the user's code is run.
`command` is the command line, `reading` finds the UDFs of one text, `rewriting` changes its imports.
"""
