"""voxeld-export: makes model directories for voxeld, each with a proof.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import importlib.util
import inspect
import os
import signal
import sys
import threading
import warnings

from .errors import ExportError
from .weights import DATATYPES

_EPILOG = """\
Every export ends with a proof: the directory is served by voxeld on the CPU, and its answers are
compared with the source's.  The source is the live module; for a checkpoint the recorded outputs
(--recorded), or else the network's definition in numpy.

  voxeld-export family --list
  voxeld-export family minkunet34 -o repository/minkunet34
  voxeld-export checkpoint model.pth --family second --set spatial_shape=41,1600,1408 \\
                           -o repository/second
  voxeld-export module train.py:net_and_example -o repository/mine
  voxeld-export onnx centerpoint.scn.onnx -o repository/centerpoint
  voxeld-export check repository/second
  voxeld-export calibrate repository/second --data frame.npz
"""


def main(arguments=None):
    """Runs a command; returns the exit code: 0, 1 = it failed, 2 = wrong usage."""
    options = _parser().parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)  # the proof's server and files go with us
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            return options.run(options)
    except ExportError as error:  # CheckFailed is one
        print(f"voxeld-export: {error}", file=sys.stderr)
    except BrokenPipeError:
        sys.stderr.close()  # who read our output has gone; there is nobody to tell
    except OSError as error:
        print(f"voxeld-export: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("voxeld-export: interrupted; nothing is changed", file=sys.stderr)
        return 130
    return 1


def _terminated(number, _frame):
    raise SystemExit(128 + number)


def _warn(text, *_where, **_more):
    print(f"voxeld-export: warning: {text}", file=sys.stderr)


# --- commands ---


def _family(options):
    from .families import FAMILIES, Random, family
    from .families.family import option_text

    if options.list or not options.name:
        for name in sorted(FAMILIES):
            found = FAMILIES[name]
            print(f"{name:<26} {found.about}")
            print(f"{'':<26} namings: {', '.join(found.names)}")
            print(f"{'':<26} {' '.join(f'{k}={option_text(v)}' for k, v in found.options.items())}")
            if asked := [option for option, untold in found.untold.items() if untold.asked]:
                print(f"{'':<26} a checkpoint needs --set: {', '.join(asked)}")
        return 0 if options.list else _usage("which family?  --list shows them; expected a name")
    chosen, _ = family(options.name), _folder(options)
    given = _settings(chosen, options)
    network, _ = chosen.network(Random(options.seed), **given)
    return _publish_family(options, chosen, network, given)


def _checkpoint(options):
    from .families import Checkpoint, family

    chosen = family(options.family)
    tensors = Checkpoint.open(options.file)
    tensors.prefix = options.prefix
    given = {**chosen.read(tensors, options.naming), **_settings(chosen, options)}
    network, unused = chosen.network(tensors, **given)
    for line in _by_prefix(unused):
        print(f"not part of the family: {line}", file=sys.stderr)
    if assumed := chosen.assumed(given):
        said = f"assumed, as no tensor tells: {assumed} (--set gives others)"
        print(f"voxeld-export: {said}", file=sys.stderr)
    return _publish_family(options, chosen, network, given)


def _publish_family(options, chosen, network, given):
    from .definition import evaluate
    from .example import Example
    from .publish import publish

    example = _example(options) or Example(*chosen.request(options.seed, **given))

    def source(folder):
        return example if options.recorded else evaluate(folder, example.coords, example.feats)

    def layers(folder):
        return evaluate(folder, example.coords, example.feats, layers="all")[1]

    if not options.recorded and not options.no_check:
        better = (
            ", made of the same options: it cannot see a wrong one; the outputs of the trained "
            "network itself can: --recorded FILE.npz"
        )
        print(
            "the proof's source is the network's definition in numpy"
            f"{better if options.run is _checkpoint else ''}",
            file=sys.stderr,
        )
    more = chosen.more(given)
    folder, source = _folder(options), example if options.recorded else source
    return _report(publish(network, source, folder, layers=layers, more=more, **_proof(options)))


def _module(options):
    try:
        from .module import from_module
    except ModuleNotFoundError as error:
        raise ExportError(
            f"{error.name} is not installed here: run this in the environment in which the module "
            "runs"
        ) from error
    path, _, name = options.source.rpartition(":")
    if not path or not name:
        raise ExportError(f"{options.source}: expected FILE.py:FUNCTION")
    made = _made(_load(path, name), options.source)
    if isinstance(made, tuple) and len(made) == 2:
        made = {"net": made[0], "example": made[1]}
    if not isinstance(made, dict) or not {"net", "example"} <= set(made):
        raise ExportError(
            f"{name} returns a {type(made).__name__}; expected (net, example), or a dict of "
            "from_module's arguments, net and example among them"
        )
    return _report(from_module(folder=_folder(options), **made, **_proof(options)))


def _made(function, source):
    """What the user's function returns; asked first, whether it can be called without arguments."""
    wanted = "expected FILE.py:FUNCTION, a function without arguments that returns (net, example)"
    if hasattr(function, "forward") and not isinstance(function, type):
        raise ExportError(f"{source} is a {type(function).__name__}, no function; {wanted}")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ExportError(f"{source} cannot be called: {error}; {wanted}") from error
    except ValueError:
        pass  # some made in C do not tell
    return function()


