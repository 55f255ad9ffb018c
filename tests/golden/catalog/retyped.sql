CREATE OR REPLACE TABLE `lake`.`shop`.`orders` USING `delta`
AS SELECT CAST(`id` AS STRING) AS `id`, CAST(`note` AS BINARY) AS `note` FROM `lake`.`shop`.`orders`
