// Package train implements the verb train.
package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb train: it trains a transformer on a text or another task. Flags
// that are not set keep the values of the preset or configuration.
type Command struct {
	Data       string            `placeholder:"FILE|FOLDER" help:"Data of the task: a file, folder or data set."`
	Task       string            `complete:"tasks" placeholder:"NAME" help:"Task (bytelm): ${tasks}."`
	TaskSet    map[string]string `complete:"task-settings" mapsep:"none" placeholder:"NAME=VALUE" help:"Setting of the task; may be repeated."`
	Window     string            `placeholder:"N" help:"Rows of the table that a forecast sees (setting window)."`
	Target     string            `placeholder:"COLUMN" help:"Column that is forecast (setting target)."`
	Horizon    string            `placeholder:"N" help:"Rows that are forecast (setting horizon)."`
	Vocabulary string            `placeholder:"bpe=N" help:"Learn N tokens of byte-level BPE from the text."`
	flags.DataFolder
	DataSeed *uint64 `placeholder:"N" help:"Seed of generated and drawn samples."`
	Out      string  `short:"o" placeholder:"DIR" help:"Folder of the run (the first free run/001, run/002, ...)."`
	Resume   bool    `help:"Continue the run in --out, or all runs of --seeds."`
	Config   string  `placeholder:"FILE" help:"Start from a configuration, such as a run's config.json."`
	Init     string  `placeholder:"DIR" help:"Fine-tune a model: run, published folder, or name of a model."`
	Freeze   *bool   `negatable:"" help:"Keep the model of --init and fit a linear classifier on its vectors (default of small data)."`
	Adapters *int    `placeholder:"RANK" help:"Train low-rank adapters of --init (0: all weights)."`
	Preset   string  `complete:"presets" placeholder:"NAME" help:"Start from a preset: ${presets}."`
	Seeds    string  `placeholder:"N|LIST" help:"Train with seeds 1 to N, or a list such as 1,5,9."`

	Kind        string   `complete:"decoder,encoder,convolutional" placeholder:"KIND" help:"Model: decoder, encoder, convolutional (by the task)."`
	Pool        string   `complete:"mean,cls,last" placeholder:"KIND" help:"Pooling: mean, cls, last (mean; last for a decoder)."`
	Hidden      *int     `placeholder:"N" help:"Hidden units of the MLP; 0: four times the width."`
	HeadHidden  *int     `placeholder:"N" help:"Hidden ReLU units before the outputs; 0: none."`
	Tied        *bool    `negatable:"" help:"Head is the embedding; --no-tied: a matrix of its own."`
	Dropout     *float64 `placeholder:"R" help:"Dropout rate of embeddings and branches."`
	Standardise *bool    `help:"Standardise numbers by the training set."`
	LRAQuirk    *bool    `name:"lra-quirk" help:"Pad with zeros and mask nothing, as LRA's kernel models."`

	Mechanism string `complete:"mixers" placeholder:"NAME" help:"Attention, or a mixer in its place; --help lists settings."`
	flags.Settings
	Layers        *int     `placeholder:"N" help:"Layers of attention and MLP."`
	Heads         *int     `placeholder:"N" help:"Query heads of a layer; they divide the width."`
	KVHeads       *int     `name:"kv-heads" placeholder:"N" help:"Key heads, shared by the query heads; they divide these."`
	Width         *int     `placeholder:"N" help:"Width of the model."`
	Conv          *int     `placeholder:"K" help:"Tokens of the short convolution; 0: none."`
	Activation    string   `complete:"gelu-tanh,gelu,relu,silu,swiglu,geglu" placeholder:"KIND" help:"MLP: gelu-tanh, gelu, relu, silu, swiglu, geglu (gelu-tanh)."`
	Norm          string   `complete:"layer,rms" placeholder:"KIND" help:"Norm: layer or rms (default layer)."`
	PostNorm      *bool    `help:"Place the norm after the sum, norm(x + f(x))."`
	AttentionNorm *bool    `help:"Add to each head's output its RMSNorm."`
	FarEvery      *int     `placeholder:"K" help:"Give each K-th layer a far field, from the first; 1: all."`
	Decay         string   `complete:"none,fixed,learned" placeholder:"KIND" help:"Log-decay of keys: none, fixed (RetNet), learned (gates)."`
	Context       *int     `placeholder:"N" help:"Tokens of a sequence."`
	Segment       *int     `placeholder:"N" help:"Train windows in segments of N tokens; 0: whole windows."`
	FirstContext  *int     `placeholder:"N" help:"Initial tokens of a sequence, which double; 0: --context."`
	FirstBatch    *int     `placeholder:"N" help:"Initial sequences of an update, which halve to --batch."`
	Positions     string   `complete:"rope,learned,sinusoidal,none" placeholder:"KIND" help:"Position encoding: rope, learned, sinusoidal, none."`
	Batch         *int     `placeholder:"N" help:"Samples of a micro-batch."`
	Accumulate    *int     `placeholder:"K" help:"Gradient accumulation: micro-batches of an update."`
	Steps         *int     `placeholder:"N" help:"Updates; with --resume, extend a finished run to N."`
	Epochs        *int     `placeholder:"N" help:"Passes over the training samples, in place of --steps."`
	Optimizer     string   `complete:"adamw,adam,radam" placeholder:"NAME" help:"Optimizer: adamw, adam (without weight decay), radam."`
	Schedule      string   `complete:"cosine,linear,constant" placeholder:"NAME" help:"Learning-rate schedule: cosine, linear, constant."`
	LR            *float64 `name:"lr" placeholder:"X" help:"Peak learning rate; --min-lr defaults to a tenth of it."`
	MinLR         *float64 `name:"min-lr" placeholder:"X" help:"Final learning rate, not of --schedule constant."`
	Warmup        *int     `placeholder:"N" help:"Warm-up updates."`

	AttentionDropout     *float64 `placeholder:"R" help:"Dropout rate of queries and keys."`
	AttentionDropoutKind string   `complete:"1d,standard,quadratic" placeholder:"KIND" help:"Dropout kind: 1d, standard or quadratic (1d)."`

	WeightDecay  *float64 `placeholder:"X" help:"Weight decay of matrices."`
	Beta2        *float64 `name:"beta2" placeholder:"X" help:"Decay rate of the second moment."`
	Clip         *float64 `placeholder:"X" help:"Gradient clipping by norm; 0: none."`
	Seed         *uint64  `placeholder:"N" help:"Seed of initial weights and of the order of samples."`
	EvalEvery    *int     `placeholder:"N" help:"Validate every N updates; 0: only at the end."`
	EvalSamples  *int     `placeholder:"N" help:"Samples or windows of a validation; 0: all."`
	FinalSamples *int     `placeholder:"N" help:"Samples of the final score; 0: all."`
	Patience     *int     `placeholder:"N" help:"Early-stopping patience, in validations (0: off)."`
	SaveEvery    *int     `placeholder:"N" help:"Save a checkpoint every N updates; 0: only best and last."`

	Divide string `enum:"batch,sequence" default:"batch" help:"What ranks divide: batch or sequence."`
	env.Ranked

	SampleTokens int  `placeholder:"N" default:"400" help:"Tokens of the text generated at the end (${default})."`
	JSON         bool `name:"json" help:"Print the result as JSON."`

	droppedLength string   // of --config, by --vocabulary; "": none
	tuning        []string // flags that a frozen model does not read
}

