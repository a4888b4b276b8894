"""Ranks in one process, as threads around a store: they agree, share work out, and outlive each other."""

import os
import pickle
import threading
import time
from pathlib import Path

import pytest
import torch
from launching import HANGS
from torch.distributed import HashStore
from training_child import configure, train

from smoothcert.distributed import consensus, heartbeats, peer_errors, work_queue
from smoothcert.distributed.heartbeats import Heartbeats
from smoothcert.distributed.launched import LaunchedRanks
from smoothcert.distributed.peer_errors import raise_if_peer_failed, rank0_reports
from smoothcert.distributed.ranks import PeerError, Ranks
from smoothcert.errors import Notice, SmoothcertError, UsageError
from smoothcert.runtime import environment
from smoothcert.runtime.deadline import INTERRUPTED
from smoothcert.training import setup
from smoothcert.training.pacing import Clock


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(heartbeats, "SECONDS_BETWEEN_BEATS", 0.1)
    monkeypatch.setattr(consensus, "_SECONDS_TO_APPEAR", 0.2)
    monkeypatch.setattr(consensus, "_SECONDS_BETWEEN_PEER_CHECKS", 0.1)
    monkeypatch.setattr(work_queue, "_SECONDS_BETWEEN_HEARTBEAT_CHECKS", 0.1)
    monkeypatch.setattr(Heartbeats, "_end", lambda self, reason: None)  # threads must not end the process


@pytest.fixture
def impatient(monkeypatch):
    """Three seconds of silence are a rank's death: enough for the living ones on a busy machine."""
    monkeypatch.setenv("SMOOTHCERT_RANK_TIMEOUT", "3")


