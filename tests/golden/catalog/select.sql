SELECT `id`, `note` FROM `lake`.`shop`.`orders`
