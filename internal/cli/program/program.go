// Package program parses a command line, runs its verb and returns the exit status.
package program

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/par"
)

// decodeFinite decodes the number of a flag.
func decodeFinite(c *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := c.Scan.PopValueInto("number", &text); err != nil {
		return err
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%q is not a finite number", text)
	}
	target.SetFloat(x)
	return nil
}

// Program is a command line with verbs.
type Program struct {
	Name, Description string
	Verbs             Verbs
	Help              kong.HelpPrinter
	Variables         kong.Vars // of help texts
}

// Verbs is a table of verbs: a pointer to a struct whose fields are their commands.
type Verbs interface{ common() *Flags }

// Flags are the flags of every verb.
type Flags struct {
	Threads []int            `help:"Threads; 0: all of the machine. Bench takes a list." default:"0" placeholder:"N"`
	Quiet   bool             `short:"q" help:"Print only results and errors."`
	Version kong.VersionFlag `help:"Print version, commit, date, Go and instruction set."`
}

func (f *Flags) common() *Flags { return f }

// NewParser returns the parser of the command line args. The parser has the flags and arguments of
// the verbs that occur in args, and only name, group and help of the other verbs. If args is nil, it
// has the flags and arguments of all verbs. The parser calls leave when a command asks for help or the
// version. NewParser returns an error if the table of verbs is not a valid grammar.
func (p *Program) NewParser(args []string, stdout, stderr io.Writer, leave func()) (*kong.Kong, error) {
	options := []kong.Option{
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { leave() }),
		kong.KindMapper(reflect.Float64, kong.MapperFunc(decodeFinite)),
		kong.Help(p.Help),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		p.Variables,
	}
	if args != nil {
		options = append(options, p.abridgeOthers(args)...)
	}
	return kong.New(p.Verbs, options...)
}

// abridgeOthers returns the options by which a parser has only name, group and help of the verbs
// that do not occur in args. Most of the time of a parser is spent on the flags of verbs.
func (p *Program) abridgeOthers(args []string) (options []kong.Option) {
	table := reflect.TypeOf(p.Verbs).Elem()
	var names, others []string
	for i := range table.NumField() {
		field := table.Field(i)
		if _, isVerb := field.Tag.Lookup("cmd"); !isVerb {
			continue
		}
		name := field.Tag.Get("name")
		if name == "" {
			name = strings.ToLower(field.Name)
		}
		names = append(names, name)
		if slices.Contains(args, name) {
			continue
		}
		others = append(others, field.Name)
		var tags []string
		if _, isHidden := field.Tag.Lookup("hidden"); isHidden {
			tags = []string{"hidden"}
		}
		options = append(options, kong.DynamicCommand(name, field.Tag.Get("help"), field.Tag.Get("group"), new(struct{}), tags...))
	}
	if len(others) == 0 {
		return nil
	}
	return append(options,
		kong.IgnoreFields(`^`+table.Name()+`\.(`+strings.Join(others, "|")+`)$`),
		kong.PostBuild(func(k *kong.Kong) error {
			slices.SortFunc(k.Model.Children, func(a, b *kong.Node) int { return slices.Index(names, a.Name) - slices.Index(names, b.Name) })
			return nil
		}))
}

// RunVerb runs the verb that args name and returns the exit status. If results cannot be written,
// any verb fails.
func (p *Program) RunVerb(args []string, e *env.Env) int {
	out := newResults(e.Context, e.Stdout)
	e.Stdout = out
	status := p.executeVerb(args, e, out)
	if status == 0 && out.err != nil {
		return p.ReportError(e, lock.WrapWriteError("standard output", out.err))
	}
	return status
}

