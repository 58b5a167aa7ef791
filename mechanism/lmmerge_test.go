package mechanism

import (
	"slices"
	"strings"
	"testing"
)

func TestTmpMerge(t *testing.T) {
	ours := func(s string) bool {
		for _, g := range []string{"nystrom ", "informer ", "luna ", "eva "} {
			if strings.HasPrefix(s, g) {
				return true
			}
		}
		return false
	}
	m := Conformance()
	var list []string
	for _, s := range lmConformance.Subjects {
		if ours(s) {
			list = append(list, s)
		}
	}
	at := slices.IndexFunc(m.Subjects, func(s string) bool { return strings.HasPrefix(s, "linformer ") })
	m.Subjects = slices.Insert(slices.Clone(m.Subjects), at, list...)
	for i := range m.Laws {
		for _, l := range lmConformance.Laws {
			if l.Name != m.Laws[i].Name {
				continue
			}
			for s, why := range l.Exempt {
				if ours(s) {
					if m.Laws[i].Exempt == nil {
						m.Laws[i].Exempt = map[string]string{}
					}
					m.Laws[i].Exempt[s] = why
				}
			}
		}
	}
	m.write(t)
}
