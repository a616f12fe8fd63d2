"""What the seed's document promises, and the test that holds each promise, or when it comes."""

from __future__ import annotations

_T = "tests/dialects/orchestrator/"
_WIRE = _T + "test_wire.py::"
_PALACE = _T + "test_palace.py::"
_KG = _T + "test_knowledge.py::"
_SORTS = _T + "test_classifier.py::"
_LIFE = _T + "test_lifecycle.py::"
_ART = _T + "test_artifacts.py::"
_WORK = _T + "test_workspaces.py::"
_FLOW = _T + "test_workflows.py::"
_AGENT = _T + "test_agents.py::"
_PUSH = _T + "test_push.py::"
_IMPORT = _T + "test_importing.py::"

ROWS: list[tuple[str, str, str]] = [
    # How it works
    (
        "How it works",
        "mounted at /mcp/v1; tools are discovered by tools/list and called by tools/call",
        _WIRE + "test_the_real_client_discovers_and_calls_the_tools",
    ),
    (
        "How it works",
        "the older HTTP with Server-Sent Events on the same path",
        "tests/server/test_scopes.py::test_the_older_transport_lets_through_what_the_scope_allows",
    ),
    ("How it works", "over stdio for one workspace", _WIRE + "test_stdio_serves_one_workspace"),
    (
        "How it works",
        "no tool name is hard-coded: a new tool is one function",
        _WIRE + "test_a_tool_is_one_function",
    ),
    (
        "How it works",
        "result is structured and the same JSON as text",
        _WIRE + "test_the_real_client_discovers_and_calls_the_tools",
    ),
    (
        "How it works",
        "every tool accepts a description, which has no effect",
        _PALACE + "test_a_drawer_has_the_id_that_its_address_and_text_give",
    ),
    # Authentication
    (
        "Authentication",
        "Bearer token: base64url payload and HMAC-SHA256, with user and workspace",
        _WIRE + "test_a_token_of_a_shared_key_lets_its_user_into_its_workspace",
    ),
    (
        "Authentication",
        "payload with a time is accepted for five minutes",
        _WIRE + "test_five_minutes_are_how_long_a_dated_token_lives",
    ),
    (
        "Authentication",
        "malformed or expired tokens are refused with 401 'invalid token'",
        _WIRE + "test_a_malformed_or_expired_payload_is_refused",
    ),
    (
        "Authentication",
        "401 plain text: 'missing authorization' or 'invalid token'",
        _WIRE + "test_no_token_and_a_wrong_signature_are_told_apart",
    ),
    (
        "Authentication",
        "user and workspace come from the token alone",
        _WIRE + "test_workspaces_do_not_see_each_other",
    ),
    (
        "Authentication",
        "X-Conversation-Id is the conversation that calls belong to",
        _ART + "test_the_artifacts_conversation_hears_of_it",
    ),
    (
        "Authentication",
        "Mcp-Session-Id names the calling agent",
        _WIRE + "test_every_call_is_written_down_as_the_seed_lists_it",
    ),
    # Push
    (
        "Push notifications",
        "send_push_notification reaches the user's device, which decrypts it",
        _PUSH + "test_a_device_can_decrypt_what_it_got",
    ),
    ("Push notifications", "send_push_notification by ntfy", _PUSH + "test_ntfy_gets_it_too"),
    (
        "Push notifications",
        "not configured: sent false and its text",
        _PUSH + "test_without_configuration_it_says_so",
    ),
    (
        "Push notifications",
        "no device: sent false and a hint to open the app; title and message are required",
        _PUSH + "test_without_a_device_it_says_what_to_do",
    ),
    (
        "Push notifications",
        "all devices of the user, and nobody else's",
        _PUSH + "test_every_device_of_the_user_gets_it_and_nobody_elses",
    ),
    (
        "Push notifications",
        "devices that are gone are forgotten; failing services are told",
        _PUSH + "test_a_device_that_is_gone_is_not_asked_again",
    ),
    (
        "Push notifications",
        "only public addresses over https can be registered",
        _PUSH + "test_only_public_addresses_over_https_are_registered",
    ),
    (
        "Push notifications",
        "it goes to the address that was looked up and checked",
        _PUSH + "test_it_goes_to_the_address_that_was_checked",
    ),
    (
        "Push notifications",
        "under an idempotency key it is sent once at most",
        _PUSH + "test_under_a_key_it_is_sent_once_at_most",
    ),
    ("Push notifications", "size of a notification", _PUSH + "test_a_notification_has_a_size"),
    (
        "Push notifications",
        "browsers register over REST",
        _PUSH + "test_browsers_register_over_rest",
    ),
    # User context
    (
        "User context",
        "get_user_profile: name, email, nickname, preferences; unknown user: 'user not found'",
        _WORK + "test_a_profile_is_shown_with_and_without_preferences",
    ),
    (
        "User context",
        "get_user_profile: the person at this machine has a profile from the first call on",
        _WORK + "test_the_person_at_this_machine_has_a_profile_from_the_first_call_on",
    ),
    (
        "User context",
        "get_workspace_info: details and agents, the default three",
        _WORK + "test_a_workspace_has_three_agents_to_begin_with",
    ),
    (
        "User context",
        "list_conversations: titles, types and timestamps",
        _WORK + "test_conversations_are_listed_the_last_spoken_in_first",
    ),
    (
        "User context",
        "search_past_messages: by keyword, newest first, limit 20 to 50, cut at 500",
        _WORK + "test_messages_are_found_by_a_part_of_their_text",
    ),
    (
        "User context",
        "search_past_messages in another workspace's conversation is an error",
        _WORK + "test_a_conversation_of_another_workspace_is_not_found",
    ),
    # Agent collaboration
    (
        "Agent collaboration",
        "create_agent_history records a notable event, readable by the history API",
        _WORK + "test_an_agents_history_is_kept",
    ),
    (
        "Agent collaboration",
        "create_agent_history: what is wrong, as info",
        _WORK + "test_what_is_wrong_with_a_history_is_told_as_info",
    ),
    (
        "Agent collaboration",
        "send_message_to_agent runs the other agent with this server's tools; the answer is stored",
        _AGENT + "test_an_agent_uses_the_tools_of_its_workspace_and_its_answer_is_stored",
    ),
    (
        "Agent collaboration",
        "wake-up memory and the last 20 messages in its context",
        _AGENT + "test_it_is_told_the_wake_up_and_the_last_messages",
    ),
    (
        "Agent collaboration",
        "depth limit of three",
        _AGENT + "test_an_agent_can_ask_another_until_the_chain_is_three_deep",
    ),
    (
        "Agent collaboration",
        "unknown agent, itself, missing input: told in error",
        _AGENT + "test_wrong_addresses_are_told_in_the_answer",
    ),
    (
        "Agent collaboration",
        "no model configured: 'agent messaging not configured on this server'",
        _AGENT + "test_without_a_model_messaging_is_refused_clearly",
    ),
    (
        "Agent collaboration",
        "a model that fails or is late is told in error",
        _AGENT + "test_a_model_that_fails_is_told_in_the_answer",
    ),
    (
        "Agent collaboration",
        "32768 bytes of an answer are kept",
        _AGENT + "test_a_long_answer_is_given_whole_and_kept_in_part",
    ),
    (
        "Agent collaboration",
        "an agent has a role, a slug, a system prompt and a model",
        _AGENT + "test_an_agent_has_its_own_model",
    ),
    (
        "Agent collaboration",
        "the model is tried again, left alone after repeated failures, and accounted for",
        _AGENT + "test_an_agents_model_is_tried_again_left_alone_and_accounted_for",
    ),
    # Artifacts
    (
        "Artifact management",
        "create_artifact: a shared document, version 1, draft",
        _ART + "test_an_artifact_is_created_and_read",
    ),
    (
        "Artifact management",
        "read_artifact: content, reviews, version history; 'version N not found'",
        _ART + "test_versions_are_kept_and_can_be_read",
    ),
    (
        "Artifact management",
        "update_artifact: another version than expected is a conflict",
        _ART + "test_another_version_than_expected_is_a_conflict_told_as_info",
    ),
    (
        "Artifact management",
        "of fifty concurrent updates one wins, fifty times over",
        _ART + "test_of_fifty_at_once_one_wins_fifty_times_over",
    ),
    (
        "Artifact management",
        "review_artifact: approved, changes_requested, commented move the status",
        _ART + "test_reviews_move_the_status_of_the_newest_version",
    ),
    (
        "Artifact management",
        "what is missing, as info; artifact not found",
        _ART + "test_what_is_missing_is_told_as_info",
    ),
    (
        "Artifact management",
        "agents are checked against the workspace",
        _ART + "test_an_agent_of_another_workspace_is_not_found",
    ),
    (
        "Artifact management",
        "512 KiB of content",
        _ART + "test_half_a_mebibyte_is_the_most_and_can_be_read_back",
    ),
    (
        "Artifact management",
        "the conversation hears of it",
        _ART + "test_the_artifacts_conversation_hears_of_it",
    ),
    # Workflows
    (
        "Workflow engine",
        "create_workflow: steps as JSON text or array; bad steps, as info",
        _FLOW + "test_bad_steps_are_told_as_info",
    ),
    (
        "Workflow engine",
        "trigger_workflow with initial context; templates and outputs",
        _FLOW + "test_each_step_gets_what_the_ones_before_gave",
    ),
    (
        "Workflow engine",
        "check_workflow_status: progress; missing, foreign, inactive: info",
        _FLOW + "test_what_is_wrong_is_told_as_info",
    ),
    ("Workflow engine", "list_workflows", _FLOW + "test_workflows_are_listed"),
    (
        "Workflow engine",
        "failure stops, or is skipped",
        _FLOW + "test_a_failure_stops_or_is_skipped",
    ),
    ("Workflow engine", "failure is retried", _FLOW + "test_a_step_is_retried_as_often_as_it_says"),
    ("Workflow engine", "time-out of a step", _FLOW + "test_a_step_has_its_own_time"),
    (
        "Workflow engine",
        "approval is automatic",
        _FLOW + "test_approval_is_automatic_unless_it_is_manual",
    ),
    (
        "Workflow engine",
        "approval by a person, over REST and by command",
        _FLOW + "test_a_person_approves_by_rest_or_command",
    ),
    ("Workflow engine", "cancel", _FLOW + "test_a_cancelled_execution_takes_no_further_step"),
    (
        "Workflow engine",
        "a cancel while a step ends is not lost",
        _FLOW + "test_a_cancel_in_the_midst_of_a_steps_end_is_not_lost",
    ),
    (
        "Workflow engine",
        "30 minutes at most, without the time that it waits for a person",
        _FLOW + "test_waiting_for_a_person_is_not_counted_as_time",
    ),
    (
        "Workflow engine",
        "no runtime: 'runtime client not configured'",
        _FLOW + "test_without_a_runtime_a_step_fails_clearly",
    ),
    (
        "Workflow engine",
        "carried out by a model",
        _AGENT + "test_a_workflow_is_carried_out_by_the_model",
    ),
    (
        "Workflow engine",
        "killed at every boundary and inside every step, each effect is there once",
        _FLOW + "test_killed_at_every_boundary_and_inside_every_step_each_effect_is_there_once",
    ),
    (
        "Workflow engine",
        "goes on where it was when what DBOS noted is lost, unreadable or newer",
        _FLOW + "test_work_goes_on_where_it_was_when_the_notes_of_dbos_are",
    ),
    (
        "Workflow engine",
        "a fault of the server fails an execution, and says so",
        _FLOW + "test_a_step_that_a_fault_prevents_is_tried_again_and_then_told_as_failed",
    ),
    (
        "Workflow engine",
        "an execution that cannot be begun keeps no other from it",
        _FLOW + "test_what_cannot_be_begun_keeps_nothing_else_from_it",
    ),
    (
        "Workflow engine",
        "REST: show, approve, cancel, activate",
        _FLOW + "test_rest_shows_approves_and_cancels",
    ),
    # Palace
    (
        "Memory Palace",
        "memory_status, memory_list_wings, memory_list_rooms, memory_get_taxonomy count drawers",
        _PALACE + "test_status_counts_drawers_by_wing_and_room_most_first",
    ),
    (
        "Memory Palace",
        "memory_search: nearest first, all keys",
        _PALACE + "test_search_gives_the_nearest_first_with_all_keys",
    ),
    (
        "Memory Palace",
        "memory_search: wing and room",
        _PALACE + "test_search_keeps_to_a_wing_and_a_room",
    ),
    (
        "Memory Palace",
        "memory_search: limit 5, at most 50",
        _PALACE + "test_the_limit_of_a_search_is_clamped",
    ),
    (
        "Memory Palace",
        "memory_search sees other dialects' memories",
        _PALACE + "test_search_sees_what_other_dialects_remember",
    ),
    (
        "Memory Palace",
        "read tools fail without their input",
        _PALACE + "test_a_read_tool_fails_without_its_query",
    ),
    (
        "Memory Palace",
        "memory_check_duplicate: all states",
        _PALACE + "test_a_duplicate_is_found_in_any_state",
    ),
    (
        "Memory Palace",
        "memory_check_duplicate: threshold .9, at most five",
        _PALACE + "test_the_threshold_of_a_duplicate_counts_and_at_most_five_are_told",
    ),
    (
        "Memory Palace",
        "memory_traverse: hops 3, 1 to 5; unknown room is an error",
        _PALACE + "test_traversal_goes_from_wing_to_wing",
    ),
    (
        "Memory Palace",
        "memory_traverse: fifty rooms",
        _PALACE + "test_hops_end_at_five_and_rooms_at_fifty",
    ),
    (
        "Memory Palace",
        "memory_find_tunnels and memory_graph_stats",
        _PALACE + "test_tunnels_join_wings",
    ),
    (
        "Memory Palace",
        "memory_add_drawer: its id, type and info",
        _PALACE + "test_a_drawer_has_the_id_that_its_address_and_text_give",
    ),
    (
        "Memory Palace",
        "memory_add_drawer: idempotent",
        _PALACE + "test_the_same_drawer_again_is_added_once",
    ),
    (
        "Memory Palace",
        "memory_add_drawer: missing input, as info",
        _PALACE + "test_a_write_tool_tells_what_is_missing_as_info",
    ),
    ("Memory Palace", "memory_add_drawer: noise filter", _PALACE + "test_noise_is_not_stored"),
    (
        "Memory Palace",
        "memory_add_drawer: 10000 characters",
        _PALACE + "test_ten_characters_are_enough_and_ten_thousand_the_most",
    ),
    (
        "Memory Palace",
        "memory_add_drawer: importance",
        _PALACE + "test_importance_is_three_or_five_times_the_confidence",
    ),
    (
        "Memory Palace",
        "memory_add_drawer: reinforcement of neighbours",
        _PALACE + "test_a_new_drawer_reinforces_its_neighbours_up_to_five",
    ),
    (
        "Memory Palace",
        "10000 drawers a workspace",
        _PALACE + "test_ten_thousand_drawers_are_the_most",
    ),
    (
        "Memory Palace",
        "memory_delete_drawer: deleted, or 'drawer not found'",
        _PALACE + "test_a_deleted_drawer_is_gone_and_comes_back_when_added_again",
    ),
    (
        "Memory Palace",
        "memory_delete_drawer leaves other dialects' memories alone",
        _PALACE + "test_what_another_dialect_keeps_is_not_deleted_here",
    ),
    (
        "Memory Palace",
        "memory_set_identity: replaces, 2000 characters",
        _PALACE + "test_identity_is_replaced_and_limited",
    ),
    (
        "Memory Palace",
        "memory_diary_write and memory_diary_read: newest first, 10 to 100",
        _PALACE + "test_a_diary_is_read_newest_first",
    ),
    (
        "Memory Palace",
        "memory_diary_write: the same text twice is refused as info",
        _PALACE + "test_the_same_diary_entry_twice_is_refused_as_info",
    ),
    (
        "Memory Palace",
        "memory_kg_add and memory_kg_query: both directions",
        _KG + "test_a_triple_comes_back_in_both_directions",
    ),
    ("Memory Palace", "memory_kg_query: as_of", _KG + "test_as_of_keeps_what_was_true_then"),
    (
        "Memory Palace",
        "memory_kg_query: 500, newest first",
        _KG + "test_a_query_gives_five_hundred_at_most_the_newest_first",
    ),
    (
        "Memory Palace",
        "memory_kg_query: what is wrong is an error",
        _KG + "test_what_is_wrong_with_a_query_is_an_error",
    ),
    (
        "Memory Palace",
        "memory_kg_add: an identical open triple is the one there",
        _KG + "test_the_same_open_triple_is_the_one_already_there",
    ),
    (
        "Memory Palace",
        "memory_kg_add: contradictions stay",
        _KG + "test_contradictions_are_not_closed",
    ),
    (
        "Memory Palace",
        "memory_kg_add: source_closet",
        _KG + "test_a_source_is_kept_with_the_triple",
    ),
    (
        "Memory Palace",
        "memory_kg_add: 5000 entities",
        _KG + "test_five_thousand_entities_are_the_most",
    ),
    (
        "Memory Palace",
        "memory_kg_add: 50000 triples",
        _KG + "test_fifty_thousand_triples_are_the_most",
    ),
    (
        "Memory Palace",
        "memory_kg_invalidate: today, or when it ended",
        _KG + "test_invalidation_ends_today_and_says_when_nothing_matched",
    ),
    (
        "Memory Palace",
        "memory_kg_timeline: by beginning, at most 100",
        _KG + "test_the_timeline_goes_by_beginning_and_ends_at_a_hundred",
    ),
    ("Memory Palace", "memory_kg_stats", _KG + "test_stats_count_entities_and_facts"),
    ("Memory Palace", "classifier: five sorts", _SORTS + "test_each_sort_is_recognised"),
    (
        "Memory Palace",
        "classifier: confidence",
        _SORTS + "test_confidence_is_the_score_of_five_and_grows_with_length",
    ),
    (
        "Memory Palace",
        "classifier: segments",
        _SORTS + "test_turns_paragraphs_and_long_blocks_are_segments",
    ),
    (
        "Memory Palace",
        "layers L0 and L1",
        _LIFE + "test_the_wake_up_has_identity_and_the_most_important_by_room",
    ),
    (
        "Memory Palace",
        "daily decay",
        _LIFE + "test_importance_falls_by_two_percent_a_day_once_old_and_unread",
    ),
    (
        "Memory Palace",
        "pruning only archives, and spares a hundred",
        _LIFE + "test_pruning_archives_the_faintest_but_spares_a_hundred",
    ),
    (
        "Memory Palace",
        "auto-ingest of chat turns, and the pass of a model over them",
        "left out: optional in the contract; messages are memories of the space already, and found"
        " as they are, so that a second copy in pieces would only push them aside",
    ),
    (
        "Memory Palace",
        "hybrid ranking for contexts",
        "left out: optional in the contract; what an agent is told first is L0, L1 and the last"
        " messages, and for all else it has memory_search",
    ),
    (
        "Memory Palace",
        "memory_add_drawer: the same drawer from several at once is stored once",
        _PALACE + "test_the_same_drawer_from_several_at_once_is_stored_once",
    ),
    (
        "Memory Palace",
        "memory_diary_write: the same entry from several at once is written once",
        _PALACE + "test_the_same_entry_of_a_diary_at_once_is_written_once",
    ),
    (
        "Memory Palace",
        "10,000 drawers hold with several at once",
        _PALACE + "test_no_drawer_too_many_is_stored_by_several_at_once",
    ),
    (
        "Memory Palace",
        "a MemPalace store is brought over, counts equal",
        _IMPORT + "test_a_store_is_brought_over_whole",
    ),
    (
        "Memory Palace",
        "a MemPalace of thousands is brought over in spite of a kill, and taken back by undo",
        _IMPORT + "test_killed_in_the_middle_it_goes_on_and_undo_takes_it_back",
    ),
    (
        "Memory Palace",
        "a MemPalace is read piece by piece",
        _IMPORT + "test_a_source_is_never_held_as_a_whole",
    ),
    (
        "Memory Palace",
        "a MemPalace is brought over again: nothing new",
        _IMPORT + "test_again_it_adds_nothing_and_later_only_what_is_new",
    ),
    (
        "Memory Palace",
        "a MemPalace's export is brought over",
        _IMPORT + "test_an_export_is_brought_over",
    ),
    # Audit
    (
        "Audit logging",
        "tool, arguments and result capped at 4096 bytes, user, workspace, success, duration",
        _WIRE + "test_every_call_is_written_down_as_the_seed_lists_it",
    ),
    (
        "Audit logging",
        "readable through the agent history API",
        _WORK + "test_the_history_has_the_calls_of_the_audit",
    ),
    (
        "Audit logging",
        "api_calls of a call",
        "left out: not in the seed, and a call is one unit of work in one store; what it changed"
        " is its operation",
    ),
    # Workspaces
    (
        "Workspaces",
        "two commands lead from nothing to a working token",
        _WORK + "test_two_commands_lead_from_nothing_to_a_working_token",
    ),
    (
        "Workspaces",
        "users, agents, conversations, messages by command",
        _WORK + "test_the_command_line_does_all_of_it",
    ),
    (
        "Workspaces",
        "users, agents, conversations, messages by REST",
        _WORK + "test_rest_does_all_of_it",
    ),
    ("Workspaces", "what is wrong over REST", _WORK + "test_rest_refuses_what_is_wrong"),
    # Adding a tool
    (
        "Adding a new MCP tool",
        "the README of the folder shows how in ten lines",
        _WIRE + "test_the_readme_shows_how_to_add_a_tool",
    ),
]
