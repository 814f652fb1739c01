CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT, town TEXT, age INTEGER);
CREATE TABLE orders(id INTEGER PRIMARY KEY, person INTEGER REFERENCES people(id), amount REAL, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
  INSERT INTO people SELECT i, 'name' || (i * 7919 % 613), 'town' || (i % 17), i % 90 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
  INSERT INTO orders SELECT i, i * 31 % 400 + 1, i * 1.25, substr('abcdefghijklmnopqrstuvwxyz', i % 20, 5) FROM n;
CREATE INDEX people_town ON people(town, age);
CREATE INDEX orders_person ON orders(person);
SELECT town, count(*), sum(amount), min(name), max(age) FROM people JOIN orders ON person = people.id GROUP BY town ORDER BY 3 DESC;
BEGIN;
UPDATE people SET age = age + 1 WHERE town IN ('town1', 'town5', 'town9');
UPDATE orders SET note = upper(note) || length(note) WHERE id % 3 = 0;
ROLLBACK;
UPDATE orders SET amount = amount * 2 WHERE person IN (SELECT id FROM people WHERE age > 60);
DELETE FROM orders WHERE id % 7 = 0;
SELECT count(*), round(avg(amount), 3) FROM orders WHERE note LIKE '%k%' OR note GLOB '*[x-z]';
SELECT name, row_number() OVER (PARTITION BY town ORDER BY age, name) AS r FROM people WHERE town = 'town3' LIMIT 5;
SELECT json_extract('{"a":[1,2,{"b":3}]}', '$.a[2].b'), printf('%08.3f|%x', 3.14159, 255), strftime('%Y-%m-%d', '2024-02-28', '+2 days');
CREATE VIEW rich AS SELECT person, sum(amount) AS total FROM orders GROUP BY person HAVING total > 3000;
SELECT count(*), round(max(total), 2) FROM rich;
SELECT nothing FROM rich;
CREATE TRIGGER gone AFTER DELETE ON people BEGIN DELETE FROM orders WHERE person = old.id; END;
DELETE FROM people WHERE town = 'town2';
SELECT count(*) FROM orders;
PRAGMA integrity_check;
