package mechanism

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Law is a promise that every mechanism keeps; TestLaws holds each to it.
type Law struct {
	Name      string // of the subtests, TestLaws/NAME/SUBJECT
	Statement string
	// Exemptions names the subjects of which the law does not speak, and why.
	Exemptions map[string]string
}

// LawMatrix is which laws hold for which subjects: a law holds for each subject
// that it does not exempt.
type LawMatrix struct {
	Laws     []Law
	Subjects []string // mechanisms of the catalogue with settings
}

// Conformance returns what TestLaws found. A test fails where it finds anything
// else.
func Conformance() LawMatrix { return conformance }

// String lists the laws, then the subjects with a mark for each law, then why
// some marks are missing.
func (m LawMatrix) String() string {
	var b strings.Builder
	name, label := 0, 0
	for _, l := range m.Laws {
		name = max(name, utf8.RuneCountInString(l.Name))
	}
	for _, s := range m.Subjects {
		label = max(label, utf8.RuneCountInString(s))
	}
	for i, l := range m.Laws {
		fmt.Fprintf(&b, "%2d  %-*s  %s\n", i+1, name, l.Name, l.Statement)
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
			if l.Exemptions[s] != "" {
				mark = "–"
			}
			fmt.Fprintf(&b, "  %s", mark)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for _, e := range m.groupExemptions() {
		fmt.Fprintf(&b, "–  in %s: %s\n   %s\n", strings.Join(e.laws, ", "), e.why, strings.Join(e.subjects, "\n   "))
	}
	return b.String()
}

// exemption is a reason for which laws do not speak of subjects.
type exemption struct {
	why            string
	laws, subjects []string
}

func (m LawMatrix) groupExemptions() []*exemption {
	var list []*exemption
	for i, l := range m.Laws {
		byReason := map[string]*exemption{}
		var own []*exemption
		for _, s := range m.Subjects {
			why := l.Exemptions[s]
			if why == "" {
				continue
			}
			if byReason[why] == nil {
				byReason[why] = &exemption{why: why}
				own = append(own, byReason[why])
			}
			byReason[why].subjects = append(byReason[why].subjects, s)
		}
		for _, e := range own {
			like := func(o *exemption) bool { return o.why == e.why && slices.Equal(o.subjects, e.subjects) }
			if at := slices.IndexFunc(list, like); at >= 0 {
				e = list[at]
			} else {
				list = append(list, e)
			}
			e.laws = append(e.laws, strconv.Itoa(i+1))
		}
	}
	return list
}
