// Package train implements the verb train.
package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb train: a transformer learns a text, or another task. Flags that
// are not given leave what the preset or the configuration says.
type Command struct {
	Data    string            `placeholder:"FILE|FOLDER" help:"What to learn: the task's setting data. A text is a file, a folder with all in it, or a data set's name; by default the source of the Go toolchain, or a text that the program writes itself if there is none."`
	Task    string            `complete:"tasks" placeholder:"NAME" help:"What is learned: ${tasks}. Without --preset it begins with the preset of its name. bytelm, a text as bytes, by default; charlm has characters. With --help its settings are listed."`
	TaskSet map[string]string `complete:"task-settings" mapsep:"none" placeholder:"NAME=VALUE" help:"Setting of the task."`
	flags.DataFolder
	DataSeed *uint64 `placeholder:"N" help:"Of what a task makes or draws."`
	Out      string  `short:"o" placeholder:"DIR" help:"Folder of the run, in which report.html tells of it at the end. By default the first of run/001, run/002, ... that is free."`
	Resume   bool    `help:"Continue the run in --out after its latest checkpoint, or all that --seeds began."`
	Config   string  `placeholder:"FILE" help:"Begin with a configuration, such as the config.json of a run, which repeats it."`
	Preset   string  `complete:"presets" placeholder:"NAME" help:"Begin with a named configuration: ${presets}. By default that of the task, and of a text default, or small where there is no AVX2."`
	Seeds    string  `placeholder:"N|LIST" help:"Train so many times with seeds 1 to N, or with those of a list such as 1,5,9, each in a folder below --out, and tell mean and deviation."`

	Kind        string   `complete:"decoder,encoder,convolutional" placeholder:"KIND" help:"What the model is: decoder, encoder, convolutional. By default what the task needs, and encoder where it needs none."`
	Pool        string   `complete:"mean,cls,last" placeholder:"KIND" help:"What says something of a whole sample: mean of its positions, cls, a learned one in front, last. By default mean, of a decoder last."`
	Hidden      *int     `placeholder:"N" help:"Units of the MLP; 0 for four times the width."`
	HeadHidden  *int     `placeholder:"N" help:"Units with ReLU before the outputs; 0 for none."`
	Dropout     *float64 `placeholder:"R" help:"Share of elements that embeddings and blocks leave out in training, below 1."`
	Standardise *bool    `help:"Give the model the task's numbers less their mean, in deviations, of the samples to learn from."`
	LRAQuirk    *bool    `name:"lra-quirk" help:"Pad every sample to the task's full length with zeros and mask nothing: attention, whatever the mechanism, and the mean of positions see padding like all else, as in the kernel models of the Long Range Arena."`

	Mechanism string `complete:"mixers" placeholder:"NAME" help:"Attention function, or a mixer that takes its place with projections of its own; with --help its settings are listed. Fastmax trains with scale=1/sqrt(D), of odd order with bounded=true, taylorshift from tau=sqrt(D), unless set otherwise."`
	flags.Settings
	Layers       *int     `placeholder:"N" help:"Layers of attention and MLP."`
	Heads        *int     `placeholder:"N" help:"Query heads of a layer; they divide the width."`
	KVHeads      *int     `name:"kv-heads" placeholder:"N" help:"Key heads, shared by the query heads; they divide these."`
	Width        *int     `placeholder:"N" help:"Width of the model."`
	Conv         *int     `placeholder:"K" help:"Tokens of the short convolution before attention and MLP, which tells neighbours apart; 0 for none."`
	Activation   string   `complete:"gelu-tanh,gelu,relu,silu,swiglu,geglu" placeholder:"KIND" help:"MLP: gelu-tanh, gelu, relu, silu, swiglu, geglu (gelu-tanh)."`
	Norm         string   `complete:"layer,rms" placeholder:"KIND" help:"Norm: layer or rms (default layer)."`
	PostNorm     *bool    `help:"The norm after the sum, norm(x + f(x)), as in the first transformers."`
	Decay        string   `complete:"none,fixed,learned" placeholder:"KIND" help:"How keys of attention lose weight with time: none, fixed by RetNet's factor of each key head, or learned by a gate of each that begins there."`
	Context      *int     `placeholder:"N" help:"Tokens of a sequence."`
	Segment      *int     `placeholder:"N" help:"Take windows of a text through the model N tokens at a time, with the gradient of the whole: memory grows with N, and a little with each further N tokens. 0 for whole windows. Needs a mechanism with a state of fixed size."`
	FirstContext *int     `placeholder:"N" help:"Tokens of a sequence at first; they double until they are --context, and each length gets as many tokens to learn from. 0 for always --context."`
	FirstBatch   *int     `placeholder:"N" help:"Sequences of an update at first; they halve when sequences double, down to --batch."`
	Positions    string   `complete:"rope,learned,sinusoidal,none" placeholder:"KIND" help:"How tokens know where they are: rope, learned, sinusoidal, none."`
	Batch        *int     `placeholder:"N" help:"Samples of a pass."`
	Accumulate   *int     `placeholder:"K" help:"Passes of an update, which is that of a K times larger batch."`
	Steps        *int     `placeholder:"N" help:"Updates; with --resume, lengthen a finished run to N."`
	Optimizer    string   `complete:"adamw,adam,radam" placeholder:"NAME" help:"adamw, adam (without weight decay), radam."`
	Schedule     string   `complete:"cosine,linear,constant" placeholder:"NAME" help:"How the learning rate falls after the warm-up: cosine, linear, constant (not at all)."`
	LR           *float64 `name:"lr" placeholder:"X" help:"Highest learning rate; --min-lr becomes a tenth of it unless given."`
	MinLR        *float64 `name:"min-lr" placeholder:"X" help:"Learning rate at the end."`
	Warmup       *int     `placeholder:"N" help:"Updates until the highest learning rate."`

	AttentionDropout     *float64 `placeholder:"R" help:"Share of queries and keys that attention leaves out in training, below 1."`
	AttentionDropoutKind string   `complete:"1d,standard,quadratic" placeholder:"KIND" help:"What it leaves out: 1d whole tokens, standard channels, quadratic products of two channels. 1d by default."`

	WeightDecay  *float64 `placeholder:"X" help:"Weight decay of matrices."`
	Beta2        *float64 `name:"beta2" placeholder:"X" help:"Memory of the second moment."`
	Clip         *float64 `placeholder:"X" help:"Largest norm of a gradient; 0 for none."`
	Seed         *uint64  `placeholder:"N" help:"Of the first weights and of the order of the data."`
	EvalEvery    *int     `placeholder:"N" help:"Updates between two looks at the validation part; 0 for none but the last."`
	EvalSamples  *int     `placeholder:"N" help:"Samples of each look, of a text windows of the context; 0 for all."`
	FinalSamples *int     `placeholder:"N" help:"Samples that the run is judged by at the end; 0 for all."`
	Patience     *int     `placeholder:"N" help:"End after so many looks without a better score, with the best weights; 0 for never."`
	SaveEvery    *int     `placeholder:"N" help:"Updates between two checkpoints; 0 for none but the last."`

	Divide string `enum:"batch,sequence" default:"batch" help:"What ranks of mpirun divide (farfield built with -tags mpi): batch, the passes of an update, to the bits of one process; sequence, the tokens of each window, of mechanisms whose states are sums."`
	env.Ranked

	SampleTokens int  `placeholder:"N" default:"400" help:"Tokens of the text that is generated at the end, if a text was learned (${default})."`
	JSON         bool `name:"json" help:"Print the result as JSON."`
}

