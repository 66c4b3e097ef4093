"""Processes with one log: all decide and take reports, one of them learns, and the others follow its beliefs.

The learner holds the lease, a row of the database with an epoch and a heartbeat. Whoever finds it without a heartbeat
for three seconds takes it, with the next epoch; each transaction that only the learner may make first locks the row
and checks the epoch, so that one who was stopped, and goes on, changes nothing. A call that needs the learner, such
as `add_arm`, asks for the lease, which its holder gives away with its last belief.
"""

import functools
import logging
import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from seqdec.runtime import short_turns
from seqdec.service.identity import ChangedError
from seqdec.service.learner import Learner
from seqdec.service.postgres import PostgresDatabase, SharedStore
from seqdec.service.rewards import Rewards
from seqdec.service.store import FencedError
from seqdec.service.transactions import Transactions

log = logging.getLogger("seqdec.service")
_LOOK, _FAILED, _BEAT = 0.05, 0.5, 0.5
"""Seconds between looks for rewards or beliefs, after one that failed, and between heartbeats."""
_LEASE, _ASKED = 3, 5
"""Seconds without a heartbeat after which the lease is free, and for which a wish for it stands."""
_MOST = 1024
"""Rewards numbered in one transaction."""
_CALLS = 16
"""Calls whose decisions are written at once when the database is back."""
_CLEAN, _DROPPED = 600.0, 1000
"""Seconds after which keys whose time is over are deleted, and how many in one step."""
_FILES = 60.0
"""Seconds between looks for files of the spool that processes left."""
_PATIENCE = 30.0
"""Seconds that a call waits for the lease."""
_END = 10.0
"""Seconds that the end waits for a step."""


def this_process() -> str:
    """Its name in leases."""
    return f"{socket.gethostname()} {os.getpid()}"


class Lease(threading.Thread):
    """The right to learn, in a session of its own, with a heartbeat while it is held. Raises OSError."""

    def __init__(self, store: SharedStore) -> None:
        super().__init__(name="seqdec lease", daemon=True)
        self._store, self._holder = store, f"{this_process()} {uuid.uuid4().hex[:8]}"
        self._database, self._lock = PostgresDatabase(store.database.path), threading.Lock()
        self._ended, self.is_held, self.is_wanted = threading.Event(), False, False
        self.start()

    def run(self) -> None:
        while not self._ended.wait(_BEAT):
            if self.is_held:
                with self._lock, suppress(OSError):  # the holder notices by itself
                    self._beat()

    def take(self, *, wants: bool) -> bool:
        """Take it, if nobody has it, or the holder has given it away; with `wants`, ask the holder for it."""
        with self._lock:
            found = self._database.execute(
                "UPDATE lease SET epoch = epoch + 1, holder = ?, beat = now(), wanted = NULL WHERE one IN (SELECT one "
                f"FROM lease WHERE (beat IS NULL OR beat < now() - interval '{_LEASE} s' OR holder = ?) AND (wanted IS "
                f"NULL OR wanted = ? OR asked < now() - interval '{_ASKED} s') FOR UPDATE SKIP LOCKED) RETURNING epoch",
                [self._holder] * 3,
            )
            if found:
                self._store.epoch, self.is_held, self.is_wanted = found[0][0], True, False
            elif wants:
                self._database.execute(
                    "UPDATE lease SET wanted = ?, asked = now() WHERE wanted IS NULL OR wanted = ? "
                    f"OR asked < now() - interval '{_ASKED} s'",
                    [self._holder] * 2,
                )
        return bool(found)

    def look(self) -> None:
        """Raises OSError while the database is away."""
        with self._lock:
            self._database.execute("SELECT 1")

    def release(self) -> None:
        with self._lock:
            self.is_held = False
            self._database.execute("UPDATE lease SET beat = NULL WHERE epoch = ?", (self._store.epoch,))

    def close(self) -> None:
        """Give it away, if it is held, and end."""
        self._ended.set()
        if self.is_held:
            with suppress(OSError):  # then it ends by itself
                self.release()
        self.join(_END)
        self._database.close()

    def _beat(self) -> None:
        found = self._database.execute(
            "UPDATE lease SET beat = now() WHERE epoch = ? RETURNING coalesce(asked > now() - interval "
            f"'{_ASKED} s' AND wanted IS NOT NULL, false)",
            (self._store.epoch,),
        )
        self.is_held = bool(found)
        self.is_wanted = self.is_held and found[0][0]


