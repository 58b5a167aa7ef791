package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/generate"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// trainCmd is the verb train: a transformer learns a text. Flags that are not
// given leave what the preset or the configuration says.
type trainCmd struct {
	Data   string `placeholder:"FILE|FOLDER" help:"Text to learn: a file, or a folder with all in it. By default the source of the Go toolchain, or a text that the program writes itself if there is none."`
	Out    string `placeholder:"DIR" help:"Folder of the run. By default the first of run/001, run/002, ... that is free."`
	Resume bool   `help:"Continue the run in --out after its latest checkpoint."`
	Config string `placeholder:"FILE" help:"Begin with a configuration, such as the config.json of a run, which repeats it."`
	Preset string `placeholder:"NAME" help:"Begin with a named configuration: default, small (where there is no AVX2), tiny, shakespeare-cpu (nanoGPT's)."`

	Mechanism string `placeholder:"NAME" help:"Attention function, or a mixer that takes its place with projections of its own; with --help its settings are listed. Fastmax trains with scale=1/sqrt(D), of odd order with bounded=true, taylorshift from tau=sqrt(D), unless set otherwise."`
	settings
	Layers       *int     `placeholder:"N" help:"Layers of attention and MLP."`
	Heads        *int     `placeholder:"N" help:"Query heads of a layer; they divide the width."`
	KVHeads      *int     `name:"kv-heads" placeholder:"N" help:"Key heads, shared by the query heads; they divide these."`
	Width        *int     `placeholder:"N" help:"Width of the model."`
	Conv         *int     `placeholder:"K" help:"Tokens of the short convolution before attention and MLP, which tells neighbours apart; 0 for none."`
	Activation   string   `placeholder:"KIND" help:"What the MLP does with its units: gelu-tanh, gelu (exact), relu. gelu-tanh by default."`
	PostNorm     *bool    `help:"The norm after the sum, norm(x + f(x)), as in the first transformers."`
	Decay        string   `placeholder:"KIND" help:"How keys of attention lose weight with time: none, fixed by RetNet's factor of each key head, or learned by a gate of each that begins there."`
	Context      *int     `placeholder:"N" help:"Tokens of a sequence."`
	FirstContext *int     `placeholder:"N" help:"Tokens of a sequence at first; they double until they are --context, and each length gets as many tokens to learn from. 0 for always --context."`
	FirstBatch   *int     `placeholder:"N" help:"Sequences of an update at first; they halve when sequences double, down to --batch."`
	Positions    string   `placeholder:"KIND" help:"How tokens know where they are: rope, learned, sinusoidal, none."`
	Vocab        string   `placeholder:"KIND" help:"What a token is: bytes or chars."`
	Batch        *int     `placeholder:"N" help:"Sequences of an update."`
	Steps        *int     `placeholder:"N" help:"Updates."`
	LR           *float64 `name:"lr" placeholder:"X" help:"Highest learning rate; --min-lr becomes a tenth of it unless given."`
	MinLR        *float64 `name:"min-lr" placeholder:"X" help:"Learning rate at the end."`
	Warmup       *int     `placeholder:"N" help:"Updates until the highest learning rate."`

	AttentionDropout     *float64 `placeholder:"R" help:"Share of queries and keys that attention leaves out in training, below 1."`
	AttentionDropoutKind string   `placeholder:"KIND" help:"What it leaves out: 1d whole tokens, standard channels, quadratic products of two channels. 1d by default."`

	WeightDecay *float64 `placeholder:"X" help:"Weight decay of matrices."`
	Beta2       *float64 `name:"beta2" placeholder:"X" help:"Memory of the second moment."`
	Clip        *float64 `placeholder:"X" help:"Largest norm of a gradient; 0 for none."`
	Seed        *uint64  `placeholder:"N" help:"Of the first weights and of the order of the data."`
	EvalEvery   *int     `placeholder:"N" help:"Updates between two looks at the validation part; 0 for none but the last."`
	ValidTokens *int     `placeholder:"N" help:"Tokens of the last validation; 0 for all."`
	SaveEvery   *int     `placeholder:"N" help:"Updates between two checkpoints; 0 for none but the last."`

	SampleTokens int  `placeholder:"N" default:"400" help:"Tokens of the text that is generated at the end (${default})."`
	JSON         bool `name:"json" help:"Print the result as JSON."`
}

// override sets dst and notes the flag's name if it is given.
func override[T any](given *[]string, name string, dst, flag *T) {
	if flag != nil {
		*given = append(*given, name)
		*dst = *flag
	}
}

// text is the value of a flag that is not given if it is empty.
func text(flag string) *string {
	if flag == "" {
		return nil
	}
	return &flag
}

