package recipes

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
)

// writePage tells what each block took and printed.
func writePage(w io.Writer, commit string, done []result) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# The first ten minutes

%s
The commands of [README.md](../README.md) and [recipes.md](recipes.md), run from a clone of commit %s. The account is new. It
has Go, git, bash and coreutils, no cache and no C compiler. Times include downloads and compiling.

Machine: %v.

| what | time |
|---|---:|
`, "Measured at commit `"+commit+"`.", commit, bench.DescribeMachine(0))
	var all time.Duration
	for _, r := range done {
		all += r.took
		fmt.Fprintf(&b, "| %s | %s |\n", r.name(), formatSeconds(r.took))
	}
	fmt.Fprintf(&b, "| together | %s |\n\n", formatSeconds(all))
	b.WriteString("This page is written by `make minutes`.\n")
	for _, r := range done {
		fmt.Fprintf(&b, "\n## %s\n\n```sh\n%s```\n", r.title, r.commands)
		if r.output != "" {
			fmt.Fprintf(&b, "\n```text\n%s\n```\n", quoteOutput(r.output))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// name is the title of a block, and what it runs if that is one line.
func (r *result) name() string {
	command, more, _ := strings.Cut(r.commands, "\n")
	if more != "" {
		return r.title
	}
	return fmt.Sprintf("%s: `%s`", r.title, command)
}

// quoteOutput is what was printed, for a block that it cannot end, without blanks at the
// ends of lines.
func quoteOutput(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		if line = strings.TrimRight(line, " \t\r"); strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			line = "    " + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}
