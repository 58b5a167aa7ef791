package mechanism

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Law is a promise that every mechanism keeps; TestLaws holds each to it.
type Law struct {
	Name string // of the subtests, TestLaws/NAME/SUBJECT
	Says string
	// Exempt names the subjects of which the law does not speak, and why.
	Exempt map[string]string
}

// Matrix is which laws hold for which subjects: a law holds for each subject
// that it does not exempt.
type Matrix struct {
	Laws     []Law
	Subjects []string // mechanisms of the catalogue with settings
}

// Conformance returns what TestLaws found. A test fails where it finds anything
// else.
func Conformance() Matrix { return conformance }

// String lists the laws, then the subjects with a mark for each law, then why
// some marks are missing.
func (m Matrix) String() string {
	var b strings.Builder
	name, label := 0, 0
	for _, l := range m.Laws {
		name = max(name, utf8.RuneCountInString(l.Name))
	}
	for _, s := range m.Subjects {
		label = max(label, utf8.RuneCountInString(s))
	}
	for i, l := range m.Laws {
		fmt.Fprintf(&b, "%2d  %-*s  %s\n", i+1, name, l.Name, l.Says)
	}
	fmt.Fprintf(&b, "\n%-*s", label, "")
	for i := range m.Laws {
		fmt.Fprintf(&b, " %2d", i+1)
	}
	b.WriteByte('\n')
	for _, s := range m.Subjects {
		fmt.Fprintf(&b, "%-*s", label, s)
		for _, l := range m.Laws {
			mark := "✓"
			if l.Exempt[s] != "" {
				mark = "–"
			}
			fmt.Fprintf(&b, "  %s", mark)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for i, l := range m.Laws {
		var reasons []string
		for _, s := range m.Subjects {
			if r := l.Exempt[s]; r != "" && !slices.Contains(reasons, r) {
				reasons = append(reasons, r)
			}
		}
		for _, r := range reasons {
			var who []string
			for _, s := range m.Subjects {
				if l.Exempt[s] == r {
					who = append(who, s)
				}
			}
			fmt.Fprintf(&b, " –  %d %s: %s (%s)\n", i+1, l.Name, r, strings.Join(who, ", "))
		}
	}
	return b.String()
}
