# SPDX-License-Identifier: Apache-2.0
"""Compares the arrays of outputs_in with the model's outputs before a request runs."""
from .answers import misplaced

# How many models' outputs are remembered; another model costs a call of ModelMetadata.
MODELS_MAX = 256


def _key(model, options):
    return model, str(options.get("version") or "")


class Places:
    """The outputs of models, as one client has learnt them.

    The client asks a model once, and again before it refuses an array, since the model may have
    changed."""

    def __init__(self):
        self._models = {}

    def doubtful(self, model, feats, options):
        """True if the model must be asked before outputs_in may be sent."""
        if not options.get("outputs_in"):
            return False
        known = self._models.get(_key(model, options))
        return known is None or bool(self._problem(known, feats, options))

    def settle(self, model, feats, options, info):
        """Keeps the model's ModelInfo.  ValueError if an array does not fit."""
        if len(self._models) >= MODELS_MAX:
            self._models.clear()
        self._models[_key(model, options)] = info
        problem = self._problem(info, feats, options)
        if problem:
            raise ValueError(problem)

    @staticmethod
    def _problem(info, feats, options):
        places = options["outputs_in"]
        # A model with coordinates among its outputs does not say which of the others are on them:
        # how many rows those have, the server knows.
        own = any(o.datatype == "INT32" and o.shape == (-1, 4) for o in info.outputs)
        rows = None if own else len(feats)
        sentences = (misplaced(output, places[output.name], rows)
                     for output in info.outputs if output.name in places)
        return next(filter(None, sentences), "")
