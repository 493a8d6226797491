-- SPDX-License-Identifier: LGPL-2.1-or-later
-- An SQLite database refuses writes of holders that have lost their lock. Each transaction begins so:
--
--     BEGIN IMMEDIATE;
--     INSERT INTO dlock_admit VALUES ('default/backup', 123456);      -- the name, and dlock_token() or $DLOCK_TOKEN
--
-- With a lower token than was ever committed that fails, with "stale token", and undoes the transaction.
CREATE TABLE dlock_fence (
	name TEXT PRIMARY KEY,
	token INTEGER NOT NULL CHECK (token > 0)
) WITHOUT ROWID;

CREATE VIEW dlock_admit AS SELECT name, token FROM dlock_fence;

CREATE TRIGGER dlock_admit INSTEAD OF INSERT ON dlock_admit BEGIN
	SELECT RAISE(ROLLBACK, 'stale token') WHERE EXISTS (SELECT 1 FROM dlock_fence WHERE name = NEW.name AND token > NEW.token);
	INSERT INTO dlock_fence VALUES (NEW.name, NEW.token)
		ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE token < excluded.token;
END;
