ALTER TABLE `lake`.`shop`.`orders` ADD COLUMNS (`at` TIMESTAMP_NTZ, `n` DOUBLE)