// Help are examples.
func (t *Command) Help() string {
	return "After Ctrl-C, --resume goes on from the latest checkpoint, to the bits of a run that was not interrupted." + flags.JoinExamples(
		"farfield train --data notes.txt --out run/notes",
		"farfield train --resume --out run/notes",
		"farfield train --resume --out run/notes --steps 900",
		"farfield train --task listops --mechanism softmax --seeds 3 --out run/listops",
		"farfield train --task file --data labelled.tsv --out run/labels",
		"farfield train --config run/notes/config.json --lr 1e-3 --out run/faster",
	)
}

// Run trains a model. It returns an error if flags or data are invalid, training
// diverges, or a file cannot be written.
func (t *Command) Run(e *env.Env) error {
	if _, err := t.JoinRanks(e); err != nil {
		return err
	}
	return e.RunUntilRanksEnd("train --resume with the run's --out continues after its last checkpoint", func() error { return t.run(e.SilenceRanks()) })
}

// trainPlan is what a training begins with, on all ranks.
type trainPlan struct {
	Config train.Config
	Out    string
	Seeds  []uint64 // nil: one run; none: those in Out
}

// plan reads configuration and folders.
func (t *Command) plan() (p trainPlan, err error) {
	if p.Seeds, err = t.seeds(); err != nil {
		return p, err
	}
	if p.Config, err = t.config(); err != nil {
		return p, err
	}
	if p.Out = t.Out; p.Out == "" {
		p.Out, err = freeRun("run")
	}
	return p, err
}

