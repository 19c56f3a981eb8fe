"""Operators of `ai.onnx.ml`: trees, linear models and support vectors of scikit-learn, XGBoost and LightGBM."""

import math
from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule

_DOMAIN = "ai.onnx.ml"
_NODE_BYTES = 20  # threshold, feature, two children, mode


def _steps(call: Call) -> float:
    """Nodes that all rows visit: each tree has as many levels as a balanced one with its number of leaves."""
    attributes = call.node.attributes
    trees = attributes.get_ints("nodes_treeids", ()) if "nodes_treeids" in attributes else ()
    if trees:
        nodes, count = len(trees), len(set(trees))
    else:  # version 5
        nodes, count = (
            len(attributes.get_ints("nodes_featureids", (0,))) * 2 + 1,
            len(attributes.get_ints("tree_roots", (0,))),
        )
    leaves = (nodes / max(count, 1) + 1) / 2
    return _samples(call) * count * max(1.0, math.log2(max(leaves, 2)))


def _samples(call: Call) -> int:
    return call.input().size_along(0) if len(call.input().shape) > 1 else 1


def _numbers(call: Call, name: str) -> int:
    return len(call.node.attributes.get_floats(name, ()))


def _linear(call: Call) -> float:
    return 2.0 * _samples(call) * _numbers(call, "coefficients")


def _support_vectors(call: Call) -> float:
    """A kernel of each row with each support vector: a product per feature, and an exponential or a power; then a weighted sum."""
    numbers = _numbers(call, "support_vectors") or _numbers(call, "coefficients")
    features = max(call.input().size_along(-1), 1)
    return _samples(call) * (3.0 * numbers + 3.0 * numbers / features + 2.0 * _numbers(call, "coefficients"))


def _per_input(flops: float) -> Rule:
    return lambda call: flops * call.input().size


ESTIMATOR_FLOPS: Mapping[str, Rule] = {
    f"{_DOMAIN}::{name}": rule
    for name, rule in {
        # a comparison and a choice per node
        **dict.fromkeys(
            ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"), lambda call: 2.0 * _steps(call)
        ),
        **dict.fromkeys(("LinearClassifier", "LinearRegressor"), _linear),
        **dict.fromkeys(("SVMClassifier", "SVMRegressor"), _support_vectors),
        "Normalizer": _per_input(3.0),
        "Scaler": _per_input(2.0),
        **dict.fromkeys(("Binarizer", "Imputer", "LabelEncoder", "CategoryMapper"), _per_input(1.0)),
        **dict.fromkeys(
            ("ArrayFeatureExtractor", "CastMap", "DictVectorizer", "FeatureVectorizer", "OneHotEncoder", "ZipMap"),
            _per_input(0.0),
        ),
    }.items()
}
"""FLOPs by domain and op type."""


def _visited(call: Call) -> float:
    """Rows, results, and the nodes that the rows visit."""
    return call.input_bytes + call.output_bytes + _NODE_BYTES * _steps(call)


def _with_parameters(*names: str) -> Rule:
    """Inputs, outputs and parameters, which are attributes here."""
    return lambda call: call.input_bytes + call.output_bytes + 4.0 * sum(_numbers(call, name) for name in names)


ESTIMATOR_BYTES: Mapping[str, Rule] = {
    f"{_DOMAIN}::{name}": rule
    for name, rule in {
        **dict.fromkeys(("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"), _visited),
        **dict.fromkeys(("LinearClassifier", "LinearRegressor"), _with_parameters("coefficients")),
        **dict.fromkeys(("SVMClassifier", "SVMRegressor"), _with_parameters("support_vectors", "coefficients")),
        "ArrayFeatureExtractor": lambda call: 2.0 * call.output_bytes + call.input(1).bytes,
    }.items()
}
"""Moved bytes by domain and op type, where they differ from all inputs and outputs."""
