-- The database itself. cordonctl migrate runs this first; by hand: mariadb < sql/database.sql
CREATE DATABASE IF NOT EXISTS cordon CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
