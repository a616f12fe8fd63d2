"""What of the contract is proved where: (section, line or behaviour, test, or "later: …")."""

from __future__ import annotations

_HERE = "tests/dialects/penfield/"


def _tools(name: str) -> str:
    return f"{_HERE}test_tools.py::test_{name}"


def _rest(name: str) -> str:
    return f"{_HERE}test_rest.py::test_{name}"


def _values(name: str) -> str:
    return f"{_HERE}test_values.py::test_{name}"


def _files(name: str) -> str:
    return f"{_HERE}test_documents.py::test_{name}"


def _signing(name: str) -> str:
    return f"{_HERE}test_sessions.py::test_{name}"


def _device(name: str) -> str:
    return f"tests/server/oauth/test_devices.py::test_{name}"


def _wire(name: str) -> str:
    return f"{_HERE}test_wire.py::test_{name}"


_FUZZED = f"{_HERE}test_fuzz.py::test_no_fault_and_no_surprise"

ROWS: list[tuple[str, str, str]] = [
    # Available Tools
    ("Available Tools", "every tool of the tables is there", _tools("the_tools_are_those_of_the_contract")),
    ("Available Tools", "a session of all tools over stdio", _wire("a_session_over_stdio")),
    ("Available Tools", "a session of all tools over HTTP", _wire("a_session_over_http_with_a_standard_token")),
    ("Available Tools", "disconnect is registered and answers 403", _tools("disconnect_is_listed_and_answers_403_without_the_permission")),
    # awaken
    ("awaken", "success and briefing", _tools("awaken_briefs_with_persona_and_the_users_instructions")),
    ("awaken", "only what the user said is in it", _tools("only_what_the_user_said_reaches_the_briefing")),
    ("awaken", "an instruction cannot forge its end", _tools("an_instruction_cannot_end_the_briefing")),
    # store
    ("store", "content, tags, importance as in the example", _tools("store_keeps_what_it_is_given")),
    ("store", "content of 1 to 10,000 characters", _tools("store_takes_contents_within_the_limit")),
    ("store", "what is beyond the limits is refused", _tools("store_refuses_what_the_contract_does_not_allow")),
    ("store", "importance 0.0 to 1.0", _tools("importance_reaches_its_bounds")),
    ("store", "importance is calculated if omitted", _tools("store_rates_importance_that_is_left_out")),
    ("store", "the rules of importance", f"{_HERE}test_detection.py::test_importance_follows_type_weight_and_length"),
    ("store", "type is detected from the content", f"{_HERE}test_detection.py::test_a_content_has_the_type_of_the_first_rule_that_fits"),
    ("store", "protected types are never detected", f"{_HERE}test_detection.py::test_a_protected_type_is_never_detected"),
    ("store", "protected types cannot be created", _rest("protected_types_are_for_the_personality_endpoints")),
    ("store", "tags are normalised, invalid ones skipped", _tools("tags_that_cannot_be_stored_are_skipped")),
    # recall
    ("recall", "hybrid of BM25, vector and graph", _tools("recall_finds_by_words_meaning_and_links")),
    ("recall", "weights .4, .4, .2 as reciprocal ranks", _tools("recall_scores_are_weighted_reciprocal_ranks")),
    ("recall", "first place everywhere is 1", _values("first_place_everywhere_scores_one")),
    ("recall", "limit 10 by default", _tools("limits_are_kept_and_ten_by_default")),
    ("recall", "limit 1 to 100", _tools("limits_are_1_to_100")),
    ("recall", "source_type memory, document or null", _tools("recall_filters_by_source")),
    ("recall", "tags by OR", _tools("recall_filters_by_any_of_the_tags")),
    ("recall", "start_date and end_date", _tools("recall_filters_by_days_that_count_whole")),
    ("recall", "filters hold for what links bring in", _tools("filters_hold_for_what_links_bring_in")),
    ("recall", "words alone without an embedder", _tools("without_an_embedder_words_answer_and_it_is_said")),
    # search, fetch
    ("search", "citation fields id, title, url, text", _tools("search_answers_as_a_chatgpt_connector_expects")),
    ("search", "higher weight of vectors", _tools("search_weighs_meaning_more_than_recall_does")),
    ("search", "a query is required", _tools("a_query_says_something")),
    ("search", "the contract's examples with the real model", _tools("the_contracts_own_examples_are_found_with_the_real_model")),
    ("fetch", "one memory by id, in any case", _tools("fetch_takes_an_id_in_any_case")),
    ("fetch", "the documented error", _tools("fetch_of_what_is_not_there_fails_in_the_documented_shape")),
    ("fetch", "memories of other contracts", _tools("memories_of_other_contracts_are_found_read_and_linked_but_not_changed")),
    # update_memory
    ("update_memory", "content, importance, tags replace", _tools("update_replaces_what_is_given_and_leaves_the_rest")),
    ("update_memory", "unknown id", _tools("update_of_what_is_not_there_fails")),
    ("update_memory", "limits of store", _tools("update_refuses_what_store_refuses")),
    ("update_memory", "trust is never raised", _tools("an_update_never_raises_trust")),
    # connect, explore
    ("connect", "each of the 24 types", _tools("every_relationship_type_connects")),
    ("connect", "strength .5 by default, 0.0 to 1.0", _tools("strength_is_a_half_by_default_and_reaches_its_bounds")),
    ("connect", "every error", _tools("connect_fails_as_documented")),
    ("Relationship Types", "24 in eight families", _values("there_are_24_relationship_types")),
    ("explore", "paths, scores, relationship_types", _tools("explore_follows_links_and_scores_paths")),
    ("explore", "max_depth up to 10", _tools("explore_goes_up_to_ten_deep")),
    ("explore", "max_depth 3 by default, unknown start", _tools("explore_goes_three_deep_by_default_and_needs_a_start")),
    # reflect
    ("reflect", "topics, clusters, patterns, insights, statistics", _tools("reflect_tells_topics_clusters_patterns_and_links")),
    ("reflect", "time_window, start_date, end_date", _tools("reflect_keeps_to_its_window")),
    ("reflect", "include_documents", _tools("reflect_leaves_documents_out_unless_asked")),
    ("reflect", "recent is the last 50", _tools("recent_is_the_last_fifty")),
    # contexts
    ("save_context", "the documented response", _tools("save_context_links_what_its_description_refers_to")),
    ("save_context", "names are unique: DUPLICATE_NAME", _tools("context_names_are_unique_to_the_letter")),
    ("save_context", "both reference formats", _values("references_are_read_from_a_description")),
    ("save_context", "unresolved_references and hint", _tools("references_that_do_not_resolve_are_named_with_a_hint")),
    ("save_context", "related memories are attached", _tools("a_context_attaches_what_it_is_about")),
    ("save_context", "at most 30 of them", _tools("a_context_attaches_thirty_related_memories_at_most")),
    ("save_context", "limits of name and description", _tools("save_context_refuses_what_does_not_fit")),
    ("save_context", "the longest are restored whole", _tools("the_longest_name_and_description_are_restored_whole")),
    ("save_context", "the name of the awakening is refused", _tools("no_context_can_have_the_name_of_the_awakening")),
    ("restore_context", "by name or id, without the deleted", _tools("restore_context_gives_memories_back_without_the_deleted")),
    ("restore_context", "what stands in the place of an evolved memory", _tools("restore_context_gives_what_stands_in_the_place_of_a_memory")),
    ("restore_context", "limit 20 by default", _tools("restore_context_keeps_to_its_limit")),
    ("restore_context", "awakening", _tools("restoring_the_awakening_gives_the_briefing")),
    ("restore_context", "NOT_FOUND", _tools("restoring_an_unknown_context_says_so")),
    ("list_contexts", "limit, offset, name_pattern, include_descriptions", _tools("list_contexts_pages_filters_and_describes")),
    ("list_contexts", "limit 1 to 100", _tools("list_contexts_has_bounds")),
    ("list_contexts", "other contracts' checkpoints are not listed", _tools("a_checkpoint_of_another_contract_is_no_context_here")),
    # artifacts
    ("save_artifact", "saved, read, listed, deleted", _tools("an_artifact_is_saved_read_listed_and_deleted")),
    ("save_artifact", "path rules: accepted", _values("a_path_within_the_rules_is_accepted")),
    ("save_artifact", "path rules: refused", _values("a_path_beyond_the_rules_is_refused")),
    ("save_artifact", "path rules against an oracle", _values("paths_are_judged_as_a_person_would")),
    ("save_artifact", "nothing below a file", _tools("nothing_is_below_a_file_and_no_file_is_a_directory")),
    ("save_artifact", "case matters", _tools("paths_that_differ_in_case_are_different")),
    ("save_artifact", "ALREADY_EXISTS", _tools("an_artifact_is_never_overwritten")),
    ("retrieve_artifact", "INVALID_PATH by every tool", _tools("every_tool_keeps_to_the_path_rules")),
    ("list_artifacts", "path_prefix", _tools("listing_keeps_to_the_path_rules")),
    ("delete_artifact", "deleted, then NOT_FOUND", _tools("an_artifact_is_saved_read_listed_and_deleted")),
    # restricted, deprecated
    ("disconnect", "403 as a tool result over HTTP", _wire("a_session_over_http_with_a_standard_token")),
    ("disconnect", "DELETE /relationships/between", _rest("between_removes_one_direction")),
    ("disconnect", "REST with write may", _rest("write_may_delete_over_rest")),
    ("delete_memory", "not a tool", _tools("the_tools_are_those_of_the_contract")),
    ("delete_memory", "nor can it be called as one", "tests/server/test_scopes.py::test_what_routes_do_is_no_tool"),
    ("delete_memory", "DELETE /memories/{id}", _rest("delete_takes_the_relationships_along")),
    ("summarize", "deprecated", _tools("deprecated_tools_say_what_replaces_them")),
    ("get_storage_access", "deprecated", _tools("deprecated_tools_say_what_replaces_them")),
    # configuration, errors
    ("Configuration", "Bearer API key in a header", _wire("a_session_over_http_with_a_standard_token")),
    ("Error Handling", "the shape of an error", _tools("fetch_of_what_is_not_there_fails_in_the_documented_shape")),
    ("Error Handling", "NOT_FOUND", _tools("fetch_of_what_is_not_there_fails_in_the_documented_shape")),
    ("Error Handling", "VALIDATION_ERROR", _tools("store_refuses_what_the_contract_does_not_allow")),
    ("Error Handling", "INVALID_PATH", _tools("every_tool_keeps_to_the_path_rules")),
    ("Error Handling", "ALREADY_EXISTS", _tools("an_artifact_is_never_overwritten")),
    ("Error Handling", "RATE_LIMITED over REST", _rest("beyond_the_rate_is_429_for_that_tenant_alone")),
    ("Error Handling", "RATE_LIMITED as a tool result", _wire("beyond_the_rate_a_tool_answers_so_for_that_tenant_alone")),
    # API mapping
    ("API Mapping", "GET /personality/awakening", _rest("a_persona_is_chosen_and_traits_are_added")),
    ("API Mapping", "POST /memories", _rest("a_memory_has_every_documented_key")),
    ("API Mapping", "POST /search/hybrid", _rest("hybrid_search_has_every_documented_key")),
    ("API Mapping", "GET /memories/{id}", _rest("a_memory_has_every_documented_key")),
    ("API Mapping", "PUT /memories/{id}", _rest("put_replaces_and_null_leaves")),
    ("API Mapping", "POST /relationships", _rest("a_relationship_lives")),
    ("API Mapping", "POST /relationships/traverse", _rest("traverse_goes_the_way_that_is_asked")),
    ("API Mapping", "GET /memories and ?memory_type=checkpoint", _rest("a_checkpoint_can_be_posted_and_its_name_is_unique")),
    ("API Mapping", "POST /analysis/reflect", _rest("reflect_over_rest")),
    ("API Mapping", "POST, GET, DELETE /artifacts, GET /artifacts/list", _rest("artifacts_over_rest")),
    # REST beyond the table
    ("REST envelope", "success, meta, request id", _rest("a_memory_has_every_documented_key")),
    ("REST envelope", "every VAL_ code with its field", _rest("what_is_not_valid_is_422_with_its_field")),
    ("REST envelope", "rate headers", _rest("every_answer_tells_the_rate")),
    ("REST envelope", "unknown paths and methods", _rest("unknown_paths_and_methods_have_the_same_shape")),
    ("REST envelope", "pagination", _rest("listing_pages_filters_and_sorts")),
    ("REST auth", "token, verify", _signing("a_key_is_exchanged_for_tokens_that_end")),
    ("REST auth", "refresh rotates; reuse ends the family", _signing("a_refresh_token_seen_twice_ends_its_family")),
    ("REST auth", "two refreshes at once get a pair each",
     _signing("for_a_minute_a_used_refresh_token_gives_another_pair")),
    ("REST auth", "OAuth: a refresh token only with offline_access",
     _device("a_device_that_does_not_ask_for_offline_access_gets_no_refresh_token")),
    ("REST auth", "expires_at of verify", _signing("verify_tells_when_the_credential_ends")),
    ("REST auth", "AUTH_TOKEN_EXPIRED told apart", _signing("an_expired_token_is_told_from_a_wrong_one")),
    ("REST auth", "device authorization grant, then REST", _signing("a_program_that_shows_a_code_uses_rest")),
    ("REST auth", "device: pages, codes, 900 s, scopes", _device("a_device_is_connected_as_penfields_programs_do_it")),
    ("REST auth", "device: slow_down, interval 5", _device("who_asks_too_often_has_to_slow_down")),
    ("REST auth", "device: access_denied", _device("who_says_no_is_taken_at_their_word")),
    ("REST auth", "device: expired_token", _device("a_device_waits_for_fifteen_minutes")),
    ("REST memories", "history", _rest("history_tells_every_content_a_memory_had")),
    ("REST memories", "evolve, every type; links survive", _rest("evolving_replaces_a_memory_and_keeps_its_links")),
    ("REST memories", "links survive versions", f"{_HERE}test_links.py::test_links_survive_versions"),
    ("REST memories", "contradictions", _rest("contradictions_are_recorded_listed_and_resolved")),
    ("REST memories", "tags", _rest("tags_are_added_removed_and_counted")),
    ("REST search", "every option", _rest("hybrid_search_obeys_its_options")),
    ("REST search", "every limit", _rest("every_limit_of_hybrid_search")),
    ("REST search", "weights sum to 1", _rest("weights_must_add_up")),
    ("REST search", "vector", _rest("vector_search_goes_by_meaning")),
    ("REST search", "stats", _rest("search_stats_count")),
    ("REST relationships", "errors", _rest("relationships_fail_as_documented")),
    ("REST relationships", "INVERSE_PAIRED", _rest("an_inverse_pair_is_two_rows")),
    ("REST relationships", "list", _rest("relationships_are_listed_by_end_and_type")),
    ("REST relationships", "bulk is all or nothing", _rest("bulk_creates_all_or_none")),
    ("REST analysis", "summarize", _rest("summarize_tells_of_the_last_day_or_of_what_is_named")),
    ("REST analysis", "insights", _rest("insights_count_by_type_and_time")),
    ("REST personality", "tiers", _values("a_tier_opens_personas_and_says_what_unlocks_the_others")),
    ("REST artifacts", "10 MB", _rest("an_artifact_has_ten_megabytes_at_most")),
    ("REST artifacts", "400 for bad paths", _rest("bad_paths_are_400")),
    ("REST documents", "every format", _files("the_words_of_every_format_are_found")),
    ("REST documents", "20 MB", _files("twenty_megabytes_fit_and_no_more")),
    ("REST documents", "neighbours of chunks", _files("a_chunk_comes_with_its_neighbours")),
    ("REST documents", "duplicate upload", _files("the_same_file_again_is_the_one_that_is_there")),
    ("REST documents", "list, read, download, delete, reprocess 501", _files("documents_are_listed_read_downloaded_and_deleted")),
    ("REST documents", ".doc is refused, with what to save it as", _files("the_old_word_format_is_refused_with_what_to_do")),
    ("REST documents", "bombs", _files("archives_that_unpack_to_too_much_are_refused")),
    ("REST", "isolation of tenants", _rest("another_tenants_things_are_as_if_they_did_not_exist")),
    ("REST", "scopes", _rest("scopes_hold_for_every_endpoint")),
    ("REST", "fuzzed by its own OpenAPI document", _FUZZED),
]  # fmt: skip
