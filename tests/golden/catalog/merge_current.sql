MERGE INTO `lake`.`shop`.`orders` AS t
USING (
  SELECT `id`, `note`, `_offset`, `_change_type` IN ('delete', 'update_preimage') AS _tailrace_deleted FROM (SELECT `_change_type`, `_offset`, `_commit_version`, `_commit_timestamp`, `id`, `note`, row_number() OVER (PARTITION BY `id` ORDER BY `_offset` DESC, `_change_type` = 'update_preimage') AS _tailrace_place FROM `v`) WHERE _tailrace_place = 1
) AS s
ON t.`id` = s.`id`
WHEN MATCHED AND s._tailrace_deleted AND (t.`_offset` IS NULL OR s.`_offset` >= t.`_offset`) THEN DELETE
WHEN MATCHED AND NOT s._tailrace_deleted AND (t.`_offset` IS NULL OR s.`_offset` >= t.`_offset`) THEN UPDATE SET t.`note` = s.`note`, t.`_offset` = s.`_offset`
WHEN NOT MATCHED AND NOT s._tailrace_deleted THEN INSERT (`id`, `note`, `old`, `_offset`) VALUES (s.`id`, s.`note`, NULL, s.`_offset`)
