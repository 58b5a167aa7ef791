// Package maps implements the verb maps: drawings of attention matrices.
package maps

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// Command is the verb maps: it draws rows of attention matrices.
type Command struct {
	Mechanism []string `complete:"mechanisms" placeholder:"NAME" help:"Attention functions, side by side; with --model one, in place of the model's own. --help lists settings."`
	flags.Settings
	Causal bool `help:"With arrays: query i sees keys j ≤ i + (M-N)."`
	Row    int  `placeholder:"B" default:"0" help:"With arrays: batch row (${default})."`

	Model    []string `sep:"none" placeholder:"DIR" help:"Run, checkpoint or published model; may be repeated."`
	Text     string   `xor:"text" placeholder:"TEXT" help:"With --model: text that the model reads."`
	TextFile string   `xor:"text" placeholder:"FILE" help:"With --model: file with the text; - is standard input."`
	Sample   *int     `xor:"text" placeholder:"K" help:"With --model: test sample K, from 0."`
	Layers   string   `placeholder:"L,..." default:"all" help:"With --model: attention layers, from 0, as 0,2-5 (${default}); with --mechanism also those that get it."`
	flags.DataFolder

	Heads    string `placeholder:"H,..." default:"all" help:"Query heads, from 0, as 0,2-5 (${default})."`
	Rows     string `placeholder:"A:B" help:"Draw only queries A ≤ i < B (all)."`
	MaxCells int    `name:"most" placeholder:"N" default:"512" help:"Most cells of a side; larger maps are averaged (${default})."`

	OwnScales bool `help:"Use one colour scale for each map, not one for all."`

	Out  string `short:"o" placeholder:"FILE" help:"Drawing to write, as .png, .svg or .html."`
	NPZ  string `name:"npz" placeholder:"FILE" help:"Write weights [heads,queries,keys], .npz or .safetensors."`
	JSON bool   `name:"json" help:"Print statistics of each head as JSON."`

	In string `arg:"" optional:"" name:"in" help:"Without --model: q and k in .npz or .safetensors."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Draws queries as rows, the first at the top, and keys as columns. On sides of up to 64 cells tokens are labelled by their characters, " +
		"or by their numbers if the task has no characters; other positions are counted from 0. A position that the model puts in front is cls, or 0 in a count. Larger maps are averaged over square blocks. " +
		"For a task of images --sample draws the image beside the maps, in grey, under its number and class; patches follow row by row. " +
		"For a pair both parts are drawn. A sample comes from the split that judges the task.\n\n" +
		"Prints for each head means over its queries: entropy, −Σ p ln p of the shares p of absolute weight, in nats; distance, Σ p |j − i|, in tokens; diagonal, the share of the query's own position; column, the largest share of a key." + flags.JoinExamples(
		"farfield maps --mechanism fastmax,softmax --causal --out maps.png qkv.npz",
		`farfield maps --model run/001 --text "To be, or not to be" --layers 0 --out maps.svg`,
		"farfield maps --model run/001 --text-file notes.txt --rows 0:64 --json",
	)
}

// mapElements is the most elements that the maps of one call may have.
const mapElements = 1 << 27

// Map is the attention matrix of one head and its labels.
type Map struct {
	Source string `json:"from"` // the model or the mechanism
	Layer  string `json:"layer,omitempty"`
	Head   int    `json:"head"`
	inference.Locality

	weights tensor.Mat
	call    int          // maps of one call have the same number
	first   int          // query of the first row
	tokens  []string     // of models: one for each key; nil: positions
	picture *report.Heat // that the model sees; nil: none
}

func (m *Map) title() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s head %d", m.Source, m.Layer, m.Head))
}

// Run draws or prints attention matrices. It returns an error if flags, model or arrays
// are invalid or a file cannot be written.
func (c *Command) Run(e *env.Env) error {
	if err := c.check(); err != nil {
		return err
	}
	list := []Map{}
	err := e.RunInterruptibly(func() (err error) {
		if len(c.Model) > 0 {
			list, err = c.models(e, list)
		} else {
			list, err = c.arrays(list)
		}
		return env.MarkInput(err)
	})
	if err != nil {
		return err
	}
	if c.Out != "" && !slices.ContainsFunc(list, func(m Map) bool { return len(m.weights.Data) > 0 }) {
		return env.InputErrorf("--out: there are no heads, queries or keys to draw")
	}
	if err := c.write(list); err != nil {
		return err
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, list)
	}
	return printMaps(e.Stdout, list)
}

// check reports flags that do not go together, and files that cannot be written.
func (c *Command) check() error {
	switch {
	case len(c.Model) > 0 && (c.In != "" || c.Causal || c.Row != 0):
		return env.InputErrorf("--model: has its own input and mask; arrays, --causal and --row go without")
	case len(c.Model) > 0 && len(c.Mechanism) > 1:
		return env.InputErrorf("--mechanism: %s, but a layer of --model has one", strings.Join(c.Mechanism, ","))
	case len(c.Model) > 0 && c.Text == "" && c.TextFile == "" && c.Sample == nil:
		return env.InputErrorf("--model: needs --text, --text-file or --sample")
	case len(c.Model) == 0 && (c.Text != "" || c.TextFile != "" || c.Sample != nil || c.Layers != "all"):
		return env.InputErrorf("--text, --text-file, --sample, --layers: need --model")
	case len(c.Model) == 0 && (c.In == "" || len(c.Mechanism) == 0):
		return env.InputErrorf("needs --model with --text or --sample, or --mechanism with a file of arrays")
	case c.MaxCells < 1:
		return env.InputErrorf("--most: %d is less than 1", c.MaxCells)
	}
	if c.Out != "" && !slices.Contains([]string{".png", ".svg", ".html"}, filepath.Ext(c.Out)) {
		return env.InputErrorf("--out: the suffix of %s is %q, needs .png, .svg or .html", c.Out, filepath.Ext(c.Out))
	}
	read := []string{c.In, c.TextFile}
	for _, dir := range c.Model {
		read = append(read, runs.ModelFiles(dir)...)
	}
	if err := env.CheckOutput(c.Out, read...); err != nil {
		return env.InputErrorf("--out: %w", err)
	}
	if c.NPZ != "" {
		if _, err := problem.WriterFor(c.NPZ, read...); err != nil {
			return env.InputErrorf("--npz: %w", err)
		}
	}
	return nil
}

// exchange returns what --mechanism puts into the layers of models; nil: nothing.
func (c *Command) exchange() (*model.Exchange, error) {
	x := flags.Exchange{Settings: c.Settings}
	if len(c.Mechanism) > 0 {
		x.Mechanism = c.Mechanism[0]
		if c.Layers != "all" { // the layers that see all keys
			x.Layers = c.Layers
		}
	}
	return x.Request()
}

// chosen returns the numbers of a list below n; all of them for the word all.
func chosen(flag, list string, n int) ([]int, error) {
	var numbers []int
	if list == "all" {
		for i := range n {
			numbers = append(numbers, i)
		}
		return numbers, nil
	}
	given, err := flags.ParseNumbers(list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	for _, i := range given {
		if i >= n {
			return nil, fmt.Errorf("%s: \"%d\" is none of the %d, counted from 0", flag, i, n)
		}
	}
	return given, nil
}

// rows returns the queries to look at, of n.
func (c *Command) rows(n int) (from, to int, err error) {
	if c.Rows == "" {
		return 0, n, nil
	}
	a, b, _ := strings.Cut(c.Rows, ":")
	from, errA := strconv.Atoi(a)
	to, errB := strconv.Atoi(b)
	if errA != nil || errB != nil || from < 0 || from >= to || to > n {
		return 0, 0, fmt.Errorf("--rows: %s is no A:B with 0 ≤ A < B ≤ %d", c.Rows, n)
	}
	return from, to, nil
}

// addHeads appends the maps of the chosen heads of one call, of a sequence of n queries
// before the padding.
func (c *Command) addHeads(list []Map, m attention.Mechanism, call *attention.Call, row, n int, of Map) ([]Map, error) {
	heads, err := chosen("--heads", c.Heads, call.Q.H)
	if err != nil {
		return nil, err
	}
	from, to, err := c.rows(n)
	if err != nil {
		return nil, err
	}
	keys := call.K.N
	valid := keys - (call.Q.N - n)
	before := 0
	for i := range list {
		before += len(list[i].weights.Data)
	}
	if n := float64(len(heads)) * float64(to-from) * float64(keys); n+float64(before) > mapElements {
		return nil, fmt.Errorf("%s: %d heads of %d rows of %d keys are more than %d elements in all; --rows, --heads and --layers choose fewer", of.Source, len(heads), to-from, keys, mapElements)
	}
	if len(list) > 0 {
		of.call = list[len(list)-1].call + 1
	}
	for _, h := range heads {
		one := of
		one.Head, one.first = h, from
		one.weights = tensor.Mat{Data: make([]float32, (to-from)*keys), Rows: to - from, Cols: keys, Stride: keys}
		if err := m.Weights(one.weights, call, row, h, from, to); err != nil {
			return nil, fmt.Errorf("%s: %w", of.Source, err)
		}
		if valid < keys { // padding has no weight
			for i := range one.weights.Rows {
				copy(one.weights.Data[i*valid:], one.weights.Row(i)[:valid])
			}
			one.weights = tensor.Mat{Data: one.weights.Data[:(to-from)*valid], Rows: to - from, Cols: valid, Stride: valid}
		}
		if rows, first := attention.NonFinite(tensor.HeadsOf(one.weights.Data, 1, 1, one.weights.Rows, one.weights.Cols)); rows > 0 {
			return nil, fmt.Errorf("%s: %d of %d rows of weights are %w, the first is query %d", one.title(), rows, one.weights.Rows, attention.ErrNonFinite, from+first[2])
		}
		one.Locality = inference.Locate(one.weights, from+keys-call.Q.N)
		list = append(list, one)
	}
	return list, nil
}

// keysAlone is a file of q and k: keys stand for values, which maps do not need.
type keysAlone struct{ array.Source }

func (s keysAlone) Names() []string { return append(slices.Clone(s.Source.Names()), "v") }

func (s keysAlone) ReadArray(name string) (*array.Array, error) {
	if name == "v" {
		name = "k"
	}
	return s.Source.ReadArray(name)
}

func (s keysAlone) ReadHeader(name string) (array.DType, []int, error) {
	if name == "v" {
		name = "k"
	}
	return s.Source.ReadHeader(name)
}

// arrays appends the maps of a file for each mechanism.
func (c *Command) arrays(list []Map) ([]Map, error) {
	in, err := problem.OpenArrays(c.In)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var src array.Source = in
	if !slices.Contains(in.Names(), "v") {
		src = keysAlone{in}
	}
	unknown := in.Names() // to all mechanisms
	for i, name := range c.Mechanism {
		own, err := c.settingsOf(name)
		if err != nil {
			return nil, err
		}
		p, err := problem.ReadProblem(&problem.Request{Mechanism: name, Settings: own, Causal: c.Causal, Form: "auto", Path: c.In}, src)
		if err != nil {
			return nil, err
		}
		unknown = p.UnknownNames(unknown)
		if c.Row < 0 || c.Row >= p.Call.Q.B {
			return nil, fmt.Errorf("--row: %d is none of the %d, counted from 0", c.Row, p.Call.Q.B)
		}
		if slices.Contains(c.Mechanism[:i], name) {
			return nil, fmt.Errorf("--mechanism: %s is there twice", name)
		}
		if list, err = c.addHeads(list, p.Mechanism, &p.Call, c.Row, p.Call.Q.N, Map{Source: name}); err != nil {
			return nil, err
		}
	}
	return list, problem.CheckNames(unknown, problem.ArrayNames()...)
}

// settingsOf returns the settings of the named mechanism. It returns an error for a
// setting that no mechanism has.
func (c *Command) settingsOf(name string) (flags.Settings, error) {
	row, err := flags.LookupFunction(name)
	if err != nil {
		return flags.Settings{}, err
	}
	if len(c.Mechanism) == 1 {
		return c.Settings, nil
	}
	has := func(r mechanism.Row, key string) bool {
		return slices.ContainsFunc(r.Settings, func(s mechanism.Setting) bool { return s.Name == key })
	}
	own := flags.Settings{Set: map[string]string{}}
	// An order that no mechanism has is refused by each.
	if row.HasOrder() || !slices.ContainsFunc(c.Mechanism, func(other string) bool {
		r, err := mechanism.Lookup(other)
		return err == nil && r.HasOrder()
	}) {
		own.Order = c.Order
	}
	for key, value := range c.Set {
		if has(row, key) {
			own.Set[key] = value
			continue
		}
		if !slices.ContainsFunc(c.Mechanism, func(other string) bool {
			r, err := mechanism.Lookup(other)
			return err == nil && has(r, key)
		}) {
			return own, fmt.Errorf("--set: %s is a setting of none of %s", key, strings.Join(c.Mechanism, ", "))
		}
	}
	return own, nil
}
