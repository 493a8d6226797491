-- SPDX-License-Identifier: LGPL-2.1-or-later
-- A PostgreSQL database refuses writes of holders that have lost their lock. In each transaction, first:
--
--     SELECT dlock_admit('default/backup', 123456);      -- the name, and dlock_token() or $DLOCK_TOKEN
--
-- From there to the end of the transaction nobody with a higher token gets in; whoever comes with a lower one than was
-- ever committed gets SQLSTATE DL001, and its transaction fails. Transactions with the same token go on side by side.
CREATE TABLE dlock_fence (
	name text PRIMARY KEY,
	token bigint NOT NULL CHECK (token > 0)
);

CREATE FUNCTION dlock_admit(lock_name text, lock_token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	highest bigint;
BEGIN
	SELECT token INTO highest FROM dlock_fence WHERE name = lock_name;
	IF highest = lock_token THEN
		-- Shared with others of this token; against a higher one until the end of the transaction.
		SELECT token INTO highest FROM dlock_fence WHERE name = lock_name FOR SHARE;
		IF highest = lock_token THEN
			RETURN;
		END IF;
	END IF;
	INSERT INTO dlock_fence AS f VALUES (lock_name, lock_token)
		ON CONFLICT (name) DO UPDATE SET token = EXCLUDED.token WHERE f.token <= EXCLUDED.token;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stale token % of lock %', lock_token, lock_name USING ERRCODE = 'DL001',
			HINT = 'The lock was lost and another has written since. Do not repeat this transaction; take the lock anew.';
	END IF;
END
$$;
