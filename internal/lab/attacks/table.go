//go:build linux

package attacks

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/page"
)

// written is the part of docs/testing.md.
var written = page.Part{
	Begin: "<!-- attacks: go run ./cmd/farfield-lab attacks -page docs/testing.md -->",
	End:   "<!-- attacks: end -->",
	Title: "### Results",
}

// writeTable returns the table of the last records.
func writeTable(records []*record) []byte {
	var b bytes.Buffer
	tries, failures := 0, 0
	var of []string
	for _, r := range records {
		tries += r.Tries
		failures += len(r.Failures)
		if s := fmt.Sprintf("seed %d, %s, %s", r.Seed, r.Commit, r.Date); r.Tries > 0 && !slices.Contains(of, s) {
			of = append(of, s)
		}
	}
	fmt.Fprintf(&b, "%d tries, %d failures (%s):\n\n| attack | tries | failures | MiB, intact and damaged |\n|---|---|---|---|\n", tries, failures, strings.Join(of, "; "))
	for _, r := range records {
		switch {
		case r.Skipped != "":
			fmt.Fprintf(&b, "| %s | %s | | |\n", r.Attack, r.Skipped)
		default:
			memory := ""
			if r.Peak > 0 {
				memory = fmt.Sprintf("%d, %d", r.Base>>20, r.Peak>>20)
			}
			fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", r.Attack, r.Tries, len(r.Failures), memory)
		}
	}
	return b.Bytes()
}