// executeVerb runs the verb that args name. out is e.stdout.
func (p *Program) executeVerb(args []string, e *env.Env, out *results) int {
	if len(args) == 0 {
		args = []string{"--help"}
	} else if args[0] == "help" { // help train is train --help
		args = append(slices.Clone(args[1:]), "--help")
	}
	left := false
	parser, err := p.NewParser(args, e.Stdout, e.Stderr, func() { left = true })
	if err != nil {
		fmt.Fprintln(e.Stderr, p.Name+":", err)
		return env.StatusFailure
	}
	parsed, err := parser.Parse(args)
	if left || out.err != nil { // help or version was asked for; run says if it was not given
		return 0
	}
	if err != nil {
		fmt.Fprintf(e.Stderr, "%s: %s\n", p.Name, p.explainParseError(err))
		return env.StatusInput
	}
	if err := checkPaths(parsed); err != nil {
		return p.ReportError(e, err)
	}
	c := p.Verbs.common()
	if c.Quiet {
		e.IsQuiet, e.IsTerminal = true, false
	}
	slices.Sort(c.Threads)
	e.Threads = slices.Compact(c.Threads)
	if err := cpu.CheckSelection(); err != nil {
		return p.ReportError(e, env.MarkInput(err))
	}
	if err := checkThreads(e.Threads, strings.HasPrefix(parsed.Command(), "bench ")); err != nil {
		return p.ReportError(e, err)
	}
	par.SetThreads(e.Threads[0])
	e.Stdout = display.NewScreen(e.Stdout)
	err = parsed.Run(e)
	if s, ok := e.Stdout.(*display.Screen); ok {
		err = errors.Join(err, s.Flush())
	}
	defer e.LeaveRanks(err)
	if err != nil {
		return p.ReportError(e, err)
	}
	return 0
}

// explainParseError is an error of the parser on one line, with where to read on.
func (p *Program) explainParseError(err error) string {
	text, verb := env.JoinLines(err), ""
	var bad *kong.ParseError
	if errors.As(err, &bad) {
		if node := bad.Context.Selected(); node != nil {
			verb = node.Path() + " "
		} else {
			text = strings.Replace(text, "unexpected argument ", "there is no verb ", 1)
		}
	}
	return fmt.Sprintf("%s (see %s %s--help)", text, p.Name, verb)
}

// checkPaths returns an error for the first flag of the command line whose file or folder is empty,
// as of an unset variable of a shell: the flag would count as not given.
func checkPaths(parsed *kong.Context) error {
	for _, p := range parsed.Path {
		if p.Flag == nil || !slices.ContainsFunc(strings.Split(p.Flag.PlaceHolder, "|"), isPathPlaceholder) {
			continue
		}
		text, ok := parsed.FlagValue(p.Flag).(string)
		list, _ := parsed.FlagValue(p.Flag).([]string)
		if ok && text == "" || slices.Contains(list, "") {
			return env.InputErrorf("--%s: is empty", p.Flag.Name)
		}
	}
	return nil
}

// isPathPlaceholder reports whether a placeholder stands for a file or folder.
func isPathPlaceholder(name string) bool {
	return slices.Contains([]string{"FILE", "DIR", "FOLDER", "PATH"}, name)
}

// checkThreads reports numbers of threads that there cannot be, or more than one
// where a verb takes no list of them.
func checkThreads(threads []int, list bool) error {
	if len(threads) > 1 && !list {
		return env.InputErrorf("--threads: a list, %v, is for bench alone", threads)
	}
	for _, n := range threads {
		if n < 0 {
			return env.InputErrorf("--threads: %d is negative", n)
		}
	}
	return nil
}

// ReportError prints err on one line and returns the exit status for it. It prints nothing if rank
// 0 prints the error.
func (p *Program) ReportError(e *env.Env, err error) int {
	err = fault.InFile(err)
	text, status := env.JoinLines(err), env.StatusFailure
	var bad env.InputError
	var known *comm.RankError
	var how env.Interruption
	var held *lock.HeldError
	var refused *lock.WriteError
	switch {
	case errors.As(err, &how):
		text, status = how.Text, env.StatusInterrupted
	case e.Context.Err() != nil && errors.Is(err, e.Context.Err()):
		text, status = "interrupted", env.StatusInterrupted
	case errors.Is(err, syscall.ENOSPC), errors.As(err, &refused), errors.Is(err, attention.ErrNonFinite): // whatever was being done
	case errors.As(err, &held), errors.As(err, &bad):
		status = env.StatusInput
	}
	if e.IsFirst() || !errors.As(err, &known) {
		fmt.Fprintln(e.Stderr, p.Name+":", display.Escape(text))
	}
	return status
}
