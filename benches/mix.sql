-- Insert, select, index, update, delete; ROWS is replaced by the number of rows.
CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT, town TEXT, age INTEGER);
CREATE TABLE orders(id INTEGER PRIMARY KEY, person INTEGER, amount REAL, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ROWS / 4)
  INSERT INTO people SELECT i, 'name' || (i * 7919 % 613), 'town' || (i % 17), i % 90 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ROWS)
  INSERT INTO orders SELECT i, i * 31 % (ROWS / 4) + 1, i * 1.25, substr('abcdefghijklmnopqrstuvwxyz', i % 20, 5) FROM n;
CREATE INDEX people_town ON people(town, age);
CREATE INDEX orders_person ON orders(person);
SELECT town, count(*), sum(amount) FROM people JOIN orders ON person = people.id GROUP BY town ORDER BY 3 DESC;
UPDATE orders SET note = upper(note) || length(note) WHERE id % 3 = 0;
DELETE FROM orders WHERE id % 7 = 0;
SELECT count(*), round(avg(amount), 3) FROM orders WHERE note LIKE '%k%';
