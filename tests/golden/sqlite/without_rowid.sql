CREATE TRIGGER _tailrace_7_insert AFTER INSERT ON "a ""b""" BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2) VALUES(57,NEW."x",NEW."y",NEW."z"); END

CREATE TRIGGER _tailrace_7_update AFTER UPDATE ON "a ""b""" BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2,c3,c4,c5) VALUES(58,OLD."x",OLD."y",OLD."z",NEW."x",NEW."y",NEW."z"); END

CREATE TRIGGER _tailrace_7_delete AFTER DELETE ON "a ""b""" BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2) VALUES(59,OLD."x",OLD."y",OLD."z"); END

CREATE TRIGGER _tailrace_7_insert_candidate BEFORE INSERT ON "a ""b""" WHEN EXISTS(SELECT 1 FROM "a ""b""" WHERE "a ""b"""."y" = NEW."y" COLLATE "BINARY" AND "a ""b"""."x" = NEW."x" COLLATE "NOCASE") BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2,c3,c4,c5) SELECT 60,"a ""b"""."x","a ""b"""."y","a ""b"""."z",NEW."x",NEW."y",NEW."z" FROM "a ""b""" WHERE "a ""b"""."y" = NEW."y" COLLATE "BINARY" AND "a ""b"""."x" = NEW."x" COLLATE "NOCASE"; END

CREATE TRIGGER _tailrace_7_update_candidate BEFORE UPDATE OF "y","x" ON "a ""b""" WHEN EXISTS(SELECT 1 FROM "a ""b""" WHERE "a ""b"""."y" = NEW."y" COLLATE "BINARY" AND "a ""b"""."x" = NEW."x" COLLATE "NOCASE" AND NOT ("a ""b"""."y" IS OLD."y" AND "a ""b"""."x" IS OLD."x")) BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2,c3,c4,c5) SELECT 61,"a ""b"""."x","a ""b"""."y","a ""b"""."z",NEW."x",NEW."y",NEW."z" FROM "a ""b""" WHERE "a ""b"""."y" = NEW."y" COLLATE "BINARY" AND "a ""b"""."x" = NEW."x" COLLATE "NOCASE" AND NOT ("a ""b"""."y" IS OLD."y" AND "a ""b"""."x" IS OLD."x"); END
