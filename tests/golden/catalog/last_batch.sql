SELECT number, offsets, highest FROM `lake`.`_tailrace_batches` WHERE pipeline = 'it\'s\\' ORDER BY number DESC, applied_at DESC LIMIT 1
