// Farfield computes attention whose cost grows linearly with the context, and
// everything around it: it plans, checks, trains, generates and measures.
//
// Each verb is one file. The exit status is 0, 1 for what failed, 2 for bad
// input, 130 after an interrupt.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// cli is the table of verbs and the flags that all of them take.
type cli struct {
	Threads []int            `help:"Threads to compute with; 0 takes what the machine has. Results do not depend on it. Bench takes a list." default:"0" placeholder:"N"`
	Version kong.VersionFlag `help:"Print the version and leave."`

	Attend    attendCmd    `cmd:"" help:"Compute attention, and its gradients, on arrays from a file."`
	Plan      planCmd      `cmd:"" help:"Count operations and bytes, as published and here, and predict times."`
	Verify    verifyCmd    `cmd:"" help:"Hold a folder of golden files against this build."`
	Demo      demoCmd      `cmd:"" help:"Show the claims on this machine: forms agree, time is linear, a model learns."`
	Train     trainCmd     `cmd:"" help:"Train a transformer on a text, or on another task."`
	Eval      evalCmd      `cmd:"" help:"Tell how well a model predicts a text, or does its task."`
	Generate  generateCmd  `cmd:"" help:"Continue a text with a model."`
	Data      dataCmd      `cmd:"" help:"List, fetch, generate and verify data sets."`
	Bench     benchCmd     `cmd:"" help:"Time attention, decoding, training and matrix products beside the machine's peak."`
	Reproduce reproduceCmd `cmd:"" help:"Make published tables and figures again, beside the published numbers."`
	Calibrate calibrateCmd `cmd:"" help:"Fit fastmax-truncated to the queries and keys of a model, or of a file."`
	Score     scoreCmd     `cmd:"" help:"Bits that a text takes, line by line, also of a file that grows."`
	Embed     embedCmd     `cmd:"" help:"A vector for each text."`
	Maps      mapsCmd      `cmd:"" help:"Draw attention maps of a model on a text or a sample, or of arrays, and tell where their weights lie."`
	Report    reportCmd    `cmd:"" help:"Make a page of a run, finished or not: its curves, configuration and a sample."`
	Inspect   inspectCmd   `cmd:"" help:"Describe the machine, a model or a saved state."`
}

// env is what a verb may touch of the world around it.
type env struct {
	ctx            context.Context // ends on Ctrl-C and SIGTERM
	stdin          io.Reader
	stdout, stderr io.Writer
	tty            bool  // stderr is a terminal: progress may be drawn on it
	threads        []int // that were asked for, each once; the first are set

	ranks *comm.Comm // of the job that the process has joined; nil: it is alone
	waits bool       // for them, and does not end by itself
}

