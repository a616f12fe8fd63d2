"""Which tests run on PostgreSQL, and why others do not.

`make test-postgres` runs all of FILES with COMMONPLACE_TEST_ENGINE=postgres, `make test` those of
SMOKE. `tests/postgres` is about PostgreSQL itself and runs on every engine.
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


def _all_of(folder: str) -> list[str]:
    """The test files of a folder, but for those of SMOKE."""
    found = (Path(__file__).parent / folder).glob("test_*.py")
    names = sorted(f"tests/{folder}/{file.name}" for file in found)
    return [name for name in names if name not in SMOKE]


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
    *_all_of("dialects"),
    *_all_of("dialects/being"),
    *_all_of("dialects/clawbrain"),
    *_all_of("dialects/harbor"),
    *_all_of("dialects/mama"),
    *_all_of("dialects/orchestrator"),
    *_all_of("dialects/penfield"),
    *_all_of("server/oauth"),
    "tests/server/test_accounts.py",
    "tests/server/test_addresses.py",
    "tests/server/test_audit.py",
    "tests/server/test_browser.py",
    "tests/server/test_calls.py",
    "tests/server/test_compose_one.py",
    "tests/server/test_connections.py",
    "tests/server/test_console.py",
    "tests/server/test_console_capture.py",
    "tests/server/test_credentials.py",
    "tests/server/test_dialect_commonplace.py",
    "tests/server/test_gate.py",
    "tests/server/test_idempotency.py",
    "tests/server/test_isolation.py",
    "tests/server/test_scopes.py",
    "tests/server/test_vault.py",
    "tests/web/test_agents.py",
    "tests/web/test_capture.py",
    "tests/web/test_every_room.py",
    "tests/web/test_files.py",
    "tests/web/test_mama.py",
    "tests/web/test_pages.py",
    "tests/web/test_rooms.py",
    "tests/web/test_shell.py",
    "tests/importers/test_importing.py",
    "tests/importers/test_exporting.py",
    "tests/importers/test_native_memories.py",
)

SQL_OF_THE_TEST = "The test itself damages rows with SQL that only SQLite knows."
COPIES = "It works on copies of a data directory."
A_FILE = "It is about the space's file."
HOOK = "It looks on, or interrupts, by a hook of SQLite."

NOT_HERE: dict[str, str] = {
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
