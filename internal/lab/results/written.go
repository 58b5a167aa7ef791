package results

import (
	"regexp"
	"strings"

	"github.com/farfield-ml/farfield/internal/lab/reproduce"
)

// section is what the page has of a row.
type section struct {
	text   string            // from its title on, but for what says that it is stale
	builds []reproduce.Build // that made it
	whole  bool              // no piece was missing
}

// madeBy finds the builds in a section's line of origin (Outcome.WriteMarkdown).
var (
	madeBy   = regexp.MustCompile(`(?m)^` + "`" + `.* Code: (.*?)\. Made: .*$`)
	revision = regexp.MustCompile(`\b[0-9a-f]{9}\b`)
	missing  = regexp.MustCompile(`(?m)^` + "`" + `.* pieces are missing\.$`)
	outdated = regexp.MustCompile(`(?m)^\*\*Stale\*\*: .*\n\n?`)
)

// sections returns those of the part of the page, by row.
func sections(part string) map[string]section {
	list := map[string]section{}
	for _, text := range strings.Split("\n"+part, "\n### ")[1:] {
		name, _, _ := strings.Cut(text, "\n")
		text = outdated.ReplaceAllString(text, "")
		s := section{text: "### " + strings.TrimRight(text, "\n") + "\n", whole: !missing.MatchString(text)}
		if found := madeBy.FindStringSubmatch(text); found != nil {
			for _, r := range revision.FindAllString(found[1], -1) {
				s.builds = append(s.builds, reproduce.Build{Revision: r, Modified: strings.Contains(found[1], "changes")})
			}
		}
		if len(s.builds) > 0 {
			list[name] = s
		}
	}
	return list
}
