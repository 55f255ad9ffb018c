INSERT INTO `lake`.`_tailrace_batches` SELECT `pipeline`, `number`, `offsets`, `highest`, `changes`, `applied_at` FROM `v`
