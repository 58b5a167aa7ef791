package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// statuses are what the program tells the shell.
const statuses = "Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted."

// first are the commands to begin with.
var first = []string{
	"farfield demo",
	"farfield train --data notes.txt --out run/notes",
}

// help prints a screenful of what there is or, of a verb, the usual text, and
// what the mechanism that was named offers, or which there are.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil {
		return overview(ctx.Stdout, ctx.Model)
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if len(node.Children) == 0 {
		fmt.Fprintf(ctx.Stdout, "\n%s\n", statuses)
	}
	for _, flag := range node.Flags {
		if flag.Name == "mechanism" {
			name, _ := ctx.FlagValue(flag).(string)
			return describeMechanism(ctx.Stdout, name)
		}
	}
	return nil
}

// overview prints the verbs by what they are for, and what to begin with: at most
// 23 lines of 80 characters, which a small terminal shows at once.
func overview(w io.Writer, app *kong.Application) error {
	var b strings.Builder
	fmt.Fprintf(&b, "farfield: %s\n", lowerFirst(app.Help))
	group := ""
	for _, verb := range app.Children {
		if verb.Hidden {
			continue
		}
		title := ""
		if verb.Group.Title != group {
			group = verb.Group.Title
			title = group
		}
		fmt.Fprintf(&b, "%-8s  %-10s  %s\n", title, verb.Name, strings.TrimSuffix(lowerFirst(verb.Help), "."))
	}
	for i, command := range first {
		title := ""
		if i == 0 {
			title = "Begin"
		}
		fmt.Fprintf(&b, "%-8s  %s\n", title, command)
	}
	fmt.Fprintf(&b, "Help: farfield VERB --help. With every verb: --threads N, --quiet. --version.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// lowerFirst is a sentence as a part of another.
func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// examples is the end of a verb's help: commands that run as written.
func examples(commands ...string) string {
	return "\n\nExamples:\n\n    " + strings.Join(commands, "\n    ")
}
