// Farfield computes attention whose cost grows linearly with the context, and
// everything around it: it plans, checks, trains, generates and measures.
//
// Each verb is one file. The exit status is 0, 1 for what failed, 2 for bad
// input, 130 after an interrupt (Ctrl-C, SIGTERM, SIGHUP). Results go to standard
// output, all else to standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// cli is the table of verbs, by what they are for, and the flags that all of them take.
type cli struct {
	Threads []int            `help:"Threads to compute with; 0 takes what the machine has. Results do not depend on it. Bench takes a list." default:"0" placeholder:"N"`
	Quiet   bool             `short:"q" help:"Print results and errors alone: no progress, no remarks."`
	Version kong.VersionFlag `help:"Print version, commit, date, Go and instruction set, and leave."`

	Attend    attendCmd    `cmd:"" group:"Compute" help:"Compute attention and its gradients, of arrays or streams."`
	Plan      planCmd      `cmd:"" group:"Compute" help:"Count operations and bytes of a shape, and predict times."`
	Calibrate calibrateCmd `cmd:"" group:"Compute" help:"Fit fastmax-truncated to the queries and keys of a model."`
	Verify    verifyCmd    `cmd:"" group:"Compute" help:"Hold a folder of golden files against this build."`

	Train    trainCmd    `cmd:"" group:"Learn" help:"Train a transformer on a text, or on another task."`
	Eval     evalCmd     `cmd:"" group:"Learn" help:"Tell how well a model predicts a text, or does its task."`
	Predict  predictCmd  `cmd:"" group:"Learn" help:"Say what a model of your labelled texts makes of others."`
	Generate generateCmd `cmd:"" group:"Learn" help:"Continue a text with a model, or draw images."`
	Score    scoreCmd    `cmd:"" group:"Learn" help:"Bits that a text takes, line by line; find its odd lines."`
	Embed    embedCmd    `cmd:"" group:"Learn" help:"A vector for each text."`

	Maps    mapsCmd    `cmd:"" group:"Look" help:"Draw attention maps, and tell where their weights lie."`
	Report  reportCmd  `cmd:"" group:"Look" help:"Make a page of a run: curves, configuration, a sample."`
	Compare compareCmd `cmd:"" group:"Look" help:"Lay runs over each other: curves, means and deviations."`
	Inspect inspectCmd `cmd:"" group:"Look" help:"Tell what a file or a folder is, or this machine."`

	Bench     benchCmd     `cmd:"" group:"Measure" help:"Time attention, decoding, training and matrix products."`
	Reproduce reproduceCmd `cmd:"" group:"Measure" help:"Make published tables and figures again."`
	Demo      demoCmd      `cmd:"" group:"Measure" help:"Show the claims on this machine, in a few minutes."`

	Data       dataCmd       `cmd:"" group:"Around" help:"List, fetch, generate and verify data sets."`
	Completion completionCmd `cmd:"" group:"Around" help:"Print what completes commands in bash, zsh or fish."`
	Complete   completeCmd   `cmd:"" hidden:""`
	Man        manCmd        `cmd:"" hidden:"" help:"Print the manual page, in troff."`
	Tell       versionCmd    `cmd:"" name:"version" hidden:"" help:"Print what --version prints."`
}

// env is what a verb may touch of the world around it.
type env struct {
	ctx            context.Context // ends on Ctrl-C, SIGTERM and SIGHUP
	stdin          io.Reader
	stdout, stderr io.Writer
	tty            bool  // stderr is a terminal: progress may be drawn on it
	brief          bool  // --quiet
	threads        []int // that were asked for, each once; the first are set

	ranks *comm.Comm // of the job that the process has joined; nil: it is alone
	waits bool       // for them, and does not end by itself
}

// notes is where progress and remarks go.
func (e *env) notes() io.Writer {
	if e.brief {
		return io.Discard
	}
	return e.stderr
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
	os.Exit(run(os.Args[1:], &env{
		ctx: interrupts(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		tty: os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stderr.Fd())),
	}))
}

