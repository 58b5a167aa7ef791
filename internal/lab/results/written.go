package results

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lab/reproduce"
)

// section is the page of a row.
type section struct {
	text       string            // without its title and the lines about stale results
	builds     []reproduce.Build // that made it
	isComplete bool              // no piece was missing
}

// madeBy finds the builds in a page's line of origin (Outcome.WriteMarkdown).
var (
	madeBy   = regexp.MustCompile(`(?m)^` + "`" + `(.*?)` + "`" + `.* Machine: (.*?)(?:, caches.*)?\. Code: (.*?)\. Made: ([-0-9; ]*)\..*$`)
	revision = regexp.MustCompile(`\b[0-9a-f]{9}\b`)
	missing  = regexp.MustCompile(`(?m)^` + "`" + `.* pieces are missing\.$`)
	outdated = regexp.MustCompile(`(?m)\n?^\*\*Stale\*\*: .*\n`)
)

// sections reads the pages of all rows in a folder, by row. It returns an error if a
// page is there and cannot be read.
func sections(folder string) (map[string]section, error) {
	list := map[string]section{}
	for _, r := range reproduce.Rows() {
		text, err := infile.ReadFile(filepath.Join(folder, r.Name+".md"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if s := pageSection(string(text)); len(s.builds) > 0 {
			list[r.Name] = s
		}
	}
	return list, nil
}

func pageSection(text string) section {
	_, text, _ = strings.Cut(text, "\n\n")
	text = outdated.ReplaceAllString(text, "")
	s := section{text: text, isComplete: !missing.MatchString(text)}
	if found := madeBy.FindStringSubmatch(text); found != nil {
		for build := range strings.SplitSeq(found[3], "; ") {
			s.builds = append(s.builds, reproduce.Build{Revision: revision.FindString(build), Modified: strings.Contains(build, "changes")})
		}
	}
	return s
}

// writePage writes the page of a row: its title, then text.
func writePage(folder, row, text string) error {
	v := verdicts[row]
	return atomicfile.WriteBytes(filepath.Join(folder, row+".md"), []byte(v.title(row)+"\n\n"+text))
}

// line returns a line of the table: the link from folder to the page of a row, and
// figures from the text of the page.
func line(row, path, folder, text string, isStale bool) string {
	v := verdicts[row]
	if link, err := filepath.Rel(folder, path); err == nil {
		path = filepath.ToSlash(link)
	}
	claim := v.claim + ": " + v.reason
	if v.claim == "" {
		claim = v.reason
	}
	cells := []string{"[" + row + "](" + path + ")", v.headline(text), claim, "", "", ""}
	if found := madeBy.FindStringSubmatch(text); found != nil {
		cells[3], cells[4], cells[5] = "`"+found[1]+"`", found[2], found[4]
	}
	if isStale {
		cells[5] += ", stale"
	}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |"
}
