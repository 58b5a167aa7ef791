// Farfield computes attention whose cost grows linearly with the context, and
// everything around it: it plans, checks, trains, generates and measures.
//
// Each verb is a package of internal/cli. The exit status is 0, 1 for what failed, 2 for bad
// input, 130 after an interrupt (Ctrl-C, SIGTERM, SIGHUP). Results go to standard
// output, all else to standard error.
package main

import (
	"os"

	"golang.org/x/term"

	"github.com/farfield-ml/farfield/internal/cli/attend"
	"github.com/farfield-ml/farfield/internal/cli/bench"
	"github.com/farfield-ml/farfield/internal/cli/compare"
	"github.com/farfield-ml/farfield/internal/cli/completion"
	"github.com/farfield-ml/farfield/internal/cli/data"
	"github.com/farfield-ml/farfield/internal/cli/demo"
	"github.com/farfield-ml/farfield/internal/cli/embed"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/eval"
	"github.com/farfield-ml/farfield/internal/cli/exchange"
	"github.com/farfield-ml/farfield/internal/cli/export"
	"github.com/farfield-ml/farfield/internal/cli/forward"
	"github.com/farfield-ml/farfield/internal/cli/generate"
	"github.com/farfield-ml/farfield/internal/cli/health"
	"github.com/farfield-ml/farfield/internal/cli/help"
	"github.com/farfield-ml/farfield/internal/cli/inspect"
	"github.com/farfield-ml/farfield/internal/cli/maps"
	"github.com/farfield-ml/farfield/internal/cli/models"
	"github.com/farfield-ml/farfield/internal/cli/plan"
	"github.com/farfield-ml/farfield/internal/cli/predict"
	"github.com/farfield-ml/farfield/internal/cli/program"
	"github.com/farfield-ml/farfield/internal/cli/report"
	"github.com/farfield-ml/farfield/internal/cli/score"
	"github.com/farfield-ml/farfield/internal/cli/search"
	"github.com/farfield-ml/farfield/internal/cli/serve"
	"github.com/farfield-ml/farfield/internal/cli/tokenize"
	"github.com/farfield-ml/farfield/internal/cli/train"
	"github.com/farfield-ml/farfield/internal/cli/version"
)

// verbTable lists the verbs by purpose. A verb is registered here.
type verbTable struct {
	program.Flags

	Attend  attend.Command  `cmd:"" group:"Compute" help:"Compute attention and its gradients, of arrays or streams."`
	Forward forward.Command `cmd:"" group:"Compute" help:"Compute all outputs of a published model, and gradients."`
	Plan    plan.Command    `cmd:"" group:"Compute" help:"Count operations and bytes of a shape, and predict times."`

	Train    train.Command    `cmd:"" group:"Models" help:"Train a model on texts, labels, tables, sounds, pictures."`
	Eval     eval.Command     `cmd:"" group:"Models" help:"Measure how well a model predicts a text or does its task."`
	Predict  predict.Command  `cmd:"" group:"Models" help:"Classify texts and other inputs with a trained model."`
	Generate generate.Command `cmd:"" group:"Models" help:"Continue a text with a model, or draw images."`
	Score    score.Command    `cmd:"" group:"Models" help:"Print the bits of each line; find surprising lines."`
	Embed    embed.Command    `cmd:"" group:"Models" help:"Print a vector for each text, for search and classifiers."`
	Search   search.Command   `cmd:"" group:"Models" help:"Find the texts that are closest in meaning to a query."`
	Serve    serve.Command    `cmd:"" group:"Models" help:"Answer HTTP requests with a model, and show a page for it."`
	Health   health.Command   `cmd:"" hidden:"" group:"Models" help:"Ask whether a server answers requests."`
	Exchange exchange.Command `cmd:"" group:"Models" help:"Put linear attention into a trained model."`
	Export   export.Command   `cmd:"" group:"Models" help:"Write a model for transformers."`

	Maps    maps.Command    `cmd:"" group:"Look" help:"Draw attention maps and print their statistics."`
	Report  report.Command  `cmd:"" group:"Look" help:"Write a page of a run: curves, configuration, a sample."`
	Compare compare.Command `cmd:"" group:"Look" help:"Compare runs: curves, means and deviations."`
	Inspect inspect.Command `cmd:"" group:"Look" help:"Describe a file, a folder or this machine."`

	Bench bench.Command `cmd:"" group:"Measure" help:"Time attention, decoding, training and matrix products."`
	Demo  demo.Command  `cmd:"" group:"Measure" help:"Show a trained model in linear time on this machine, in half a minute."`

	Data       data.Command               `cmd:"" group:"Around" help:"List, fetch, generate and verify data sets."`
	Models     models.Command             `cmd:"" group:"Around" help:"List and fetch trained models."`
	Tokenize   tokenize.Command           `cmd:"" group:"Around" help:"Print the token ids of each text."`
	Completion completion.Command         `cmd:"" group:"Around" help:"Print a completion script for bash, zsh or fish."`
	Complete   completion.CompleteCommand `cmd:"" hidden:""`
	Tell       version.Command            `cmd:"" name:"version" group:"Around" help:"Print version, commit, date, Go and instruction set."`
}

// farfield returns the program.
func farfield() *program.Program {
	return &program.Program{
		Name:        "farfield",
		Description: "Attention whose cost grows linearly with the context, on the CPU.",
		Verbs:       new(verbTable),
		Help:        help.PrintHelp,
		Variables:   help.Variables(),
	}
}

// release, commit and date are set by the linker of a release:
// -ldflags "-X main.release=v1.2.3 -X main.commit=… -X main.date=…".
var release, commit, date string

func main() {
	version.Release, version.Commit, version.Date = release, commit, date
	os.Exit(farfield().RunVerb(os.Args[1:], &env.Env{
		Context: program.CatchInterrupts(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		IsTerminal: os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stderr.Fd())),
	}))
}
