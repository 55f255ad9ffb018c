CREATE TABLE IF NOT EXISTS `lake`.`shop`.`orders` (`id` BIGINT, `note` STRING)
