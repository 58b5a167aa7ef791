package report

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
)

// About says what a report is of and how to make it again.
type About struct {
	Command string
	Seeds   []uint64
	Config  any           // written as JSON; nil: left out
	Took    time.Duration // 0: left out
	At      time.Time     // zero: left out
	Machine string
	Commit  string
}

// Here returns what is known of this machine and this build, for a command.
func Here(command string) About {
	return About{Command: command, Machine: bench.Describe(0).String(), Commit: commit()}
}

// commit is what the build recorded of its source; "" if it did not.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " with changes"
		}
	}
	if revision == "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return revision + dirty
}

// Rows returns what is known as names and values.
func (a About) Rows() ([][2]string, error) {
	var rows [][2]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	add("command", a.Command)
	if len(a.Seeds) > 0 {
		add("seeds", strings.Trim(fmt.Sprint(a.Seeds), "[]"))
	}
	if a.Config != nil {
		text, err := json.Marshal(a.Config)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		add("configuration", string(text))
	}
	add("machine", a.Machine)
	add("commit", a.Commit)
	if a.Took > 0 {
		add("took", a.Took.Round(time.Millisecond).String())
	}
	if !a.At.IsZero() {
		add("at", a.At.UTC().Format("2006-01-02 15:04 MST"))
	}
	return rows, nil
}
