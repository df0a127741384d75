"""`tilewright fleet`: releases to devices in stages, and what becomes of them."""

from __future__ import annotations

import argparse
import csv
import io
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...fleet import SIMULATED_FAULTS
from ...support.amounts import seconds_in
from ...support.files import read_plain
from ...support.sentences import counted
from ..common import CliError, OneLineParser, print_json, table, tell, working
from ..help import texts

if TYPE_CHECKING:
    from ...fleet.base import FleetBase
    from ...fleet.controller import Controller
    from ...fleet.policy import Policy
    from ...fleet.simulation import Course
    from ...fleet.stages import DevicePlace

MOST_DEVICES = 100_000
"""Devices that are added or simulated at once, at most."""

COLUMNS = ["name", "region", "chip"]
"""Of a table of devices."""


def fleet(args: argparse.Namespace) -> int:
    """Runs one of the commands of a fleet."""
    return _ACTIONS[args.action](args)


def _init(args: argparse.Namespace) -> int:
    from ...fleet.base import FleetBase
    from ...fleet.orders import Key
    from ...modelfile.signing import public_keys

    keys = public_keys(args.trusted)
    key = Key.made()
    base = FleetBase(Path(args.db), make=True)
    paths = [str(Path(path).resolve()) for path in args.trusted]
    try:
        with base.transaction() as db:
            db.execute("INSERT INTO settings VALUES ('trusted', ?)", (json.dumps(paths),))
            base.audit(time.time(), "made", trusted=sorted(keys), fleet=key.public)
            key.write(_key_path(args.db))
        base.close()
    except BaseException:
        base.close()
        base.remove()
        raise
    said = f"made {args.db}, and {_key_path(args.db)}, which signs orders: keep it from all but fleet serve"
    return _said(args, {"trusted": sorted(keys), "fleet": key.public}, said)


def _add(args: argparse.Namespace) -> int:
    places = _places(args)
    tokens = _controller(args).add(places, time.time())
    if args.json:
        return _said(args, {"devices": [{**p._asdict(), "token": tokens[p.name]} for p in places]}, "")
    rows = [[*place, tokens[place.name]] for place in places]
    table("each device enrols with its token, once", [*COLUMNS, "token"], rows)
    return 0


