"""The tables of logs in PostgreSQL, and the steps by which a program makes those of an older one its own.

A schema of its own for each log, with the tables of `seqdec.service.database` and those of several processes. What
belongs to a decision is partitioned by the day in its number, so that whole days are dropped; rows of imported logs,
below 0, have a partition too. A step is never changed once it was released, and older programs can go on with what it
makes.
"""

LOG = (
    """
CREATE TABLE {schema}.facts (name text PRIMARY KEY, value text, checksum bigint);
CREATE TABLE {schema}.arms (id bigint PRIMARY KEY, output bigint, removed bigint, checksum bigint);
CREATE TABLE {schema}.items (number bigint PRIMARY KEY, id text, features bytea, removed bigint, checksum bigint);
CREATE INDEX ON {schema}.items (removed);
CREATE TABLE {schema}.base (place bigint PRIMARY KEY, content bytea, checksum bigint);

CREATE TABLE {schema}.decisions (
    number bigint PRIMARY KEY, time bigint, nonce bytea, context bytea, mask bytea, action text,
    propensity double precision, key text COLLATE "C", logging bytea, shadow bytea, checksum bigint, belief bigint
) PARTITION BY RANGE (number);
CREATE INDEX ON {schema}.decisions (time);
CREATE INDEX ON {schema}.decisions (key) WHERE key IS NOT NULL;
CREATE TABLE {schema}.rewards (
    sequence bigint, number bigint PRIMARY KEY, batch bigint, reward text, time bigint, source text, checksum bigint
) PARTITION BY RANGE (number);
CREATE INDEX ON {schema}.rewards (batch, sequence) WHERE batch IS NOT NULL;
CREATE INDEX ON {schema}.rewards (time, number) WHERE sequence IS NULL;
CREATE TABLE {schema}.reports (
    sequence bigint, number bigint, reward text, time bigint, digest bytea, checksum bigint
) PARTITION BY RANGE (number);
CREATE INDEX ON {schema}.reports (number, sequence);
CREATE SEQUENCE {schema}.report;
CREATE TABLE {schema}.withdrawn (number bigint PRIMARY KEY, time bigint, checksum bigint) PARTITION BY RANGE (number);
CREATE TABLE {schema}.deferred (number bigint PRIMARY KEY, activated bigint, checksum bigint)
    PARTITION BY RANGE (number);
CREATE INDEX ON {schema}.deferred (activated) WHERE activated IS NOT NULL;
CREATE TABLE {schema}.units (number bigint PRIMARY KEY, digest bytea, control bigint, share double precision,
    checksum bigint) PARTITION BY RANGE (number);

-- Keys of clients, for some days; decisions keep theirs, for `forget`.
CREATE TABLE {schema}.keys (key text COLLATE "C" PRIMARY KEY, number bigint NOT NULL, time bigint NOT NULL);
CREATE INDEX ON {schema}.keys USING brin (number, time);
-- Blocks of numbers; `decided`: how many decisions a block had when its day was dropped.
CREATE TABLE {schema}.deciders (
    day bigint, block bigint, host text, begun timestamptz NOT NULL DEFAULT now(), decided bigint,
    PRIMARY KEY (day, block)
);
-- The learner, and how far it has numbered rewards. Who reads the epoch FOR KEY SHARE holds up its change, as it has a
-- unique index, but not a heartbeat.
CREATE TABLE {schema}.lease (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch bigint NOT NULL UNIQUE DEFAULT 0, holder text,
    beat timestamptz, wanted text, asked timestamptz,
    sequence bigint NOT NULL DEFAULT 0, batch bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.lease DEFAULT VALUES;
CREATE TABLE {schema}.beliefs (
    id bigserial PRIMARY KEY, epoch bigint, generation bigint, batch bigint, outputs bigint, content bytea,
    time timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE {schema}.beliefs ALTER content SET STORAGE EXTERNAL;
CREATE TABLE {schema}.requests (
    id bigserial PRIMARY KEY, name text NOT NULL, arguments text, answer text,
    asked timestamptz NOT NULL DEFAULT now(), answered timestamptz
);

-- Partitions of a day, attached, which does not hold up other calls. Day -1: rows of imported logs.
CREATE FUNCTION {schema}.make_day(day bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
DECLARE
    suffix text := CASE WHEN day < 0 THEN 'imported' ELSE day::text END;
    name text;
BEGIN
    IF to_regclass('decisions_' || suffix) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('seqdec'), hashtext({literal}));
    -- Not by to_regclass, which remembers what there was before it waited.
    IF EXISTS (
        SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = {literal} AND relname = 'decisions_' || suffix
    ) THEN
        RETURN;
    END IF;
    FOREACH name IN ARRAY ARRAY['decisions', 'rewards', 'reports', 'withdrawn', 'deferred', 'units'] LOOP
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name || '_' || suffix, name);
        EXECUTE format(
            'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
            name, name || '_' || suffix,
            CASE WHEN day < 0 THEN 'MINVALUE' ELSE (day << 48)::text END, (day + 1) << 48
        );
    END LOOP;
END $$;

-- Drops a day that ended before a time, unless the base has not learned all of its rewards, or one of its decisions was
-- activated since; how many decisions it had, NULL where it stays.
CREATE FUNCTION {schema}.drop_day(day bigint, learned bigint, before bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
DECLARE
    first bigint := CASE WHEN day < 0 THEN -9223372036854775808 ELSE day << 48 END;
    next bigint := (day + 1) << 48;
    suffix text := CASE WHEN day < 0 THEN 'imported' ELSE day::text END;
    name text;
    stays boolean;
    gone bigint;
BEGIN
    IF to_regclass('decisions_' || suffix) IS NULL THEN
        RETURN 0;
    END IF;
    FOR attempt IN 1..2 LOOP  -- the second one under the lock
        SELECT (day > 0 AND (day + 1) * 86400000000000 > before)
            OR EXISTS (SELECT FROM decisions WHERE number >= first AND number < next AND time >= before)
            OR EXISTS (SELECT FROM rewards WHERE number >= first AND number < next AND sequence IS NULL)
            OR EXISTS (SELECT FROM rewards WHERE number >= first AND number < next AND batch > learned)
            OR EXISTS (SELECT FROM deferred WHERE number >= first AND number < next AND activated >= before)
            INTO stays;
        IF stays THEN
            RETURN NULL;
        END IF;
        IF attempt = 1 THEN
            PERFORM set_config('lock_timeout', '300', true);
            LOCK TABLE ONLY decisions, ONLY rewards, ONLY reports, ONLY withdrawn, ONLY deferred, ONLY units
                IN ACCESS EXCLUSIVE MODE;
        END IF;
    END LOOP;
    IF day < 0 THEN
        SELECT count(*) FROM decisions WHERE number < 0 INTO gone;
    ELSE
        UPDATE deciders SET decided = coalesce((
            SELECT max(number) & 268435455 FROM decisions
            WHERE number > (deciders.day << 20 | deciders.block) << 28
            AND number < ((deciders.day << 20 | deciders.block) + 1) << 28
        ), 0) WHERE deciders.day = drop_day.day AND decided IS NULL;
        SELECT coalesce(sum(decided), 0) FROM deciders WHERE deciders.day = drop_day.day INTO gone;
        DELETE FROM keys WHERE number >= first AND number < next;
    END IF;
    FOREACH name IN ARRAY ARRAY['decisions', 'rewards', 'reports', 'withdrawn', 'deferred', 'units'] LOOP
        EXECUTE format('DROP TABLE %I', name || '_' || suffix);
    END LOOP;
    IF day < 0 THEN
        PERFORM make_day(-1);
    END IF;
    RETURN gone;
END $$;

-- A block of numbers for a process, and the partitions of its day and the next.
CREATE FUNCTION {schema}.claim_block(today bigint, decider text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    claimed bigint;
BEGIN
    PERFORM {schema}.make_day(today), {schema}.make_day(today + 1);
    LOOP
        INSERT INTO {schema}.deciders (day, block, host)
            SELECT today, coalesce(max(block) + 1, 0), decider FROM {schema}.deciders WHERE day = today
            ON CONFLICT DO NOTHING RETURNING block INTO claimed;
        IF claimed IS NOT NULL THEN
            RETURN claimed;
        END IF;
    END LOOP;
END $$;

-- Decisions, all or none. May be called again with the same ones. Raises SQ001 for keys of other decisions, SQ002 for
-- numbers of others.
CREATE FUNCTION {schema}.append_decisions(
    numbers bigint[], times bigint[], nonces bytea[], contexts bytea[], masks bytea[], actions text[],
    propensities double precision[], names text[], laws bytea[], shadows bytea[], checksums bigint[], batches bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    added bigint;
    taken text;
BEGIN
    IF cardinality(array_remove(names, NULL)) > 0 THEN
        INSERT INTO {schema}.keys
            SELECT * FROM unnest(names, numbers, times) AS given (key, number, time) WHERE key IS NOT NULL ORDER BY 1
            ON CONFLICT (key) DO NOTHING;
        GET DIAGNOSTICS added = ROW_COUNT;
        IF added < cardinality(array_remove(names, NULL)) THEN
            SELECT json_agg(key) FROM unnest(names, numbers) AS given (key, number) JOIN {schema}.keys USING (key)
                WHERE given.number <> keys.number INTO taken;
            IF taken IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'SQ001', MESSAGE = 'keys of other decisions', DETAIL = taken;
            END IF;
        END IF;
    END IF;
    INSERT INTO {schema}.decisions
        SELECT * FROM unnest(numbers, times, nonces, contexts, masks, actions, propensities, names, laws, shadows,
            checksums, batches)
        ON CONFLICT (number) DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added < cardinality(numbers) THEN  -- by itself, as the query below begins with a look at all partitions
        IF EXISTS (
            SELECT FROM unnest(numbers, nonces) AS given (number, nonce) JOIN {schema}.decisions USING (number)
            WHERE given.nonce IS DISTINCT FROM decisions.nonce
        ) THEN
            RAISE EXCEPTION USING ERRCODE = 'SQ002', MESSAGE = 'numbers of other decisions';
        END IF;
    END IF;
END $$;

-- Their plans are kept: one for the partitions of all days takes long to make.
CREATE FUNCTION {schema}.waiting(most bigint) RETURNS SETOF {schema}.rewards LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM {schema}.rewards WHERE sequence IS NULL ORDER BY time, number LIMIT most;
END $$;
CREATE FUNCTION {schema}.batches(after bigint, last bigint) RETURNS SETOF {schema}.rewards
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM {schema}.rewards WHERE batch > after AND batch <= last ORDER BY batch, sequence;
END $$;

SELECT {schema}.make_day(-1), {schema}.make_day(0);
""",
)
"""Steps of a log's schema, each from one version to the next; {schema}: its name, {literal}: the same as a text."""

SERVERS = "seqdec"
"""The schema that the servers of a database share, and the beginning of those of their logs."""
SERVER = (
    """
CREATE TABLE {schema}.deployments (
    name text PRIMARY KEY, declaration text, archived boolean NOT NULL DEFAULT false,
    took_over boolean NOT NULL DEFAULT false, revision bigint NOT NULL DEFAULT 0
);
""",
)
"""Steps of the schema of `SERVERS`."""
