// Farfield-lab measures farfield and writes the pages of its results. It runs in the
// folder lab of a checkout.
//
// The exit status is 0, or 1 for what failed. Every verb has -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/program"
	"github.com/farfield-ml/farfield/internal/cli/version"

	"github.com/farfield-ml/farfield/lab/load"
	"github.com/farfield-ml/farfield/lab/peers"
	"github.com/farfield-ml/farfield/lab/pictures"
	"github.com/farfield-ml/farfield/lab/recipes"
)

// verb is a part of the laboratory.
type verb struct {
	name, help string
	run        func(ctx context.Context, args []string) error
}

// verbs lists the verbs in the order of the help text.
var verbs = []verb{
	{"peers", "Time PyTorch and ONNX Runtime beside farfield.", peers.Run},
	{"recipes", "Run the marked commands of README.md and docs, and compare what they print.", recipes.Run},
	{"pictures", "Draw the computed pictures of pages.", pictures.Run},
	{"load", "Drive a server with mixed traffic.", func(ctx context.Context, args []string) error {
		return load.Run(ctx, args, os.Stdout)
	}},
}

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "reproduce" || os.Args[1] == "verify") {
		os.Exit(laboratory().RunVerb(os.Args[1:], &env.Env{
			Context: program.CatchInterrupts(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			IsTerminal: os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stderr.Fd())),
		}))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runVerb(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "farfield-lab:", err)
		os.Exit(1)
	}
}

// commands are the verbs with the flags of farfield.
type commands struct {
	program.Flags

	Reproduce reproduceCmd `cmd:"" help:"Run published tables and figures."`
	Verify    verifyCmd    `cmd:"" help:"Compare a folder of golden files with this build."`
}

// laboratory returns the program of the verbs in commands.
func laboratory() *program.Program {
	return &program.Program{
		Name:        "farfield-lab",
		Description: "Measure farfield and write the pages of its results.",
		Verbs:       new(commands),
		Help:        kong.DefaultHelpPrinter,
		Variables:   kong.Vars{"version": version.FormatVersion()},
	}
}

// runVerb runs the verb that args begin with.
func runVerb(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		return printHelp(os.Stdout)
	}
	for _, v := range verbs {
		if v.name != args[0] {
			continue
		}
		if err := v.run(ctx, args[1:]); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		return nil
	}
	return fmt.Errorf("there is no verb %s (see farfield-lab help)", args[0])
}

// printHelp prints a line for each verb.
func printHelp(w io.Writer) error {
	list := append([]verb{
		{"reproduce", "Run published tables and figures.", nil},
		{"verify", "Compare a folder of golden files with this build.", nil},
	}, verbs...)
	for _, v := range list {
		if _, err := fmt.Fprintf(w, "%-9s  %s\n", v.name, v.help); err != nil {
			return err
		}
	}
	return nil
}