def _places(args: argparse.Namespace) -> list[DevicePlace]:
    """The devices that are to be added. Raises CliError that names the line."""
    from ...fleet.stages import DevicePlace
    from ...machine import Machine, MachineError

    if (args.csv is None) == (args.name is None) or (args.name is not None and not (args.region and args.chip)):
        raise CliError("fleet add: say NAME --region R --chip C, or --csv FILE.csv")
    if args.csv is None:
        found = [(str(args.name), DevicePlace(str(args.name), str(args.region), str(args.chip)))]
    else:
        try:
            rows = csv.reader(io.StringIO(read_plain(args.csv).decode("utf-8-sig")), strict=True)
            if next(rows, None) != COLUMNS:
                raise CliError(f"{args.csv}, line 1: the columns are {','.join(COLUMNS)}")
            found = []
            for row in rows:
                if len(row) != len(COLUMNS):
                    raise CliError(f"{args.csv}, line {rows.line_num}: it has {len(row)} columns, not {len(COLUMNS)}")
                found.append((f"{args.csv}, line {rows.line_num}", DevicePlace(*row)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise CliError(f"{args.csv}: it is no CSV in UTF-8: {error}") from None
    if len(found) > MOST_DEVICES:
        raise CliError(f"{args.csv}: it has {len(found)} devices, and {MOST_DEVICES} are added at once")
    for chip, where in {place.chip: where for where, place in reversed(found)}.items():
        try:
            Machine.load(chip)
        except MachineError as error:
            raise CliError(f"{where}: {error}") from None
    return [place for _, place in found]


def _rollout(args: argparse.Namespace) -> int:
    from ...fleet.policy import DeviceGroups, share_in
    from ...fleet.releases import Release, check_runs, make_canary

    controller = _controller(args)
    policy, groups = _policy(args), DeviceGroups.of_text(args.groups)
    trusted = json.loads(controller.base.setting("trusted"))
    with working(f"reading {args.release}"):
        release = Release.read(args.release, trusted)
    most_error = share_in(args.most_error, f"--most-error {args.most_error}")
    known = controller.base.rows("SELECT DISTINCT region, chip FROM devices ORDER BY chip")
    chips = sorted({chip for region, chip in known if groups.has(region, chip)})
    for chip in chips:
        release.check_chip(chip, "a device of the fleet")
    canary, path = None, None if args.canary is None else Path(args.canary)
    with working("trying the release"):
        if path is not None:
            canary = make_canary(release, path, args.entry, chips, args.digest, most_error)
        elif args.digest is not None:
            raise CliError("--digest is what --canary gives: say both")
        else:
            check_runs(release, args.entry, chips)
    number = controller.begin(release, policy, groups, time.time(), canary, path, args.entry, args.force)
    said = f"rollout {number} of release {release.sequence} begins: fleet serve goes on with it"
    return _said(args, {"rollout": number, "release": release.sequence, "sha256": release.sha256}, said)


def _rollback(args: argparse.Namespace) -> int:
    found = _controller(args).rollback(time.time(), args.to)
    said = f"stopped {', '.join(f'rollout {n}' for n in found)}: devices go back as they report"
    return _said(args, {"rollouts": found}, said)


def _status(args: argparse.Namespace) -> int:
    from ...fleet.status import status

    found = status(_base(args))
    if args.json:
        return _said(args, found, "")
    rows = [[str(d["running"] or "none"), str(d["wanted"] or "none"), f"{d['count']:,}"] for d in found["devices"]]
    table("devices", ["run release", "are to run", "devices"], rows)
    rows = [
        [
            str(r["rollout"]),
            str(r["release"]),
            r["state"],
            f"{r['stage']} of {r['stages']}, {r['most']:,} devices at most",
            ", ".join(f"{count:,} {kind}" for kind, count in r["devices"].items()),
            r["why"],
        ]
        for r in found["rollouts"]
    ]
    table("rollouts", ["rollout", "release", "state", "stage", "devices", "why"], rows)
    return 0


def _audit(args: argparse.Namespace) -> int:
    rows = _base(args).audited()
    if args.head is not None and args.head not in {row["sha256"] for row in rows}:
        raise CliError(f"{args.db}: no row of the audit log has the SHA-256 {args.head}: rows were taken away")
    if args.json:
        return _said(args, {"rows": rows}, "")
    for row in rows:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row["time"]))
        about = " ".join(f"{name}={_short(value)}" for name, value in row["about"].items() if value != "")
        tell(f"{row['number']:>6}  {at}  {row['what']:<9}  {about}")
    tell(f"{counted(len(rows), 'row is', 'rows are')} as written; the last one has the SHA-256 {rows[-1]['sha256']}")
    return 0


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _serve(args: argparse.Namespace) -> int:
    from ...fleet.server import FleetServer

    if not 0 <= args.port < 1 << 16:
        raise CliError(f"--port {args.port}: a port is 0 to {(1 << 16) - 1}")
    poll = _poll(args.poll)
    controller = _controller(args)
    controller.poll = poll
    server = FleetServer(controller, args.port)
    if args.json:
        print_json({"schema": "tilewright.fleet/1", "action": "serve", "url": server.url})
    else:
        print(f"serving {args.db} at {server.url}", flush=True)
    server.run()
    return 0


def _agent(args: argparse.Namespace) -> int:
    from ...fleet.device import FleetDevice

    device = FleetDevice(args.folder, args.server, args.name, args.trusted, args.token)
    try:
        device.serve(threading.Event())
    finally:
        device.close()
    return 0