class Cluster(threading.Thread):
    """Learns or follows until `stop`."""

    def __init__(self, store: SharedStore, learner: Learner, rewards: Rewards, transact: Transactions) -> None:
        super().__init__(name="seqdec cluster", daemon=True)
        self._store, self._learner, self._rewards, self._transact = store, learner, rewards, transact
        self._lease, self._wanted, self._said, self._cleaned = Lease(store), 0, "", -_CLEAN
        self._led = False
        self._other: ChangedError | None = None
        """why it can neither learn the log nor follow"""
        self._files = time.monotonic()
        self._ended, self._changed, self._numbers = threading.Event(), threading.Condition(), store.beside()

    def run(self) -> None:
        self._store.database.is_watched = True
        while not self._ended.wait(_FAILED if self._said else _LOOK):
            self.look()

    def look(self) -> None:
        """Learn, or follow, what is new."""
        try:
            with short_turns():
                self._come_back()
                may = self._wanted or self._learner.is_warm.is_set()
                if not self._learner.leads and may and self._other is None and self._take():
                    self._transact(self._learner.lead, urgent=True)
                    self._notify()
                if self._learner.leads:
                    self._lead()
                else:
                    self._learner.adopt(self._transact.patient)
            self._said, self._other = "", None
        except Exception as error:
            self._learner.leads = False  # perhaps the lease is another's
            if isinstance(error, ChangedError):
                self._other = error
                if self._lease.is_held:
                    with suppress(OSError):  # then it ends by itself
                        self._lease.release()
                self._notify()
            if not self._ended.is_set() and str(error) != self._said:
                decides = self._store.has_spool or not isinstance(error, OSError)
                goes_on = "this process decides by its last belief, and tries again"
                goes_on = goes_on if decides else "decisions are refused until it is back"
                warnings.warn(f"{error}; {goes_on}", RuntimeWarning, stacklevel=2)
            self._said = str(error)
        if self._learner.leads is not self._led:
            self._led = self._learner.leads
            log.info("%s: this process %s", self._store.path, "learns" if self._led else "does not learn any more")

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _come_back(self) -> None:
        """Write what was decided while the database was away. Raises OSError while it is."""
        if time.monotonic() >= self._files + _FILES:
            self._files = time.monotonic()
            self._transact(self._store.find_files, urgent=True)
        if self._store.database.is_away or self._store.is_spooled:
            self._lease.look()
            self._store.database.is_away = False
            while self._transact.patient(self._store.unspool, _CALLS, urgent=True):
                pass
            log.info("%s is back, and has what was decided meanwhile", self._store.path)

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Context for learning in this process. Raises OSError without the lease, ChangedError if it must not learn."""
        self._want(1)
        try:
            until = time.monotonic() + _PATIENCE
            with self._changed:
                while not self._learner.leads:
                    if self._other is not None:
                        raise ChangedError(str(self._other))
                    if self._ended.is_set() or not self._changed.wait(until - time.monotonic()):
                        raise OSError(self._refused())
            yield
        finally:
            self._want(-1)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Context for creating or changing a log before `start`. Raises OSError without the lease."""
        self._want(1)
        try:
            until = time.monotonic() + _PATIENCE
            while not self._take():
                if time.monotonic() > until:
                    raise OSError(self._refused())
                time.sleep(_LOOK)
            self._learner.leads = True
            yield
        finally:
            self._want(-1)

    def stop(self) -> None:
        """Begin no other step, and wait for the present one; before one has the lock of calls."""
        self._ended.set()
        self._notify()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(_END)

    def close(self) -> None:
        """Give the lease away; after `stop`."""
        self._learner.leads = False
        self._lease.close()
        self._numbers.close()

    def lag(self) -> float:
        """Seconds since the first reward that this process's belief lacks, or 0."""
        batch = self._learner.model.belief.batch
        lacked = "SELECT time FROM waiting(1) UNION ALL SELECT time FROM batches(?::bigint, ?::bigint)"
        ((since,),) = self._store.database.execute(f"SELECT min(time) FROM ({lacked}) AS lacked", (batch, batch + 1))
        return 0.0 if since is None else max(0.0, (time.time_ns() - since) / 1e9)

    def learner(self) -> str | None:
        """Host and process that hold the lease; None while it is free."""
        found = self._store.database.execute(f"SELECT holder FROM lease WHERE beat > now() - interval '{_LEASE} s'")
        return found[0][0].rpartition(" ")[0] if found else None

    def _want(self, more: int) -> None:
        with self._changed:
            self._wanted += more

    def _refused(self) -> str:
        return f"the process that learns {self._store.path} has not given its lease away: try again"

    def _take(self) -> bool:
        """Whether this process has the lease now."""
        return self._lease.take(wants=bool(self._wanted))

    def _lead(self) -> None:
        if not self._lease.is_held:
            raise FencedError(f"another process is learning {self._store.path}")
        learner, transact = self._learner, functools.partial(self._transact.patient, urgent=True)
        if self._lease.is_wanted and not self._wanted:
            learner.snapshot(transact)
            transact(self._stand_down)
            self._lease.release()
            return
        if time.monotonic() >= self._cleaned + _CLEAN:
            self._cleaned = time.monotonic()
            while transact(self._store.drop_keys, _DROPPED):
                pass
        if self._rewards.collects:
            while transact(self._rewards.is_more_due):
                transact(functools.partial(self._rewards.settle, few=True))
        self._numbers.recover()
        while self._numbers.number_rewards(_MOST, self._store.epoch):
            learner.follow(transact)
        learner.follow(transact)
        learner.publish(transact)

    def _stand_down(self) -> None:
        self._learner.leads = False
