DELETE FROM `lake`.`_tailrace_batches` WHERE pipeline = 'copy' AND number <= 17
