// Package version prints release, commit, Go version and instruction set of the program.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cpu"
)

// Release, Commit and Date describe a release, which is built without a repository. The
// main package sets them; empty values are read from the build information.
var Release, Commit, Date string

// Command is the verb version.
type Command struct{}

// Help returns the long help text with examples.
func (Command) Help() string {
	return "Prints version, commit, date, Go and instruction set in one line, as --version does." + flags.JoinExamples("farfield version")
}

// Run prints the version. It returns an error if the output fails.
func (Command) Run(e *env.Env) error {
	_, err := fmt.Fprintln(e.Stdout, FormatVersion())
	return err
}

// FormatVersion returns one line: the release or the version that go install resolved,
// the commit and its date, Go, platform and instruction set.
func FormatVersion() string {
	number, revision, at, changed := Release, Commit, Date, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if number == "" && info.Main.Version != "(devel)" {
			number = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && revision == "":
				revision = s.Value
			case s.Key == "vcs.time" && at == "":
				at = s.Value
			case s.Key == "vcs.modified" && s.Value == "true" && Commit == "":
				changed = " with changes"
			}
		}
	}
	if number == "" {
		number = "of no release"
	}
	var from []string
	if revision != "" {
		from = append(from, "commit "+revision[:min(len(revision), 12)]+changed)
	}
	if at != "" {
		from = append(from, at)
	}
	from = append(from, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, cpu.ActiveSet()+" kernels")
	return fmt.Sprintf("farfield %s (%s)", number, strings.Join(from, ", "))
}
