# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Judges a file that append.c and append.sh have written: awk -f append.awk EXPECTED FILE
#
# EXPECTED has a line for each writer: its name and its number of complete records. What must be true: every line of
# FILE is whole and as its writer wrote it; each writer's numbers are 1, 2, 3, ... up to what is expected; tokens
# strictly rise from line to line (they are written with 20 digits, so they compare as text). Exits with 1 if not.

function bad(why) {
	if (++faults <= 5)
		print "  line " FNR ": " why ": " substr($0, 1, 100)
}

NR == FNR {
	expected[$1] = $2
	wanted += $2
	next
}

{
	lines++
	text = ""
	for (i = 0; i < 12; i++)
		text = text $2 "-" $3 "."
	if (NF != 4 || $1 !~ /^[0-9]+$/ || length($1) != 20 || $4 != text || $0 != $1 " " $2 " " $3 " " $4) {
		torn++
		bad("torn")
		next
	}
	if (!($2 in expected) || $3 != found[$2] + 1) {
		misplaced++
		bad("not the next record of its writer")
	}
	found[$2] = $3
	if ($1 "" <= last "") {
		fallen++
		bad("the token does not rise")
	}
	last = $1
}

END {
	for (w in expected) {
		if (found[w] != expected[w]) {
			faults++
			lost += expected[w] - found[w]
			print "  " w ": " expected[w] " records expected, " found[w] + 0 " found"
		}
	}
	printf "  records expected %d, found %d, torn %d, lost %d, out of place %d, tokens that do not rise %d\n", \
		wanted, lines - torn, torn, lost, misplaced, fallen
	exit faults || lines != wanted
}
