#include "handlers/runs/runtime_reason.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

static const struct runtime_reason rows[] = {
    {"runtime_unavailable", "runtime", "use_different_runtime"},
    {"unsupported_os", "platform", "prepare_host"},
    {"unsupported_arch", "platform", "prepare_host"},
    {"helper_unavailable", "helper", "check_helper"},
    {"helper_protocol_mismatch", "helper", "check_helper"},
    {"helper_missing", "helper", "check_helper"},
    {"template_missing", "template", "configure_template"},
    {"template_unconfigured", "template", "configure_template"},
    {"network_policy_unsupported", "network", "adjust_request_policy"},
    {"trust_policy_denied", "policy", "adjust_request_policy"},
    {"host_prerequisite_missing", "host", "prepare_host"},
    {"host_permission_denied", "host", "prepare_host"},
    {"feature_not_implemented", "implementation", "use_different_runtime"},
    {"image_store_unavailable", "image_store", "prepare_host"},
    {"unknown", "unknown", "inspect_reasons"},
};

struct raw_row {
	const char *raw;
	bool prefix; /* anything that begins so */
	const char *code;
};

static const struct raw_row raws[] = {
    {"docker_unavailable", false, "runtime_unavailable"},
    {"firecracker_unavailable", false, "runtime_unavailable"},
    {"namespace_unavailable", false, "runtime_unavailable"},
    {"seatbelt_unavailable", false, "runtime_unavailable"},
    {"vz_linux_unavailable", false, "runtime_unavailable"},
    {"vz_macos_unavailable", false, "runtime_unavailable"},
    {"worktree_unavailable", false, "runtime_unavailable"},
    {"macos_required", false, "unsupported_os"},
    {"unsupported_platform", false, "unsupported_os"},
    {"apple_silicon_required", false, "unsupported_arch"},
    {"macos_virtualization_helper_unavailable", false, "helper_unavailable"},
    {"macos_virtualization_helper_protocol_", true, "helper_protocol_mismatch"},
    {"macos_virtualization_helper_empty_response", false, "helper_protocol_mismatch"},
    {"macos_virtualization_helper_invalid_json", false, "helper_protocol_mismatch"},
    {"macos_helper_missing", false, "helper_missing"},
    {"macos_helper_not_executable", false, "helper_missing"},
    {"macos_helper_path_missing", false, "helper_missing"},
    {"macos_helper_path_unconfigured", false, "helper_missing"},
    {"macos_template_missing", false, "template_missing"},
    {"template_missing", false, "template_missing"},
    {"vz_linux_template_missing", false, "template_missing"},
    {"template_unconfigured", false, "template_unconfigured"},
    {"strict_allowlist_not_supported", false, "network_policy_unsupported"},
    {"strict_deny_all_not_supported", false, "network_policy_unsupported"},
    {"unsupported_network_policy", false, "network_policy_unsupported"},
    {"seatbelt_standard_disabled", false, "trust_policy_denied"},
    {"trust_level_not_supported", false, "trust_policy_denied"},
    {"trust_level_requires_vm_runtime", false, "trust_policy_denied"},
    {"/dev/kvm_missing", false, "host_prerequisite_missing"},
    {"firecracker_binary_missing", false, "host_prerequisite_missing"},
    {"git_too_old_or_missing", false, "host_prerequisite_missing"},
    {"limactl_missing", false, "host_prerequisite_missing"},
    {"sandbox_exec_missing", false, "host_prerequisite_missing"},
    {"unshare_required_on_linux", false, "host_prerequisite_missing"},
    {"virtiofsd_missing", false, "host_prerequisite_missing"},
    {"permission_denied_host_enforcement", false, "host_permission_denied"},
    {"real_execution_not_implemented", false, "feature_not_implemented"},
    {"image_store_root_missing", false, "image_store_unavailable"},
    {"image_store_root_not_directory", false, "image_store_unavailable"},
    {"image_store_unavailable", true, "image_store_unavailable"},
};

const struct runtime_reason *runtime_reason_find(const char *code)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (str_equal(rows[i].code, code))
			return &rows[i];
	return NULL;
}

const struct runtime_reason *runtime_reason_of(const char *raw)
{
	const struct runtime_reason *found = NULL;

	for (size_t i = 0; i < ARRAY_LEN(raws) && found == NULL; i++)
		if (raws[i].prefix ? str_starts(raw, raws[i].raw) : str_equal(raw, raws[i].raw))
			found = runtime_reason_find(raws[i].code);
	return found != NULL ? found : &rows[ARRAY_LEN(rows) - 1];
}

static bool has_text(const json_t *list, const char *text)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (str_equal(json_string_value(json_array_get(list, i)), text))
			return true;
	return false;
}

json_t *runtime_reason_codes(const json_t *raw)
{
	json_t *codes = json_array();

	for (size_t i = 0; i < json_array_size(raw); i++) {
		const char *text = json_text(json_array_get(raw, i));
		const char *code = runtime_reason_of(text == NULL ? "" : text)->code;

		if (has_text(codes, code) || json_array_append_new(codes, json_string(code)) == 0)
			continue;
		json_decref(codes);
		return NULL;
	}
	return codes;
}

json_t *runtime_reason_details(const json_t *codes)
{
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(codes); i++) {
		const struct runtime_reason *row =
		    runtime_reason_find(json_string_value(json_array_get(codes, i)));
		char key[96];

		if (row == NULL)
			row = &rows[ARRAY_LEN(rows) - 1];
		(void)snprintf(key, sizeof(key), "sandbox.runtime.reason.%s", row->code);
		if (json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:b, s:s, s:s}", "code", row->code,
					"category", row->category, "severity",
					str_equal(row->code, "unknown") ? "warning" : "error",
					"availability_blocking", 1, "operator_action",
					row->operator_action, "user_message_key", key)) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}
