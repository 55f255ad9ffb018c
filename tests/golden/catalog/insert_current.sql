INSERT INTO `lake`.`shop`.`orders`
SELECT s.`id`, s.`note`, NULL, s.`_offset` FROM (
  SELECT `id`, `note`, `_offset`, `_change_type` IN ('delete', 'update_preimage') AS _tailrace_deleted FROM (SELECT `_change_type`, `_offset`, `_commit_version`, `_commit_timestamp`, `id`, `note`, row_number() OVER (PARTITION BY `id` ORDER BY `_offset` DESC, `_change_type` = 'update_preimage') AS _tailrace_place FROM `v`) WHERE _tailrace_place = 1
) AS s
WHERE NOT s._tailrace_deleted
