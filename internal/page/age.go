package page

import (
	"fmt"
	"strings"
)

// MeasuredMarker returns the marker before figures measured at a commit with the code in paths.
func MeasuredMarker(commit string, paths []string) string {
	return fmt.Sprintf("<!-- measured at %s of %s -->\n", commit, strings.Join(paths, " "))
}

// OutdatedNote returns the line after the marker of figures whose code has changed since.
func OutdatedNote(commit string, paths []string) string {
	return fmt.Sprintf("*Older than the code: measured at %s. `git log --oneline %s.. -- %s` lists the changes since.*\n", commit, commit, strings.Join(paths, " "))
}

// Folders whose code determines figures: the speed of attention, and of the command.
var (
	AttentionCode = []string{"attention", "mechanism", "internal/kernel", "internal/par"}
	CommandCode   = append(AttentionCode[:len(AttentionCode):len(AttentionCode)], "nn", "model", "train", "cmd/farfield")
)
