MERGE INTO `lake`.`shop`.`orders` AS t
USING (
  WITH events AS (SELECT `_change_type`, `_offset`, `_commit_version`, `_commit_timestamp`, `id`, `note` FROM (SELECT `_change_type`, `_offset`, `_commit_version`, `_commit_timestamp`, `id`, `note`, row_number() OVER (PARTITION BY `id`, `_commit_version` ORDER BY `_offset` DESC, `_change_type` = 'update_preimage') AS _tailrace_place FROM `v`) WHERE _tailrace_place = 1),
  versions AS (SELECT `id`, `note`, `_change_type`, `_commit_timestamp` AS valid_from, lead(`_commit_timestamp`) OVER (PARTITION BY `id` ORDER BY `_offset`) AS valid_to, `_offset` AS valid_from_offset, lead(`_offset`) OVER (PARTITION BY `id` ORDER BY `_offset`) AS valid_to_offset, row_number() OVER (PARTITION BY `id` ORDER BY `_offset`) AS _tailrace_place FROM events)
  SELECT `id`, `note`, `valid_from`, `valid_to`, `valid_from_offset`, `valid_to_offset`, false AS _tailrace_closing FROM versions WHERE `_change_type` NOT IN ('delete', 'update_preimage')
  UNION ALL
  SELECT `id`, `note`, `valid_from`, `valid_to`, `valid_from_offset`, `valid_to_offset`, true AS _tailrace_closing FROM versions WHERE _tailrace_place = 1
) AS s
ON t.`id` = s.`id` AND s._tailrace_closing AND t.valid_to_offset IS NULL
WHEN MATCHED THEN UPDATE SET t.valid_to = s.valid_from, t.valid_to_offset = s.valid_from_offset
WHEN NOT MATCHED AND NOT s._tailrace_closing THEN INSERT (`id`, `note`, `valid_from`, `valid_to`, `valid_from_offset`, `valid_to_offset`) VALUES (s.`id`, s.`note`, s.`valid_from`, s.`valid_to`, s.`valid_from_offset`, s.`valid_to_offset`)
