"""Who does what in a chaos run: streams, batch writers, one who deletes, one who corrects, one who compacts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial

from tools.demo_story import Row, adds, corrects, removes

from bench.chaos_faults import start_thread
from bench.chaos_story import ACKNOWLEDGED, FAILED, REFUSED, Job, Source
from bench.chaos_world import Peer, World, luck_of
from headgate.client.keys import new_key

_CORRECTIONS = 40
# Times the pause of other jobs: who rewrites without a break starves the others.
_DELETES_PAUSE, _COMPACTION_PAUSE = 4, 20
_STILL_PAYS_EVERY = 4  # of so many customers one is deleted who still pays, so that commits conflict
_TRIES_STILL_PAYS = 3
_RESTARTS_MAX = 60
_RESTART_WAIT_S = 0.5
_POLL_S = 1


def carry_out(
    world: World, peer: Peer, job: Job, work: Callable[[Job], int | None], *, tries_max: int
) -> None:
    """Run a job until it is acknowledged, as a scheduler would: again after a failure, anew after a refusal."""
    world.book.open(job)
    while job.tries < tries_max:
        job.tries += 1
        try:
            job.snapshot_id = work(job)
        except Exception as error:  # outermost edge of a job: its scheduler runs it again
            problem = peer.judge(error, job)
            world.book.note(job.kind, problem)
            job.outcome = REFUSED if problem.is_refusal else FAILED
            if problem.is_refusal:
                job.key = new_key()  # the old one stands for the refusal
            time.sleep(_RESTART_WAIT_S)
        else:
            job.outcome = ACKNOWLEDGED
            return


def run_stream(world: World, peer: Peer, source: Source) -> None:
    """A stream under a supervisor that starts it again when it dies; ends when it has brought all there is."""
    for _ in range(_RESTARTS_MAX):
        try:
            query = peer.start_stream(source)
            while not world.clock.is_over:
                query.awaitTermination(_POLL_S)  # raises what ended it
            query.processAllAvailable()
            query.stop()
        except Exception as error:  # outermost edge of a stream: its supervisor starts it again
            world.book.note("stream", peer.judge(error, None))
            time.sleep(_RESTART_WAIT_S)
        else:
            return
    raise RuntimeError(f"stream {source.number} was started {_RESTARTS_MAX} times")


def write_batches(world: World, peer: Peer, source: Source) -> None:
    """One batch after the other."""
    for number in itertools.count():
        if world.clock.is_over:
            return
        start = world.made[source.number]
        rows: list[Row] = list(source.rows(start, start + world.plan.rows_per_write))
        job = Job(f"append-{source.number}-{number}", "append", adds(rows))
        carry_out(world, peer, job, partial(peer.append, rows), tries_max=world.plan.tries_max)
        world.made[source.number] = start + len(rows)
        world.clock.pause(world.plan.pause_s)


def delete_customers(world: World, peer: Peer) -> None:
    """One customer after the other; most have stopped paying, some have not."""
    sources, leaving = [*world.streams, *world.writers], dict[int, int]()
    for turn in itertools.count():
        if world.clock.is_over:
            return
        source = sources[turn % len(sources)]
        oldest = source.first_customer(world.brought(source))
        customer = leaving.get(source.number, source.first_customer(0))
        pays = turn % _STILL_PAYS_EVERY == _STILL_PAYS_EVERY - 1
        if pays and world.brought(source):
            customer = oldest + 1
        elif customer >= oldest:
            world.clock.pause(world.plan.pause_s)
            continue
        else:
            leaving[source.number] = customer + 1
        job = Job(f"delete-{turn}", "delete", removes(customer))
        tries_max = _TRIES_STILL_PAYS if pays else world.plan.tries_max
        carry_out(world, peer, job, partial(peer.delete, customer), tries_max=tries_max)
        world.clock.pause(_DELETES_PAUSE * world.plan.pause_s)


def correct_amounts(world: World, peer: Peer) -> None:
    """Corrections of payments that were made a while ago, of one source after the other."""
    luck, sources = luck_of(world.plan, "merge"), [*world.streams, *world.writers]
    for turn in itertools.count():
        if world.clock.is_over:
            return
        source = sources[turn % len(sources)]
        made = world.brought(source)
        ids = source.ids(max(0, made - 20 * _CORRECTIONS), made)
        if len(ids) < 2 * _CORRECTIONS:
            world.clock.pause(world.plan.pause_s)
            continue
        amounts = {
            id_: Decimal(luck.randrange(1, 10_000_000)).scaleb(-2) for id_ in luck.sample(ids, _CORRECTIONS)
        }
        job = Job(f"merge-{turn}", "merge", corrects(amounts))
        work = partial(peer.merge, amounts, source.region)
        carry_out(world, peer, job, work, tries_max=world.plan.tries_max)
        world.clock.pause(world.plan.pause_s)


def compact_files(world: World, peer: Peer) -> None:
    """Rewrite small files again and again."""
    while not world.clock.is_over:
        world.clock.pause(_COMPACTION_PAUSE * world.plan.pause_s)
        try:
            peer.compact()
        except Exception as error:  # outermost edge of a job: the next turn does what this one did not
            world.book.note("compaction", peer.judge(error, None))


def act(world: World, peer: Peer, *others: tuple[str, Callable[[], None]]) -> None:
    """Let everybody go at once, and the others who make trouble; returns when all have come to their end."""
    actors: list[tuple[str, Callable[[], None]]] = [
        *((f"stream {one.number}", partial(run_stream, world, peer, one)) for one in world.streams),
        *((f"writer {one.number}", partial(write_batches, world, peer, one)) for one in world.writers),
        ("deletes", partial(delete_customers, world, peer)),
        ("merges", partial(correct_amounts, world, peer)),
        ("compaction", partial(compact_files, world, peer)),
        ("feed", world.feed),
        *others,
    ]

    def guard(name: str, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # outermost edge of this thread: the run tells it at the end
            world.book.break_off(name, error)

    threads = [start_thread(name, partial(guard, name, run)) for name, run in actors]
    for thread in threads:
        thread.join()
    for job in world.book.jobs:
        if job.outcome == FAILED and peer.settle(job):
            job.outcome = ACKNOWLEDGED