// Help returns the long help text with examples.
func (t *Command) Help() string {
	return "Without --task it learns to continue the text of --data. --task file learns the labels of texts, from a CSV or TSV with columns text and label, from JSON lines, or from a folder for each class; " +
		"series, forecast, wav, picture and fasta learn from your tables, sounds, pictures and DNA. --task NAME --help lists the settings of a task, --mechanism NAME --help those of a mechanism. " +
		"At the end it says whether the model is better than a simple method. farfield predict and generate then use the run.\n\n" +
		"After Ctrl-C, --resume continues from the latest checkpoint, and the result has the same bits as without the interruption. If the data has moved, --data names its new place.\n\n" +
		"A text is a file (plain, gzip or zstd), a folder of files, or the name of a data set. By default it is the source of the Go toolchain, or an invented text if there is none. " +
		"Task bytelm, the default, reads it as bytes, charlm as characters. " +
		"--task pairs learns to write the target of a source, such as a summary, a translation or another form of a date, from the columns or keys source and target of a file; the loss is of the target alone. " +
		"The default preset is that of the task; for texts it is default, or small without AVX2. --seeds trains each seed in a folder below --out, and prints mean and deviation.\n\n" +
		"--init starts from the weights of a run, of a checkpoint, or of a folder in the Hugging Face layout, and reads texts with its tokenizer. " +
		"With a published encoder, up to 5000 labelled texts and no other flag of training, its weights stay as they are: each text is embedded once, and a linear head is fitted to the vectors in seconds (--freeze). " +
		"This head is a logistic regression; the validation part chooses the strength of its L2 penalty, and the final fit is on all but the test part. --freeze=false, or a flag of training, fine-tunes all weights. " +
		"Fine-tuning trains three epochs (--epochs), with a tenth of the updates as warm-up and a rate that falls to 0. --adapters trains two small matrices of rank RANK beside each matrix of the layers in place of the matrix itself (LoRA), at ten times the rate; each checkpoint holds their sum.\n\n" +
		"The default mechanism is fastmax: the nearest 64 keys are weighed as softmax does (window=64; in an encoder 63 keys on each side), the others by a polynomial of their score. Points without order have no window. " +
		"The polynomial has order 4; in an encoder, and in heads wider than 16, order 2. By default only one of three layers has this far field (--far-every 3, with --attention-norm). With --order N all layers have one, of order N; with --decay, --attention-dropout or --segment all have order 2. --set window=0 --set scale=1 is Fastmax as published. " +
		"In training, fastmax divides scores by sqrt(D), the root of the width of a head (scale=1/sqrt(D)); with an odd order, whose weights can be negative, it bounds them instead (bounded=true). With a window, orders 2 and 4 learn a temperature for each head, which starts at 1 (tau=1); that of taylorshift starts at sqrt(D). --set changes each of these. " +
		"--decay fixed gives each key head the decay of RetNet; --decay learned starts there and learns a gate. --pool cls puts a learned position in front of each sample and reads the class from it. " +
		"--attention-dropout-kind 1d drops whole tokens, standard drops channels, quadratic drops products of two channels.\n\n" +
		"--segment N computes the gradient of a whole window in segments of N tokens, so that memory grows with N and hardly with the window. It needs a mechanism whose state has a fixed size. " +
		"With --first-context, training starts with short sequences, which double until they have --context tokens; each length is trained with the same number of tokens. This is possible for windows of texts and needle, and for the samples of mqar, listops, listops6 and text. " +
		"--divide says what the processes of mpirun share (in a build with -tags mpi): batch divides the micro-batches, and the result has the bits of one process; sequence divides the tokens of each window, for mechanisms whose states are sums. " +
		"--lra-quirk lets attention and pooling see the padding, as the kernel models of the Long Range Arena do." + flags.JoinExamples(
		"farfield train --data notes.txt --out run/notes",
		"farfield train --resume --out run/notes",
		"farfield train --resume --out run/notes --steps 900",
		"farfield train --task listops --mechanism softmax --seeds 3 --out run/listops",
		"farfield train --task file --data labelled.tsv --out run/labels",
		"farfield train --task pairs --data pairs.jsonl --out run/pairs",
		"farfield train --task forecast --data power.csv --target load --window 48 --horizon 12 --out run/load",
		"farfield train --init all-MiniLM-L6-v2 --task file --data labelled.tsv --out run/linear",
		"farfield train --init all-MiniLM-L6-v2 --freeze=false --epochs 2 --task file --data labelled.tsv --out run/tuned",
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

// trainPlan holds the start of a training, equal on all ranks.
type trainPlan struct {
	Config train.Config
	Out    string
	Seeds  []uint64 // nil: one run; none: those in Out
	Note   string   // about the configuration; "": none
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
		if p.Out, err = freeRun("run"); err != nil {
			return p, err
		}
	}
	if !t.Resume {
		p.Note = cmp.Or(t.describeKept(&p.Config), t.describeTable(&p.Config))
		err = checkOutside(&p.Config, p.Out)
	}
	return p, err
}

// describeTable points to --task file if no task is asked for and a table or records are about to be
// read as a text; "" otherwise.
func (t *Command) describeTable(c *train.Config) string {
	row, err := task.Lookup(c.Task)
	if err != nil || !row.IsText() || t.Task != "" || t.Config != "" || t.Init != "" {
		return ""
	}
	if !slices.Contains([]string{".csv", ".tsv", ".jsonl"}, strings.ToLower(filepath.Ext(dataset.TrimSuffix(t.Data)))) {
		return ""
	}
	return t.Data + " is read as a text to continue; --task file learns its labels"
}

func (t *Command) run(e *env.Env) error {
	job := train.Job{Ranks: e.Ranks, Divide: train.Division(t.Divide)}
	p, err := comm.CallOnRankZero(e.Ranks, t.plan)
	if err == nil {
		p.Config, err = job.ShareConfig(p.Config)
	}
	if err != nil {
		return err
	}
	if p.Note != "" {
		fmt.Fprintln(e.Notes(), display.Escape(p.Note))
	}
	named := t.Out != ""
	t.Out = p.Out
	var src task.Source
	err = e.RunInterruptibly(func() (err error) {
		c := p.Config
		if t.Resume && t.Data != "" { // the data may have moved
			c.TaskSet = flags.MergeSettings(c.TaskSet, map[string]string{"data": t.Data})
		}
		if src, err = c.OpenTask(); err == nil && t.defaultsToFreeze(e, &c, src) {
			err = p.Config.FreezeHead()
		}
		if text, ok := src.(*task.Text); ok && err == nil {
			err = text.CheckNgram() // for the count tables of the result
		}
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
	if t.Resume {
		if err = t.lengthen(e, src, t.Out); err == nil {
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

// lengthen gives the finished runs of src in dirs the number of updates that is asked for
// with --resume.
func (t *Command) lengthen(e *env.Env, src task.Source, dirs ...string) error {
	var err error
	if t.Resume && t.Steps != nil && e.IsFirst() {
		err = train.LengthenRuns(src, *t.Steps, dirs...)
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
		return nil, env.Interruption{Err: err, Text: fmt.Sprintf("stopped after update %d of %d; %s continues", trainer.StepsDone(), c.Steps, t.resumeCommand(c.TaskSet["data"]))}
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
	r := &runs.Report{Head: trainer.HeadFit(), Run: dir, Task: spec.Name, Split: spec.JudgedSplit().String(), Steps: trainer.StepsDone(), Best: trainer.BestStep(), Score: score}
	if text, ok := src.(*task.Text); ok {
		if err = e.RunInterruptibly(func() error { return r.SetTable(text) }); err != nil {
			return nil, err
		}
		if t.SampleTokens > 0 && trainer.Model().Config().HasSessions() {
			r.Sample, err = inference.SampleText(e.Context, trainer.Model(), text.Vocab, inference.LineBreakTokens(text.Vocab), t.SampleTokens, c.Seed)
		}
	} else {
		var list []task.Baseline
		err = e.RunInterruptibly(func() (err error) {
			list, err = task.Baselines(src, 0)
			return err
		})
		switch {
		case err == nil:
			r.Baselines = list
		case e.Context.Err() == nil: // the score stays
			r.BaselinesError, err = env.JoinLines(err), nil
		}
		runs.FitAdvice(&c, r.Baselines)
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

// resumeCommand returns the command that continues the run, whose configuration names data.
func (t *Command) resumeCommand(data string) string {
	command := "farfield train --resume --out " + display.QuoteWord(t.Out)
	hasMoved := t.Resume && t.Data != ""
	if hasMoved {
		data = t.Data
	} else if !filepath.IsAbs(data) { // none, or the name of a data set
		return command
	}
	path, err := filepath.Abs(data)
	isFleeting := err != nil || path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/") // of this process
	switch {
	case isFleeting || infile.CheckStored(path) != nil: // a pipe is read once
		return command + " --data FILE"
	case hasMoved:
		return command + " --data " + display.QuoteWord(data)
	}
	return command
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
