// Farfield-lab measures farfield and writes the pages of its results. It runs in the
// root of a checkout.
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

	"github.com/farfield-ml/farfield/internal/lab/attacks"
	"github.com/farfield-ml/farfield/internal/lab/coverage"
	"github.com/farfield-ml/farfield/internal/lab/mutations"
	"github.com/farfield-ml/farfield/internal/lab/peers"
	"github.com/farfield-ml/farfield/internal/lab/recipes"
	"github.com/farfield-ml/farfield/internal/lab/results"
)

// verb is a part of the laboratory.
type verb struct {
	name, help string
	run        func(ctx context.Context, args []string) error
}

// verbs lists the verbs in the order of the help text.
var verbs = []verb{
	{"results", "Run the missing reproductions and write RESULTS.md.", results.Run},
	{"peers", "Time PyTorch and ONNX Runtime beside farfield.", peers.Run},
	{"recipes", "Run the commands of README.md.", recipes.Run},
	{"coverage", "Print the share of statements that tests reach.", coverage.Run},
	{"mutations", "Inject faults and require the tests to catch them.", mutations.Run},
	{"attacks", "Attack the command with damaged files and kills.", func(ctx context.Context, args []string) error {
		return attacks.Run(ctx, args, os.Stdout)
	}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runVerb(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "farfield-lab:", err)
		os.Exit(1)
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
	for _, v := range verbs {
		if _, err := fmt.Fprintf(w, "%-9s  %s\n", v.name, v.help); err != nil {
			return err
		}
	}
	return nil
}
