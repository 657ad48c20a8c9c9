# SPDX-License-Identifier: Apache-2.0
"""Arrays that outputs go to, held against what the model says of its outputs before it runs."""
from .answers import misplaced

# Models whose outputs are remembered; one that is not costs a question.
MODELS_MAX = 256


def _key(model, options):
    return model, str(options.get("version") or "")


class Places:
    """What models have said of their outputs to one client.

    Asked once of a model, and again before an array is refused: it may have changed since."""

    def __init__(self):
        self._models = {}

    def doubtful(self, model, feats, options):
        """Whether the model must be asked before outputs_in may be sent."""
        if not options.get("outputs_in"):
            return False
        known = self._models.get(_key(model, options))
        return known is None or bool(self._problem(known, feats, options))

    def settle(self, model, feats, options, info):
        """What it said when it was asked, a ModelInfo.  ValueError when an array does not fit."""
        if len(self._models) >= MODELS_MAX:
            self._models.clear()
        self._models[_key(model, options)] = info
        problem = self._problem(info, feats, options)
        if problem:
            raise ValueError(problem)

    @staticmethod
    def _problem(info, feats, options):
        places = options["outputs_in"]
        rows = len(feats)
        sentences = (misplaced(output, places[output.name], rows)
                     for output in info.outputs if output.name in places)
        return next(filter(None, sentences), "")