// interrupts returns a context that ends on Ctrl-C, SIGTERM and SIGHUP. A second Ctrl-C
// or SIGTERM ends the program at once. A second SIGHUP does not: a terminal that closes
// and its shell may both send one. Under nohup there is none.
func interrupts() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		<-signals
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		cancel()
	}()
	return ctx
}

// parser is the command line of c. What asks for help or the version calls leave.
func (c *cli) parser(stdout, stderr io.Writer, leave func()) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("farfield"),
		kong.Description("Attention whose cost grows linearly with the context, on the CPU."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { leave() }),
		kong.KindMapper(reflect.Float64, kong.MapperFunc(finite)),
		kong.Help(help),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Vars{"version": version(), "tasks": names(task.Rows(), func(r task.Row) string { return r.Name }),
			"presets":     names(train.Presets(), func(p train.Preset) string { return p.Name }),
			"temperature": strconv.FormatFloat(sampleTemperature, 'g', -1, 64)},
	)
}

// finite decodes the number of a flag.
func finite(c *kong.DecodeContext, target reflect.Value) error {
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

// run is the whole program; it returns the exit status. Results that cannot be written
// are a failure, whatever became of the work.
func run(args []string, e *env) int {
	out := &results{w: e.stdout}
	e.stdout = out
	status := execute(args, e, out)
	if status == 0 && out.err != nil {
		return fail(e, lock.Unwritable("standard output", out.err))
	}
	return status
}

// results is standard output, which remembers its first error.
type results struct {
	w   io.Writer
	err error
}

func (r *results) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

// execute runs the verb that args name. out is e.stdout.
func execute(args []string, e *env, out *results) int {
	var c cli
	left := false
	parser, err := c.parser(e.stdout, e.stderr, func() { left = true })
	if err != nil {
		fmt.Fprintln(e.stderr, "farfield:", err)
		return statusFailure
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if left || out.err != nil { // help or version was asked for; run says if it was not given
		return 0
	}
	if err != nil {
		fmt.Fprintf(e.stderr, "farfield: %s\n", misread(err))
		return statusInput
	}
	if c.Quiet {
		e.brief, e.tty = true, false
	}
	slices.Sort(c.Threads)
	e.threads = slices.Compact(c.Threads)
	if err := checkThreads(e.threads, strings.HasPrefix(parsed.Command(), "bench ")); err != nil {
		return fail(e, err)
	}
	par.SetThreads(e.threads[0])
	e.stdout = onScreen(e.stdout)
	err = parsed.Run(e)
	if s, ok := e.stdout.(*screen); ok {
		err = errors.Join(err, s.Flush())
	}
	defer e.leave(err)
	if err != nil {
		return fail(e, err)
	}
	return 0
}

// misread is an error of the parser on one line, with where to read on.
func misread(err error) string {
	text, verb := oneLine(err), ""
	var bad *kong.ParseError
	if errors.As(err, &bad) {
		if node := bad.Context.Selected(); node != nil {
			verb = node.Path() + " "
		} else {
			text = strings.Replace(text, "unexpected argument ", "there is no verb ", 1)
		}
	}
	return fmt.Sprintf("%s (see farfield %s--help)", text, verb)
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
	var held *lock.HeldError
	var refused *lock.WriteError
	switch {
	case errors.As(err, &how):
		text, status = how.text, statusInterrupted
	case e.ctx.Err() != nil && errors.Is(err, e.ctx.Err()):
		text, status = "interrupted", statusInterrupted
	case errors.Is(err, syscall.ENOSPC), errors.As(err, &refused), errors.Is(err, attention.ErrNonFinite): // whatever was being done
	case errors.As(err, &held), errors.As(err, &bad):
		status = statusInput
	}
	if e.first() || !errors.As(err, &known) {
		fmt.Fprintln(e.stderr, "farfield:", escaped(text))
	}
	return status
}

// oneLine is the text of err without its line breaks, escaped.
func oneLine(err error) string {
	return escaped(strings.Join(strings.Fields(err.Error()), " "))
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