def _onnx(options):
    from .onnx import from_onnx

    shape = options.spatial_shape and _value("spatial-shape", options.spatial_shape, (41, 9, 9))
    return _report(
        from_onnx(
            options.file,
            _folder(options),
            example=_example(options),
            ones=options.ones,
            spatial_shape=shape,
            **_proof(options),
        )
    )


def _example(options):
    """The Example of --recorded or --example, or None."""
    from .example import Example

    if options.recorded:
        return Example.open(options.recorded, recorded=True)
    return Example.open(options.example, outputs=False) if options.example else None


def _check(options):
    from .check import check_folder
    from .example import Example

    return _report(
        check_folder(
            options.folder,
            Example.open(_example_of(options.folder)),
            voxeld=options.voxeld,
            bound=options.bound,
            version=options.version,
        )
    )


def _example_of(folder):
    """The path of what an export left of its source: what `check` compares with."""
    if not os.path.isdir(folder):
        there = "is no folder" if os.path.lexists(folder) else "does not exist"
        raise ExportError(f"{folder} {there}; expected REPOSITORY/NAME, which an export made")
    path = os.path.join(folder, "example.npz")
    if not os.path.lexists(path):
        raise ExportError(
            f"{folder} has no example.npz, a request and its source's answers, which only exports "
            "have: there is nothing to compare with; `voxeld check` reads any model"
        )
    return path


def _calibrate(options):
    from .calibrate import calibrate

    layers = options.layers.split(",") if options.layers else None
    return _report(
        calibrate(
            options.folder,
            options.data,
            output=options.output,
            nmse_max=options.nmse_max,
            layers=layers,
            precision=options.precision,
            voxeld=options.voxeld,
            replace=options.replace,
        )
    )


# --- their parts ---


def _parser():
    parser = argparse.ArgumentParser(
        prog="voxeld-export",
        description="Makes model directories for voxeld, each with a proof.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("family", help="a published network with random weights")
    one.add_argument("name", nargs="?", metavar="NAME", help="of --list")
    one.add_argument("--list", action="store_true", help="prints all families and their options")
    one.add_argument("--seed", type=int, default=1, help="of the weights and the example (1)")
    _family_options(one)
    _request_option(one)
    one.set_defaults(recorded=None)  # random weights have no trained network
    _common(one, _family, folder="optional")
    one = commands.add_parser("checkpoint", help="a published network with the weights of a file")
    one.add_argument("file", metavar="FILE", help=".safetensors, .npz, .pth, .pt or .ckpt")
    one.add_argument("--family", required=True, metavar="NAME", help="of `family --list`")
    one.add_argument("--seed", type=int, default=1, help="of the example (1)")
    one.add_argument(
        "--prefix", metavar="NAME.", help="of the network's tensors, if the file has several"
    )
    _family_options(one)
    _example_options(one)
    _common(one, _checkpoint)
    one = commands.add_parser("module", help="a live module of PyTorch")
    one.add_argument(
        "source", metavar="FILE.py:FUNCTION", help="FUNCTION() returns (net, example)"
    )
    _common(one, _module)
    one = commands.add_parser("onnx", help="an ONNX file of NVIDIA's libspconv")
    one.add_argument("file", metavar="FILE", help="the .onnx")
    _example_options(one)
    one.add_argument(
        "--ones", choices=("spconv", "oxyzi"), help="how weights of kernels of one offset are read"
    )
    one.add_argument(
        "--spatial-shape", metavar="Z,Y,X", help="voxels along each axis (what the file has)"
    )
    _common(one, _onnx, datatype=None)
    one = commands.add_parser("check", help="the proof of a directory that was exported, again")
    one.add_argument("folder", metavar="FOLDER", help="REPOSITORY/NAME")
    one.add_argument("--version", type=int, metavar="N", help="of the model (the highest)")
    _proof_options(one)
    one.set_defaults(run=_check)
    one = commands.add_parser("calibrate", help="FP8 for the convolutions of a model directory")
    one.add_argument("folder", metavar="FOLDER", help="REPOSITORY/NAME")
    one.add_argument(
        "--data", metavar="FILE.npz", required=True, help="coords and feats; becomes fp8.npz"
    )
    one.add_argument(
        "--nmse-max", type=float, help="of each output, the bound of `voxeld check` (0.02)"
    )
    one.add_argument(
        "--layers",
        metavar="NAME,NAME...",
        help="these convolutions (those of 128 channels and more, but the first and the last)",
    )
    one.add_argument("--precision", choices=("fp16", "bf16"), help="sets the network's, too")
    one.add_argument(
        "-o", "--output", metavar="FOLDER", help="makes a copy (FOLDER itself changes)"
    )
    _replace_option(one)
    one.add_argument("--voxeld", metavar="PROGRAM", help="the server (the one in PATH)")
    one.set_defaults(run=_calibrate)
    return parser


def _family_options(parser):
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the family"
    )
    parser.add_argument("--naming", help="whose names the tensors have; `family --list` has them")


