# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion of dlock(1) for fish. Names come from the daemon, where there is one; the first thousand.

function __dlock_names
    set -l names (dlock ls --open --names 2>/dev/null | head -n 1000)
    printf '%s\n' $names
    printf '%s\n' $names | string replace --filter --regex '^default/' ''
end

function __dlock_spaces
    dlock ls --open --names 2>/dev/null | head -n 1000 | cut -d/ -f1 | sort -u
end

# Still before the name of "dlock run"?
function __dlock_run_needs_name
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    test (count $words) -ge 2; and test $words[2] = run; or return 1
    set -l skip 0
    for word in $words[3..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word -w --wait --timeout -E --conflict-exit-code --grace --sem -c --command
            set skip 1
        else if not string match -q -- '-*' $word
            return 1
        end
    end
    return 0
end

# Behind it: there the command's own completion goes on.
function __dlock_run_has_name
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    test (count $words) -ge 3; and test $words[2] = run; and not __dlock_run_needs_name
end

function __dlock_run_command
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l word (commandline --current-token)
    set -l skip 0
    for i in (seq 3 (count $words))
        if test $skip = 1
            set skip 0
        else if contains -- $words[$i] -w --wait --timeout -E --conflict-exit-code --grace --sem -c --command
            set skip 1
        else if not string match -q -- '-*' $words[$i]
            set -l rest $words[(math $i + 1)..-1]
            test "$rest[1]" = --; and set -e rest[1]
            complete -C "$(string join -- ' ' (string escape -- $rest) $word)"
            return
        end
    end
end

complete -c dlock -f
complete -c dlock -n __fish_use_subcommand -a run -d 'run a command under a lock'
complete -c dlock -n __fish_use_subcommand -a status -d 'this node: daemon, store, spaces, links'
complete -c dlock -n __fish_use_subcommand -a ls -d 'names, with who holds them and who waits'
complete -c dlock -n __fish_use_subcommand -a show -d 'one name'
complete -c dlock -n __fish_use_subcommand -a watch -d 'what happens, one event a line'
complete -c dlock -n __fish_use_subcommand -a get -d 'a small value in the store'
complete -c dlock -n __fish_use_subcommand -a put -d 'sets one'
complete -c dlock -n __fish_use_subcommand -a rm -d 'removes one, or a latch or free semaphore'
complete -c dlock -n '__fish_seen_subcommand_from rm' -s k -l kind -x -a 'latch "free semaphore"' -d 'no value, but what was left of this kind'
complete -c dlock -n '__fish_seen_subcommand_from rm' -s f -l force -d 'also if it is open'
complete -c dlock -n '__fish_seen_subcommand_from put rm' -s i -l if-version -x -d 'only if it has this version'
complete -c dlock -n __fish_use_subcommand -a members -d 'the nodes of the cluster'
complete -c dlock -n __fish_use_subcommand -a node -d 'hand over, or leave the cluster'
complete -c dlock -n '__fish_seen_subcommand_from node' -a 'drain undrain leave'
complete -c dlock -n __fish_use_subcommand -a keygen -d 'make a key for a cluster'
complete -c dlock -n '__fish_seen_subcommand_from keygen' -F
complete -c dlock -n __fish_use_subcommand -a doctor -d 'check the set-up and say what to mend'
complete -c dlock -n __fish_use_subcommand -a help -d 'list the commands'
complete -c dlock -n __fish_use_subcommand -s V -l version -d version
complete -c dlock -s h -l help -d help

complete -c dlock -n '__fish_seen_subcommand_from status ls show watch get put rm members keygen doctor' -s j -l json -d 'JSON instead of a table'
complete -c dlock -n '__fish_seen_subcommand_from ls' -s n -l names -d 'names only'
complete -c dlock -n '__fish_seen_subcommand_from ls' -s o -l open -d 'only what is open'
complete -c dlock -n '__fish_seen_subcommand_from ls' -a '(__dlock_spaces)'
complete -c dlock -n '__fish_seen_subcommand_from show' -s k -l kind -x -a 'lock semaphore barrier election latch condition id "free semaphore" "double barrier"' -d 'where names of several kinds are alike'
complete -c dlock -n '__fish_seen_subcommand_from show watch' -a '(__dlock_names)'

complete -c dlock -n __dlock_run_needs_name -a '(__dlock_names)'
complete -c dlock -n __dlock_run_needs_name -s n -l nonblock -d 'do not wait'
complete -c dlock -n __dlock_run_needs_name -s w -l wait -x -d 'wait at most so many seconds'
complete -c dlock -n __dlock_run_needs_name -s E -l conflict-exit-code -x -d 'exit code if the lock is not to be had'
complete -c dlock -n __dlock_run_needs_name -s o -l close -d 'the command does not inherit the lock'
complete -c dlock -n __dlock_run_needs_name -s c -l command -x -d 'run by the shell'
complete -c dlock -n __dlock_run_needs_name -s s -l shared -d 'beside others that hold it shared'
complete -c dlock -n __dlock_run_needs_name -s x -l exclusive -d 'alone, as if nothing is said'
complete -c dlock -n __dlock_run_needs_name -l sem -x -d 'one of so many permits, instead of a lock'
complete -c dlock -n __dlock_run_needs_name -l elect -d 'lead in an election, instead of a lock'
complete -c dlock -n __dlock_run_needs_name -l grace -x -d 'TERM so many seconds before the deadline'
complete -c dlock -n __dlock_run_has_name -a '(__dlock_run_command)'