func (t *Command) run(e *env.Env) error {
	p, err := comm.CallOnRankZero(e.Ranks, t.plan)
	if err != nil {
		return err
	}
	named := t.Out != ""
	t.Out = p.Out
	var src task.Source
	err = e.RunInterruptibly(func() (err error) {
		src, err = p.Config.OpenTask()
		return env.MarkInput(err)
	})
	if err = comm.ShareError(e.Ranks, err); err != nil {
		return err
	}
	if text, ok := src.(*task.Text); ok {
		runs.KeepHeapTight(text)
	}
	if p.Seeds != nil {
		return t.trainSeeds(e, p.Config, src, p.Seeds)
	}
	var trainer *train.Trainer
	job := train.Job{Ranks: e.Ranks, Divide: t.Divide}
	if t.Resume {
		if err = t.lengthen(e, t.Out); err == nil {
			trainer, err = job.Resume(src, t.Out)
		}
	} else {
		trainer, err = job.New(p.Config, src, t.Out)
		for !named && e.Ranks == nil && isTaken(err) { // by another training in the meantime
			if t.Out, err = freeRun("run"); err == nil {
				trainer, err = job.New(p.Config, src, t.Out)
			}
		}
	}
	if err != nil {
		return env.MarkInput(err)
	}
	defer trainer.Close()
	r, err := t.one(e, trainer, t.Out)
	if err != nil {
		return err
	}
	if t.JSON {
		return display.PrintJSON(e.Stdout, r)
	}
	return r.Print(e)
}

// isTaken reports that a run has another owner, or is there already.
func isTaken(err error) bool {
	var held *lock.HeldError
	return errors.As(err, &held) || errors.Is(err, train.ErrRunExists)
}

// lengthen gives the finished runs in dirs the number of updates that is asked for.
func (t *Command) lengthen(e *env.Env, dirs ...string) error {
	var err error
	if t.Steps != nil && e.IsFirst() {
		err = train.LengthenRuns(*t.Steps, dirs...)
	}
	return comm.ShareError(e.Ranks, err)
}

// one trains to the end in the folder dir.
func (t *Command) one(e *env.Env, trainer *train.Trainer, dir string) (*runs.Report, error) {
	src := trainer.Source()
	if !t.JSON && !e.IsQuiet {
		describeRun(e, trainer, dir)
		if e.Ranks != nil {
			fmt.Fprintf(e.Stdout, "ranks       %d, which divide the %s\n", e.Ranks.Size(), t.Divide)
		}
	}
	c := trainer.Config()
	score, err := trainer.Train(e.Context, progress.NewTraining(e, trainer.StepsDone(), c.Steps).Observer())
	if errors.Is(err, context.Canceled) {
		return nil, env.Interruption{Err: err, Text: fmt.Sprintf("stopped after update %d of %d; farfield train --resume --out %s continues", trainer.StepsDone(), c.Steps, t.Out)}
	}
	if err != nil {
		return nil, err
	}
	if !e.IsFirst() {
		return &runs.Report{Score: score}, nil
	}
	if e.IsTerminal {
		if err := drawCurves(e.Notes(), dir); err != nil {
			return nil, err
		}
	}
	spec := src.Spec()
	r := &runs.Report{Run: dir, Task: spec.Name, Split: spec.JudgedSplit().String(), Steps: trainer.StepsDone(), Best: trainer.BestStep(), Score: score}
	if text, ok := src.(*task.Text); ok {
		if err = e.RunInterruptibly(func() error { return r.SetTable(text) }); err != nil {
			return nil, err
		}
		r.Sample, err = runs.SampleText(e.Context, trainer.Model(), text.Vocab, runs.LineBreakTokens(text.Vocab), t.SampleTokens, c.Seed)
	} else {
		err = e.RunInterruptibly(func() (err error) {
			r.Baselines, err = src.Baselines(0)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	r.Detail = trainer.Detail()
	if named, ok := src.(task.ClassNamer); ok && len(r.Confusion) > 0 {
		r.Classes = named.ClassNames()
	}
	r.Verdict = runs.JudgeScore(r.Score, r.ComparedBaselines())
	if err := runs.WriteResult(dir, r); err != nil {
		return nil, err
	}
	return r, runs.WriteReport(filepath.Join(dir, runs.ReportFile), dir, r.Sample)
}

// freeRun returns the first folder in dir, numbered from 001, that is not there.
func freeRun(dir string) (string, error) {
	for i := 1; ; i++ {
		path := filepath.Join(dir, fmt.Sprintf("%03d", i))
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
	}
}