def _simulate(args: argparse.Namespace) -> int:
    from ...fleet.policy import share_in
    from ...fleet.simulation import World, simulate, summary

    if not 1 <= args.devices <= MOST_DEVICES or args.runs < 1:
        raise CliError(f"fleet simulate: say 1 to {MOST_DEVICES} --devices, and at least 1 of --runs")
    world = World(
        devices=args.devices,
        poll=_poll(args.poll),
        loss=share_in(args.loss, f"--loss {args.loss}"),
        offline=share_in(args.offline, f"--offline {args.offline}"),
        after=_time(args.after, "--after"),
    )
    policy = _policy(args)
    policy.check()
    courses: list[Course] = []
    with working("simulating") as say:
        for number in range(args.runs):
            say(f"simulating {args.devices:,} devices", number, args.runs)
            courses.append(simulate(world, policy, args.fault, args.seed + number))
    found = summary(courses)
    if args.json:
        return _said(args, {"fault": args.fault, **found, "courses": [c.to_json() for c in courses]}, "")
    first = courses[0]
    rows = [[f"{seconds:.1f}", f"{running:,}", what] for seconds, what, running in first.timeline]
    table(f"seed {args.seed}, fault: {args.fault}", ["s", "devices with it", "what happens"], rows)
    numbers = [[what, *_two(found[name], scale)] for name, what, scale in _NUMBERS]
    table(counted(len(courses), "run", "runs"), ["", "median", "worst"], numbers)
    tell(f"{found['stopped']} stopped; {found['stranded']} devices that can be reached still run it, at most; "
         f"{found['wrong_at_the_end']} do not run what they are to at the end, at most")  # fmt: skip
    return 0


_NUMBERS = (
    ("faulty_share", "devices that ever ran the faulty release, %", 100.0),
    ("detection", "first faulty device to stop, s", 1.0),
    ("rollback", "first bad report to last device back, s", 1.0),
)


def _two(found: dict[str, float] | None, scale: float) -> list[str]:
    return ["", ""] if found is None else [f"{found[name] * scale:.1f}" for name in ("median", "worst")]


_ACTIONS = {
    "init": _init,
    "add": _add,
    "rollout": _rollout,
    "rollback": _rollback,
    "status": _status,
    "audit": _audit,
    "serve": _serve,
    "agent": _agent,
    "simulate": _simulate,
}


def _said(args: argparse.Namespace, found: dict[str, Any], sentence: str) -> int:
    if args.json:
        print_json({"schema": "tilewright.fleet/1", "action": args.action, **found})
    else:
        tell(sentence)
    return 0


def _key_path(db: str) -> Path:
    """Where the key that signs orders is."""
    return Path(f"{db}.key.pem")


def _base(args: argparse.Namespace) -> FleetBase:
    from ...fleet.base import FleetBase

    return FleetBase(Path(args.db))


def _controller(args: argparse.Namespace) -> Controller:
    from ...fleet.controller import Controller
    from ...fleet.orders import Key

    return Controller(_base(args), Key.read(_key_path(args.db)))


def _policy(args: argparse.Namespace) -> Policy:
    from ...fleet.policy import Policy, factor_in, share_in, shares_in

    return replace(
        Policy(),
        shares=shares_in(args.shares),
        soak=_time(args.soak, "--soak"),
        most_latency=factor_in(args.most_latency, "--most-latency"),
        most_errors=share_in(args.most_errors, "--most-errors"),
        most_silent=share_in(args.most_silent, "--most-silent"),
    )


def _time(text: str, option: str) -> float:
    try:
        return seconds_in(text)
    except ValueError as error:
        raise CliError(f"{option}: {error}") from None


def _poll(text: str) -> float:
    from ...fleet.agent import LEAST_POLL
    from ...fleet.policy import Policy

    poll, silent = _time(text, "--poll"), Policy().heartbeat
    if not LEAST_POLL <= poll <= 2 / 3 * silent:
        most = f"{LEAST_POLL:g} s to {2 / 3 * silent:g} s"
        raise CliError(f"--poll {text}: say {most}, as a device that says nothing for {silent:g} s is silent")
    return poll


