package mechanism

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// foundLaw is a property that every mechanism has, unless it is exempt. TestLaws checks it.
type foundLaw struct {
	Name      string // of the subtests, TestLaws/NAME/SUBJECT
	Statement string
	// Exemptions maps the subjects to which the law does not apply to the reason.
	Exemptions map[string]string
}

// lawMatrix lists the laws and the subjects. A law holds for every subject that it does
// not exempt.
type lawMatrix struct {
	Laws     []foundLaw
	Subjects []string // mechanisms of the catalogue with settings
}

// exemptionMark begins the line of a reason in lawMatrix.String.
const exemptionMark = "–  in "

// String lists the laws, then the subjects with a mark for each law, then the reasons of
// missing marks.
func (m lawMatrix) String() string {
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
		fmt.Fprintf(&b, exemptionMark+"%s: %s\n   %s\n", strings.Join(e.laws, ", "), e.reason, strings.Join(e.subjects, "\n   "))
	}
	return b.String()
}

// exemption is a reason with the laws that do not apply and the subjects that they exempt.
type exemption struct {
	reason         string
	laws, subjects []string
}

// groupExemptions returns the exemptions in the order of the laws. Laws that exempt the
// same subjects for the same reason share one.
func (m lawMatrix) groupExemptions() []*exemption {
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
				byReason[why] = &exemption{reason: why}
				own = append(own, byReason[why])
			}
			byReason[why].subjects = append(byReason[why].subjects, s)
		}
		for _, e := range own {
			like := func(o *exemption) bool { return o.reason == e.reason && slices.Equal(o.subjects, e.subjects) }
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
