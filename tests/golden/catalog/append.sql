INSERT INTO `lake`.`shop`.`two words`
SELECT s.`_change_type`, s.`_offset`, s.`_commit_version`, s.`_commit_timestamp`, s.`a`, s.`b``c` FROM `v` AS s
