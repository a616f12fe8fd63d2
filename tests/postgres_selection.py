"""Which tests run on PostgreSQL, and why others do not.

`make test-postgres` runs all of FILES with COMMONPLACE_TEST_ENGINE=postgres, `make test` those of
SMOKE. `tests/postgres` is about PostgreSQL itself and runs on every engine. Every other file of
tests is in FILES_NOT_HERE, with its reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

SMOKE = (
    "tests/test_engine_chains.py",
    "tests/test_engine_clusters.py",
    "tests/test_engine_conversations.py",
    "tests/test_engine_facts.py",
    "tests/test_engine_filters.py",
    "tests/test_engine_timeline.py",
    "tests/test_engine_links.py",
    "tests/test_engine_memories.py",
    "tests/test_engine_recall.py",
    "tests/test_engine_recall_current.py",
    "tests/test_engine_recall_silence.py",
    "tests/test_engine_substrings.py",
    "tests/test_engine_commonplace_units.py",
    "tests/dialects/being/test_tools.py",
    "tests/dialects/clawbrain/test_tools.py",
    "tests/dialects/mama/test_tools.py",
    "tests/dialects/orchestrator/test_palace.py",
    "tests/dialects/penfield/test_tools.py",
)


SQL_OF_THE_TEST = "The test itself damages rows with SQL that only SQLite knows."
COPIES = "It works on copies of a data directory."
A_FILE = "It is about the space's file."
HOOK = "It looks on, or interrupts, by a hook of SQLite."
NO_DATABASE = "Nothing is stored, or only to look at something else."
OWN_DATABASE = "It is about PostgreSQL itself, and `make test` runs it."
DISK = "It breaks disk, file or process under SQLite; test_postgres_failures.py does so here."
MACHINE = "It is about the directory and the socket of one machine, not about rows."
NEWCOMERS = "It runs what newcomers are told to, who begin with files."
CLIENTS = "It is about other programs or what connects them; the server's tests have the calls."

FILES_NOT_HERE: dict[str, str] = {
    "tests/client/test_commands.py": MACHINE,
    "tests/client/test_hook.py": MACHINE,
    "tests/client/test_situations.py": MACHINE,
    "tests/reliability/test_purge.py": A_FILE,
    "tests/reliability/test_write_gate.py": HOOK,
    "tests/reliability/test_platform_load.py": "A long run, which was made on files alone so far.",
    "tests/test_bench.py": NO_DATABASE,
    "tests/test_demo.py": NEWCOMERS,
    "tests/test_distribution.py": NO_DATABASE,
    "tests/test_docs.py": NO_DATABASE,
    "tests/test_embedding_build.py": NO_DATABASE,
    "tests/test_embedding_builtin.py": NO_DATABASE,
    "tests/test_embedding_openai.py": NO_DATABASE,
    "tests/test_embedding_provider.py": NO_DATABASE,
    "tests/test_engine_checks_text.py": NO_DATABASE,
    "tests/test_engine_outside.py": NO_DATABASE,
    "tests/test_guides.py": NEWCOMERS,
    "tests/test_lock.py": NO_DATABASE,
    "tests/test_loop_guard.py": NO_DATABASE,
    "tests/test_platform_loading.py": NO_DATABASE,
    "tests/test_plugin.py": NO_DATABASE,
    "tests/test_storage_seam.py": NO_DATABASE,
    "tests/test_storage_sql.py": NO_DATABASE,
    "tests/test_storage_tables.py": NO_DATABASE,
    "tests/test_text_analysis.py": NO_DATABASE,
    "tests/test_text_analysis_folding.py": NO_DATABASE,
    "tests/test_text_dates.py": NO_DATABASE,
    "tests/test_text_files.py": NO_DATABASE,
    "tests/test_text_passages.py": NO_DATABASE,
    "tests/test_text_proposals.py": NO_DATABASE,
    "tests/test_text_prose.py": NO_DATABASE,
    "tests/test_text_scripts.py": NO_DATABASE,
    "tests/test_text_secrets.py": NO_DATABASE,
    "tests/test_text_snippets.py": NO_DATABASE,
    "tests/test_text_wordpieces.py": NO_DATABASE,
    "tests/test_tools.py": NO_DATABASE,
    "tests/cli/test_completion.py": NO_DATABASE,
    "tests/cli/test_connect.py": NO_DATABASE,
    "tests/cli/test_service.py": NO_DATABASE,
    "tests/transcripts/test_transcripts.py": NO_DATABASE,
    "tests/test_storage_directories.py": A_FILE,
    "tests/test_storage_locking.py": A_FILE,
    "tests/cli/test_refused_commands.py": A_FILE,
    "tests/cli/test_settings.py": MACHINE,
    "tests/cli/test_start.py": NEWCOMERS,
    "tests/reliability/test_ballast.py": A_FILE,
    "tests/reliability/test_backup.py": A_FILE,
    "tests/reliability/test_backup_shared_files.py": A_FILE,
    "tests/reliability/test_creation.py": A_FILE,
    "tests/reliability/test_doctor.py": A_FILE,
    "tests/reliability/test_golden.py": A_FILE,
    "tests/reliability/test_growing.py": A_FILE,
    "tests/reliability/test_installation.py": A_FILE,
    "tests/reliability/test_interrupted_restore.py": A_FILE,
    "tests/reliability/test_migrations.py": A_FILE,
    "tests/reliability/test_read_only.py": A_FILE,
    "tests/reliability/test_replaced.py": A_FILE,
    "tests/reliability/test_runtime_gate.py": A_FILE,
    "tests/server/test_full_disk.py": DISK,
    "tests/reliability/test_bit_flips.py": DISK,
    "tests/reliability/test_brutal_ends.py": DISK,
    "tests/reliability/test_disk_full.py": DISK,
    "tests/reliability/test_failing_fsync.py": DISK,
    "tests/reliability/test_kill.py": DISK,
    "tests/reliability/test_kill_clients.py": DISK,
    "tests/reliability/test_many_processes.py": DISK,
    "tests/reliability/test_power_loss.py": DISK,
    "tests/reliability/test_vectors_power.py": DISK,
    "tests/cli/test_databases.py": OWN_DATABASE,
    "tests/reliability/test_postgres_failures.py": OWN_DATABASE,
    "tests/reliability/test_postgres_pgbouncer.py": OWN_DATABASE,
    "tests/reliability/test_postgres_servers.py": OWN_DATABASE,
    "tests/clients/test_agent_sessions.py": CLIENTS,
    "tests/clients/test_agents.py": CLIENTS,
    "tests/clients/test_conformance.py": CLIENTS,
    "tests/clients/test_oauth_clients.py": CLIENTS,
    "tests/clients/test_openclaw_plugin.py": CLIENTS,
    "tests/reliability/test_openclaw_sessions.py": CLIENTS,
    "tests/clients/test_opencode_plugin.py": CLIENTS,
    "tests/clients/test_real_clients.py": CLIENTS,
    "tests/clients/test_server_memory.py": CLIENTS,
    "tests/clients/test_typescript.py": CLIENTS,
    "tests/integrations/test_adk_memory.py": CLIENTS,
    "tests/integrations/test_anthropic_memory.py": CLIENTS,
    "tests/integrations/test_hermes.py": CLIENTS,
    "tests/integrations/test_langgraph_store.py": CLIENTS,
    "tests/integrations/test_openai_agents.py": CLIENTS,
}


def _all_of(folder: str) -> list[str]:
    """The test files of a folder, but for those of SMOKE and FILES_NOT_HERE."""
    found = (Path(__file__).parent / folder).glob("test_*.py")
    names = sorted(f"tests/{folder}/{file.name}" for file in found)
    return [name for name in names if name not in SMOKE and name not in FILES_NOT_HERE]


FILES = (
    *SMOKE,
    "tests/test_engine_answers.py",
    "tests/test_engine_artifacts.py",
    "tests/test_engine_audit.py",
    "tests/test_engine_memories_usage.py",
    "tests/test_engine_events.py",
    "tests/test_engine_memories_fields.py",
    "tests/test_engine_recall_dates.py",
    "tests/test_engine_recall_languages.py",
    "tests/test_engine_recall_spelling.py",
    "tests/test_engine_timeline_past.py",
    "tests/test_engine_library.py",
    "tests/test_engine_commonplace_threads.py",
    "tests/test_engine_upkeep.py",
    "tests/test_engine_commonplace.py",
    "tests/test_engine_ranking.py",
    "tests/test_engine_transfer.py",
    "tests/test_engine_checks.py",
    "tests/test_engine_commonplace_machine.py",
    "tests/test_engine_commonplace_misuse.py",
    "tests/test_platform_hooks.py",
    "tests/test_platform_capture.py",
    "tests/test_platform_projects.py",
    "tests/test_platform_review.py",
    "tests/test_engine_write_policy.py",
    "tests/test_round_trip.py",
    "tests/test_storage_index.py",
    "tests/test_engine_asynchronous.py",
    "tests/test_platform_durable.py",
    "tests/test_platform_proposing.py",
    "tests/test_storage_derived.py",
    "tests/test_storage_derived_vectors.py",
    "tests/test_storage_large_spaces.py",
    "tests/cli/test_access.py",
    "tests/cli/test_history.py",
    "tests/client/test_matrices.py",
    "tests/client/test_pipe.py",
    "tests/test_cli.py",
    "tests/reliability/test_clock.py",
    "tests/reliability/test_histories.py",
    "tests/reliability/test_odd_input.py",
    *_all_of("dialects"),
    *_all_of("dialects/being"),
    *_all_of("dialects/clawbrain"),
    *_all_of("dialects/harbor"),
    *_all_of("dialects/mama"),
    *_all_of("dialects/orchestrator"),
    *_all_of("dialects/penfield"),
    *_all_of("server/oauth"),
    *_all_of("server"),
    *_all_of("web"),
    *_all_of("importers"),
)

NOT_HERE: dict[str, str] = {
    "test_a_server_that_is_in_the_way_is_named": MACHINE,
    "test_in_process_loads_only_what_the_first_answer_needs": NO_DATABASE,
    "test_a_damaged_file_is_told_without_its_name": A_FILE,
    "test_a_server_that_cannot_write_down_a_refusal_still_refuses": A_FILE,
    "test_a_directory_of_an_older_release_is_served": A_FILE,
    "test_a_token_is_made_only_for_a_being_that_the_space_has": A_FILE,
    "test_a_restore_says_that_tokens_need_the_key_of_the_old_machine": COPIES,
    "test_looking_makes_nothing": A_FILE,
    "test_looking_creates_nothing": A_FILE,
    "test_looking_at_nothing_makes_nothing": A_FILE,
    "test_purge_asks_and_proves": A_FILE,
    "test_a_damaged_row_is_told_by_the_doctor_and_the_exit_code": SQL_OF_THE_TEST,
    "test_a_directory_that_was_there_keeps_its_mode": A_FILE,
    "test_the_sound_rows_of_a_damaged_space_are_salvaged": A_FILE,
    "test_the_master_key_is_rotated": SQL_OF_THE_TEST,
    "test_the_doctor_finds_what_nobody_here_has_written": SQL_OF_THE_TEST,
    "test_a_rotten_answer_is_not_given": SQL_OF_THE_TEST,
    "test_a_row_that_somebody_changed_is_not_believed": SQL_OF_THE_TEST,
    "test_a_file_with_the_older_column_names_is_migrated": A_FILE,
    "test_a_key_file_is_made_for_its_owner_alone": A_FILE,
    "test_a_thief_of_every_file_finds_no_token": A_FILE,
    "test_knowing_a_token_again_is_cheap": "Here it asks the database whether anything changed.",
    "test_what_was_changed_behind_our_back_is_never_returned": SQL_OF_THE_TEST,
    "test_the_good_arguments_are_good": COPIES,
    "test_insights_add_up_and_read_no_memory_to_count_it": HOOK,
    "test_a_library_refuses_what_is_no_name": "It lists files after the library was closed.",
    "test_a_thousand_tamperings_are_all_found": SQL_OF_THE_TEST,
    "test_each_space_is_a_file_of_its_own_that_only_its_owner_reads": A_FILE,
    "test_the_data_directory_comes_from_the_environment": A_FILE,
    "test_an_interrupt_during_the_commit_lets_the_next_one_write": HOOK,
    "test_closing_does_not_wait_for_a_long_memory_to_be_embedded": A_FILE,
    "test_what_cannot_be_begun_keeps_nothing_else_from_it": A_FILE,
    "test_a_temporary_data_directory_is_not_sent": A_FILE,
    "test_the_hook_never_stands_in_an_agents_way": A_FILE,
    "test_a_patrol_that_cannot_take_its_scenes_is_not_begun_again_and_again": A_FILE,
    "test_a_graph_asks_for_all_its_edges_at_once": HOOK,
    "test_while_another_process_patrols_the_answer_is_busy": "Here its lock is a row.",
    "test_no_secret_is_stored_anywhere": "It looks into the file of the accounts.",
    "test_work_goes_on_where_it_was_when_the_notes_of_dbos_are": "DBOS has no file here.",
    "test_a_system_like_windows_keeps_files_too": "The tests find their database by a POSIX lock.",
}


def reason(nodeid: str) -> str | None:
    """Why a test does not run on PostgreSQL; None if it does."""
    return NOT_HERE.get(nodeid.partition("[")[0].rpartition("::")[2])


if __name__ == "__main__":
    sys.stdout.write(" ".join(SMOKE if "--smoke" in sys.argv else FILES) + "\n")