// apply changes c by the flags and returns the names of those that are given.
func (t *trainCmd) apply(c *train.Config) (given []string) {
	m := &c.Model
	if t.Mechanism != "" {
		given = append(given, "--mechanism")
		c.SetMechanism(t.Mechanism)
	}
	override(&given, "--data", &c.Data, text(t.Data))
	override(&given, "--order", &m.Order, t.Order)
	if len(t.Set) > 0 {
		given = append(given, "--set")
		set := map[string]string{} // the preset keeps its own
		maps.Copy(set, m.Set)
		maps.Copy(set, t.Set)
		m.Set = set
	}
	override(&given, "--layers", &m.Layers, t.Layers)
	override(&given, "--heads", &m.Heads, t.Heads)
	override(&given, "--kv-heads", &m.KVHeads, t.KVHeads)
	override(&given, "--width", &m.Width, t.Width)
	override(&given, "--conv", &m.Conv, t.Conv)
	override(&given, "--activation", &m.Activation, text(t.Activation))
	override(&given, "--post-norm", &m.PostNorm, t.PostNorm)
	override(&given, "--decay", &m.Decay, text(t.Decay))
	override(&given, "--context", &m.Context, t.Context)
	override(&given, "--first-context", &c.FirstContext, t.FirstContext)
	override(&given, "--first-batch", &c.FirstBatch, t.FirstBatch)
	override(&given, "--attention-dropout", &m.AttentionDropout, t.AttentionDropout)
	override(&given, "--attention-dropout-kind", &m.AttentionDropoutKind, text(t.AttentionDropoutKind))
	override(&given, "--positions", &m.Positions, text(t.Positions))
	override(&given, "--vocab", &c.Vocab, text(t.Vocab))
	override(&given, "--batch", &c.Batch, t.Batch)
	override(&given, "--steps", &c.Steps, t.Steps)
	if t.LR != nil {
		c.MinRate = *t.LR / 10
	}
	override(&given, "--lr", &c.Rate, t.LR)
	override(&given, "--min-lr", &c.MinRate, t.MinLR)
	override(&given, "--warmup", &c.WarmUp, t.Warmup)
	override(&given, "--weight-decay", &c.Decay, t.WeightDecay)
	override(&given, "--beta2", &c.Beta2, t.Beta2)
	override(&given, "--clip", &c.Clip, t.Clip)
	override(&given, "--seed", &c.Seed, t.Seed)
	override(&given, "--eval-every", &c.EvalEvery, t.EvalEvery)
	override(&given, "--valid-tokens", &c.ValidTokens, t.ValidTokens)
	override(&given, "--save-every", &c.SaveEvery, t.SaveEvery)
	return given
}

func (t *trainCmd) Run(e *env) error {
	trainer, text, err := t.open(e)
	if err != nil {
		return err
	}
	defer trainer.Close()
	if !t.JSON {
		describeRun(e, trainer, text, t.Out)
	}
	c := trainer.Config()
	score, err := trainer.Train(e.ctx, newProgress(e, trainer.Done(), c.Steps).observer())
	if e.ctx.Err() != nil && errors.Is(err, e.ctx.Err()) {
		return interruption{err, fmt.Sprintf("stopped after update %d of %d; farfield train --resume --out %s continues", trainer.Done(), c.Steps, t.Out)}
	}
	if err != nil {
		return err
	}
	r := &trainReport{Run: t.Out, Steps: trainer.Done(), Score: score, Table: tableBits(text)}
	if r.Sample, err = sample(e.ctx, trainer.Model(), text.Vocab, t.SampleTokens, c.Seed); err != nil {
		return err
	}
	if t.JSON {
		return printJSON(e.stdout, r)
	}
	return r.print(e)
}

// open starts the run, or resumes it.
func (t *trainCmd) open(e *env) (*train.Trainer, *task.Text, error) {
	var c train.Config
	var err error
	if t.Resume {
		if t.Out == "" {
			return nil, nil, inputf("--resume: --out has to name the folder of the run")
		}
		if given := t.apply(&c); len(given) > 0 || t.Config != "" || t.Preset != "" {
			return nil, nil, inputf("--resume: the run is configured by %s; leave out %s",
				filepath.Join(t.Out, "config.json"), strings.Join(append(given, "--config and --preset"), ", "))
		}
		c, err = train.RunConfig(t.Out)
	} else {
		c, err = t.configure()
	}
	if err != nil {
		return nil, nil, input(err)
	}
	var text *task.Text
	err = e.interruptible(func() (err error) {
		text, err = c.Open()
		return input(err)
	})
	if err != nil {
		return nil, nil, err
	}
	var trainer *train.Trainer
	if t.Resume {
		trainer, err = train.Resume(text, t.Out)
	} else {
		if t.Out == "" {
			if t.Out, err = freeRun("run"); err != nil {
				return nil, nil, err
			}
		}
		trainer, err = train.New(c, text, t.Out)
	}
	return trainer, text, input(err)
}

