"""The names of PySpark that the inspector knows, and those that take their place. Names only; no code."""

from __future__ import annotations

from udf_compat.inspector.finding import Verdict

FUNCTIONS = "udf_compat.functions"
PACKAGE = "udf_compat"

MAKERS = {
    f"{module}.{name}": name
    for name, modules in {
        "pandas_udf": ("pyspark.sql.functions", "pyspark.sql.pandas.functions", "pyspark.sql.connect.functions"),
        "udf": ("pyspark.sql.functions", "pyspark.sql.connect.functions"),
        "predict_batch_udf": ("pyspark.ml.functions",),
    }.items()
    for module in modules
}
"""Every name under which PySpark offers a maker of UDFs, and the name that it has in `FUNCTIONS`."""

MOVED = {f"{FUNCTIONS}.{name}" for name in MAKERS.values()}
STAR_MODULES = {name.rpartition(".")[0] for name in MAKERS}
"""Modules whose star import brings makers."""

ON_RAY = {f"{PACKAGE}.on_ray", f"{PACKAGE}.functions.on_ray"}

FRAME_METHODS = {
    "mapInPandas": "mapInPandas",
    "mapInArrow": "mapInArrow",
    "applyInPandas": "grouped map",
}
"""Methods of frames that take a function, and the kind; after ``cogroup`` it is a cogrouped map."""

ITERATOR_KINDS = {"scalar iterator", "iterator of tuples", "mapInPandas", "mapInArrow"}
"""Kinds whose function sees a whole partition, so that it may load a model before its first batch."""

_STATE = (
    Verdict.CANNOT,
    "keeps streaming state, which lives in Spark's state store: keep this call in Spark, "
    "and predict before it with mapInPandas(on_ray(f), ...)",
)
STATEFUL_METHODS = {"applyInPandasWithState": _STATE, "transformWithStateInPandas": _STATE}

OTHER_MAKERS = {
    "mlflow.pyfunc.spark_udf": (
        Verdict.CANNOT,
        "MLflow makes this UDF, and no changed import moves it: use the stage ModelPredictor with its model URI",
    ),
    "pyspark.sql.functions.udtf": (
        Verdict.CANNOT,
        "a table function is not carried over: write it as mapInPandas(on_ray(f), ...)",
    ),
    "pyspark.sql.udf.UserDefinedFunction": (
        Verdict.NOTE,
        "is made without udf(), and stays in Spark: make it with udf(f, type), or wrap it in udf_compat.on_ray(...)",
    ),
}
"""Other ways to make a UDF: the verdict, and why."""

SESSION_CLASSES = {
    "SparkSession": "SparkSession",
    "SparkContext": "SparkContext",
    "SQLContext": "SparkSession",
    "HiveContext": "SparkSession",
    "StreamingContext": "SparkContext",
}
SESSION_NAMES = {"spark": "SparkSession", "sc": "SparkContext", "sqlContext": "SparkSession"}
"""Names that shells and notebooks bind by themselves."""
FRAME_SOURCES = {"read", "readStream", "sql", "table", "createDataFrame", "range"}
"""Attributes of a session that a DataFrame comes of."""
FRAME_ACTIONS = {"collect", "count", "first", "head", "isEmpty", "schema", "columns", "take", "tail", "toPandas", "rdd"}
"""What gives a plain value of a DataFrame, which a UDF may use."""
SESSION_ATTRIBUTES = {"sparkContext": "SparkContext", "sparkSession": "SparkSession", "_jvm": "SparkContext"}

LOADERS = {
    "from_pretrained", "load_model", "load_from_checkpoint", "load_checkpoint", "load_state_dict", "from_config",
}  # fmt: skip
"""Methods that load a model, of whatever object."""
LOADER_CALLS = {
    "torch.load", "torch.jit.load", "torch.export.load", "torch.hub.load", "joblib.load", "pickle.load",
    "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "dill.load", "spacy.load", "whisper.load_model",
    "tensorflow.saved_model.load", "safetensors.torch.load_file", "onnxruntime.InferenceSession",
    "transformers.pipeline", "sentence_transformers.SentenceTransformer", "sentence_transformers.CrossEncoder",
    "vllm.LLM", "lightgbm.Booster", "llama_cpp.Llama", "ctranslate2.Translator", "ctranslate2.Generator",
}  # fmt: skip
LOADER_NAME = (
    r"_?(load|build|create|init|initialize|make|get|download|fetch)_?(\w*_)?"
    r"(model|models|pipeline|pipe|tokenizer|encoder|embedder|classifier|predictor|llm|net|network|weights)"
)
"""How people name their own functions that load a model."""

TEXT_GENERATORS = ("transformers.", "vllm.", "llama_cpp.", "ctranslate2.Generator")
GENERATION_TASKS = {"text-generation", "text2text-generation", "summarization", "translation", "conversational"}
MODEL_LIBRARIES = (
    "torch.", "transformers.", "sentence_transformers.", "tensorflow.", "keras.", "onnxruntime.", "vllm.",
    "llama_cpp.", "ctranslate2.",
)  # fmt: skip

STAGE_BASES = {
    "Transformer", "UnaryTransformer", "Model", "Estimator", "PredictionModel", "ClassificationModel",
    "RegressionModel", "Predictor", "Classifier", "Regressor", "JavaTransformer", "JavaModel", "Evaluator",
}  # fmt: skip
STAGE_MODULES = ("classification", "clustering", "feature", "fpm", "recommendation", "regression")
"""Modules of ``pyspark.ml`` whose classes are stages."""
