"""What a family of networks is: a name, options, names of tensors, and a builder.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from ..errors import ExportError
from ..network import Network
from .builder import Builder

FAMILIES = {}


class Untold:
    """An option that changes the answers and that no tensor of a checkpoint tells.

    what      it is, and where people find it in their training's configuration
    asked     a default would be a guess, so that it must be given; else its default is assumed,
              which is what is published, and that is said
    likely    an example of a value, for the error
    value     value(options): what is assumed, where that is not the option itself; None: this
              network does not have the option
    """

    def __init__(self, what, *, asked=False, likely=None, value=None):
        self.what, self.asked, self.likely, self.value = what, asked, likely, value


class Family:
    """A network that is published and trained by others, as a function of its options.

    name      on the command line
    about     one line: what it is, and whose source it follows
    build     build(net, **options): adds layers to a Builder, and outputs to net.network
    options   {name: default}; a tuple or list takes numbers with commas on the command line
    names     {naming: library of the Builder}: the namings of tensors that `build` knows, the
              first is the default; build gets it as the option `naming`
    landmark  {naming: a tensor that only this naming has}: says where a checkpoint's prefix ends
    example   example(rng, **options): (coords int32 [N, 4], feats float32 [N, C]) of typical voxels
    sizes     {naming: {option: (tensor, axis)}}: options that are the size of a tensor's axis, so
              that a checkpoint says them itself; or a function of the checkpoint, None = unknown
    top       top(**options): keys of network.json's top level, such as limits; None = none
    untold    {option: Untold}: all that changes the answers, but neither shapes nor the outputs
    """

    def __init__(
        self,
        name,
        about,
        build,
        options,
        names,
        landmark,
        example,
        *,
        sizes=None,
        top=None,
        untold=None,
    ):
        self.name, self.about, self.build = name, about, build
        self.options, self.names, self.landmark = options, names, landmark
        self.example, self.sizes, self.top = example, sizes or {}, top
        self.untold = untold or {}
        FAMILIES[name] = self

    def configured(self, given):
        """All options, with those that are given; ExportError names one that there is not."""
        unknown = sorted(set(given) - set(self.options) - {"naming"})
        if unknown:
            raise ExportError(
                f"the family {self.name} has no option {unknown[0]}; "
                f"it has {', '.join(self.options) or 'none'}"
            )
        options = {**self.options, "naming": next(iter(self.names)), **given}
        if options["naming"] not in self.names:
            raise ExportError(
                f'the family {self.name} has no naming "{options["naming"]}"; '
                f"it has {', '.join(self.names)}"
            )
        return options

    def read(self, checkpoint, naming=None):
        """The naming of a checkpoint's tensors, and the options that their sizes tell."""
        namings = [naming] if naming else list(self.names)
        self.configured({"naming": namings[0]})
        fits = [one for one in namings if checkpoint.has(self.landmark[one])]
        if not fits:
            raise ExportError(
                f"{checkpoint.path} is no {self.name}: it has none of "
                f"{', '.join(f'{self.landmark[one]} ({one})' for one in namings)}; "
                f"it has {checkpoint.some()}"
            )
        checkpoint.locate(self.landmark[fits[0]])
        options = {"naming": fits[0]}
        for option, found in self.sizes.get(fits[0], {}).items():
            size = found(checkpoint) if callable(found) else checkpoint.size(*found)
            if size is not None:
                options[option] = size
        return options

    def assumed(self, given):
        """What a checkpoint's network has of options that nobody said, as "KEY=VALUE, ..."."""
        options, found = self.configured(given), []
        for option, untold in self.untold.items():
            value = untold.value(**options) if untold.value else options[option]
            if option not in given and not untold.asked and value is not None:
                found.append(f"{option}={option_text(value)}")
        return ", ".join(found)

    def expect_told(self, given, path):
        """ExportError names an option that must be given: a default would be a guess."""
        for option, untold in self.untold.items():
            if untold.asked and option not in given:
                raise ExportError(
                    f"{path}: no tensor tells {option}: {untold.what}. Another value gives other "
                    f"numbers, so it has no default; for example --set {option}={untold.likely}"
                )

    def more(self, given):
        """Keys of network.json's top level."""
        return self.top(**self.configured(given)) if self.top else {}

    def network(self, tensors, **given):
        """The Network with the weights of `tensors` (Random or Checkpoint); (network, unused)."""
        options = self.configured(given)
        naming = options["naming"]
        description = f"{self.name} ({naming}): {self.about}"
        if list(options.get("layers", ())) != list(self.options.get("layers", ())):
            description += f"; with other blocks a level: {option_text(options['layers'])}"
        if hasattr(tensors, "locate"):
            tensors.locate(self.landmark[naming])
            self.expect_told(given, tensors.path)
            if assumed := self.assumed(given):
                description += f"; assumed, as no tensor tells: {assumed}"
        network = Network(int(options["channels_in"]), description)
        self.build(Builder(network, tensors, self.names[naming]), **options)
        return network, tensors.finish()

    def request(self, seed=1, **given):
        """An example: (coords, feats)."""
        return self.example(np.random.default_rng(seed), **self.configured(given))


def option_text(value):
    """An option's value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def family(name):
    """The Family of a name."""
    if name not in FAMILIES:
        raise ExportError(f"no family {name}; there is {', '.join(sorted(FAMILIES))}")
    return FAMILIES[name]