def _example_options(parser):
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--recorded", metavar="FILE.npz", help="a request and all outputs of the trained network"
    )
    _request_option(either)


def _request_option(parser):
    parser.add_argument(
        "--example", metavar="FILE.npz", help="a request alone: coords and feats (made up)"
    )


def _common(parser, run, folder="required", datatype="FP32"):
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", required=folder == "required", help="REPOSITORY/NAME"
    )
    parser.add_argument(
        "--datatype",
        default=datatype,
        choices=DATATYPES,
        help=f"of the multiplied weights ({datatype or 'as in the file'})",
    )
    parser.add_argument("--no-check", action="store_true", help="leaves the proof out")
    _replace_option(parser)
    _proof_options(parser)
    parser.set_defaults(run=run)


def _replace_option(parser):
    parser.add_argument(
        "--replace",
        action="store_true",
        help="what else the folder has may go: other versions, files, keys of network.json",
    )


def _proof_options(parser):
    parser.add_argument("--voxeld", metavar="PROGRAM", help="the server (the one in PATH)")
    parser.add_argument("--bound", type=float, help="worst element over the largest (1e-5)")


def _proof(options):
    return {
        "datatype": options.datatype,
        "check": not options.no_check,
        "voxeld": options.voxeld,
        "bound": options.bound,
        "replace": options.replace,
    }


def _folder(options):
    if not options.output:
        raise ExportError("where to? -o REPOSITORY/NAME is missing")
    return options.output


def _report(report):
    if report is not None:
        print(report)
    return 0


def _usage(text):
    print(f"voxeld-export: {text}", file=sys.stderr)
    return 2


def _settings(chosen, options):
    """{option: value} of --set and --naming; a value has the type of the option's default."""
    given = {"naming": options.naming} if options.naming else {}
    for setting in options.set:
        key, equals, text = setting.partition("=")
        if not equals or key not in chosen.options:
            raise ExportError(
                f"--set {setting}: expected KEY=VALUE with a key of {', '.join(chosen.options)}"
            )
        given[key] = _value(key, text, chosen.options[key])
    return given


def _value(key, text, default):
    """An option's value, of the type of its default."""
    from .families.family import option_text

    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, (tuple, list)):
            return tuple(int(part) for part in text.split(","))
        return type(default)(text)
    except (KeyError, ValueError) as error:
        like = option_text(default) or "1,2,3"
        raise ExportError(f"--set {key}={text}: expected something like {like}") from error


def _by_prefix(names):
    """A line for each first part of the names: how many tensors it has."""
    counts = {}
    for name in names:
        prefix = name.partition(".")[0]
        counts[prefix] = counts.get(prefix, 0) + 1
    return [f"{prefix} ({count} tensors)" for prefix, count in sorted(counts.items())]


def _load(path, name):
    if not os.path.isfile(path):
        raise ExportError(f"no file {path}; expected FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise ExportError(f"{path} has no function {name}")
    return getattr(module, name)
