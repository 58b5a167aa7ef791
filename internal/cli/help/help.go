// Package help prints the overview of verbs, and the help of each.
package help

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/version"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// FirstCommands lists the commands that a new user can begin with.
var FirstCommands = []string{
	"farfield demo",
	"farfield train --data notes.txt --out run/notes",
}

// Variables returns the values for ${variable} in help texts.
func Variables() kong.Vars {
	return kong.Vars{
		"version":     version.FormatVersion(),
		"tasks":       flags.JoinNames(task.Rows(), func(r task.Row) string { return r.Name }),
		"presets":     flags.JoinNames(train.Presets(), func(p train.Preset) string { return p.Name }),
		"temperature": strconv.FormatFloat(inference.DefaultTemperature, 'g', -1, 64),
	}
}

// PrintHelp prints an overview of the verbs, or the help of one verb. The help of a verb also lists
// the settings of the task and the mechanism that are named, or, if none is, all tasks and
// mechanisms. Verbs that only exchange the mechanism of a model leave out the mechanisms. PrintHelp
// returns an error if the output fails.
func PrintHelp(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil {
		return overview(ctx.Stdout, ctx.Model)
	}
	var page bytes.Buffer
	stdout := ctx.Stdout
	ctx.Stdout = &page
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = stdout
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, joinAlternatives(page.String(), node)); err != nil {
		return err
	}
	if len(node.Children) == 0 {
		fmt.Fprintf(ctx.Stdout, "\n%s\n", flags.ExitStatuses)
	}
	value := func(name string) (value string, has, lists bool) {
		for _, flag := range node.Flags {
			if flag.Name == name {
				value, _ = ctx.FlagValue(flag).(string)
				return value, true, !flag.Tag.Has("brief")
			}
		}
		return "", false, false
	}
	name, tasks, _ := value("task")
	mechanism, mechanisms, lists := value("mechanism")
	// If only one of task and mechanism is named, the catalogue of the other is left
	// out.
	if tasks && (name != "" || mechanism == "") {
		if err := describeTask(ctx.Stdout, name); err != nil {
			return err
		}
	}
	if mechanisms && (mechanism != "" || name == "" && lists) {
		return describeMechanism(ctx.Stdout, mechanism)
	}
	return nil
}

// joinAlternatives returns page with (--a=A | --b=B) for required flags of which exactly one is
// given; kong writes --a=A --b=B, as if both were needed.
func joinAlternatives(page string, node *kong.Node) string {
	groups := map[string][]string{}
	for _, flag := range node.Flags {
		if flag.Required && len(flag.Xor) > 0 {
			groups[flag.Xor[0]] = append(groups[flag.Xor[0]], flag.Summary())
		}
	}
	for _, flags := range groups {
		page = strings.Replace(page, strings.Join(flags, " "), "("+strings.Join(flags, " | ")+")", 1)
	}
	return page
}

// describeTask prints the settings of a task and its preset; without a name, the
// catalogue.
func describeTask(w io.Writer, name string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if name == "" {
		fmt.Fprintln(table, "\nTasks (--task NAME --help tells more):")
		for _, row := range task.Rows() {
			fmt.Fprintf(table, "  %s\t%s\n", row.Name, row.Doc)
		}
		return table.Flush()
	}
	row, err := task.Lookup(name)
	if err != nil {
		return env.MarkInput(err)
	}
	fmt.Fprintf(table, "\nTask %s: %s\n", row.Name, row.Doc)
	if len(row.DataSets) > 0 {
		fmt.Fprintf(table, "  data sets\t%s (farfield data)\n", strings.Join(row.DataSets, ", "))
	}
	var preset train.Preset
	if !row.IsText() {
		if preset, err = train.LookupPreset(row.Name); err != nil {
			return err
		}
		fmt.Fprintf(table, "  --preset %s\t%s\n", preset.Name, preset.Description)
	}
	for _, s := range row.Settings {
		value := "default " + s.Default
		switch {
		case s.Default != "":
		case s.Name == "data" && len(row.DataSets) == 0 && !row.IsText():
			value = "needed"
		default:
			value = "default empty"
		}
		if chosen, ok := preset.Config.TaskSet[s.Name]; ok {
			value += ", preset " + chosen
		}
		flag := "--task-set " + s.Name + "=VALUE"
		if s.Name == "data" {
			flag = "--data PATH"
		}
		fmt.Fprintf(table, "  %s\t%s (%s)\n", flag, s.Doc, value)
	}
	return table.Flush()
}

// joinedGroups are groups whose verbs share a line of the overview.
var joinedGroups = []string{"Measure", "Around"}

// joinVerbs returns the names of the verbs in a group.
func joinVerbs(app *kong.Application, group string) string {
	var names []string
	for _, verb := range app.Children {
		if !verb.Hidden && verb.Group.Title == group {
			names = append(names, verb.Name)
		}
	}
	return strings.Join(names, "  ")
}

// overview prints the verbs by purpose, and first commands: at most 23 lines of 80
// characters, which fit on a small terminal.
func overview(w io.Writer, app *kong.Application) error {
	var b strings.Builder
	fmt.Fprintf(&b, "farfield: %s\n", display.LowerFirst(app.Help))
	group := ""
	for _, verb := range app.Children {
		if verb.Hidden {
			continue
		}
		if slices.Contains(joinedGroups, verb.Group.Title) {
			if verb.Group.Title != group {
				group = verb.Group.Title
				fmt.Fprintf(&b, "%-8s  %s\n", group, joinVerbs(app, group))
			}
			continue
		}
		title := ""
		if verb.Group.Title != group {
			group = verb.Group.Title
			title = group
		}
		fmt.Fprintf(&b, "%-8s  %-10s  %s\n", title, verb.Name, strings.TrimSuffix(display.LowerFirst(verb.Help), "."))
	}
	for i, command := range FirstCommands {
		title := ""
		if i == 0 {
			title = "Begin"
		}
		fmt.Fprintf(&b, "%-8s  %s\n", title, command)
	}
	fmt.Fprintf(&b, "Help: farfield help VERB. With every verb: --threads N, --quiet. --version.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