def together(work, size, *, absent=()):
    """Run work(ranks) for every rank but the absent ones, which were seen alive once; return or raise in rank order."""
    store, found = HashStore(), {}

    def run(ranks):
        stop = ranks.heartbeats.start()
        try:
            found[ranks.rank] = work(ranks)
        except SmoothcertError as error:
            if not isinstance(error, PeerError):
                rank0_reports(ranks, error)
            found[ranks.rank] = error
        finally:
            stop()

    threads = []
    for rank in range(size):
        if rank in absent:
            store.set(f"beat/{rank}", "0")
        else:
            threads.append(threading.Thread(target=run, args=(LaunchedRanks(rank, size, store),), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)
        assert not thread.is_alive(), "it hangs"
    return [found.get(rank) for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("images", [1, 2, 7, 64])
def test_parts_make_up_the_mini_batch(size, images):
    parts = [Ranks(rank, size).share_of(images) for rank in range(size)]
    assert sum(part.weight for part in parts) == pytest.approx(1)
    if images < size:
        assert all((part.first, part.size, part.is_partial) == (0, images, False) for part in parts)
    else:
        covered = [position for part in parts for position in range(part.first, part.first + part.size)]
        assert covered == list(range(images))
        assert all(part.weight == part.size / images for part in parts)
        assert all(part.is_partial == (size > 1) for part in parts)


def test_one_process_alone_waits_for_nobody(tmp_path):
    ranks = Ranks()
    assert ranks.broadcast_from_rank0(3) == 3
    ranks.require_same_on_all_ranks({"n": 1})
    ranks.require_shared_folder(tmp_path / "not made")
    assert not (tmp_path / "not made").exists()
    assert list(ranks.map_in_order(3, lambda item: item * item)) == [0, 1, 4]


def test_rank_0_decides():
    assert (
        together(lambda ranks: [ranks.broadcast_from_rank0(ranks.rank + step) for step in range(3)], 3)
        == [[0, 1, 2]] * 3
    )


def test_what_differs_is_named_on_rank_0_and_everyone_stops():
    first, *others = together(lambda ranks: ranks.require_same_on_all_ranks({"n": 7, "seed": ranks.rank // 2}), 3)
    assert isinstance(first, UsageError)
    assert str(first) == "The ranks do not agree on seed: 0 on rank 0, 1 on rank 2; run the same command on every node."
    assert all(isinstance(other, PeerError) for other in others)
    first, _ = together(
        lambda ranks: ranks.require_same_on_all_ranks({"n": 7, **({"seed": 0} if ranks.rank else {})}), 2
    )
    assert "do not agree on seed: None on rank 0, 0 on rank 1" in str(first), "what only another rank has"


def test_of_several_errors_the_first_is_said(monkeypatch):
    monkeypatch.setattr(peer_errors, "_SECONDS_TO_BE_HEARD", 0.0)
    store = HashStore()
    for rank in (2, 1):
        rank0_reports(LaunchedRanks(rank, 3, store), SmoothcertError(f"error of rank {rank}"))
    with pytest.raises(SmoothcertError, match="On rank 2: error of rank 2"):
        raise_if_peer_failed(LaunchedRanks(0, 3, store))


def test_a_rank_that_never_starts_is_silent_after_ten_minutes():
    beats = Heartbeats(0, 3, HashStore())
    beats.exchange(0)
    beats.add_silence(heartbeats._SECONDS_TO_START - 1)
    beats.exchange(1)
    assert beats.silent() == []
    beats.add_silence(2)
    beats.exchange(2)
    assert beats.silent() == [1, 2]


def test_a_rank_ends_only_when_it_may_wait_forever(monkeypatch):
    """Rank 0 without collectives does without a silent rank; a rank that has left is not waited for."""
    monkeypatch.setenv("SMOOTHCERT_RANK_TIMEOUT", "1")
    store = HashStore()
    every = [Heartbeats(rank, 3, store) for rank in range(3)]

    def pass_time(*alive):
        for _ in range(3):
            for beats in every:
                beats.add_silence(0.6)
            for rank in (*alive, *alive):  # rank 0 reads before the others write
                pass_time.number += 1
                every[rank].exchange(pass_time.number)
        return [every[rank].reason_to_end() for rank in range(3)]

    pass_time.number = 0
    silence = "{} has not responded for 1 seconds; stopping."
    assert pass_time(0, 1, 2) == [None, None, None]
    assert pass_time(0, 2)[0::2] == [None, None]
    every[0].uses_collectives = every[2].uses_collectives = True
    assert pass_time(0, 2)[0::2] == [silence.format("Rank 1"), None]
    store.set("left/1", "")
    assert pass_time(0, 2)[0::2] == [None, None]
    assert pass_time(2)[2] == silence.format("Rank 0")
    assert pass_time()[2] == silence.format("Rank 0"), "its store does not answer"
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert pass_time()[0] == silence.format("torchrun")
    store.set("failed", "{}")
    assert pass_time(0, 2)[0::2] == [None, None], "the main thread has time to report it"
    every[2].add_silence(heartbeats._SECONDS_TO_END)
    every[2].exchange(-1)
    every[0].exchange(-1)
    every[2].exchange(-2)
    assert every[2].reason_to_end() == "", "another rank reports it"


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_bad_limit_is_refused(text, monkeypatch):
    monkeypatch.setenv("SMOOTHCERT_RANK_TIMEOUT", text)
    with pytest.raises(UsageError, match=f"`SMOOTHCERT_RANK_TIMEOUT` to be .*, but got '{text}'"):
        Heartbeats(0, 2, HashStore())


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("key", "rank", "read"),
    [
        ("broadcast/0", 1, lambda ranks: ranks.broadcast_from_rank0(None)),
        ("queue/0/result/0", 0, lambda ranks: list(ranks.map_in_order(1, str))),
        ("same/0/1", 0, lambda ranks: ranks.require_same_on_all_ranks({})),
        ("failed", 0, raise_if_peer_failed),
    ],
)
def test_a_key_written_by_a_stranger_executes_nothing(key, rank, read, tmp_path):
    payload = pickle.dumps(Malicious(tmp_path / "executed"))
    ranks = LaunchedRanks(rank, 2, HashStore())
    ranks.store.set(key, payload)
    with pytest.raises(SmoothcertError, match="The ranks' store contains a value that is not JSON"):
        read(ranks)
    assert not (tmp_path / "executed").exists()
    pickle.loads(payload)
    assert (tmp_path / "executed").exists(), "the payload works"


def test_nothing_between_ranks_is_pickled():
    source = Path(consensus.__file__).parent
    for path in source.glob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text
        assert "_object" not in text, "torch's object collectives pickle"


def test_an_error_of_another_rank_is_said_by_rank_0():
    def work(ranks):
        if ranks.rank == 1:
            raise SmoothcertError("There is no checkpoint here.")
        ranks.require_same_on_all_ranks({})

    first, second, third = together(work, 3)
    assert str(first) == "On rank 1: There is no checkpoint here."
    assert str(second) == "There is no checkpoint here."
    assert isinstance(third, PeerError)


def test_a_silent_rank_is_not_waited_for(impatient):
    first, second, _ = together(lambda ranks: ranks.require_same_on_all_ranks({}), 3, absent=[2])
    assert "Rank 2 has not responded for 3 seconds" in str(first)
    assert isinstance(second, PeerError)


def test_a_folder_that_is_not_shared(tmp_path):
    first, _ = together(lambda ranks: ranks.require_shared_folder(tmp_path / str(ranks.rank)), 2)
    assert isinstance(first, UsageError)
    assert "choose a folder that all nodes share" in str(first)
    assert together(lambda ranks: ranks.require_shared_folder(tmp_path / "same"), 2) == [None, None]
    assert not list((tmp_path / "same").iterdir()), "the mark is taken away"


@pytest.mark.parametrize("size", [2, 5])
def test_shared_work_is_done_once_and_comes_in_order(size):
    done = []

    def work(item):
        time.sleep(0.01 * (item % 3))
        done.append(item)
        return item * item

    first, *others = together(lambda ranks: list(ranks.map_in_order(40, work)), size)
    assert first == [item * item for item in range(40)]
    assert all(other == [] for other in others)
    assert sorted(done) == list(range(40))


def test_the_items_of_a_dead_rank_are_taken_over(impatient):
    """Rank 1 draws a ticket and is never heard of again; another did not even say which ticket it drew."""

    def work(ranks):
        if ranks.rank == 0:
            ranks.store.add("queue/0/next", 2)
            ranks.store.set("queue/0/owner/0", "1")
        time.sleep(0.2)
        return list(ranks.map_in_order(12, lambda item: (item, ranks.rank), tuple))

    with pytest.warns(Notice, match="Rank 1 has not responded for 3 seconds; other ranks take over its work"):
        first, _, other = together(work, 3, absent=[1])
    assert [item for item, _ in first] == list(range(12))
    assert other == []


def test_a_failing_worker_stops_the_work():
    def fail(item):
        raise SmoothcertError(f"image {item} is broken")

    def work(ranks):
        return list(ranks.map_in_order(50, fail if ranks.rank else lambda item: time.sleep(0.05)))

    first, _ = together(work, 2)
    assert isinstance(first, SmoothcertError)
    assert "On rank 1: image" in str(first)


@pytest.mark.parametrize("interrupted", [0, 1, 2])
def test_an_interrupt_of_any_rank_stops_all_at_the_same_step(interrupted):
    def work(ranks):
        clock, step, found = Clock(ranks), 0, (False, "")
        while not found[1]:
            time.sleep(0.01)
            step += 1
            found = clock.tick(INTERRUPTED if ranks.rank == interrupted and step > 5 else "", due=False)
        return step, *found

    first, *others = together(work, 3)
    assert first[0] > 5
    assert first[1:] == (True, INTERRUPTED)
    assert others == [first, first]


def test_a_process_alone_looks_once_a_second(monkeypatch):
    """Each look waits for the device, so it must not come with every step."""
    now = [0.0]
    monkeypatch.setattr("smoothcert.training.pacing.time.monotonic", lambda: now[0])
    clock, looks = Clock(Ranks()), []
    for step in range(1, 1001):
        now[0] = step / 128
        looks += [step] if clock.tick("", due=False)[0] else []
    assert looks == list(range(128, 1001, 128))


def test_several_ranks_meet_about_once_a_second(monkeypatch):
    """A hundred steps a second; each meeting takes a number, and the clock itself the first."""
    now, ranks = [0.0], LaunchedRanks(0, 2, HashStore())
    monkeypatch.setattr("smoothcert.training.pacing.time.monotonic", lambda: now[0])
    clock, looks = Clock(ranks), []
    for step in range(1, 1001):
        now[0] += 0.01
        look, _ = clock.tick("", due=step == 550)
        looks += [step] if look else []
    assert 550 in looks
    assert max(after - before for before, after in zip([0, *looks], [*looks, 1000], strict=True)) <= 200
    assert next(ranks.numbers) <= 14


def test_masked_attacks_and_synchronized_batchnorm_exclude_each_other(few, tmp_path, monkeypatch):
    """Ranks with nothing to attack would not take part in the exchange."""
    config = configure("catrs", options={"attack": "masked"}, batch_norm="synced", architecture="cifar_resnet8")
    monkeypatch.setattr(setup, "current_ranks", lambda: Ranks(0, 2))
    with pytest.raises(UsageError, match="`attack='masked'` cannot be used with `batch_norm='synced'`"):
        train(config, tmp_path / "run", few)


def test_each_process_of_a_machine_has_its_own_gpu(monkeypatch):
    tried = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(environment.torch, "empty", lambda *size, device: tried.append(str(device)))
    monkeypatch.setattr(environment.torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(environment.torch.cuda, "is_available", lambda: True)
    assert [str(environment.choose_device(name)) for name in ("auto", "cuda", "cuda:1")] == [
        "cuda:3",
        "cuda:3",
        "cuda:1",
    ]
    assert tried == ["cuda:3", "cuda:3", "cuda:1"], "each is tried before it is used"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), torch.OutOfMemoryError),
        (RuntimeError("[pair.cc:534] Connection closed by peer"), PeerError),
    ],
)
def test_an_error_of_a_collective_is_only_blamed_on_others_if_it_can_be_theirs(error, kind, monkeypatch):
    def fail(tensor):
        raise error

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)
    with pytest.raises(kind) as raised:
        LaunchedRanks(0, 2, HashStore()).total(torch.zeros(1))
    assert type(raised.value) is kind