def add_parser(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """The command's grammar."""
    text = "releases of model files to devices, in stages, and back by itself where one is faulty"
    made = commands.add_parser("fleet", help=text, description=text, **texts("fleet"))
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
    actions = made.add_subparsers(dest="action", metavar="ACTION", parser_class=OneLineParser, required=True)

    def action(name: str, help: str, db: bool = True) -> OneLineParser:
        parser = actions.add_parser(name, help=help, description=help)
        if db:
            parser.add_argument("--db", required=True, metavar="FLEET.sqlite", help="the database of the fleet")
        for option in ("--json", "--debug"):
            parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help="as of the fleet")
        return parser

    init = action("init", "make the database of a fleet, and the key that signs its orders")
    init.add_argument(
        "--trusted", required=True, action="append", metavar="KEYS.pem", help="public keys that sign releases"
    )
    add = action("add", "add devices; prints the token that each enrols with")
    add.add_argument("name", nargs="?", metavar="NAME")
    add.add_argument("--region", metavar="R")
    add.add_argument("--chip", metavar="CHIP", help="as `tilewright machines` lists them")
    add.add_argument("--csv", metavar="FILE.csv", help=f"devices with the columns {','.join(COLUMNS)}")
    rollout = action("rollout", "roll a signed model file out")
    rollout.add_argument("release", metavar="FILE.twm")
    rollout.add_argument(
        "--groups", default="", metavar="G", help="region=eu,chip=ascend-310p3: to these devices (default all)"
    )
    rollout.add_argument(
        "--canary", metavar="FILE.npz", help="inputs that devices try it on, and arrays called expected..., if any"
    )
    rollout.add_argument("--digest", metavar="SHA256", help="what outputs of the canary have to be, on all chips")
    rollout.add_argument(
        "--most-error", default="1%", metavar="X", help="the largest error against expected outputs (default 1%%)"
    )
    rollout.add_argument("--entry", metavar="NAME", help="the function, where the file has several")
    rollout.add_argument("--force", action="store_true", help="also a release that was rolled back")
    _add_policy(rollout)
    rollback = action("rollback", "stop the last rollout, and have its devices go back")
    rollback.add_argument(
        "--to", type=int, metavar="SEQUENCE", help="have all devices go back to this release; 0: to none"
    )
    action("status", "say which releases run where")
    audit = action("audit", "check the chain of the audit log, and print it")
    audit.add_argument("--head", metavar="SHA256", help="of a row that was noted before: it has to be there still")
    serve = action("serve", "serve devices on this computer's own address, and move rollouts on")
    serve.add_argument("--port", type=int, default=0, metavar="N", help="default 0: any that is free")
    serve.add_argument("--poll", default="10s", metavar="T", help="between reports of a device (default 10s)")
    agent = action("agent", "be a device, on the model of its chip", db=False)
    agent.add_argument("--server", required=True, metavar="URL", help="http://127.0.0.1:PORT")
    agent.add_argument("--name", required=True, metavar="NAME", help="as it was added")
    agent.add_argument("--folder", required=True, metavar="DIR", help="where it keeps its key and its releases")
    agent.add_argument("--trusted", required=True, metavar="KEYS.pem", help="public keys that sign releases")
    agent.add_argument("--token", metavar="TOKEN", help="the first time: what fleet add has printed")
    simulate = action("simulate", "roll a faulty release out to devices that are modelled", db=False)
    simulate.add_argument("--devices", type=int, default=1200, metavar="N", help="default 1200")
    simulate.add_argument("--fault", choices=SIMULATED_FAULTS, default="latency", help="default latency")
    simulate.add_argument("--after", default="0s", metavar="T", help="when the fault shows (default 0s)")
    simulate.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (default 0)")
    simulate.add_argument("--runs", type=int, default=1, metavar="N", help="with so many seeds (default 1)")
    simulate.add_argument("--poll", default="10s", metavar="T", help="between reports of a device (default 10s)")
    simulate.add_argument("--loss", default="1%", metavar="X", help="messages that are lost (default 1%%)")
    simulate.add_argument(
        "--offline", default="3%", metavar="X", help="devices that are off for the whole rollout (default 3%%)"
    )
    _add_policy(simulate)


def _add_policy(parser: OneLineParser) -> None:
    """Limits of a rollout."""
    parser.add_argument(
        "--stages",
        dest="shares",
        default="1%,10%,50%,100%",
        metavar="SHARES",
        help="devices that may have it at each stage (default 1%%,10%%,50%%,100%%)",
    )
    parser.add_argument("--soak", default="60s", metavar="T", help="how long a stage stays healthy (default 60s)")
    parser.add_argument(
        "--most-latency", default="1.2x", metavar="X", help="its latency over that of the one before (default 1.2x)"
    )
    parser.add_argument("--most-errors", default="1%", metavar="X", help="calls and devices that fail (default 1%%)")
    parser.add_argument(
        "--most-silent", default="25%", metavar="X", help="devices that stop reporting with it (default 25%%)"
    )
