CREATE TRIGGER _tailrace_7_insert AFTER INSERT ON "free" BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2) VALUES(57,NEW._rowid_,NEW."rowid",NEW."x"); END

CREATE TRIGGER _tailrace_7_update AFTER UPDATE ON "free" BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2,c3,c4,c5) VALUES(58,OLD._rowid_,OLD."rowid",OLD."x",NEW._rowid_,NEW."rowid",NEW."x"); END

CREATE TRIGGER _tailrace_7_delete AFTER DELETE ON "free" BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2) VALUES(59,OLD._rowid_,OLD."rowid",OLD."x"); END

CREATE TRIGGER _tailrace_7_insert_candidate BEFORE INSERT ON "free" WHEN EXISTS(SELECT 1 FROM "free" WHERE "free"._rowid_ = NEW._rowid_) BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2,c3,c4,c5) SELECT 60,"free"._rowid_,"free"."rowid","free"."x",NEW._rowid_,NEW."rowid",NEW."x" FROM "free" WHERE "free"._rowid_ = NEW._rowid_; END

CREATE TRIGGER _tailrace_7_update_candidate BEFORE UPDATE OF _rowid_,oid ON "free" WHEN EXISTS(SELECT 1 FROM "free" WHERE "free"._rowid_ = NEW._rowid_ AND "free"._rowid_ <> OLD._rowid_) BEGIN INSERT INTO _tailrace_change(h,c0,c1,c2,c3,c4,c5) SELECT 61,"free"._rowid_,"free"."rowid","free"."x",NEW._rowid_,NEW."rowid",NEW."x" FROM "free" WHERE "free"._rowid_ = NEW._rowid_ AND "free"._rowid_ <> OLD._rowid_; END