// configure puts preset, file and flags together.
func (t *trainCmd) configure() (train.Config, error) {
	preset, err := train.LookupPreset(t.Preset)
	if err != nil {
		return train.Config{}, err
	}
	c := preset.Config
	if t.Config != "" {
		if c, err = train.ReadConfig(t.Config, c); err != nil {
			return c, err
		}
	}
	t.apply(&c)
	if t.SampleTokens < 0 {
		return c, fmt.Errorf("--sample-tokens: %d is negative", t.SampleTokens)
	}
	if c.Data != "" { // the run may be resumed from another folder
		c.Data, err = filepath.Abs(c.Data)
	}
	return c, err
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

// describeRun prints what is about to be trained.
func describeRun(e *env, t *train.Trainer, text *task.Text, dir string) {
	c := t.Config()
	m := c.Model
	from := ""
	if text.Corpus.Files > 1 || text.Corpus.Skipped > 0 {
		from = fmt.Sprintf("%d files, %d skipped as binary, ", text.Corpus.Files, text.Corpus.Skipped)
	}
	fmt.Fprintf(e.stdout, "data        %s: %s%d %s to learn from, %d to validate\n",
		text.Corpus.Name, from, len(text.Train), text.Vocab.Kind(), len(text.Valid))
	fmt.Fprintf(e.stdout, "model       %s, %d layers of width %d, %d heads, %s positions, %d parameters\n",
		describeAttention(m), m.Layers, m.Width, m.Heads, m.Positions, t.Model().Params().Size())
	grow := ""
	if c.FirstContext > 0 && c.FirstContext < m.Context {
		grow = fmt.Sprintf(", in sequences of %d at first", c.FirstContext)
	}
	fmt.Fprintf(e.stdout, "run         %s: updates %d to %d of %d×%d tokens%s\n", dir, t.Done()+1, c.Steps, c.Batch, m.Context, grow)
}

// describeAttention names the mechanism of a model with its settings, as flags.
func describeAttention(m model.Config) string {
	var b strings.Builder
	b.WriteString(m.Mechanism)
	if m.Order > 0 {
		fmt.Fprintf(&b, " --order %d", m.Order)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Set)) {
		fmt.Fprintf(&b, " --set %s=%s", key, m.Set[key])
	}
	if m.Decay != "" && m.Decay != model.NoDecay {
		fmt.Fprintf(&b, " --decay %s", m.Decay)
	}
	return b.String()
}

// tableBits returns the bits per byte of the validation part by the frequency of
// each token, given the one before, and given the two before.
func tableBits(text *task.Text) (bits [3]float64) {
	bits = task.NewNgram(text.Train, text.Vocab.Size()).Loss(text.Valid)
	for i := range bits {
		bits[i] *= float64(len(text.Valid)) / float64(text.Vocab.Bytes(text.Valid)) / math.Ln2
	}
	return bits
}

// trainReport is what a training came to.
type trainReport struct {
	Run   string `json:"run"`
	Steps int    `json:"steps"`
	train.Score
	Table  [3]float64 `json:"table_bits_per_byte"` // of order 0, 1 and 2
	Sample string     `json:"sample"`
}

func (r *trainReport) print(e *env) error {
	fmt.Fprintf(e.stdout, "validation  loss %.4f nats, %.4f bits per byte over %d bytes\n", r.Loss, r.Bits, r.Bytes)
	fmt.Fprintf(e.stdout, "table       %.4f bits per byte from counts of the two tokens before (order 2), %.4f of one, %.4f of none\n", r.Table[2], r.Table[1], r.Table[0])
	fmt.Fprintf(e.stdout, "more        farfield generate --model %s --prompt TEXT\n", r.Run)
	if r.Sample == "" {
		return nil
	}
	fmt.Fprintf(e.stdout, "sample\n\n")
	w := token.NewWriter(e.stdout)
	if _, err := w.Write([]byte(r.Sample)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(e.stdout)
	return err
}

// sampleTemperature is a little below 1, which makes short texts more coherent.
const sampleTemperature = 0.9

// sample returns a text of n tokens that begins a line, or as many as the model
// has positions for.
func sample(ctx context.Context, m *model.Model[float32], vocab *token.Vocabulary, n int, seed uint64) (string, error) {
	g, err := generate.New(m, generate.Sampling{Temperature: sampleTemperature, Seed: seed})
	if err != nil {
		return "", err
	}
	start := lineBreak(vocab)
	g.Append(start...)
	if c := m.Config(); c.Positions == model.Learned {
		n = min(n, c.Context-len(start))
	}
	var out []byte
	err = g.Generate(ctx, n, func(t int32) (err error) {
		out, err = vocab.Decode(out, t)
		return err
	})
	return string(out), err
}

// lineBreak returns the tokens of a line break, after which anything may begin,
// or the first token there is.
func lineBreak(vocab *token.Vocabulary) []int32 {
	tokens, err := vocab.Encode(nil, []byte("\n"))
	if err != nil {
		return []int32{0}
	}
	return tokens
}
