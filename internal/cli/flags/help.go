// Package flags holds the flags that several verbs share.
package flags

import (
	"strings"
)

// ExitStatuses describes the exit statuses in help texts.
const ExitStatuses = "Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted."

// JoinExamples returns the end of a verb's help: examples, which run as they are written.
func JoinExamples(commands ...string) string {
	return "\n\nExamples:\n\n    " + strings.Join(commands, "\n    ")
}
