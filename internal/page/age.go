package page

import (
	"fmt"
	"strings"
)

// MeasuredMarker returns the marker before figures that the code in paths gave at a commit.
func MeasuredMarker(commit string, paths []string) string {
	return fmt.Sprintf("<!-- measured at %s of %s -->\n", commit, strings.Join(paths, " "))
}

// OutdatedNote returns the line behind the marker of figures whose code has changed since.
func OutdatedNote(commit string, paths []string) string {
	return fmt.Sprintf("*Older than the code: measured at %s. `git log --oneline %s.. -- %s` lists the changes since.*\n", commit, commit, strings.Join(paths, " "))
}

// Folders whose code decides figures: how fast attention is, and what the command takes.
var (
	AttentionCode = []string{"attention", "mechanism", "internal/kernel", "internal/par"}
	CommandCode   = append(AttentionCode[:len(AttentionCode):len(AttentionCode)], "nn", "model", "train", "cmd/farfield")
)
