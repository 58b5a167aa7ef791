package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/farfield-ml/farfield/internal/cpu"
)

// What the linker is told of a release, which is built without a repository around
// it: -ldflags "-X main.release=v1.2.3 -X main.commit=… -X main.date=…".
var release, commit, date string

// versionCmd is the verb version.
type versionCmd struct{}

// Help are examples.
func (versionCmd) Help() string { return "It is the same line." + examples("farfield version") }

func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintln(e.stdout, version())
	return err
}

// version is a line: the release, or what go install resolved, the commit and its
// date, Go, platform and instruction set.
func version() string {
	number, revision, at, changed := release, commit, date, ""
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
			case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
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
	from = append(from, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, cpu.Chosen()+" kernels")
	return fmt.Sprintf("farfield %s (%s)", number, strings.Join(from, ", "))
}
