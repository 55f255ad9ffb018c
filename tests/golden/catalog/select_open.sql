SELECT `id` FROM `lake`.`shop`.`orders` WHERE valid_to_offset IS NULL
