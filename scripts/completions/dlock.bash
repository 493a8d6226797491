# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion of dlock(1) for bash. Names come from the daemon, where there is one; the first thousand.

_dlock_names() {
	local IFS=$'\n' name
	COMPREPLY=()
	while read -r name; do
		[[ $name == "$1"* ]] && COMPREPLY+=("$(printf '%q' "$name")")
		# In the space default, the name alone will do.
		[[ $name == default/* && ${name#default/} == "$1"* ]] && COMPREPLY+=("$(printf '%q' "${name#default/}")")
	done < <(dlock ls --open --names 2>/dev/null | head -n 1000)
}

_dlock_spaces() {
	local IFS=$'\n'
	COMPREPLY=($(compgen -W "$(dlock ls --open --names 2>/dev/null | head -n 1000 | cut -d/ -f1 | sort -u)" -- "$1"))
}

_dlock_run() {
	local cur=$1 i word
	for ((i = 2; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		-w | --wait | --timeout | -E | --conflict-exit-code | -c | --command | --grace | --sem) ((i++)) ;;
		-*) ;;
		*)      # the name: what follows is a command
			if declare -F _command_offset >/dev/null; then
				((i++))
				[[ $i -lt $COMP_CWORD && ${COMP_WORDS[i]} == -- ]] && ((i++))
				_command_offset "$i"
			else
				COMPREPLY=($(compgen -c -- "$cur"))
			fi
			return
			;;
		esac
	done
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	-w | --wait | --timeout | -E | --conflict-exit-code | -c | --command | --grace | --sem) return ;;
	esac
	if [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W '--nonblock --wait --conflict-exit-code --shared --exclusive --close --command --grace --sem --elect --help' -- "$cur"))
	else
		_dlock_names "$cur"
	fi
}

_dlock() {
	local cur=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W 'run status ls show watch get put rm members node keygen doctor help --help --version' -- "$cur"))
		return
	fi
	case ${COMP_WORDS[1]}:$cur in
	run:*) _dlock_run "$cur" ;;
	ls:-*) COMPREPLY=($(compgen -W '--json --names --open --help' -- "$cur")) ;;
	get:-*) COMPREPLY=($(compgen -W '--json --help' -- "$cur")) ;;
	put:-*) COMPREPLY=($(compgen -W '--if-version --json --help' -- "$cur")) ;;
	rm:-*) COMPREPLY=($(compgen -W '--kind --force --if-version --json --help' -- "$cur")) ;;
	show:-*) COMPREPLY=($(compgen -W '--json --kind --help' -- "$cur")) ;;
	status:-* | members:-* | watch:-* | doctor:-*) COMPREPLY=($(compgen -W '--json --help' -- "$cur")) ;;
	ls:*) _dlock_spaces "$cur" ;;
	node:*) COMPREPLY=($(compgen -W 'drain undrain leave --help' -- "$cur")) ;;
	keygen:-*) COMPREPLY=($(compgen -W '--json --help' -- "$cur")) ;;
	keygen:*) COMPREPLY=($(compgen -f -- "$cur")) ;;
	show:* | watch:*) _dlock_names "$cur" ;;
	esac
}

complete -F _dlock dlock
