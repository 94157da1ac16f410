-- 0002 trace: where the time of a run went (runners/core/trace.h says what the text means).
--
-- By hand: mariadb --default-character-set=utf8mb4 cordon < sql/migrations/0002_trace.sql
-- run.trace is written with the row and with the end of the run, in transactions that are there anyway. What comes after those
-- commits is collected by the gate and written for many runs at once: run_trace. Losing it harms nobody.
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO';

ALTER TABLE run ADD COLUMN trace VARBINARY(768) NULL, ALGORITHM=INSTANT;

-- At most one row per run; it goes with the run's own.
CREATE TABLE run_trace (
  run_id VARBINARY(36) NOT NULL,
  points VARBINARY(768) NOT NULL,
  PRIMARY KEY (run_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