// interruptible calls f and returns what it returns, or the end of e.ctx if
// that comes first; f is then left alone until the program ends.
func (e *env) interruptible(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// Exit statuses.
const (
	statusFailure     = 1
	statusInput       = 2
	statusInterrupted = 130
)

// inputError is an error in what the user gave.
type inputError struct{ err error }

func (e inputError) Error() string { return e.err.Error() }
func (e inputError) Unwrap() error { return e.err }

// input marks err, which may be nil, as an error in what the user gave.
func input(err error) error {
	if err == nil {
		return nil
	}
	return inputError{err}
}

// inputf is input of a formatted error.
func inputf(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// interruption is the end of env.ctx, in words that say how to go on.
type interruption struct {
	err  error
	text string
}

func (i interruption) Error() string { return i.text }
func (i interruption) Unwrap() error { return i.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	status := run(os.Args[1:], &env{
		ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		tty: term.IsTerminal(int(os.Stderr.Fd())),
	})
	stop()
	os.Exit(status)
}

// run is the whole program; it returns the exit status.
func run(args []string, e *env) int {
	var c cli
	left := false
	parser, err := newParser(&c, e.stdout, e.stderr, func(int) { left = true })
	if err != nil {
		fmt.Fprintln(e.stderr, "farfield:", err)
		return statusFailure
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if left { // help or version was asked for and given
		return 0
	}
	if err != nil {
		verb := ""
		var bad *kong.ParseError
		if errors.As(err, &bad) && bad.Context.Selected() != nil {
			verb = bad.Context.Selected().Path() + " "
		}
		fmt.Fprintf(e.stderr, "farfield: %s (see farfield %s--help)\n", oneLine(err), verb)
		return statusInput
	}
	slices.Sort(c.Threads)
	e.threads = slices.Compact(c.Threads)
	if err := checkThreads(e.threads, strings.HasPrefix(parsed.Command(), "bench ")); err != nil {
		return fail(e, err)
	}
	par.SetThreads(e.threads[0])
	err = parsed.Run(e)
	defer e.leave(err)
	if err != nil {
		return fail(e, err)
	}
	return 0
}

// newParser returns what reads arguments into c. It writes the help and calls exit
// where help or the version is asked for.
func newParser(c *cli, stdout, stderr io.Writer, exit func(int)) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("farfield"),
		kong.Description("Attention whose cost grows linearly with the context, on the CPU."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.Help(help),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Vars{"version": version(), "tasks": names(task.Rows(), func(r task.Row) string { return r.Name }),
			"presets": names(train.Presets(), func(p train.Preset) string { return p.Name })},
	)
}

// names lists what a help text chooses from.
func names[T any](list []T, name func(T) string) string {
	var all []string
	for _, x := range list {
		all = append(all, name(x))
	}
	return strings.Join(all, ", ")
}

// checkThreads reports numbers of threads that there cannot be, or more than one
// where a verb takes no list of them.
func checkThreads(threads []int, list bool) error {
	if len(threads) > 1 && !list {
		return inputf("--threads: a list, %v, is for bench alone", threads)
	}
	for _, n := range threads {
		if n < 0 {
			return inputf("--threads: %d is negative", n)
		}
	}
	return nil
}

// fail prints err on one line, unless rank 0 does, and returns the status that it means.
func fail(e *env, err error) int {
	text, status := oneLine(err), statusFailure
	var bad inputError
	var known *comm.RankError
	var how interruption
	switch {
	case errors.As(err, &how):
		text, status = how.text, statusInterrupted
	case e.ctx.Err() != nil && errors.Is(err, e.ctx.Err()):
		text, status = "interrupted", statusInterrupted
	case errors.As(err, &bad):
		status = statusInput
	}
	if e.first() || !errors.As(err, &known) {
		fmt.Fprintln(e.stderr, "farfield:", text)
	}
	return status
}

// oneLine is the text of err without its line breaks.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// help prints the usual text and, for a verb that takes a mechanism, what the
// one that was named offers, or which there are.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || ctx.Selected() == nil {
		return err
	}
	for _, flag := range ctx.Selected().Flags {
		if flag.Name == "mechanism" {
			name, _ := ctx.FlagValue(flag).(string)
			return describeMechanism(ctx.Stdout, name)
		}
	}
	return nil
}

// describeMechanism prints what a mechanism offers; without a name, the
// catalogue.
func describeMechanism(w io.Writer, name string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if name == "" {
		fmt.Fprintln(table, "\nMechanisms (--mechanism NAME --help tells more):")
		for _, name := range mechanism.Names() {
			row, err := mechanism.Lookup(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(table, "  %s\t%s\n", name, row.Doc)
		}
		fmt.Fprintln(table, "\nMixers, which own their projections (farfield train --mechanism NAME):")
		for _, name := range nn.MixerNames() {
			row, _ := nn.LookupMixer(name)
			fmt.Fprintf(table, "  %s\t%s\n", name, row.Doc)
		}
		return table.Flush()
	}
	row, err := lookup(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(table, "\nMechanism %s: %s\n  source\t%s\n  traits\t%s\n", row.Name, row.Doc, row.Source, row.Traits)
	if row.Order > 0 {
		fmt.Fprintf(table, "  --order P\tdegree of the polynomial (default %d)\n", row.Order)
	}
	for _, s := range row.Settings {
		fmt.Fprintf(table, "  --set %s=VALUE\t%s (default %s)\n", s.Name, s.Doc, s.Default)
	}
	for _, p := range row.Params {
		fmt.Fprintf(table, "  parameter %s %s\t%s; its gradient is d_%s\n", p.Name, p.Shape, p.Doc, p.Name)
	}
	for _, p := range row.Constants {
		fmt.Fprintf(table, "  constant %s %s\t%s\n", p.Name, p.Shape, p.Doc)
	}
	return table.Flush()
}

// lookup returns the row of a mechanism or of a mixer that owns its projections.
func lookup(name string) (mechanism.Row, error) {
	if row, owns := nn.LookupMixer(name); owns {
		return row.Row, nil
	}
	return mechanism.Lookup(name)
}

// lookupFunction returns the row of a function of queries, keys and values.
func lookupFunction(name string) (mechanism.Row, error) {
	if err := nn.NotAFunction(name); err != nil {
		return mechanism.Row{}, err
	}
	return mechanism.Lookup(name)
}

// version is what the build recorded: a release, or a commit with its date.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "farfield (version not recorded)\n"
	}
	return "farfield " + info.Main.Version + " " + info.GoVersion + "\n"
}
