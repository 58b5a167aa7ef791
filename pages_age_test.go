package farfield_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/page"
)

var writeAges = flag.Bool("write-ages", false, "write on measured pages that their code has changed")

// measured is the marker before a measured part of a page, and the line that follows
// where the code is newer.
var measured = regexp.MustCompile(`<!-- measured at ([0-9a-f]{7,40}) of ([^>]*?) -->\n(\*Older than the code[^\n]*\*\n)?`)

// measuredPages have parts whose figures are of a commit.
var measuredPages = []string{"README.md", "RESULTS.md", "docs/results/attention.md", "docs/results/peers.md", "docs/results/zoo.md", "docs/first-ten-minutes.md", "docs/kernels.md", "docs/scale.md", "docs/scaling.md", "docs/mechanisms.md"}

func TestMeasuredPagesSayWhenTheCodeIsNewer(t *testing.T) {
	var absent []string
	for _, path := range measuredPages {
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parts := 0
		text := measured.ReplaceAllStringFunc(string(old), func(part string) string {
			parts++
			m := measured.FindStringSubmatch(part)
			commit, of := m[1], strings.Fields(m[2])
			if exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run() != nil {
				absent = append(absent, path+" of "+commit)
				return part
			}
			changes, err := exec.Command("git", append([]string{"rev-list", "--count", commit + "..HEAD", "--"}, of...)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if strings.TrimSpace(string(changes)) != "0" {
				want = page.OutdatedNote(commit, of)
			}
			if m[3] != want && !*writeAges {
				t.Errorf("%s: behind the marker of %s stands %q, not %q; go test . -run MeasuredPages -write-ages", path, commit, m[3], want)
			}
			return page.MeasuredMarker(commit, of) + want
		})
		if parts == 0 {
			t.Errorf("%s: has no measured part", path)
		}
		if *writeAges && text != string(old) {
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			fmt.Println("wrote", path)
		}
	}
	if len(absent) > 0 {
		t.Skipf("commits that are not in this checkout: %s", strings.Join(absent, ", "))
	}
}
