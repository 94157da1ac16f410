DELETE FROM runtime_fact WHERE node = 'suites'
INSERT INTO runtime_fact VALUES ('suites', 'docker', 1, '[]', '{}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
INSERT INTO runtime_fact VALUES ('suites', 'firecracker', 0, '["firecracker_unavailable"]', '{}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
INSERT INTO runtime_fact VALUES ('suites', 'lima', 0, '["limactl_missing"]', '{"os": "linux", "arch": "x86_64", "variant": "native"}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
INSERT INTO runtime_fact VALUES ('suites', 'vz_linux', 0, '["macos_required", "apple_silicon_required"]', '{"os": "linux", "arch": "x86_64", "apple_silicon": false}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
INSERT INTO runtime_fact VALUES ('suites', 'vz_macos', 0, '["macos_required", "apple_silicon_required", "macos_helper_missing", "macos_template_missing", "real_execution_not_implemented"]', '{"os": "linux", "arch": "x86_64", "apple_silicon": false}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
INSERT INTO runtime_fact VALUES ('suites', 'seatbelt', 0, '["macos_required", "apple_silicon_required", "sandbox_exec_missing"]', '{"os": "linux", "arch": "x86_64", "apple_silicon": false}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
INSERT INTO runtime_fact VALUES ('suites', 'worktree', 1, '[]', '{"platform": "linux"}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
INSERT INTO runtime_fact VALUES ('suites', 'namespace', 1, '[]', '{"os": "linux", "arch": "x86_64", "cgroup_mode": "hybrid", "slots": 64}', UTC_TIMESTAMP(6) - INTERVAL 0 SECOND)
