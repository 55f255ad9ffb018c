INSERT INTO `lake`.`shop`.`two words`
SELECT s.`_change_type`, s.`_offset`, s.`_commit_version`, s.`_commit_timestamp`, s.`a`, s.`b``c` FROM `v` AS s
LEFT ANTI JOIN (SELECT `_offset`, `_change_type`, `a`, `b``c` FROM `lake`.`shop`.`two words` WHERE `_offset` BETWEEN 3 AND 9) AS t
ON t.`_offset` <=> s.`_offset` AND t.`_change_type` <=> s.`_change_type` AND t.`a` <=> s.`a` AND t.`b``c` <=> s.`b``c`
